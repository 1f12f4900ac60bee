"""Reports on the locality of a network, and on the locality of networks before and after training."""

import itertools
import json
import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from rich.console import Console

from vit_vs_cnn.inspection.locality.study import KERNEL_SIZES, SUMMARY_MEASURES, Locality
from vit_vs_cnn.regimes.analysis import Analysis
from vit_vs_cnn.reporting.figures.drawing import make_axes, make_panels, plot_distances
from vit_vs_cnn.reporting.figures.experiment import accuracy_curves
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import COLOURS, SERIES_COLOURS, ModelStyle, assign_styles
from vit_vs_cnn.reporting.table import Table, print_lines, print_tables

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


def locality_page(locality: Locality) -> Page:
    """Page on the layers of one network, with all numbers in locality.json."""
    heads = locality.heads
    assert heads is not None, "of one network"
    page = Page(locality.title, [_describe_images(locality)])
    page.heading("Layers of attention")
    page.table(layer_table(locality))
    page.heading("Figures")
    for name, figure in locality_figures(locality.layers, heads).items():
        page.picture(figure, f"{ALT[name]}.", ALT[name], name)
    columns = [*heads.columns]
    rows = [[_one_based(name, row[name], "{:.3g}") for name in columns] for row in heads.to_dict("records")]
    page.table(Table("Every head of every layer", columns, rows, "heads"), summary="Every head")
    values = {"images": locality.images[0], "held_out": locality.images[1], **locality.to_dict()}
    page.files["locality.json"] = json.dumps(values, indent=1) + "\n"
    return page


def print_locality(locality: Locality, console: Console) -> None:
    """Print the table of layers, or of networks before and after training, in a terminal."""
    if locality.heads is None:
        print_tables([study_table(locality.layers)], console)
    else:
        print_tables([layer_table(locality)], console)
        print_lines(["", _describe_images(locality)], console, "bold")


def _describe_images(locality: Locality) -> str:
    fitted, held_out = locality.images
    return f"Convolutions are fitted on {fitted:,} images and tested on {held_out:,} others."


def layer_table(locality: Locality) -> Table:
    """Table with one row for each layer."""
    rows = [
        [_one_based(key, row.get(key), form) for key, form in COLUMNS.values()]
        for row in locality.layers.to_dict("records")
    ]
    return Table(locality.title, list(COLUMNS), rows, "layers", LEGEND)


def _one_based(name: str, value: float | int | None, form: str) -> str | int:
    """Text of a number, "-" for an unknown one; layers and heads are numbered from 1 instead of 0."""
    if name in ("layer", "head"):
        return int(value or 0) + 1
    return "-" if value is None or math.isnan(value) else form.format(value)


def locality_figures(layers: pandas.DataFrame, heads: pandas.DataFrame) -> dict[str, Figure]:
    """All figures of a network with attention, by file name."""
    return {
        "head_centres": head_centres(heads),
        "attention_distances": attention_distances(layers, heads),
        "explained_share": explained_share(layers),
    }


def head_centres(heads: pandas.DataFrame) -> Figure:
    """Centre of each head on the grid of offsets, with a circle of its width; one panel for each layer."""
    layers = heads.groupby("layer")
    figure, axes = make_panels(len(layers), PANELS_IN_ROW, 2.1, 2.3)
    far = (heads[["centre_rows", "centre_cols"]].abs().max(axis=1) + heads["width"]).max()
    for number, (axis, (_, of_layer)) in enumerate(zip(axes, layers, strict=True), start=1):
        _draw_heads(axis, of_layer, 1.08 * max(1.5, far))
        axis.set_title(f"layer {number}", fontsize=9)
    for axis in axes[::PANELS_IN_ROW]:
        axis.set_ylabel("rows", fontsize=8)
    legend = "circles: standard deviation; crosses: offsets of a 3 x 3 kernel"
    figure.suptitle(f"Centre of each head, relative to the query\n{legend}", fontsize=10)
    return figure


def attention_distances(layers: pandas.DataFrame, heads: pandas.DataFrame) -> Figure:
    """Attention distance of every head in pixels by layer, the mean over heads, and that of uniform attention."""
    figure, (axis,) = make_axes(max(5.4, 0.5 * len(layers) + 3.4), 3.4)
    distances = [of_layer["distance"].tolist() for _, of_layer in heads.groupby("layer")]
    plot_distances(axis, distances, ModelStyle(COLOURS[0], "o"), "mean of heads")
    axis.plot(layers["layer"] + 1, layers["uniform_distance"], "--", color="black", label="uniform attention")
    axis.set_title("Mean attention distance")
    axis.set_ylim(0, 1.08 * max(*heads["distance"], *layers["uniform_distance"]))
    _add_ticks_and_legend(figure, axis, layers)
    return figure


def explained_share(layers: pandas.DataFrame) -> Figure:
    """R^2 on held-out images by layer, of convolutions of growing size and of the layer's mean weights."""
    figure, (axis,) = make_axes(max(5.6, 0.5 * len(layers) + 3.6), 3.4)
    sizes = [size for size in KERNEL_SIZES if f"r2_{size}" in layers]
    for size, colour, marker in zip(sizes, (*COLOURS[:1], *COLOURS[2:]), "osDv^", strict=False):
        label = f"convolution {size} x {size}"
        axis.plot(layers["layer"] + 1, layers[f"r2_{size}"], f"{marker}-", color=colour, ms=4, label=label)
    axis.plot(layers["layer"] + 1, layers["r2_mean_weights"], "x--", color=COLOURS[1], ms=5, label="mean weights")
    axis.set(xlabel="layer", ylabel="R² on held-out images", title="Share of a layer that a convolution explains")
    lowest = layers[[f"r2_{name}" for name in (*sizes, "mean_weights")]].min(axis=None)
    axis.set_ylim(max(-0.25, min(0.0, lowest) - 0.03), 1.03)
    _add_ticks_and_legend(figure, axis, layers)
    return figure


def _draw_heads(axis: Axes, heads: pandas.DataFrame, far: float) -> None:
    steps = np.arange(-1, 2)
    axis.plot(np.repeat(steps, 3), np.tile(steps, 3), "+", color="grey", ms=6, zorder=1)
    for head in heads.to_dict("records"):
        rows, cols, colour = head["centre_rows"], head["centre_cols"], COLOURS[head["head"] % len(COLOURS)]
        axis.add_patch(Circle((cols, rows), head["width"], facecolor=colour, alpha=0.10, edgecolor="none"))
        axis.add_patch(Circle((cols, rows), head["width"], fill=False, edgecolor=colour, linewidth=0.8))
        axis.plot(cols, rows, "o", color=colour, ms=4, zorder=3)
        axis.annotate(str(head["head"] + 1), (cols, rows), (3, 3), textcoords="offset points", fontsize=6)
    axis.set(xlim=(-far, far), ylim=(far, -far), aspect="equal")
    axis.set_xlabel("cols", fontsize=8)
    axis.tick_params(labelsize=7)


def _add_ticks_and_legend(figure: Figure, axis: Axes, layers: pandas.DataFrame) -> None:
    axis.set_xticks(layers["layer"] + 1)
    axis.title.set_fontsize(10)
    axis.grid(axis="y", alpha=0.3, linewidth=0.5)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", fontsize=8)


def before_and_after(layers: pandas.DataFrame, order: Sequence[str], measure: str) -> Figure:
    """One measure by layer, before training (dashed) and after (solid), with one panel for each contender."""
    shown = [name for name in order if name in set(layers["contender"])]
    figure, axes = make_panels(len(shown), 4, 2.2, 2.1, extra=0.9, share=True)
    for axis, name in zip(axes, shown, strict=True):
        for colour, size in zip(itertools.cycle(SERIES_COLOURS), sorted(layers["train_size"].unique())):
            of_cell: Any = layers[(layers["contender"] == name) & (layers["train_size"] == size)].groupby("layer")
            for when, style in (("before", "--"), ("after", "o-")):
                means = of_cell[f"{measure}_{when}"].mean()
                axis.plot(
                    range(1, of_cell.ngroups + 1),
                    means,
                    style,
                    color=colour,
                    ms=3.5,
                    lw=1.2,
                    label=f"n = {size:,}, {when}",
                )
        axis.set_title(name, fontsize=9)
        axis.grid(alpha=0.3)
    for axis in axes[-4:]:
        axis.set_xlabel("layer")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    figure.supylabel(measure)
    return figure


def study_table(layers: pandas.DataFrame, order: Sequence[str] = ()) -> Table:
    """Table with a row for each contender, size and measure: mean over layers and seeds, and spread over seeds."""
    rows = []
    for size, name in itertools.product(sorted(layers["train_size"].unique()), order or layers["contender"].unique()):
        of_cell = layers[(layers["contender"] == name) & (layers["train_size"] == size)]
        by_seed: Any = of_cell.groupby("seed").mean(numeric_only=True)
        for measure in SUMMARY_MEASURES if len(of_cell) else ():
            texts = [_over_seeds(by_seed[f"{measure}_{when}"].tolist()) for when in ("before", "after")]
            rows.append([name, int(size), measure, *texts])
    title = "Means over layers and seeds, ± standard deviation over seeds"
    return Table(title, ["contender", "n", "measure", "before", "after"], rows, "before_and_after", group_by="n")


def study_page(analysis: Analysis, study: Locality, order: Sequence[str]) -> Page:
    """Page on networks before and after training, with their accuracies."""
    lead = "Does locality help, most of all with few images? Do networks learn to attend locally?"
    page = Page(study.title, [lead], styles=assign_styles(order))
    page.heading("Accuracy")
    caption = "Accuracy on the test images with 95 % intervals."
    page.picture(accuracy_curves(analysis), caption, "Accuracy of every contender", "accuracy")
    page.heading("Before and after training")
    page.bullets([f"{name}: {meaning}" for name, meaning in SUMMARY_MEASURES.items()])
    page.table(study_table(study.layers, order))
    for measure, meaning in SUMMARY_MEASURES.items():
        figure, alt = before_and_after(study.layers, order, measure), f"{measure} by layer, before and after training"
        page.picture(figure, f"{measure}: {meaning}.", alt, f"layers_{measure}")
    return page


def _over_seeds(by_seed: Sequence[float]) -> str:
    if any(math.isnan(value) for value in by_seed):
        return "-"
    spread = f" ± {stdev(by_seed):.2f}" if len(by_seed) > 1 else ""
    return f"{fmean(by_seed):.2f}{spread}"
