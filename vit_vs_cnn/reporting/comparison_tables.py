"""The tables of a comparison, the same for the terminal, Markdown, CSV and the page."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.comparison.accuracy import Accuracy
from vit_vs_cnn.comparison.attacks import Attacked
from vit_vs_cnn.comparison.compare import Comparison
from vit_vs_cnn.comparison.confidence import Confidence
from vit_vs_cnn.comparison.differences import Differences
from vit_vs_cnn.comparison.latency import Cost
from vit_vs_cnn.comparison.robustness import Robustness
from vit_vs_cnn.comparison.similarity import LayerSimilarity
from vit_vs_cnn.reporting.tables import in_millions
from vit_vs_cnn.runs.answers import MAJORITY
from vit_vs_cnn.statistics.estimate import Estimate, p_text


@dataclass(frozen=True)
class Sheet:
    """One table.

    Arguments:
        name: of its file.
        title: what it is of.
        columns: their names.
        rows: texts; as many in each as there are columns.
        part: which part of the comparison it belongs to.
        aside: columns that a terminal has no room for.
        note: what a reader must know to read it.
    """

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    part: str
    aside: frozenset[str] = frozenset()
    note: str = ""

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    def to_markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def sheets_of(comparison: Comparison) -> list[Sheet]:
    """Every table that there is something to put into, the most wanted first."""
    sheets = []
    if comparison.accuracy is not None:
        sheets += [_groups(comparison.accuracy, comparison.images), *_pairs(comparison.accuracy)]
    if comparison.confidence is not None:
        sheets.append(_confidence(comparison.confidence))
    if comparison.robustness is not None:
        sheets += [*_robustness(comparison.robustness), _corruptions(comparison.robustness)]
        if comparison.robustness.cues is not None:
            sheets.append(_cues(comparison.robustness))
    if comparison.attacked is not None:
        sheets.append(_attacked(comparison.attacked))
    if comparison.similarity is not None and comparison.similarity.cka:
        sheets.append(_similarity(comparison.similarity.cka, comparison.similarity.images))
    if comparison.cost is not None:
        sheets.append(_cost(comparison.cost))
    if comparison.differences is not None:
        sheets += _differences(comparison.differences)
    if comparison.accuracy is not None:
        sheets.append(_classes(comparison.accuracy))
    return sheets


def percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f}"


def interval(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


def _groups(accuracy: Accuracy, images: int) -> Sheet:
    rows = [[MAJORITY, "", percent(accuracy.majority), "", "", ""]]
    rows += [
        [
            group.name,
            str(len(group.seeds)),
            percent(group.top1.value),
            interval(group.top1),
            percent(None if group.top5 is None else group.top5.value),
            "-" if group.top5 is None else interval(group.top5),
        ]
        for group in accuracy.groups
    ]
    columns = ["", "seeds", "top-1 %", "95 %", "top-5 %", "95 %"]
    several = any(len(group.seeds) > 1 for group in accuracy.groups)
    note = "An interval over several seeds covers fresh seeds and fresh images." if several else ""
    return Sheet("accuracy", f"Accuracy on {images:,} test images", columns, rows, "accuracy", note=note)


def _pairs(accuracy: Accuracy) -> list[Sheet]:
    if not accuracy.pairs:
        return []
    rows = [
        [
            f"{c.first} - {c.second}",
            f"{100 * c.difference.value:+.1f}",
            f"{100 * c.difference.low:+.1f} to {100 * c.difference.high:+.1f}",
            f"{pair.only_first:,.0f} / {pair.only_second:,.0f}",
            p_text(c.adjusted_p_value),
            c.verdict if c.reason is None else f"{c.verdict}: {c.reason}",
            c.test,
        ]
        for pair in accuracy.pairs
        for c in [pair.comparison]
    ]
    columns = ["pair", "points", "95 %", "one alone right", "p", "verdict", "test"]
    notes = ["p is corrected for the number of pairs (Holm)."] if len(accuracy.pairs) > 1 else []
    if accuracy.overall is not None:
        notes.append(f"All at once, {accuracy.overall.test}: p = {p_text(accuracy.overall.p_value)}.")
    aside = frozenset({"verdict", "test"})
    title = "Differences on the same images, paired"
    return [Sheet("pairs", title, columns, rows, "accuracy", aside, " ".join(notes))]


def _classes(accuracy: Accuracy) -> Sheet:
    names = [group.name for group in accuracy.groups]
    tested = len(names) == 2
    pair = [accuracy.pairs[0].comparison.first, accuracy.pairs[0].comparison.second] if tested else []
    rows = [
        [
            one.name,
            str(one.images),
            *(percent(one.accuracy[name]) for name in names),
            *([f"{100 * (one.accuracy[pair[0]] - one.accuracy[pair[1]]):+.1f}"] if tested else []),
            *([p_text(one.p_corrected)] if tested else []),
        ]
        for one in accuracy.classes
    ]
    columns = ["class", "images", *(f"{name} %" for name in names), *([" - ".join(pair), "p"] if tested else [])]
    title = "By class" + ("; p is corrected for the number of classes (Holm)" if tested else "")
    return Sheet("classes", title, columns, rows, "accuracy")


def _confidence(confidence: dict[str, Confidence]) -> Sheet:
    rows = []
    for name, one in confidence.items():
        after = one.after
        rows.append(
            [
                name,
                _arrow(percent(one.before.ece), after and percent(after.ece)),
                _arrow(f"{one.before.nll:.3f}", after and f"{after.nll:.3f}"),
                _arrow(f"{one.before.brier:.3f}", after and f"{after.brier:.3f}"),
                "-" if one.temperature is None else f"{one.temperature:.2f}",
                str(one.fitted_on),
            ]
        )
    columns = ["", "ECE %", "NLL", "Brier", "temperature", "fitted on"]
    note = "As it is -> after a temperature fitted on so many validation images. ECE: 15 bins of equal mass."
    return Sheet("confidence", "Confidence", columns, rows, "confidence", note=note)


def _arrow(before: str, after: str | None) -> str:
    return before if after is None else f"{before} -> {after}"


def _robustness(robustness: Robustness) -> list[Sheet]:
    corrupted, shifts, shuffled = robustness.corruptions, robustness.shifts, robustness.shuffled
    spoiled = [
        [
            name,
            percent(robustness.clean[name]),
            percent(corrupted.mean[name].value),
            interval(corrupted.mean[name]),
            percent(corrupted.retained[name], 0),
            f"{corrupted.mce[name]:.0f}",
        ]
        for name in robustness.clean
    ]
    moved = [
        [
            name,
            percent(shifts.on_patch.get(name)),
            percent(shifts.off_patch.get(name)),
            *(percent(value) for value in shuffled.accuracy[name]),
        ]
        for name in robustness.clean
    ]
    tiles = [f"{count}x{count} tiles %" for count in shuffled.tiles]
    return [
        Sheet(
            "robustness",
            f"Accuracy on {robustness.images:,} test images, clean and spoiled",
            ["", "clean %", "spoiled %", "95 %", "kept %", "mCE"],
            spoiled,
            "robustness",
            note="Spoiled: mean over 16 corruptions at 5 levels; kept: its share of the clean accuracy; mCE: error "
            f"relative to that of {corrupted.reference}, which is 100. The corruptions are drawn here.",
        ),
        Sheet(
            "moves",
            "Shifted images and shuffled tiles",
            ["", "on patch %", "off patch %", *tiles],
            moved,
            "robustness",
            note=f"On patch: images with the class they had after a shift by a multiple of {shifts.patch} pixels; off "
            "patch: by one pixel more or less. Tiles: accuracy where so many tiles change places.",
        ),
    ]


def _corruptions(robustness: Robustness) -> Sheet:
    accuracy = robustness.corruptions.accuracy
    rows = [
        [corruption.replace("_", " "), *(percent(sum(a[corruption]) / len(a[corruption])) for a in accuracy.values())]
        for corruption in next(iter(accuracy.values()))
    ]
    return Sheet(
        "corruptions",
        "Accuracy under each corruption, mean over its five levels",
        ["corruption", *(f"{name} %" for name in accuracy)],
        rows,
        "robustness",
    )


def _cues(robustness: Robustness) -> Sheet:
    cues = robustness.cues
    assert cues is not None
    rows = [
        [name, percent(cues.shape_only[name]), percent(cues.texture_only[name]), percent(cues.shape_share[name])]
        for name in cues.shape_only
    ]
    columns = ["", "shape alone %", "texture alone %", "shape wins %"]
    title = f"Shape against texture on {cues.images:,} drawn images each; 'wins' where the two name different classes"
    return Sheet("cues", title, columns, rows, "robustness")


def _attacked(attacked: Attacked) -> Sheet:
    rows = [
        [f"{kind} within {radius:g}/255", *(percent(values[place]) for values in found.values())]
        for kind, found in (("FGSM", attacked.fgsm), ("PGD", attacked.pgd))
        for place, radius in enumerate(attacked.radii)
    ]
    columns = ["", *(f"{name} %" for name in attacked.fgsm)]
    return Sheet("attacks", f"Accuracy on {attacked.images:,} attacked test images", columns, rows, "robustness")


def _similarity(cka: Sequence[LayerSimilarity], images: int) -> Sheet:
    rows = []
    for one in cka:
        if one.first == one.second:
            continue
        best = [max(range(len(row)), key=row.__getitem__) for row in one.values]
        rows += [
            [f"{one.first}: {layer}", f"{one.second}: {one.second_layers[place]}", f"{row[place]:.2f}"]
            for layer, place, row in zip(one.first_layers, best, one.values, strict=True)
        ]
    title = f"The most similar layer for each layer (unbiased CKA over {images:,} images)"
    return Sheet("similarity", title, ["layer", "most like", "CKA"], rows, "similarity")


def _cost(cost: dict[str, Cost]) -> Sheet:
    rows = [
        [
            name,
            in_millions(one.parameters),
            "-" if one.macs is None else in_millions(one.macs),
            f"{1000 * one.latency_p50:.2f}",
            f"{1000 * one.latency_p95:.2f}",
            f"{one.throughput[one.best_batch]:,.0f}",
            str(one.best_batch),
            in_bytes(one.peak_bytes),
            in_bytes(one.weight_bytes),
            "-" if one.file_bytes is None else in_bytes(one.file_bytes),
        ]
        for name, one in cost.items()
    ]
    columns = ["", "params", "MACs", "p50 ms", "p95 ms", "images/s", "at batch", "memory", "weights", "file"]
    first = next(iter(cost.values()))
    note = (
        "Measured in turns, so that a machine that drifts is fair to all. p50, p95: one image alone; "
        f"images/s: at the best batch; memory: tensors of a pass of {first.peak_batch} images. MACs with attention."
    )
    aside = frozenset({"weights", "at batch"})
    return Sheet("cost", f"Cost on {first.device}", columns, rows, "cost", aside, note)


def in_bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def _differences(differences: Differences) -> list[Sheet]:
    sheets = []
    names = list(differences.trials)
    if differences.settings:
        rows = [[one.setting, *(_value(one.values.get(name, "-")) for name in names)] for one in differences.settings]
        sheets.append(Sheet("settings", "Settings that differ", ["setting", *names], rows, "differences"))
    keys = list(dict.fromkeys(key for training in differences.training.values() for key in training))
    rows = [[key, *(_value(differences.training.get(n, {}).get(key, "-")) for n in names)] for key in keys]
    trials = [_value(differences.trials[name]) for name in names]
    rows.append(["trials", *trials])
    sheets.append(Sheet("training", "What the training took (first seed)", ["", *names], rows, "differences"))
    rows = [[name, str(times)] for name, times in differences.test_evaluations.items()]
    sheets.append(
        Sheet("evaluations", "How often the weights have been tested", ["network", "times"], rows, "differences")
    )
    return sheets


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) >= 1e8):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
