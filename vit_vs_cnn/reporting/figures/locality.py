"""Figures of how convolution-like a network is: heads on the offset grid, distances, the ladder, the shares."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.report import LayerLocality, LocalityReport
from vit_vs_cnn.reporting.figures.drawing import panels, plain_axes, plot_distances
from vit_vs_cnn.reporting.style import COLOURS, Look

#: Panels of a figure beside each other before a new row begins.
COLUMNS = 6
SHARES = ("relative", "positional", "content")
#: Besides their colours, shares differ in their hatching.
HATCHES = ("", "//", "..")


def head_centres(report: LocalityReport) -> Figure:
    """Of every layer, the centre of each head on the grid of offsets, a circle of its width around it."""
    layers = _layers(report)
    figure, axes = panels(len(layers), COLUMNS, 2.1, 2.3)
    far = [max(map(abs, head.centre)) + head.width for layer in layers for head in layer.heads]
    for axis, layer in zip(axes, layers, strict=True):
        _draw_heads(axis, layer, 1.08 * max(1.5, *far))
    for axis in axes[::COLUMNS]:
        axis.set_ylabel("rows", fontsize=8)
    how = "circles: standard deviation; crosses: offsets of a 3 x 3 kernel"
    figure.suptitle(f"Where heads look, seen from the query\n{how}", fontsize=10)
    return figure


def attention_distances(report: LocalityReport) -> Figure:
    """Every head's distance in pixels by layer, their mean, and that of uniform attention."""
    layers = _layers(report)
    figure, (axis,) = plain_axes(max(5.4, 0.5 * len(layers) + 3.4), 3.4)
    heads = [[head.distance for head in layer.heads] for layer in layers]
    plot_distances(axis, heads, Look(COLOURS[0], "o"), "mean of heads")
    uniform = [layer.uniform_distance for layer in layers]
    axis.plot(_depths(layers), uniform, "--", color="black", label="uniform attention")
    axis.set_title("Mean attention distance")
    axis.set_ylim(0, 1.08 * max(*map(max, heads), *uniform))
    _finish(figure, axis, layers)
    return figure


def convolution_ladder(report: LocalityReport) -> Figure:
    """R^2 on held-out images by layer: convolutions of growing size, and the layer's own mean weights."""
    layers = _layers(report)
    figure, (axis,) = plain_axes(max(5.6, 0.5 * len(layers) + 3.6), 3.4)
    _plot_by_size(axis, layers, [layer.ladder for layer in layers], "convolution {0} x {0}")
    axis.plot(
        _depths(layers), [layer.static for layer in layers], "x--", color=COLOURS[1], ms=5, label="mean attention"
    )
    axis.set(xlabel="layer", ylabel="R² on held-out images", title="How much of a layer a convolution explains")
    shown = [share for layer in layers for share in (*layer.ladder.values(), layer.static) if math.isfinite(share)]
    axis.set_ylim(max(-0.25, min([0.0, *shown]) - 0.03), 1.03)
    _finish(figure, axis, layers)
    return figure


def variance_shares(report: LocalityReport) -> Figure:
    """Of every layer, the mean shares over heads of offset, place and content, for A and for log A."""
    layers = _layers(report)
    figure, axes = plain_axes(max(6.4, 0.9 * len(layers) + 2.8), 3.4, 2, share=True)
    for axis, prefix, name in zip(axes, ("", "log_"), ("A", "log A, centred per query"), strict=True):
        bottom = np.zeros(len(layers))
        for share, colour, hatch in zip(SHARES, COLOURS, HATCHES, strict=False):
            heights = np.nan_to_num([_finite_mean(layer, f"{prefix}{share}") for layer in layers])
            axis.bar(_depths(layers), heights, 0.8, bottom, color=colour, hatch=hatch, edgecolor="white", label=share)
            bottom += heights
        axis.set(title=name, xlabel="layer", ylim=(0, 1))
        axis.set_xticks(_depths(layers))
    axes[0].set_ylabel("share of the variance")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.suptitle("What decides the attention weights: mean of heads", fontsize=10)
    return figure


def replaced_layers(report: LocalityReport) -> Figure:
    """The accuracy that the network loses, or without labels the share of predictions that change, by layer."""
    layers = _layers(report)
    if not any(layer.replaced for layer in layers):
        raise InputError("the report has no layers replaced by convolutions: no kernel sizes were named")
    figure, (axis,) = plain_axes(max(5.6, 0.5 * len(layers) + 3.6), 3.4)
    labelled = all(found.accuracy_lost is not None for layer in layers for found in layer.replaced.values())
    lost = [
        {
            size: 100 * (one.accuracy_lost if labelled and one.accuracy_lost is not None else 1 - one.agreement)
            for size, one in layer.replaced.items()
        }
        for layer in layers
    ]
    _plot_by_size(axis, layers, lost, "{0} x {0}")
    axis.axhline(0, color="black", linewidth=0.8)
    label = "accuracy lost in percentage points" if labelled else "predictions changed in %"
    axis.set(xlabel="layer", ylabel=label, title="A layer replaced by its convolution")
    _finish(figure, axis, layers)
    return figure


def feature_locality(report: LocalityReport) -> Figure:
    """Shift-equivariance error and radius of the effective receptive field after every block."""
    if not report.features:
        raise InputError("the report has no feature maps to draw")
    figure, axes = plain_axes(max(6.4, 0.6 * len(report.features) + 4.0), 3.4, 2)
    panels = {
        "shift-equivariance error": [found.equivariance_error for found in report.features],
        "receptive field radius in pixels": [found.field_radius for found in report.features],
    }
    names = [found.name.removeprefix("block ") for found in report.features]
    for axis, (label, heights), colour in zip(axes, panels.items(), COLOURS, strict=False):
        axis.plot(range(len(names)), heights, "o-", color=colour, ms=4)
        axis.set_xticks(range(len(names)), names)
        axis.set(xlabel="after block", ylabel=label)
        axis.set_ylim(0, 1.08 * max([height for height in heights if math.isfinite(height)], default=1.0) or 1.0)
    figure.suptitle("Feature maps by depth", fontsize=10)
    return figure


#: Every figure by the name of its file; those of attention come first.
FIGURES: dict[str, Callable[[LocalityReport], Figure]] = {
    "head_centres": head_centres,
    "attention_distances": attention_distances,
    "convolution_ladder": convolution_ladder,
    "variance_shares": variance_shares,
    "replaced_layers": replaced_layers,
    "feature_locality": feature_locality,
}


def figures_of(report: LocalityReport) -> dict[str, Figure]:
    names = list(FIGURES) if report.layers else ["feature_locality"]
    if not any(layer.replaced for layer in report.layers):
        names = [name for name in names if name != "replaced_layers"]
    return {name: FIGURES[name](report) for name in names}


def _draw_heads(axis: Axes, layer: LayerLocality, reach: float) -> None:
    steps = np.arange(-1, 2)
    axis.plot(np.repeat(steps, 3), np.tile(steps, 3), "+", color="grey", ms=6, zorder=1)
    for index, head in enumerate(layer.heads):
        colour = COLOURS[index % len(COLOURS)]
        rows, cols = head.centre
        axis.add_patch(Circle((cols, rows), head.width, facecolor=colour, alpha=0.10, edgecolor="none"))
        axis.add_patch(Circle((cols, rows), head.width, fill=False, edgecolor=colour, linewidth=0.8))
        axis.plot(cols, rows, "o", color=colour, ms=4, zorder=3)
        axis.annotate(str(head.head + 1), (cols, rows), (3, 3), textcoords="offset points", fontsize=6)
    axis.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")
    axis.set_title(f"layer {layer.layer + 1}", fontsize=9)
    axis.set_xlabel("cols", fontsize=8)
    axis.tick_params(labelsize=7)


def _layers(report: LocalityReport) -> list[LayerLocality]:
    if not report.layers:
        raise InputError("the report has no layers of attention to draw")
    return report.layers


def _finite_mean(layer: LayerLocality, name: str) -> float:
    """Over the heads that have shares."""
    found = [share for head in layer.heads if math.isfinite(share := getattr(head, name))]
    return sum(found) / len(found) if found else math.nan


def _depths(layers: Sequence[LayerLocality]) -> list[int]:
    return [layer.layer + 1 for layer in layers]


def _plot_by_size(
    axis: Axes, layers: Sequence[LayerLocality], numbers: Sequence[Mapping[int, float]], label: str
) -> None:
    """A line over the layers for each kernel size."""
    sizes = sorted({size for of_layer in numbers for size in of_layer})
    for size, colour, marker in zip(sizes, (*COLOURS[:1], *COLOURS[2:]), "osDv^", strict=False):
        heights = [of_layer.get(size, math.nan) for of_layer in numbers]
        axis.plot(_depths(layers), heights, f"{marker}-", color=colour, ms=4, label=label.format(size))


def _finish(figure: Figure, axis: Axes, layers: Sequence[LayerLocality]) -> None:
    axis.set_xticks(_depths(layers))
    axis.title.set_fontsize(10)
    axis.grid(axis="y", alpha=0.3, linewidth=0.5)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", fontsize=8)
