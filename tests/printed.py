"""Compare printed text with the text in a document: words exactly, numbers within a tolerance."""

import re

#: A separate number, not part of a name (`resnet8`) or a version (`2.9.1`).
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+|\.(?=[\],]))?(?:e[-+]?\d+)?(?!\w|\.\d)")


def numbers_agree(shown: str, printed: str, *, relative: float = 1e-3, absolute: float = 1e-6) -> bool:
    """Compare two numbers given as text: integers exactly, decimals to one unit of the last digit that both have."""
    if not re.search(r"[.e]", shown + printed):
        return shown == printed
    first, second = (float(text.replace(",", "")) for text in (shown, printed))
    shared_digits = min(len(text.partition("e")[0].partition(".")[2]) for text in (shown, printed))
    last_digit = 10.0**-shared_digits if shared_digits and "e" not in shown + printed else 0.0
    return abs(first - second) <= max(absolute, relative * abs(first), 1.001 * last_digit)


def find_difference(shown: str, printed: str, **tolerance: float) -> str | None:
    """Describe the first difference between two texts, or return None. Runs of white space count as one space."""
    if (expected := NUMBER.sub("#", shown).split()) != (actual := NUMBER.sub("#", printed).split()):
        place = next(
            (i for i, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b),
            min(len(expected), len(actual)),
        )
        return f"expected {' '.join(expected[place : place + 8])!r}, printed {' '.join(actual[place : place + 8])!r}"
    for first, second in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        if not numbers_agree(first, second, **tolerance):
            return f"expected {first}, printed {second}"
    return None
