"""Pictures and lines of text on one plain surface: to draw an axis for each picture takes ten times as long."""

from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from PIL import Image

from vit_vs_cnn.reporting.figures.drawing import Drawing
from vit_vs_cnn.reporting.style import COLOUR_MAP, DPI

#: Inches from one line of text to the next, for each point of its size.
LINE = 1.2 / 72


class _Pixels(Artist):
    """The pixels of a whole figure as they are: one of matplotlib's images would be interpolated first."""

    def __init__(self, canvas: UInt8[np.ndarray, "rows cols 3"]) -> None:
        super().__init__()
        self.canvas = canvas
        self.set_zorder(-1)  # below the text

    def draw(self, renderer: Any) -> None:
        opaque = np.full((*self.canvas.shape[:2], 1), 255, dtype=np.uint8)
        context = renderer.new_gc()
        renderer.draw_image(context, 0, 0, np.concatenate([self.canvas, opaque], axis=2)[::-1])
        context.restore()


class Board:
    """A figure on which things are put at places in inches from its upper left corner.

    To be saved as PNG, at ``DPI``.
    """

    def __init__(self, width: float, height: float) -> None:
        self._figure = Drawing(figsize=(width, height), dpi=DPI)
        self._axis = self._figure.add_axes((0, 0, 1, 1))
        self._axis.set(xlim=(0, width), ylim=(height, 0))
        self._axis.set_axis_off()
        self._canvas = np.full((round(height * DPI), round(width * DPI), 3), 255, dtype=np.uint8)

    def picture(
        self, pixels: Float[np.ndarray, "rows cols 3"], left: float, top: float, size: tuple[float, float]
    ) -> None:
        """Put an image there, its pixels as squares; values from 0 to 1, ``size`` its (width, height)."""
        width, height = (max(1, round(side * DPI)) for side in size)
        enlarged = resized(pixels, (width, height))
        first_row, first_col = round(top * DPI), round(left * DPI)
        place = self._canvas[first_row : first_row + height, first_col : first_col + width]
        place[:] = enlarged[: place.shape[0], : place.shape[1]]

    def text(
        self, words: str, left: float, top: float, *, size: float, bold: bool = False, right: bool = False
    ) -> None:
        """Put lines of text there, ``top`` their upper edge; ``right`` for ``left`` to be where they end."""
        self._axis.text(
            left,
            top,
            words,
            fontsize=size,
            fontweight="bold" if bold else "normal",
            ha="right" if right else "left",
            va="top",
        )

    def figure(self) -> Figure:
        self._figure.add_artist(_Pixels(self._canvas))
        return self._figure


def resized(pixels: Float[np.ndarray, "rows cols 3"], size: tuple[int, int]) -> UInt8[np.ndarray, "height width 3"]:
    """Values from 0 to 1 as bytes, in (width, height) pixels, those of the image as squares."""
    image = Image.fromarray(np.rint(255 * pixels).astype(np.uint8))
    return np.asarray(image.resize(size, Image.Resampling.NEAREST))


def height_of(lines: int, size: float) -> float:
    """Inches that so many lines of text take."""
    return lines * size * LINE


def scaled(values: Float[np.ndarray, "rows cols"]) -> Float[np.ndarray, "rows cols"]:
    """From 0 for the least value to 1 for the greatest."""
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def coloured(values: Float[np.ndarray, "rows cols"]) -> Float[np.ndarray, "rows cols 3"]:
    """A map in colours, from its least to its greatest value."""
    return mpl.colormaps[COLOUR_MAP](scaled(values))[..., :3]
