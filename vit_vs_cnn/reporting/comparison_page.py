"""Page of a comparison: tables for the terminal, and a folder with JSON, tables, figures and the page."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from vit_vs_cnn.analysis.answer import conclusion_text
from vit_vs_cnn.comparison.accuracy import AccuracyComparison, ClassAccuracy
from vit_vs_cnn.comparison.compare import CalibrationScores, CorruptionAccuracy, NetworkComparison, Part
from vit_vs_cnn.comparison.corruptions import CORRUPTIONS, LEVELS
from vit_vs_cnn.comparison.cost import PEAK_BATCH
from vit_vs_cnn.comparison.differences import ABSENT
from vit_vs_cnn.comparison.entries import TestedEntry
from vit_vs_cnn.console import format_millions, join_names
from vit_vs_cnn.files import write_text
from vit_vs_cnn.networks.temperature import MIN_VALIDATION_IMAGES
from vit_vs_cnn.reporting.figures.comparison import comparison_figures
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import assign_styles, format_estimate, format_percent, format_points, format_value
from vit_vs_cnn.reporting.table import Cell, Table, print_tables
from vit_vs_cnn.runs.record import MAJORITY
from vit_vs_cnn.statistics.intervals import format_interval, format_p_value

if TYPE_CHECKING:
    import pandas

#: Tables that a terminal does not print.
PAGE_ONLY_TABLES = ("classes", "corruptions", "similarity")
#: For each figure: the part of the comparison that it belongs to, and the caption.
CAPTIONS = {
    "classes": (Part.ACCURACY, "Accuracy by class. The class with the largest difference is on top."),
    "confusion": (Part.ACCURACY, "Confusion in percent of the true class."),
    "pictures": (Part.ACCURACY, "Randomly chosen images that only one network, or none, classifies correctly."),
    "reliability": (Part.CALIBRATION, "Accuracy over confidence, 15 bins of equal mass. Dotted: perfect calibration."),
    "corruptions": (Part.CORRUPTIONS, "Accuracy by level of corruption."),
    "cka": (Part.SIMILARITY, "Centred kernel alignment between layers, unbiased, over minibatches."),
}


def comparison_page(comparison: NetworkComparison, figures: Mapping[str, Figure] | None = None) -> Page:
    """Page of a comparison: conclusions, warnings, and the tables and figures of each part."""
    styles, networks = assign_styles(comparison.groups), comparison.networks
    styles |= {name: styles[group] for name, group in zip(networks["network"], networks["group"], strict=True)}
    page = Page(join_names(comparison.groups), comparison.summary, styles=styles)
    page.heading("Before you read on")
    page.bullets(comparison.warnings)
    tables = comparison_tables(comparison)
    for part in Part:
        page.heading(part.capitalize())
        for table in tables.get(part, []):
            page.table(table)
        for name, figure in (figures or {}).items():
            of_part, caption = CAPTIONS[name]
            if of_part == part:
                page.picture(figure, caption, name, ("png", "svg") if name == "pictures" else ("svg", "png"))
    page.heading("How it was done")
    images = f"{comparison.images:,} test images of {len(comparison.class_names)} classes"
    log = "every evaluation is in the log of the networks' experiment"
    facts = f"{images}, fingerprint {comparison.fingerprint}; {log}; random choices by seed {comparison.seed}"
    page.bullets([*comparison.notes, facts])
    return page


def write_comparison_page(comparison: NetworkComparison, entries: Sequence[TestedEntry], folder: Path) -> list[Path]:
    """Write comparison.json, tables, figures and index.html into a folder, which is created."""
    write_text(folder / "comparison.json", json.dumps(comparison.to_dict(), indent=1, allow_nan=False) + "\n")
    page = comparison_page(comparison, comparison_figures(comparison, entries))
    return [folder / "comparison.json", *page.write(folder)]


def print_comparison(comparison: NetworkComparison) -> None:
    """Print the most important tables in a terminal."""
    tables = [table for of_part in comparison_tables(comparison).values() for table in of_part]
    print_tables([table for table in tables if table.name not in PAGE_ONLY_TABLES])


def comparison_tables(comparison: NetworkComparison) -> dict[Part, list[Table]]:
    """Tables of every requested part, the most important first."""
    tables: dict[Part, list[Table]] = {}
    if (accuracy := comparison.accuracy) is not None:
        pairs = [_pairs(accuracy)] if accuracy.pairs else []
        tables[Part.ACCURACY] = [_groups(comparison, accuracy), *pairs, classes_table(accuracy.classes, "By class")]
    if comparison.calibration is not None:
        tables[Part.CALIBRATION] = [_calibration(comparison.calibration)]
    if comparison.corruptions is not None:
        tables[Part.CORRUPTIONS] = _corruptions(comparison.corruptions)
    if comparison.similarity:
        tables[Part.SIMILARITY] = [_similarity(comparison.similarity, comparison.similarity_images)]
    if comparison.cost is not None:
        tables[Part.COST] = [_cost(comparison.cost)]
    if comparison.differences is not None:
        rows = [
            [setting, *(_setting(values.get(name, ABSENT)) for name in comparison.groups)]
            for setting, values in comparison.differences.items()
        ]
        tables[Part.DIFFERENCES] = [Table("Settings that differ", ["setting", *comparison.groups], rows, "settings")]
    return tables


def _setting(value: Any) -> Cell:
    return value if type(value) is int else format_value(value)


def _groups(comparison: NetworkComparison, accuracy: AccuracyComparison) -> Table:
    rows: list[list[Cell]] = [[MAJORITY, "", format_percent(accuracy.majority), "", "", ""]]
    seeds = Counter(comparison.networks["group"])
    for name, top1 in accuracy.top1.items():
        top5 = format_estimate(accuracy.top5[name]) if name in accuracy.top5 else ["-", "-"]
        rows.append([name, seeds[name], *format_estimate(top1), *top5])
    columns = ["", "seeds", "top-1 %", "95 %", "top-5 %", "95 %"]
    note = "An interval over several seeds is for new seeds and new images." if max(seeds.values()) > 1 else ""
    return Table(f"Accuracy on {comparison.images:,} test images", columns, rows, "accuracy", note)


def _pairs(accuracy: AccuracyComparison) -> Table:
    rows = []
    for pair, counts in zip(accuracy.pairs, accuracy.only_one_correct, strict=True):
        alone = " / ".join(f"{count:,.0f}" for count in (counts if pair.leader == pair.first else counts[::-1]))
        p = format_p_value(pair.adjusted_p_value)
        results = [format_points(pair.lead.value), format_interval(pair.lead, sign=True), alone, p]
        rows.append([f"{pair.leader} - {pair.follower}", *results, conclusion_text(pair), str(pair.test)])
    columns = ["pair", "points", "95 %", "only one correct", "p", "conclusion", "test"]
    note = "p is adjusted for the number of comparisons (Holm), except for the primary one." * (len(accuracy.pairs) > 1)
    title = "Differences on the same images, paired"
    return Table(title, columns, rows, "pairs", note, frozenset({"conclusion", "test"}))


def classes_table(classes: Sequence[ClassAccuracy], title: str) -> Table:
    """Accuracy of each class, with a p-value for two groups on one test set."""
    names = list(classes[0].accuracy)
    rows = [
        [c.name, c.images, *(format_percent(c.accuracy[name]) for name in names), format_p_value(c.p_corrected)]
        for c in classes
    ]
    title = f"{title}. p is adjusted for the number of classes (Holm)"
    return Table(title, ["class", "images", *(f"{name} %" for name in names), "p"], rows, "classes")


def _calibration(calibration: Mapping[str, Sequence[CalibrationScores]]) -> Table:
    rows = []
    for name, scores in calibration.items():
        texts = [[format_percent(score.ece), f"{score.nll:.3f}", f"{score.brier:.3f}"] for score in scores]
        temperature = "-" if scores[-1].temperature is None else f"{scores[-1].temperature:.2f}"
        rows.append([name, *map(" -> ".join, zip(*texts, strict=True)), temperature, scores[-1].fitted_on or None])
    columns = ["", "ECE %", "NLL", "Brier", "temperature", "fitted on"]
    note = (
        "Before -> after scaling by a temperature, fitted on at least "
        f"{MIN_VALIDATION_IMAGES} validation images. ECE: 15 bins of equal mass."
    )
    return Table("Calibration", columns, rows, "calibration", note)


def _corruptions(corruptions: CorruptionAccuracy) -> list[Table]:
    accuracy = corruptions.accuracy
    means = [
        [name, format_percent(clean), *format_estimate(corruptions.mean[name])]
        for name, clean in corruptions.clean.items()
    ]
    rows = [
        [corruption.replace("_", " "), *(format_percent(fmean(a[corruption])) for a in accuracy.values())]
        for corruption in CORRUPTIONS
    ]
    title = f"Accuracy on {corruptions.images:,} test images, original and corrupted"
    note = f"Corrupted: mean over {len(CORRUPTIONS)} corruptions at {len(LEVELS)} levels, not those of CIFAR-10-C."
    columns = ["corruption", *(f"{name} %" for name in accuracy)]
    return [
        Table(title, ["", "original %", "corrupted %", "95 %"], means, "corrupted", note),
        Table("Accuracy by corruption, mean over its five levels", columns, rows, "corruptions"),
    ]


def _similarity(similarity: "Mapping[tuple[str, str], pandas.DataFrame]", images: int) -> Table:
    rows = [
        [f"{first}: {layer}", f"{second}: {values.idxmax()}", f"{values.max():.2f}"]
        for (first, second), table in similarity.items()
        if first != second
        for layer, values in table.iterrows()
    ]
    title = f"The most similar layer for each layer (unbiased CKA over {images:,} images)"
    return Table(title, ["layer", "most similar", "CKA"], rows, "similarity")


def _cost(cost: "pandas.DataFrame") -> Table:
    rows = []
    for name, row in cost.to_dict("index").items():
        sizes = [format_millions(row["parameters"]), format_millions(row["macs"])]
        times = [f"{1000 * row['latency_p50']:.2f}", f"{1000 * row['latency_p95']:.2f}"]
        speed = [round(row["throughput"][row["best_batch"]]), row["best_batch"]]
        memory = "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:.1f} MB"
        rows.append([name, *sizes, *times, *speed, memory])
    columns = ["", "params", "MACs", "p50 ms", "p95 ms", "images/s", "at batch", "memory"]
    note = (
        "Timed in turns. p50, p95: one image; images/s: at the best batch; memory: of a pass over "
        f"{PEAK_BATCH} images on a GPU. MACs with attention."
    )
    return Table(f"Cost on {cost['device'].iloc[0]}", columns, rows, "cost", note)
