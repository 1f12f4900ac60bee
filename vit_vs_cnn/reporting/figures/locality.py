"""Figures of the locality of attention: head centres, attention distances, shares that convolutions explain."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.study import LayerLocality, LocalityReport
from vit_vs_cnn.reporting.figures.drawing import panels, plain_axes, plot_distances
from vit_vs_cnn.reporting.style import COLOURS, Look

#: Panels of a figure side by side.
COLUMNS = 6


def locality_figures(report: LocalityReport) -> dict[str, Figure]:
    """All figures of a network with attention, by the name of the file."""
    return {
        "head_centres": head_centres(report),
        "attention_distances": attention_distances(report),
        "explained_share": explained_share(report),
    }


def head_centres(report: LocalityReport) -> Figure:
    """Of every layer, the centre of each head on the grid of offsets, with a circle of its width."""
    layers = _layers(report)
    figure, axes = panels(len(layers), COLUMNS, 2.1, 2.3)
    far = [
        max(map(abs, centre)) + width
        for layer in layers
        for centre, width in zip(layer.heads["centre"], layer.heads["width"], strict=True)
    ]
    for axis, layer in zip(axes, layers, strict=True):
        _draw_heads(axis, layer, 1.08 * max(1.5, *far))
    for axis in axes[::COLUMNS]:
        axis.set_ylabel("rows", fontsize=8)
    legend = "circles: standard deviation; crosses: offsets of a 3 x 3 kernel"
    figure.suptitle(f"Centre of each head, relative to the query\n{legend}", fontsize=10)
    return figure


def attention_distances(report: LocalityReport) -> Figure:
    """Every head's distance in pixels by layer, their mean, and that of uniform attention."""
    layers = _layers(report)
    figure, (axis,) = plain_axes(max(5.4, 0.5 * len(layers) + 3.4), 3.4)
    heads = [layer.heads["distance"] for layer in layers]
    plot_distances(axis, heads, Look(COLOURS[0], "o"), "mean of heads")
    uniform = [layer.uniform_distance for layer in layers]
    axis.plot(_depths(layers), uniform, "--", color="black", label="uniform attention")
    axis.set_title("Mean attention distance")
    axis.set_ylim(0, 1.08 * max(*map(max, heads), *uniform))
    _finish(figure, axis, layers)
    return figure


def explained_share(report: LocalityReport) -> Figure:
    """R^2 on held-out images by layer: convolutions of growing size, and the layer's own mean weights."""
    layers = _layers(report)
    figure, (axis,) = plain_axes(max(5.6, 0.5 * len(layers) + 3.6), 3.4)
    sizes = sorted({size for layer in layers for size in layer.explained_by_kernel_size})
    for size, colour, marker in zip(sizes, (*COLOURS[:1], *COLOURS[2:]), "osDv^", strict=False):
        heights = [layer.explained_by_kernel_size.get(size, math.nan) for layer in layers]
        axis.plot(_depths(layers), heights, f"{marker}-", color=colour, ms=4, label=f"convolution {size} x {size}")
    means = [layer.explained_by_mean_weights for layer in layers]
    axis.plot(_depths(layers), means, "x--", color=COLOURS[1], ms=5, label="mean weights")
    axis.set(xlabel="layer", ylabel="R² on held-out images", title="Share of a layer that a convolution explains")
    values = [*means, *(share for layer in layers for share in layer.explained_by_kernel_size.values())]
    axis.set_ylim(max(-0.25, min([0.0, *filter(math.isfinite, values)]) - 0.03), 1.03)
    _finish(figure, axis, layers)
    return figure


def _draw_heads(axis: Axes, layer: LayerLocality, far: float) -> None:
    steps = np.arange(-1, 2)
    axis.plot(np.repeat(steps, 3), np.tile(steps, 3), "+", color="grey", ms=6, zorder=1)
    for head, ((rows, cols), width) in enumerate(zip(layer.heads["centre"], layer.heads["width"], strict=True)):
        colour = COLOURS[head % len(COLOURS)]
        axis.add_patch(Circle((cols, rows), width, facecolor=colour, alpha=0.10, edgecolor="none"))
        axis.add_patch(Circle((cols, rows), width, fill=False, edgecolor=colour, linewidth=0.8))
        axis.plot(cols, rows, "o", color=colour, ms=4, zorder=3)
        axis.annotate(str(head + 1), (cols, rows), (3, 3), textcoords="offset points", fontsize=6)
    axis.set(xlim=(-far, far), ylim=(far, -far), aspect="equal")
    axis.set_title(f"layer {layer.layer + 1}", fontsize=9)
    axis.set_xlabel("cols", fontsize=8)
    axis.tick_params(labelsize=7)


def _layers(report: LocalityReport) -> list[LayerLocality]:
    if not report.layers:
        raise InputError("the report has no attention layers to draw")
    return report.layers


def _depths(layers: Sequence[LayerLocality]) -> list[int]:
    return [layer.layer + 1 for layer in layers]


def _finish(figure: Figure, axis: Axes, layers: Sequence[LayerLocality]) -> None:
    axis.set_xticks(_depths(layers))
    axis.title.set_fontsize(10)
    axis.grid(axis="y", alpha=0.3, linewidth=0.5)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", fontsize=8)
