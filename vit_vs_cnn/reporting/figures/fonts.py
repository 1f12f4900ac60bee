"""Names in any script in figures: drawn with installed fonts that have their characters."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter

#: Formatters of ticks that are names; other formatters write numbers, as formulas.
_NAME_FORMATTERS = (FixedFormatter, FuncFormatter, StrCategoryFormatter)
#: Fonts that draw a box for every character.
_LAST_RESORT = ("Last Resort", "LastResort")


def make_readable(figure: Figure) -> None:
    """Let every text of a figure use installed fonts that have its characters, and read no name as a formula.

    A character that no font has is drawn as a box.
    """
    axes = figure.findobj(Axis)
    numbers: set[Text] = set()
    for axis in axes:
        labels = [*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)]
        numbers |= {*labels} if not isinstance(axis.get_major_formatter(), _NAME_FORMATTERS) else set()
    texts = figure.findobj(Text)
    for text in texts:
        text.set_parse_math(text in numbers)
    characters = frozenset(ord(sign) for text in texts for sign in text.get_text() if sign > "\x7f")
    if fallbacks := _fallback_fonts(characters):
        for axis in axes:  # labels of ticks are made anew by each drawing
            axis.set_tick_params(which="both", labelfontfamily=["sans-serif", *fallbacks])
        for text in texts:
            text.set_fontfamily([*dict.fromkeys([*text.get_fontfamily(), *fallbacks])])


@contextmanager
def boxes_without_warning() -> Iterator[None]:
    """A block in which characters that no font has, and scripts that matplotlib cannot shape, are no warnings."""
    with warnings.catch_warnings():
        for message in ("Glyph .* missing from", "Matplotlib currently does not support"):
            warnings.filterwarnings("ignore", message)
        yield


@lru_cache(maxsize=256)
def _fallback_fonts(characters: frozenset[int]) -> tuple[str, ...]:
    """Families of installed fonts with the characters that the default font lacks."""
    results, missing = [], characters - _characters_of(findfont(FontProperties()))
    plain = (font for font in fontManager.ttflist if font.style == "normal" and font.weight in (400, "normal"))
    for name, path in sorted((font.name, font.fname) for font in plain if not font.name.startswith(_LAST_RESORT)):
        if known := missing and missing & _characters_of(path):
            results.append(name)
            missing -= known
    return tuple(results)


@lru_cache(maxsize=512)
def _characters_of(path: str) -> frozenset[int]:
    """The characters that a font draws at any size; none for one that cannot be read."""
    try:
        font = FT2Font(path)
        return frozenset(font.get_charmap()) if font.scalable else frozenset()
    except (OSError, RuntimeError):
        return frozenset()
