"""Figures without a display: how they begin, how they are saved, and how a notebook shows one."""

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator, MaxNLocator

from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.reporting.figures.fonts import boxes_without_warning, make_readable
from vit_vs_cnn.reporting.style import DPI, Look, Looks
from vit_vs_cnn.statistics.intervals import Estimate

#: Of each contender, from 0 to 1.
Shares = Mapping[str, Sequence[float]]


class PercentLocator(AutoLocator):
    """Ticks of shares in per cent, on an axis that ends at 0 and 100, with room for a mark."""

    def view_limits(self, dmin: float, dmax: float) -> tuple[float, float]:
        low, high = super().view_limits(dmin, dmax)
        if high - low < 2:  # points, where all values are one
            low, high = low - 1, high + 1
        room = 0.03 * (min(high, 100) - max(low, 0))
        return max(low, -room), min(high, 100 + room)


class Drawing(Figure):
    """A figure outside of pyplot that draws itself where it is the result of a notebook's cell, with no backend set."""

    def savefig(self, *args: Any, **options: Any) -> None:
        make_readable(self)
        with boxes_without_warning():
            super().savefig(*args, **options)

    def _repr_png_(self) -> bytes:
        return picture_of(self, "png", dpi=100)


def plain_axes(
    width: float, height: float, columns: int = 1, rows: int = 1, *, share: bool = False, ruled: bool = True
) -> tuple[Drawing, list[Axes]]:
    """A figure of that size in inches with panels row by row, ruled at the left and below, or for pictures not at all;
    ``share`` for all to have one scale.
    """
    figure = Drawing(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share).flat)
    for axis in axes:
        axis.tick_params(labelsize=8)
        axis.xaxis.label.set_fontsize(9)
        axis.yaxis.label.set_fontsize(9)
        axis.spines[["top", "right"] if ruled else slice(None)].set_visible(False)
        if not ruled:
            axis.set(xticks=[], yticks=[])
    return figure, axes


def wrapped(text: str, letters: int = 24) -> str:
    """In lines of so many letters: as many as fit over a picture of a card."""
    return "\n".join(textwrap.wrap(text, letters, break_on_hyphens=False))


def panels(
    count: int, most: int, width: float, height: float, *, extra: float = 0.6, share: bool = False
) -> tuple[Drawing, list[Axes]]:
    """So many panels of that size, at most so many abreast, with some room besides."""
    columns = min(most, count)
    rows = -(-count // columns)
    figure, axes = plain_axes(width * columns + 0.6, height * rows + extra, columns, rows, share=share)
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes[:count]


def plot_distances(axis: Axes, heads: Sequence[Sequence[float]], look: Look, label: str) -> None:
    """How far every head of every layer looks, and the mean of a layer's; the first layer is 1."""
    for layer, distances in enumerate(heads, start=1):
        axis.plot([layer] * len(distances), distances, ls="none", alpha=0.45, ms=4, **look.line)
    axis.plot(range(1, len(heads) + 1), [fmean(distances) for distances in heads], color=look.colour, label=label)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="layer", ylabel="mean attention distance in pixels")


def plot_shares(
    axis: Axes, across: Sequence[float] | Sequence[int], shares: Shares, looks: Looks, **options: Any
) -> None:
    """A line in per cent for each contender."""
    axis.yaxis.set_major_locator(PercentLocator())
    for name, values in shares.items():
        style: dict[str, Any] = {"ms": 4, **looks[name].line, **options}
        axis.plot(across, [100 * value for value in values], label=name, **style)


def in_colours(image: Any) -> UInt8[np.ndarray, "rows cols 3"]:
    """The first three channels of a tensor (channels, rows, cols) of bytes; where it has fewer the first, in grey."""
    colours = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    return colours.permute(1, 2, 0).contiguous().numpy()


def in_percent(estimates: Sequence[Estimate]) -> tuple[np.ndarray, np.ndarray]:
    """The values, and how far their intervals reach below and above: as error bars take them."""
    values, low, high = (100 * np.array([getattr(e, end) for e in estimates]) for end in ("value", "low", "high"))
    return values, np.maximum([values - low, high - values], 0)


def plot_rows(
    axis: Axes,
    rows: Sequence[tuple[str, Look, Estimate, Sequence[float]]],
    mark: Mapping[str, Any],
    **options: Any,
) -> None:
    """A row for each name: its accuracy with an interval and, below it, those of single seeds where there are several.

    Arguments:
        mark: how a single seed is drawn.
        options: of the error bars.
    """
    axis.xaxis.set_major_locator(PercentLocator())
    for row, (_, look, estimate, by_seed) in enumerate(rows):
        value, error = in_percent([estimate])
        axis.errorbar(value, row, xerr=error, ls="none", **look.line, **options)
        if len(by_seed) > 1:
            axis.plot([100 * a for a in by_seed], [row + 0.2] * len(by_seed), ls="none", color=look.colour, **mark)
    axis.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)


def picture_of(figure: Figure, kind: str = "svg", *, dpi: int = DPI) -> bytes:
    """The bytes of a figure as a file; the same figure gives the same ones."""
    with _laid_out(figure):
        return _bytes(figure, kind, "page", dpi)


def save_figure(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write ``name.png`` and ``name.svg`` into a folder, which is made; the same figure gives the same bytes."""
    paths = [folder / f"{name}.{suffix}" for suffix in formats]
    with _laid_out(figure):
        for path, suffix in zip(paths, formats, strict=True):
            with atomic_write(path, contested=True) as partial:
                partial.write_bytes(_bytes(figure, suffix, name, DPI))
    return paths


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """Places are found once, without drawing: matplotlib would find them anew for each file."""
    make_readable(figure)
    engine = figure.get_layout_engine()
    with boxes_without_warning():
        if engine is not None:
            engine.execute(figure)
        with mpl.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
            figure.set_layout_engine(None)
        try:
            yield
        finally:
            figure.set_layout_engine(engine)


def _bytes(figure: Figure, kind: str, name: str, dpi: int) -> bytes:
    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=dpi, metadata=metadata, facecolor="white")
    return file.getvalue()
