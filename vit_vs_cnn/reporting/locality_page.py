"""Reports on the locality of a network, and on the locality of networks before and after training."""

import itertools
import json
import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import pandas
from matplotlib.figure import Figure

from vit_vs_cnn.analysis.analysis import Analysis
from vit_vs_cnn.analysis.model_summaries import display_name
from vit_vs_cnn.inspection.locality.study import SUMMARY_MEASURES, Locality
from vit_vs_cnn.reporting.figures.drawing import make_axes, make_panels, wrap_text
from vit_vs_cnn.reporting.figures.experiment import accuracy_curves
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import COLOURS, SERIES_COLOURS, assign_styles
from vit_vs_cnn.reporting.table import Table, print_tables

#: For each column of the table after the first: the field of the layer's row, and its format.
COLUMNS = {
    "distance": ("distance", "{:.1f}"),
    "ratio": ("distance_ratio", "{:.2f}"),
    "R² 3": ("r2_3", "{:.2f}"),
    "mean weights": ("r2_mean_weights", "{:.2f}"),
    "lost 3": ("accuracy_lost_3", "{:+.1%}"),
}
LEGEND = (
    "distance is in pixels, ratio is relative to uniform attention. R² 3: share of the layer's output that a 3 x 3 "
    "convolution explains on held-out images; mean weights: share that its mean weights explain. lost 3: accuracy lost "
    "if the convolution replaces the layer."
)


def locality_page(locality: Locality) -> Page:
    """Page on the layers of one network, with all numbers in locality.json."""
    heads = locality.heads
    assert heads is not None, "of one network"
    page = Page(locality.title, [_describe_images(locality)])
    page.heading("Layers of attention")
    page.table(layer_table(locality))
    page.heading("Figures")
    caption = "Mean attention distance of every head by depth, with that of uniform attention."
    page.picture(attention_distances(locality.layers, heads), caption, "attention_distances")
    values = {"images": locality.images[0], "held_out": locality.images[1], **locality.to_dict()}
    page.files["locality.json"] = json.dumps(values, indent=1) + "\n"
    return page


def print_locality(locality: Locality) -> None:
    """Print the table of layers, or of networks before and after training, in a terminal."""
    if locality.heads is None:
        print_tables([study_table(locality.layers)])
    else:
        print_tables([layer_table(locality)], ["", _describe_images(locality)], style="bold")


def _describe_images(locality: Locality) -> str:
    fitted, held_out = locality.images
    return f"Convolutions are fitted on {fitted:,} images and tested on {held_out:,} others."


def layer_table(locality: Locality) -> Table:
    rows = [
        [row["layer"] + 1, *(_text(row.get(key, math.nan), form) for key, form in COLUMNS.values())]
        for row in locality.layers.to_dict("records")
    ]
    return Table("Layers of attention", ["layer", *COLUMNS], rows, "layers", LEGEND)


def _text(value: float, form: str) -> str:
    return "-" if math.isnan(value) else form.format(value).replace("%", " %")


def attention_distances(layers: pandas.DataFrame, heads: pandas.DataFrame) -> Figure:
    """Attention distance of every head in pixels by layer, the mean over heads, and that of uniform attention."""
    figure, (axis,) = make_axes(max(5.4, 0.5 * len(layers) + 3.4), 3.4)
    axis.plot(heads["layer"] + 1, heads["distance"], "o", color=COLOURS[0], alpha=0.45, ms=4)
    axis.plot(layers["layer"] + 1, layers["distance"], color=COLOURS[0], label="mean of heads")
    axis.plot(layers["layer"] + 1, layers["uniform_distance"], "--", color="black", label="uniform attention")
    axis.set(xlabel="layer", ylabel="mean attention distance in pixels", title="Mean attention distance")
    axis.set_ylim(0, 1.08 * max(*heads["distance"], *layers["uniform_distance"]))
    axis.set_xticks(layers["layer"] + 1)
    axis.grid(axis="y", alpha=0.3, linewidth=0.5)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


def before_and_after_figure(layers: pandas.DataFrame, order: Sequence[str], measure: str) -> Figure:
    """One measure by layer, before training (dashed) and after (solid), with one panel for each model."""
    shown = [name for name in order if name in set(layers["model"])]
    figure, axes = make_panels(len(shown), 4, 2.2, 2.1, extra=0.9, share=True)
    for axis, name in zip(axes, shown, strict=True):
        for colour, size in zip(itertools.cycle(SERIES_COLOURS), sorted(layers["train_size"].unique())):
            of_cell: Any = layers[(layers["model"] == name) & (layers["train_size"] == size)].groupby("layer")
            for when, style in (("before", "--"), ("after", "o-")):
                means, label = of_cell[f"{measure}_{when}"].mean(), f"n = {size:,}, {when}"
                axis.plot(range(1, of_cell.ngroups + 1), means, style, color=colour, ms=3.5, lw=1.2, label=label)
        axis.set_title(display_name(name), fontsize=9)
        axis.grid(alpha=0.3)
    for axis in axes[-4:]:
        axis.set_xlabel("layer")
        axis.tick_params(labelbottom=True)  # also above an empty place
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    figure.supylabel(wrap_text(SUMMARY_MEASURES[measure], 58), fontsize=9)
    return figure


def study_table(layers: pandas.DataFrame, order: Sequence[str] = ()) -> Table:
    """Table with a row for each model, size and measure: mean over layers and seeds, and spread over seeds."""
    rows = []
    for size, name in itertools.product(sorted(layers["train_size"].unique()), order or layers["model"].unique()):
        of_cell = layers[(layers["model"] == name) & (layers["train_size"] == size)]
        by_seed: Any = of_cell.groupby("seed").mean(numeric_only=True)
        for measure in SUMMARY_MEASURES if len(of_cell) else ():
            texts = [_over_seeds(by_seed[f"{measure}_{when}"].tolist()) for when in ("before", "after")]
            rows.append([name, int(size), measure, *texts])
    title = "Means over layers and seeds, ± standard deviation over seeds"
    return Table(title, ["model", "n", "measure", "before", "after"], rows, "before_and_after")


def study_page(analysis: Analysis, study: Locality, order: Sequence[str]) -> Page:
    """Page on networks before and after training, with their accuracies."""
    lead = "Does locality help, most of all with few images? Do networks learn to attend locally?"
    page = Page(study.title, [lead], styles=assign_styles(order))
    page.heading("Accuracy")
    page.picture(accuracy_curves(analysis), "Accuracy on the test images with 95 % intervals.", "accuracy")
    page.heading("Before and after training")
    page.bullets([f"{name}: {meaning}" for name, meaning in SUMMARY_MEASURES.items()])
    page.table(study_table(study.layers, order))
    for measure, meaning in SUMMARY_MEASURES.items():
        figure = before_and_after_figure(study.layers, order, measure)
        page.picture(figure, f"{measure} by layer, before and after training: {meaning}.", f"layers_{measure}")
    page.files["locality.json"] = json.dumps(study.to_dict(), indent=1) + "\n"
    return page


def _over_seeds(by_seed: Sequence[float]) -> str:
    if any(math.isnan(value) for value in by_seed):
        return "-"
    spread = f" ± {stdev(by_seed):.2f}" if len(by_seed) > 1 else ""
    return f"{fmean(by_seed):.2f}{spread}"
