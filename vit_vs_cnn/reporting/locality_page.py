"""Pages of the locality of a network, and of a study of networks before and after training."""

import itertools
import math
from collections.abc import Sequence
from statistics import fmean, stdev

from matplotlib.figure import Figure

from vit_vs_cnn.inspection.locality.study import SUMMARY_MEASURES, LocalityReport, Row, StudiedLayer
from vit_vs_cnn.regimes.analysis import Analysis
from vit_vs_cnn.reporting.document import Bullets, Document, Picture, Table
from vit_vs_cnn.reporting.figures.drawing import PercentLocator, in_percent, panels, plain_axes
from vit_vs_cnn.reporting.figures.locality import locality_figures
from vit_vs_cnn.reporting.style import SERIES, looks

#: Column of the table: the field of a layer's row, and how it is written.
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
    "offset, place, content: shares of the variance of the weights. width in patches, distance in pixels, ratio to "
    "that of uniform attention. R² K: share of the layer that a K x K convolution explains on images held out; mean "
    "weights: that its mean weights explain. lost 3: accuracy lost with a 3 x 3 convolution in place of the layer."
)
ALT = {
    "head_centres": "Centre and width of every head on the grid of offsets, layer by layer",
    "attention_distances": "Mean attention distance of every head by depth, with that of uniform attention",
    "explained_share": "Share of each layer that convolutions of growing size explain",
}
OVER_SEEDS = "Means over layers and seeds, ± standard deviation over seeds"


def locality_document(report: LocalityReport, *, title: str, drawn: bool = True) -> Document:
    measured = f"Fitted on {report.images:,} images and tested on {report.held_out:,} others."
    document = Document(title, measured)
    if rows := [_counted(row) for row in report.layer_rows()]:
        texts = [
            ["-" if _is_unknown(row.get(key)) else form.format(row[key]) for key, form in COLUMNS.values()]
            for row in rows
        ]
        document.section("Layers of attention", Table(title, list(COLUMNS), texts, "layers", LEGEND))
    features = [
        [
            feature.name,
            " x ".join(map(str, feature.map_size)),
            f"{feature.equivariance_error:.3f}",
            f"{feature.field_radius:.1f}",
        ]
        for feature in report.features
    ]
    columns = ["after", "grid", "shift error", "field radius"]
    document.section("Feature maps", Table("Feature maps by depth" if rows else title, columns, features, "features"))
    if drawn and report.layers:
        pictures = [
            Picture(figure, f"{ALT[name]}.", ALT[name], name) for name, figure in locality_figures(report).items()
        ]
        document.section("Figures", *pictures)
    if heads := [_counted(row) for row in report.head_rows()]:
        cells = [[f"{value:.3g}" if isinstance(value, float) else value for value in row.values()] for row in heads]
        with document.folded("Every head"):
            document.add(Table("Every head of every layer", list(heads[0]), cells, "heads"))
    return document


def _is_unknown(value: float | int | str | None) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _counted(row: Row) -> Row:
    """A row for a reader: layers and heads, whose indices begin at 0, are counted from 1."""
    counted = {key: index + 1 for key in ("layer", "head") if isinstance(index := row.get(key), int)}
    return row | counted


def accuracy_by_contender(analysis: Analysis, order: Sequence[str]) -> Figure:
    """Accuracy with its interval for every contender, one series for each training size."""
    figure, (axis,) = plain_axes(max(5.6, 0.75 * len(order) + 2.2), 3.8)
    axis.yaxis.set_major_locator(PercentLocator())
    for index, size in enumerate(analysis.sizes):
        shift = (index - (len(analysis.sizes) - 1) / 2) * 0.18
        of_size = {p.model: p.accuracy for name in order for p in analysis.curve(name) if p.train_size == size}
        places = [place + shift for place, name in enumerate(order) if name in of_size]
        values, errors = in_percent([of_size[name] for name in order if name in of_size])
        form, colour = "osD^v"[index % 5], SERIES[index % len(SERIES)]
        axis.errorbar(places, values, errors, fmt=form, color=colour, capsize=2, ms=5, label=f"n = {size:,}")
    axis.set_xticks(range(len(order)), [name.replace("_", "\n") for name in order], fontsize=8)
    axis.set_ylabel("accuracy (%)")
    axis.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(analysis.sizes), frameon=False, fontsize=9)
    return figure


def before_and_after(layers: Sequence[StudiedLayer], order: Sequence[str], measure: str) -> Figure:
    """One measure by layer, before training (dashed) and after (solid), a panel for each contender."""
    shown = [name for name in order if any(layer.contender == name for layer in layers)]
    sizes = sorted({layer.train_size for layer in layers})
    figure, axes = panels(len(shown), 4, 2.2, 2.1, extra=0.9, share=True)
    for axis, name in zip(axes, shown, strict=True):
        for colour, size in zip(itertools.cycle(SERIES), sizes):
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
        _mean([getattr(one, when)[measure] for one in layers if one.layer == depth]) for depth in depths
    ]


def summary_rows(layers: Sequence[StudiedLayer], order: Sequence[str]) -> list[list[str]]:
    """Contender, size, then every measure before and after: mean over layers and seeds, and spread over seeds."""
    rows = []
    for size, name in itertools.product(sorted({layer.train_size for layer in layers}), order):
        of_cell = [layer for layer in layers if (layer.contender, layer.train_size) == (name, size)]
        if of_cell:
            texts = [
                _over_seeds(of_cell, when, measure) for measure in SUMMARY_MEASURES for when in ("before", "after")
            ]
            rows.append([name, f"{size:,}", *texts])
    return rows


def study_document(analysis: Analysis, layers: Sequence[StudiedLayer], order: Sequence[str], *, title: str) -> Document:
    """All that there is to say of a study."""
    lead = "Does locality help, most of all where data are short? And do networks look nearby by themselves?"
    document = Document(title, lead, looks=looks(order))
    caption = "Accuracy on the test images; the bars are 95 % intervals."
    figure = accuracy_by_contender(analysis, order)
    document.section("Accuracy", Picture(figure, caption, "Accuracy of every contender", "accuracy"))
    document.section(
        "Before and after training", Bullets([f"{name}: {meaning}" for name, meaning in SUMMARY_MEASURES.items()])
    )
    document.add(_study_table(layers, order))
    for measure, meaning in SUMMARY_MEASURES.items():
        figure, alt = before_and_after(layers, order, measure), f"{measure} by layer, before and after training"
        document.add(Picture(figure, f"{measure}: {meaning}.", alt, f"layers_{measure}"))
    return document


def _study_table(layers: Sequence[StudiedLayer], order: Sequence[str]) -> Table:
    columns = [
        "contender",
        "n",
        *(f"{measure}, {when}" for measure in SUMMARY_MEASURES for when in ("before", "after")),
    ]
    return Table(OVER_SEEDS, columns, summary_rows(layers, order), "before_and_after", part_by="n")


def study_summary(layers: Sequence[StudiedLayer]) -> Document:
    """Every measure of every contender with attention, before and after training; for a terminal a line for each."""
    order = list(dict.fromkeys(layer.contender for layer in layers))
    names, rows = [*SUMMARY_MEASURES], []
    for contender, size, *texts in summary_rows(layers, order):
        rows += [[contender, size, name, *texts[2 * i : 2 * i + 2]] for i, name in enumerate(names)]
    document = Document("Before and after training")
    document.add(Table(OVER_SEEDS, ["contender", "n", "measure", "before", "after"], rows))
    return document


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
    known = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(known) if known else math.nan
