"""How the figures of a comparison look: a colour and a marker for each group, the same in all of them."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Okabe and Ito's colours, told apart by the colour-blind; markers tell them apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: Networks of which there is a row of pictures or a panel; a figure of more could not be read.
MOST = 8


def style(number: int) -> dict[str, Any]:
    """Colour and marker of the n-th group, the same in every figure."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def plain_axes(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of that size in inches with panels side by side, ruled at the left and below."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = [figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    for axis in axes:
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes
