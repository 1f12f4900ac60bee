"""Names in any script in figures: drawn by a font that has their signs, and where there is none as their numbers."""

import unicodedata
from functools import lru_cache
from itertools import groupby

from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter

#: The font that draws what no other has: boxes, which tell nothing.
LAST_RESORT = ("Last Resort", "LastResort")
#: What puts words to ticks; other formatters write numbers.
NAMING = (FixedFormatter, FuncFormatter, StrCategoryFormatter)
#: Signs of no look of their own, which fonts may lack: joiners and selectors of variants.
UNSEEN = ("Cf", "Zl", "Zp")
VARIANTS = range(0xFE00, 0xFE10)


def make_readable(figure: Figure) -> None:
    """Give every text of a figure fonts that have its signs, and take none for maths; signs that no font has become
    their code points.

    ``猫`` becomes ``[732B]`` where no font has it: two names stay two, and matplotlib has nothing to warn of.
    """
    numbers: set[Text] = set()
    for axis in figure.findobj(Axis):
        _make_ticks_readable(axis)
        if not isinstance(axis.get_major_formatter(), NAMING):
            numbers |= {*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)}
    for text in figure.findobj(Text):
        if text not in numbers:  # powers of ten are formulas
            text.set_parse_math(False)  # a class may be called $5$
        if not text.get_text().isascii():
            words, families = readable(text.get_text(), text.get_fontfamily())
            text.set(text=words, fontfamily=families)


def _make_ticks_readable(axis: Axis) -> None:
    """Labels of ticks are made anew by each drawing: it is what makes them that has to change."""
    if not isinstance(axis.get_major_formatter(), NAMING):
        return
    labels = [(label.get_text(), label.get_fontfamily()) for label in axis.get_ticklabels()]
    told = [readable(*label) for label in labels]
    if told == labels:
        return
    axis.set_ticks(axis.get_ticklocs(), labels=[words for words, _ in told])
    for label, (_, families) in zip(axis.get_ticklabels(), told, strict=True):
        label.set_fontfamily(families)


def readable(words: str, families: list[str]) -> tuple[str, list[str]]:
    """The words as they can be drawn, and the fonts to do it with: the given ones first."""
    own = findfont(FontProperties(family=families))
    found, parts = list(families), []
    seen = (sign for sign in words if unicodedata.category(sign) not in UNSEEN and ord(sign) not in VARIANTS)
    for drawn, run in groupby(seen, key=lambda sign: sign in "\n\t" or _family_of(sign, own) is not None):
        signs = list(run)
        parts.append("".join(signs) if drawn else f"[{' '.join(f'{ord(sign):04X}' for sign in signs)}]")
    for sign in "".join(parts):
        family = None if sign in "\n\t" else _family_of(sign, own)
        if family and family not in found:
            found.append(family)
    return "".join(parts), found


@lru_cache(maxsize=4096)
def _family_of(sign: str, own: str) -> str | None:
    """The family of a font that has a sign, "" for the font ``own``; None if there is none."""
    if ord(sign) in _signs(own):
        return ""
    return next((name for name, path in _others() if ord(sign) in _signs(path)), None)


@lru_cache(maxsize=1)
def _others() -> list[tuple[str, str]]:
    """Name and file of every plain font there is."""
    plain = (font for font in fontManager.ttflist if font.style == "normal" and font.weight in (400, "normal"))
    return sorted((font.name, font.fname) for font in plain if not font.name.startswith(LAST_RESORT))


@lru_cache(maxsize=512)
def _signs(path: str) -> frozenset[int]:
    """The signs that a font can draw at any size; none for one of coloured pixels, or that cannot be read."""
    try:
        font = FT2Font(path)
        return frozenset(font.get_charmap()) if font.scalable else frozenset()
    except (OSError, RuntimeError):
        return frozenset()
