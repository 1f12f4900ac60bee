"""The tables of a comparison, by the part that they belong to."""

from collections.abc import Sequence

from vit_vs_cnn.comparison.accuracy import Accuracy
from vit_vs_cnn.comparison.attacks import Attacked
from vit_vs_cnn.comparison.compare import Comparison
from vit_vs_cnn.comparison.confidence import Confidence
from vit_vs_cnn.comparison.differences import Differences
from vit_vs_cnn.comparison.latency import Cost
from vit_vs_cnn.comparison.robustness import Robustness
from vit_vs_cnn.comparison.similarity import LayerSimilarity
from vit_vs_cnn.reporting.document import Table
from vit_vs_cnn.reporting.style import bytes_text, in_millions, interval, percent, points, value_text
from vit_vs_cnn.runs.answers import MAJORITY
from vit_vs_cnn.runs.calibration import LEAST
from vit_vs_cnn.statistics.intervals import format_p_value


def tables_of(comparison: Comparison) -> dict[str, list[Table]]:
    """Every table that there is something to put into, by part, the most wanted first."""
    found: dict[str, list[Table]] = {}
    if (accuracy := comparison.accuracy) is not None:
        found["accuracy"] = [_groups(accuracy, comparison.images), *_pairs(accuracy), _classes(accuracy)]
    if comparison.confidence is not None:
        found["confidence"] = [_confidence(comparison.confidence)]
    if (robustness := comparison.robustness) is not None:
        found["robustness"] = [*_robustness(robustness), _corruptions(robustness), *_cues(robustness)]
    if comparison.attacked is not None:
        found.setdefault("robustness", []).append(_attacked(comparison.attacked))
    if comparison.similarity is not None and comparison.similarity.cka:
        found["similarity"] = [_similarity(comparison.similarity.cka, comparison.similarity.images)]
    if comparison.cost is not None:
        found["cost"] = [_cost(comparison.cost)]
    if comparison.differences is not None:
        found["differences"] = _differences(comparison.differences)
    return found


def _groups(accuracy: Accuracy, images: int) -> Table:
    rows = [[MAJORITY, "", percent(accuracy.majority), "", "", ""]]
    for group in accuracy.groups:
        top5 = ["-", "-"] if group.top5 is None else [percent(group.top5.value), interval(group.top5)]
        rows.append([group.name, str(len(group.seeds)), percent(group.top1.value), interval(group.top1), *top5])
    columns = ["", "seeds", "top-1 %", "95 %", "top-5 %", "95 %"]
    several = any(len(group.seeds) > 1 for group in accuracy.groups)
    note = "An interval over several seeds covers fresh seeds and fresh images." if several else ""
    return Table(f"Accuracy on {images:,} test images", columns, rows, "accuracy", note)


def _pairs(accuracy: Accuracy) -> list[Table]:
    if not accuracy.pairs:
        return []
    rows = []
    for pair in accuracy.pairs:
        c, alone = pair.comparison, f"{pair.only_first:,.0f} / {pair.only_second:,.0f}"
        p = format_p_value(c.adjusted_p_value)
        found = [points(c.difference.value), interval(c.difference, sign=True), alone, p]
        conclusion = str(c.conclusion) if c.obstacle is None else f"{c.conclusion}: {c.obstacle}"
        rows.append([f"{c.first} - {c.second}", *found, conclusion, str(c.test)])
    columns = ["pair", "points", "95 %", "one alone right", "p", "conclusion", "test"]
    note = "p is adjusted for the number of comparisons (Holm), except for the primary one." * (len(accuracy.pairs) > 1)
    aside = frozenset({"conclusion", "test"})
    title = "Differences on the same images, paired"
    return [Table(title, columns, rows, "pairs", note, aside)]


def _classes(accuracy: Accuracy) -> Table:
    names = [group.name for group in accuracy.groups]
    rows = [[one.name, str(one.images), *(percent(one.accuracy[name]) for name in names)] for one in accuracy.classes]
    columns, title = ["class", "images", *(f"{name} %" for name in names)], "By class"
    if len(names) == 2:
        pair = accuracy.pairs[0].comparison
        columns += [f"{pair.first} - {pair.second}", "p"]
        title += "; p is adjusted for the number of classes (Holm)"
        for row, one in zip(rows, accuracy.classes, strict=True):
            row += [points(one.accuracy[pair.first] - one.accuracy[pair.second]), format_p_value(one.p_corrected)]
    return Table(title, columns, rows, "classes", terminal=False)


def _confidence(confidence: dict[str, Confidence]) -> Table:
    rows = []
    for name, one in confidence.items():
        judged = [one.before, one.after] if one.after else [one.before]
        scores = [[percent(j.ece), f"{j.nll:.3f}", f"{j.brier:.3f}"] for j in judged]
        temperature = "-" if one.temperature is None else f"{one.temperature:.2f}"
        rows.append([name, *map(" -> ".join, zip(*scores, strict=True)), temperature, str(one.fitted_on or "-")])
    columns = ["", "ECE %", "NLL", "Brier", "temperature", "fitted on"]
    fitted = f"As it is -> after a temperature fitted on so many validation images, of which it takes {LEAST}."
    note = f"{fitted} ECE: 15 bins of equal mass."
    return Table("Confidence", columns, rows, "confidence", note)


def _robustness(robustness: Robustness) -> list[Table]:
    corrupted, shifts, shuffled = robustness.corruptions, robustness.shifts, robustness.shuffled
    spoiled, moved = [], []
    for name, clean in robustness.clean.items():
        mean, error = corrupted.mean[name], corrupted.mce[name]
        kept = [percent(corrupted.retained[name], 0), "-" if error is None else f"{error:.0f}"]
        spoiled.append([name, percent(clean), percent(mean.value), interval(mean), *kept])
        same = [percent(shifts.on_patch.get(name)), percent(shifts.off_patch.get(name))]
        moved.append([name, *same, *map(percent, shuffled.accuracy[name])])
    tiles = [f"{count}x{count} tiles %" for count in shuffled.tiles]
    none = "" if shifts.has_patch else ", though no network here has such patches"
    return [
        Table(
            f"Accuracy on {robustness.images:,} test images, clean and spoiled",
            ["", "clean %", "spoiled %", "95 %", "kept %", "mCE"],
            spoiled,
            "robustness",
            "Spoiled: mean over 16 corruptions at 5 levels; kept: its share of the clean accuracy; mCE: error "
            f"relative to that of {corrupted.reference}, which is 100. The corruptions are drawn here.",
        ),
        Table(
            "Shifted images and shuffled tiles",
            ["", "on patch %", "off patch %", *tiles],
            moved,
            "moves",
            f"On patch: images with the class they had after a shift by a multiple of {shifts.patch} pixels{none}; off "
            "patch: by one pixel more or less. Tiles: accuracy where so many tiles change places.",
        ),
    ]


def _corruptions(robustness: Robustness) -> Table:
    accuracy = robustness.corruptions.accuracy
    rows = [
        [corruption.replace("_", " "), *(percent(sum(a[corruption]) / len(a[corruption])) for a in accuracy.values())]
        for corruption in next(iter(accuracy.values()))
    ]
    columns = ["corruption", *(f"{name} %" for name in accuracy)]
    title = "Accuracy under each corruption, mean over its five levels"
    return Table(title, columns, rows, "corruptions", terminal=False)


def _cues(robustness: Robustness) -> list[Table]:
    if (cues := robustness.cues) is None:
        return []
    rows = [
        [name, percent(cues.shape_only[name]), percent(cues.texture_only[name]), percent(cues.shape_share[name])]
        for name in cues.shape_only
    ]
    columns = ["", "shape alone %", "texture alone %", "shape wins %"]
    title = f"Shape against texture on {cues.images:,} drawn images each; 'wins' where the two name different classes"
    return [Table(title, columns, rows, "cues")]


def _attacked(attacked: Attacked) -> Table:
    rows = [
        [f"{kind} within {radius:g}/255", *(percent(values[place]) for values in found.values())]
        for kind, found in (("FGSM", attacked.fgsm), ("PGD", attacked.pgd))
        for place, radius in enumerate(attacked.radii)
    ]
    columns = ["", *(f"{name} %" for name in attacked.fgsm)]
    return Table(f"Accuracy on {attacked.images:,} attacked test images", columns, rows, "attacks")


def _similarity(cka: Sequence[LayerSimilarity], images: int) -> Table:
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
    return Table(title, ["layer", "most like", "CKA"], rows, "similarity", terminal=False)


def _cost(cost: dict[str, Cost]) -> Table:
    rows = []
    for name, one in cost.items():
        sizes = [in_millions(one.parameters), in_millions(one.macs)]
        times = [f"{1000 * one.latency_p50:.2f}", f"{1000 * one.latency_p95:.2f}"]
        speed = [f"{one.throughput[one.best_batch]:,.0f}", str(one.best_batch)]
        rows.append(
            [name, *sizes, *times, *speed, *map(bytes_text, (one.peak_bytes, one.weight_bytes, one.file_bytes))]
        )
    columns = ["", "params", "MACs", "p50 ms", "p95 ms", "images/s", "at batch", "memory", "weights", "file"]
    first = next(iter(cost.values()))
    note = (
        "Measured in turns, so that a machine that drifts is fair to all. p50, p95: one image alone; "
        f"images/s: at the best batch; memory: tensors of a pass of {first.peak_batch} images. MACs with attention."
    )
    aside = frozenset({"weights", "at batch"})
    return Table(f"Cost on {first.device}", columns, rows, "cost", note, aside)


def _differences(differences: Differences) -> list[Table]:
    names, found = list(differences.trials), []
    if differences.settings:
        rows = [[one.setting, *(value_text(one.values.get(n, "-")) for n in names)] for one in differences.settings]
        found = [Table("Settings that differ", ["setting", *names], rows, "settings", terminal=len(rows) <= 12)]
    keys = list(dict.fromkeys(key for training in differences.training.values() for key in training))
    rows = [[key, *(value_text(differences.training.get(n, {}).get(key, "-")) for n in names)] for key in keys]
    rows.append(
        ["trials", *("no record" if (count := differences.trials[name]) is None else str(count) for name in names)]
    )
    tests = [[name, str(times)] for name, times in differences.test_evaluations.items()]
    return [
        *found,
        Table("What the training took (first seed)", ["", *names], rows, "training"),
        Table("How often the weights have been tested", ["network", "times"], tests, "evaluations"),
    ]
