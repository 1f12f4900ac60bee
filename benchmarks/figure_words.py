"""Recorded figures as SVG or PNG, with their words, colours and values, which a test compares with today's code."""

import colorsys
import io
import json
import re
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axis import Axis
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vit_vs_cnn.reporting.figures.drawing import render_figure

#: Standard keyword of PNG, and of the metadata of SVG, for a description of the image.
KEYWORD = "Description"
#: Number of colours of a recorded figure: enough for every figure, and a third of the bytes of all colours.
FILE_COLOURS = 256
#: Lightness of white and of black in dark mode.
DARK_LIGHTNESS = (0.06, 0.93)
#: Largest number of values of a line that are stored.
MAX_VALUES = 25


def describe(figure: Figure) -> str:
    """JSON with the texts, the labels of ticks, the colours and the values of a figure that was drawn."""
    axes = figure.findobj(Axis)
    ticks = [label for axis in axes for label in [*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)]]
    in_axes = {text for axis in axes for text in axis.findobj(Text)} - {axis.label for axis in axes}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text not in in_axes]
    lines = [np.asarray(line.get_ydata(orig=False)) for panel in figure.axes for line in panel.get_lines()]
    shown = [image.get_array() for panel in figure.axes for image in panel.get_images()]
    images = [np.ma.mean(array) for array in shown if array is not None]
    values = [*(y[:: len(y) // MAX_VALUES + 1].tolist() for y in lines), images]
    found = {
        "texts": [text.get_text() for text in texts if text.get_text()],
        "ticks": [label.get_text() for label in ticks if label.get_text()],
        "colours": sorted({to_hex(line.get_color()) for line in figure.findobj(Line2D)}),
        "values": [f"{value:.3e}" for of_one in values for value in of_one],
    }
    return json.dumps(found)


def describe_saved_figures() -> None:
    """Store the description in every PNG that this process saves or shows in a notebook."""
    save = FigureCanvasBase.print_figure

    def print_figure(canvas: FigureCanvasBase, *args: Any, **options: Any) -> Any:
        if options.get("format") == "png":
            canvas.figure.draw_without_rendering()
            options["metadata"] = {**(options.get("metadata") or {}), KEYWORD: describe(canvas.figure)}
        return save(canvas, *args, **options)

    FigureCanvasBase.print_figure = print_figure  # pyright: ignore[reportAttributeAccessIssue]


def recorded_png(figure: Figure) -> bytes:
    """PNG of a figure with few colours, and with its description."""
    data, words = io.BytesIO(), PngInfo()
    rendered = render_figure(figure, formats=["png"])["png"]
    words.add_text(KEYWORD, describe(figure))
    with Image.open(io.BytesIO(rendered)) as image:
        reduced = image.convert("RGB").quantize(FILE_COLOURS, dither=Image.Dither.NONE)
        reduced.save(data, "PNG", optimize=True, pnginfo=words)
    return data.getvalue()


def recorded_svg(figure: Figure, name: str) -> bytes:
    """SVG of a figure, with its description. The same figure and name give the same bytes."""
    data = io.BytesIO()
    figure.draw_without_rendering()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(data, format="svg", metadata={"Date": None, KEYWORD: describe(figure)}, facecolor="white")
    return data.getvalue()


def darken(svg: bytes) -> bytes:
    """Dark form of an SVG of matplotlib: the same hues, from white ground and black text to the reverse."""

    def invert(colour: str) -> str:
        hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
        white, black = DARK_LIGHTNESS
        return to_hex(colorsys.hls_to_rgb(hue, black + (white - black) * lightness, saturation))

    text = re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda match: invert(match[0]), svg.decode())
    return text.replace("<svg ", f'<svg fill="{invert("#000000")}" ', 1).encode()  # letters have no fill of their own
