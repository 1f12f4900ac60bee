"""Page of a comparison: tables for the terminal, and a folder with JSON, tables, figures and the page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure
from rich.console import Console

from vit_vs_cnn.comparison.accuracy import AccuracyComparison
from vit_vs_cnn.comparison.calibration import CalibrationComparison
from vit_vs_cnn.comparison.compare import NetworkComparison, Part
from vit_vs_cnn.comparison.corruptions import CorruptionAccuracy
from vit_vs_cnn.comparison.cost import PEAK_BATCH, InferenceCost
from vit_vs_cnn.comparison.differences import ABSENT, ConfigDifferences
from vit_vs_cnn.comparison.entries import TestedEntry
from vit_vs_cnn.comparison.similarity import LayerSimilarity
from vit_vs_cnn.console import format_count, join_names
from vit_vs_cnn.files import write_text
from vit_vs_cnn.reporting.figures.comparison import comparison_figures
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import (
    ModelStyle,
    assign_styles,
    format_bytes,
    format_estimate,
    format_millions,
    format_percent,
    format_points,
    format_value,
)
from vit_vs_cnn.reporting.table import Cell, Table, print_lines, print_tables
from vit_vs_cnn.runs.evaluation import MIN_VALIDATION_IMAGES
from vit_vs_cnn.runs.record import MAJORITY
from vit_vs_cnn.statistics.intervals import format_interval, format_p_value

HEADINGS = {
    Part.ACCURACY: "Accuracy",
    Part.CALIBRATION: "Calibration",
    Part.CORRUPTIONS: "Corruptions",
    Part.SIMILARITY: "Similarity of the layers",
    Part.COST: "Cost",
    Part.DIFFERENCES: "Differences between the configs",
}
#: Tables that a terminal does not print, and the largest number of rows of those that it prints.
PAGE_ONLY_TABLES, MAX_PRINTED_ROWS = {"classes", "corruptions", "similarity"}, 13
#: For each figure: the part of the comparison that it belongs to, and the caption.
CAPTIONS = {
    "classes": (Part.ACCURACY, "Accuracy by class. The class with the largest difference is on top."),
    "confusion": (Part.ACCURACY, "Confusion in percent of the true class."),
    "pictures": (Part.ACCURACY, "Randomly chosen images that only one network, or none, classifies correctly."),
    "reliability": (
        Part.CALIBRATION,
        "Accuracy over confidence, 15 bins of equal mass. On the dotted line both agree.",
    ),
    "corruptions": (Part.CORRUPTIONS, "Accuracy by level of corruption."),
    "cka": (Part.SIMILARITY, "Centred kernel alignment between layers, unbiased, over minibatches."),
}


def comparison_page(comparison: NetworkComparison, figures: Mapping[str, Figure] | None = None) -> Page:
    """Page of a comparison: conclusions, warnings, and the tables and figures of each part."""
    groups = list(dict.fromkeys(network.group for network in comparison.networks))
    page = Page(join_names(groups), _lead(comparison), styles=_styles(comparison))
    page.heading("Before you read on")
    page.bullets(_warnings(comparison))
    tables = comparison_tables(comparison)
    for part, heading in HEADINGS.items():
        page.heading(heading)
        for table in tables.get(part, []):
            page.table(table)
        for name, figure in (figures or {}).items():
            of_part, caption = CAPTIONS[name]
            if of_part == part:
                alt = f"{caption} Of {page.title}; the numbers are in the tables of this section."
                page.picture(figure, caption, alt, name, ("png", "svg") if name == "pictures" else ("svg", "png"))
    page.heading("How it was done")
    page.bullets(comparison.notes)
    page.facts(_method(comparison))
    return page


def write_comparison_page(comparison: NetworkComparison, entries: Sequence[TestedEntry], folder: Path) -> list[Path]:
    """Write comparison.json, tables, figures and index.html into a folder, which is created."""
    write_text(folder / "comparison.json", json.dumps(comparison.to_dict(), indent=1, allow_nan=False) + "\n")
    page = comparison_page(comparison, comparison_figures(comparison, entries))
    return [folder / "comparison.json", *page.write(folder)]


def print_comparison(comparison: NetworkComparison, console: Console) -> None:
    """Print the most important tables, the conclusions, and the warnings in a terminal."""
    tables = [table for of_part in comparison_tables(comparison).values() for table in of_part]
    shown = [table for table in tables if table.name not in PAGE_ONLY_TABLES and len(table.rows) <= MAX_PRINTED_ROWS]
    print_tables(shown, console, _styles(comparison))
    if shown:
        console.print()
    print_lines(_lead(comparison), console, "bold")
    print_lines([f"warning: {text}" for text in _warnings(comparison)], console, "yellow")
    print_lines([f"note: {text}" for text in comparison.notes], console)


def _lead(comparison: NetworkComparison) -> list[str]:
    count = format_count(len(comparison.networks), "network")
    return comparison.conclusions or [f"{count} on {comparison.images:,} test images."]


def _styles(comparison: NetworkComparison) -> dict[str, ModelStyle]:
    """Styles of groups and of their networks."""
    styles = assign_styles(network.group for network in comparison.networks)
    return styles | {network.name: styles[network.group] for network in comparison.networks}


def _warnings(comparison: NetworkComparison) -> list[str]:
    few = comparison.accuracy.few_classes if comparison.accuracy is not None else []
    return [*few, *(comparison.differences.warnings if comparison.differences is not None else [])]


def _method(comparison: NetworkComparison) -> dict[str, Cell]:
    facts: dict[str, Cell] = {
        "test images": f"{comparison.images:,} of {len(comparison.class_names)} classes, fingerprint "
        f"{comparison.fingerprint}; every evaluation is in the log of the networks' experiment",
        "seed": f"{comparison.seed}, of all random choices",
    }
    if comparison.corruptions is not None:
        facts["corruptions"] = f"of {comparison.corruptions.images:,} of these images; CIFAR-10-C has other corruptions"
    for network in comparison.networks:
        if network.is_reused is not None:
            source = "saved by its run" if network.is_reused else "computed now"
            facts[network.name] = f"weights {network.weights}, predictions {source}"
    return facts


def comparison_tables(comparison: NetworkComparison) -> dict[Part, list[Table]]:
    """Tables of every requested part, the most important first."""
    results: dict[Part, list[Table]] = {}
    if (accuracy := comparison.accuracy) is not None:
        results[Part.ACCURACY] = [_groups(accuracy, comparison.images), *_pairs(accuracy), _classes(accuracy)]
    if comparison.calibration is not None:
        results[Part.CALIBRATION] = [_calibration(comparison.calibration)]
    if comparison.corruptions is not None:
        results[Part.CORRUPTIONS] = _corruptions(comparison.corruptions)
    if comparison.similarity:
        results[Part.SIMILARITY] = [_similarity(comparison.similarity)]
    if comparison.cost is not None:
        results[Part.COST] = [_cost(comparison.cost)]
    if comparison.differences is not None:
        results[Part.DIFFERENCES] = [_differences(comparison.differences)]
    return results


def _groups(accuracy: AccuracyComparison, images: int) -> Table:
    rows = [[MAJORITY, "", format_percent(accuracy.majority), "", "", ""]]
    for group in accuracy.groups:
        top5 = ["-", "-"] if group.top5 is None else format_estimate(group.top5)
        rows.append([group.name, str(len(group.seeds)), *format_estimate(group.top1), *top5])
    columns = ["", "seeds", "top-1 %", "95 %", "top-5 %", "95 %"]
    several = any(len(group.seeds) > 1 for group in accuracy.groups)
    note = "An interval over several seeds is for new seeds and new images." if several else ""
    return Table(f"Accuracy on {images:,} test images", columns, rows, "accuracy", note)


def _pairs(accuracy: AccuracyComparison) -> list[Table]:
    if not accuracy.pairs:
        return []
    rows = []
    for pair in accuracy.pairs:
        c = pair.comparison
        counts = [pair.only_first, pair.only_second] if c.leader == c.first else [pair.only_second, pair.only_first]
        alone = " / ".join(f"{count:,.0f}" for count in counts)
        p = format_p_value(c.adjusted_p_value)
        results = [format_points(c.lead.value), format_interval(c.lead, sign=True), alone, p]
        conclusion = str(c.conclusion) if c.obstacle is None else f"{c.conclusion}: {c.obstacle}"
        rows.append([f"{c.leader} - {c.follower}", *results, conclusion, str(c.test)])
    columns = ["pair", "points", "95 %", "only one correct", "p", "conclusion", "test"]
    note = "p is adjusted for the number of comparisons (Holm), except for the primary one." * (len(accuracy.pairs) > 1)
    title = "Differences on the same images, paired"
    return [Table(title, columns, rows, "pairs", note, frozenset({"conclusion", "test"}))]


def _classes(accuracy: AccuracyComparison) -> Table:
    names = [group.name for group in accuracy.groups]
    columns, title = ["class", "images", *(f"{name} %" for name in names)], "By class"
    rows = [
        [result.name, str(result.images), *(format_percent(result.accuracy[name]) for name in names)]
        for result in accuracy.classes
    ]
    if len(names) == 2:
        first, second = accuracy.pairs[0].comparison.leader, accuracy.pairs[0].comparison.follower
        columns += [f"{first} - {second}", "p"]
        title += "; p is adjusted for the number of classes (Holm)"
        for row, result in zip(rows, accuracy.classes, strict=True):
            difference = result.accuracy[first] - result.accuracy[second]
            row += [format_points(difference), format_p_value(result.p_corrected)]
    return Table(title, columns, rows, "classes")


def _calibration(calibration: dict[str, CalibrationComparison]) -> Table:
    rows = []
    for name, result in calibration.items():
        both = [result.before, result.after] if result.after else [result.before]
        scores = [[format_percent(score.ece), f"{score.nll:.3f}", f"{score.brier:.3f}"] for score in both]
        temperature = "-" if result.temperature is None else f"{result.temperature:.2f}"
        rows.append([name, *map(" -> ".join, zip(*scores, strict=True)), temperature, str(result.fitted_on or "-")])
    columns = ["", "ECE %", "NLL", "Brier", "temperature", "fitted on"]
    note = (
        "Before -> after scaling by a temperature, fitted on at least "
        f"{MIN_VALIDATION_IMAGES} validation images. ECE: 15 bins of equal mass."
    )
    return Table("Calibration", columns, rows, "calibration", note)


def _corruptions(corruptions: CorruptionAccuracy) -> list[Table]:
    means = [
        [name, format_percent(clean), *format_estimate(corruptions.mean[name])]
        for name, clean in corruptions.clean.items()
    ]
    accuracy = corruptions.accuracy
    rows = [
        [corruption.replace("_", " "), *(format_percent(fmean(a[corruption])) for a in accuracy.values())]
        for corruption in next(iter(accuracy.values()))
    ]
    title = f"Accuracy on {corruptions.images:,} test images, original and corrupted"
    note = "Corrupted: mean over 16 corruptions at 5 levels."
    return [
        Table(title, ["", "original %", "corrupted %", "95 %"], means, "corrupted", note),
        Table(
            "Accuracy by corruption, mean over its five levels",
            ["corruption", *(f"{name} %" for name in accuracy)],
            rows,
            "corruptions",
        ),
    ]


def _similarity(cka: Sequence[LayerSimilarity]) -> Table:
    rows = []
    for pair in (pair for pair in cka if pair.first != pair.second):
        for layer, values in zip(pair.first_layers, pair.values, strict=True):
            similarity = max(values)
            match = pair.second_layers[values.index(similarity)]
            rows.append([f"{pair.first}: {layer}", f"{pair.second}: {match}", f"{similarity:.2f}"])
    title = f"The most similar layer for each layer (unbiased CKA over {cka[0].images:,} images)"
    return Table(title, ["layer", "most similar", "CKA"], rows, "similarity")


def _cost(cost: dict[str, InferenceCost]) -> Table:
    rows = []
    for name, values in cost.items():
        sizes = [format_millions(values.parameters), format_millions(values.macs)]
        times = [f"{1000 * values.latency_p50:.2f}", f"{1000 * values.latency_p95:.2f}"]
        speed = [f"{values.throughput[values.best_batch]:,.0f}", str(values.best_batch)]
        memory = [format_bytes(count) for count in (values.peak_bytes, values.weight_bytes, values.file_bytes)]
        rows.append([name, *sizes, *times, *speed, *memory])
    columns = ["", "params", "MACs", "p50 ms", "p95 ms", "images/s", "at batch", "memory", "weights", "file"]
    note = (
        "Timed in turns. p50, p95: one image; images/s: at the best batch; memory: of a pass over "
        f"{PEAK_BATCH} images on a GPU. MACs with attention."
    )
    title = f"Cost on {next(iter(cost.values())).device}"
    return Table(title, columns, rows, "cost", note, frozenset({"weights", "at batch"}))


def _differences(differences: ConfigDifferences) -> Table:
    names = list(differences.recipes)
    rows = [
        [setting, *(format_value(values.get(name, ABSENT)) for name in names)]
        for setting, values in differences.settings.items()
    ]
    rows.append(["recipe", *differences.recipes.values()])
    return Table("Settings that differ", ["setting", *names], rows, "settings")
