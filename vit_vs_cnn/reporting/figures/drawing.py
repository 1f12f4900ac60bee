"""Helpers for figures without a display: axes, common plots, files, and fonts for any script."""

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter

from vit_vs_cnn.reporting.style import DPI
from vit_vs_cnn.statistics.intervals import Estimate

#: Formatters whose tick labels are names. Other formatters write numbers, possibly as formulas.
_NAME_FORMATTERS = (FixedFormatter, FuncFormatter, StrCategoryFormatter)
#: Fonts for other scripts, of Linux, macOS and Windows.
FALLBACK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei", "SimHei"),
    *("Noto Sans CJK KR", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo", "Hiragino Sans"),
    "Droid Sans Fallback",
    *("Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Telugu", "WenQuanYi Micro Hei"),
    *("Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Hebrew", "Nirmala UI", "Leelawadee UI"),
    *("Segoe UI Emoji", "Noto Emoji", "Arial Unicode MS", "Unifont"),
)


class Drawing(Figure):
    """Figure that does not depend on pyplot, and that a notebook shows as the result of a cell."""

    def savefig(self, *args: Any, **options: Any) -> None:
        set_fallback_fonts(self)
        with ignore_glyph_warnings():
            super().savefig(*args, **options)

    def _repr_png_(self) -> bytes:
        return render_figure(self, formats=["png"], dpi=100)["png"]


def make_axes(
    width: float, height: float, columns: int = 1, rows: int = 1, *, share: bool = False, has_axes: bool = True
) -> tuple[Drawing, list[Axes]]:
    """Create a figure with a size in inches, and return it with its panels, row by row.

    Arguments:
        share: whether all panels have the same scale.
        has_axes: draw the left and the lower axis; pictures have none.
    """
    figure = Drawing(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share).flat)
    for axis in axes:
        axis.tick_params(labelsize=8)
        axis.xaxis.label.set_fontsize(9)
        axis.yaxis.label.set_fontsize(9)
        axis.spines[["top", "right"] if has_axes else slice(None)].set_visible(False)
        if not has_axes:
            axis.set(xticks=[], yticks=[])
    return figure, axes


def wrap_text(text: str, letters: int = 24) -> str:
    return "\n".join(textwrap.wrap(text, letters, break_on_hyphens=False))


def make_panels(
    count: int, most: int, width: float, height: float, *, extra: float = 0.6, share: bool = False
) -> tuple[Drawing, list[Axes]]:
    """Create a figure with panels of a size in inches, at most ``most`` in a row; ``extra`` is additional height."""
    columns = min(most, count)
    rows = -(-count // columns)
    figure, axes = make_axes(width * columns + 0.6, height * rows + extra, columns, rows, share=share)
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes[:count]


def error_bars_in_percent(estimates: Sequence[Estimate]) -> tuple[np.ndarray, np.ndarray]:
    """Values in percent, and lengths of their error bars below and above."""
    values, low, high = (100 * np.array([getattr(e, end) for e in estimates]) for end in ("value", "low", "high"))
    return values, np.maximum([values - low, high - values], 0)


def render_figure(
    figure: Figure, name: str = "page", formats: Sequence[str] = ("svg",), *, dpi: int = DPI
) -> dict[str, bytes]:
    """Render a figure in some formats. The same figure and name give the same bytes.

    All formats have the layout of the first.
    """
    contents, layout = {}, figure.get_layout_engine()
    for suffix in formats:
        file, metadata = io.BytesIO(), {"Date": None} if suffix == "svg" else None
        set_fallback_fonts(figure)
        with ignore_glyph_warnings(), mpl.rc_context({"svg.hashsalt": name}):
            Figure.savefig(figure, file, format=suffix, dpi=dpi, metadata=metadata, facecolor="white")
        contents[suffix] = file.getvalue()
        figure.set_layout_engine(None)  # the layout takes longer than the drawing
    figure.set_layout_engine(layout)
    return contents


def set_fallback_fonts(figure: Figure) -> None:
    """Set fonts with all characters of a figure's texts, and do not parse names as formulas.

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
    if any(not text.get_text().isascii() for text in texts):
        families = ["sans-serif", *_installed_fallbacks()]
        for axis in axes:  # tick labels are recreated each time the figure is drawn
            axis.set_tick_params(which="both", labelfontfamily=families)
        for text in texts:
            text.set_fontfamily(families)


@contextmanager
def ignore_glyph_warnings() -> Iterator[None]:
    """Context that ignores warnings about missing characters and about scripts that matplotlib does not support."""
    with warnings.catch_warnings():
        for message in ("Glyph .* missing from", "Matplotlib currently does not support"):
            warnings.filterwarnings("ignore", message)
        yield


@cache
def _installed_fallbacks() -> list[str]:
    """Installed font families for scripts that the default font does not have, the most common ones first."""
    installed = {font.name for font in fontManager.ttflist}
    return [name for name in FALLBACK_FONTS if name in installed]
