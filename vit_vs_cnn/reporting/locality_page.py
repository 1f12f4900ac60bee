"""Reports on the locality of a network, and on the locality of networks before and after training."""

import itertools
import math
from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from vit_vs_cnn.inspection.locality.study import SUMMARY_MEASURES, LayerLocality, LocalityReport, Row, StudiedLayer
from vit_vs_cnn.regimes.analysis import Analysis
from vit_vs_cnn.reporting.figures.drawing import make_axes, make_panels, plot_distances
from vit_vs_cnn.reporting.figures.experiment import accuracy_curves
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import COLOURS, SERIES_COLOURS, ModelStyle, assign_styles
from vit_vs_cnn.reporting.table import Table

#: For each column of the table: the field of the layer's row, and its format.
COLUMNS = {
    "layer": ("layer", "{}"),
    "offset": ("relative", "{:.2f}"),
    "place": ("positional", "{:.2f}"),
    "content": ("content", "{:.2f}"),
    "width": ("width", "{:.2f}"),
    "distance": ("distance", "{:.1f}"),
    "ratio": ("distance_ratio", "{:.2f}"),
    "R² 1": ("r2_1", "{:.2f}"),
    "R² 3": ("r2_3", "{:.2f}"),
    "R² 5": ("r2_5", "{:.2f}"),
    "mean weights": ("r2_mean_weights", "{:.2f}"),
    "lost 3": ("accuracy_lost_3", "{:+.1%}"),
}
LEGEND = (
    "offset, place, content: shares of the variance of the attention weights. width is in patches, distance in pixels, "
    "ratio is relative to uniform attention. R² K: share of the layer's output that a K x K convolution explains on "
    "held-out images; mean weights: share that its mean weights explain. lost 3: accuracy lost if a 3 x 3 convolution "
    "replaces the layer."
)
ALT = {
    "head_centres": "Centre and width of every head on the grid of offsets, layer by layer",
    "attention_distances": "Mean attention distance of every head by depth, with that of uniform attention",
    "explained_share": "Share of each layer that convolutions of growing size explain",
}
#: Number of panels side by side in a figure.
PANELS_IN_ROW = 6


def locality_page(report: LocalityReport, title: str) -> Page:
    """Page on the layers of one network."""
    page = Page(title, [describe_images(report)])
    page.heading("Layers of attention")
    page.table(layer_table(report, title))
    page.heading("Figures")
    for name, figure in locality_figures(report).items():
        page.picture(figure, f"{ALT[name]}.", ALT[name], name)
    heads = [_with_one_based_indices(row) for row in report.head_rows()]
    cells = [[f"{value:.3g}" if isinstance(value, float) else value for value in row.values()] for row in heads]
    page.table(Table("Every head of every layer", list(heads[0]), cells, "heads"), summary="Every head")
    return page


def describe_images(report: LocalityReport) -> str:
    return f"Convolutions are fitted on {report.images:,} images and tested on {report.held_out:,} others."


def layer_table(report: LocalityReport, title: str) -> Table:
    """Table with one row for each layer."""
    rows = [_with_one_based_indices(row) for row in report.layer_rows()]
    texts = [
        ["-" if _is_unknown(row.get(key)) else form.format(row[key]) for key, form in COLUMNS.values()] for row in rows
    ]
    return Table(title, list(COLUMNS), texts, "layers", LEGEND)


def _is_unknown(value: float | int | str | None) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _with_one_based_indices(row: Row) -> Row:
    """Row in which layers and heads are numbered from 1 instead of 0."""
    return row | {key: index + 1 for key in ("layer", "head") if isinstance(index := row.get(key), int)}


def locality_figures(report: LocalityReport) -> dict[str, Figure]:
    """All figures of a network with attention, by file name."""
    return {
        "head_centres": head_centres(report),
        "attention_distances": attention_distances(report),
        "explained_share": explained_share(report),
    }


def head_centres(report: LocalityReport) -> Figure:
    """Centre of each head on the grid of offsets, with a circle of its width; one panel for each layer."""
    layers = report.layers
    figure, axes = make_panels(len(layers), PANELS_IN_ROW, 2.1, 2.3)
    far = [
        max(map(abs, centre)) + width
        for layer in layers
        for centre, width in zip(layer.heads["centre"], layer.heads["width"], strict=True)
    ]
    for axis, layer in zip(axes, layers, strict=True):
        _draw_heads(axis, layer, 1.08 * max(1.5, *far))
    for axis in axes[::PANELS_IN_ROW]:
        axis.set_ylabel("rows", fontsize=8)
    legend = "circles: standard deviation; crosses: offsets of a 3 x 3 kernel"
    figure.suptitle(f"Centre of each head, relative to the query\n{legend}", fontsize=10)
    return figure


def attention_distances(report: LocalityReport) -> Figure:
    """Attention distance of every head in pixels by layer, the mean over heads, and that of uniform attention."""
    layers = report.layers
    figure, (axis,) = make_axes(max(5.4, 0.5 * len(layers) + 3.4), 3.4)
    heads = [layer.heads["distance"] for layer in layers]
    plot_distances(axis, heads, ModelStyle(COLOURS[0], "o"), "mean of heads")
    uniform = [layer.uniform_distance for layer in layers]
    axis.plot(_depths(layers), uniform, "--", color="black", label="uniform attention")
    axis.set_title("Mean attention distance")
    axis.set_ylim(0, 1.08 * max(*map(max, heads), *uniform))
    _add_ticks_and_legend(figure, axis, layers)
    return figure


def explained_share(report: LocalityReport) -> Figure:
    """R^2 on held-out images by layer, of convolutions of growing size and of the layer's mean weights."""
    layers = report.layers
    figure, (axis,) = make_axes(max(5.6, 0.5 * len(layers) + 3.6), 3.4)
    sizes = sorted({size for layer in layers for size in layer.explained_by_kernel_size})
    for size, colour, marker in zip(sizes, (*COLOURS[:1], *COLOURS[2:]), "osDv^", strict=False):
        heights = [layer.explained_by_kernel_size.get(size, math.nan) for layer in layers]
        axis.plot(_depths(layers), heights, f"{marker}-", color=colour, ms=4, label=f"convolution {size} x {size}")
    means = [layer.explained_by_mean_weights for layer in layers]
    axis.plot(_depths(layers), means, "x--", color=COLOURS[1], ms=5, label="mean weights")
    axis.set(xlabel="layer", ylabel="R² on held-out images", title="Share of a layer that a convolution explains")
    values = [*means, *(share for layer in layers for share in layer.explained_by_kernel_size.values())]
    axis.set_ylim(max(-0.25, min([0.0, *filter(math.isfinite, values)]) - 0.03), 1.03)
    _add_ticks_and_legend(figure, axis, layers)
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


def _depths(layers: Sequence[LayerLocality]) -> list[int]:
    return [layer.layer + 1 for layer in layers]


def _add_ticks_and_legend(figure: Figure, axis: Axes, layers: Sequence[LayerLocality]) -> None:
    axis.set_xticks(_depths(layers))
    axis.title.set_fontsize(10)
    axis.grid(axis="y", alpha=0.3, linewidth=0.5)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", fontsize=8)


def before_and_after(layers: Sequence[StudiedLayer], order: Sequence[str], measure: str) -> Figure:
    """One measure by layer, before training (dashed) and after (solid), with one panel for each contender."""
    shown = [name for name in order if any(layer.contender == name for layer in layers)]
    sizes = sorted({layer.train_size for layer in layers})
    figure, axes = make_panels(len(shown), 4, 2.2, 2.1, extra=0.9, share=True)
    for axis, name in zip(axes, shown, strict=True):
        for colour, size in zip(itertools.cycle(SERIES_COLOURS), sizes):
            of_cell = [layer for layer in layers if (layer.contender, layer.train_size) == (name, size)]
            for when, style in (("before", "--"), ("after", "o-")):
                depths, means = _by_depth(of_cell, when, measure)
                axis.plot(depths, means, style, color=colour, ms=3.5, lw=1.2, label=f"n = {size:,}, {when}")
        axis.set_title(name, fontsize=9)
        axis.grid(alpha=0.3)
    for axis in axes[-4:]:
        axis.set_xlabel("layer")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    figure.supylabel(measure)
    return figure


def _by_depth(layers: Sequence[StudiedLayer], when: str, measure: str) -> tuple[list[int], list[float]]:
    depths = sorted({layer.layer for layer in layers})
    return [depth + 1 for depth in depths], [
        _mean([getattr(layer, when)[measure] for layer in layers if layer.layer == depth]) for depth in depths
    ]


def study_table(layers: Sequence[StudiedLayer], order: Sequence[str] = ()) -> Table:
    """Table with a row for each contender, size and measure: mean over layers and seeds, and spread over seeds."""
    rows, order = [], order or list(dict.fromkeys(layer.contender for layer in layers))
    for size, name in itertools.product(sorted({layer.train_size for layer in layers}), order):
        of_cell = [layer for layer in layers if (layer.contender, layer.train_size) == (name, size)]
        for measure in SUMMARY_MEASURES if of_cell else ():
            texts = [_over_seeds(of_cell, when, measure) for when in ("before", "after")]
            rows.append([name, f"{size:,}", measure, *texts])
    title = "Means over layers and seeds, ± standard deviation over seeds"
    return Table(title, ["contender", "n", "measure", "before", "after"], rows, "before_and_after", group_by="n")


def study_page(analysis: Analysis, layers: Sequence[StudiedLayer], order: Sequence[str], title: str) -> Page:
    """Page on networks before and after training, with their accuracies."""
    lead = "Does locality help, most of all with few images? Do networks learn to attend locally?"
    page = Page(title, [lead], styles=assign_styles(order))
    page.heading("Accuracy")
    caption = "Accuracy on the test images with 95 % intervals."
    page.picture(accuracy_curves(analysis), caption, "Accuracy of every contender", "accuracy")
    page.heading("Before and after training")
    page.bullets([f"{name}: {meaning}" for name, meaning in SUMMARY_MEASURES.items()])
    page.table(study_table(layers, order))
    for measure, meaning in SUMMARY_MEASURES.items():
        figure, alt = before_and_after(layers, order, measure), f"{measure} by layer, before and after training"
        page.picture(figure, f"{measure}: {meaning}.", alt, f"layers_{measure}")
    return page


def _over_seeds(layers: Sequence[StudiedLayer], when: str, measure: str) -> str:
    by_seed = [
        _mean([getattr(layer, when)[measure] for layer in layers if layer.seed == seed])
        for seed in sorted({layer.seed for layer in layers})
    ]
    if any(math.isnan(value) for value in by_seed):
        return "-"
    spread = f" ± {stdev(by_seed):.2f}" if len(by_seed) > 1 else ""
    return f"{fmean(by_seed):.2f}{spread}"


def _mean(values: Sequence[float | None]) -> float:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(finite) if finite else math.nan
