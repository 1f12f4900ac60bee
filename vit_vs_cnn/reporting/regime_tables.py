"""The tables of the page of an experiment."""

from collections.abc import Mapping, Sequence

import numpy as np

from vit_vs_cnn.regimes.analysis import Analysis
from vit_vs_cnn.regimes.answer import format_margin
from vit_vs_cnn.regimes.model_summaries import display_name
from vit_vs_cnn.reporting.document import Table
from vit_vs_cnn.reporting.style import in_millions, percent, points
from vit_vs_cnn.reporting.tables import ONE_SEED
from vit_vs_cnn.runs.answers import MAJORITY
from vit_vs_cnn.runs.auditing.contamination import Contamination
from vit_vs_cnn.runs.result import RunResult, RunState, by_network
from vit_vs_cnn.runs.status import CellStatus
from vit_vs_cnn.statistics.intervals import Estimate, format_p_value
from vit_vs_cnn.statistics.pair_comparison import Conclusion, PairComparison

#: State of a run that has no result and did not fail.
MISSING = "not finished"


def curves_table(analysis: Analysis) -> Table:
    """Accuracy of every model at every training-set size."""
    rows = [] if analysis.chance is None else [[MAJORITY, "", percent(analysis.chance), "", "", ""]]
    points_of_all = [point for model in analysis.models for point in analysis.curve(model.key)]
    rows += [
        [analysis.display_names[p.model], f"{p.train_size:,}", *_percent(p.accuracy), str(len(p.by_seed))]
        for p in points_of_all
    ]
    title = f"Accuracy on {analysis.test_images:,} images: mean over seeds, with its 95 % interval"
    columns = ["model", "n", "accuracy, %", "from", "to", "seeds"]
    single = any(len(p.by_seed) == 1 for p in points_of_all)
    return Table(title, columns, rows, "learning_curves", note=ONE_SEED * single)


def comparisons_table(analysis: Analysis) -> Table:
    """All comparisons of two models, with p-values and conclusions."""
    rows = []
    for one in sorted(analysis.comparisons, key=lambda one: one.train_size or 0):
        names = [analysis.display_names[key] for key in (one.leader, one.follower)]
        p = [format_p_value(one.p_value), format_p_value(one.adjusted_p_value)]
        detectable = "" if one.obstacle or one.minimum_detectable is None else percent(one.minimum_detectable)
        numbers = [*_percent(one.lead, sign=True), *p, str(one.seeds), detectable]
        rows.append([f"{one.train_size:,}", *names, *numbers, _conclusion(one)])
    columns = ["n", "better", "worse", "points", "from", "to", "p", "adjusted p", "seeds", "detectable", "conclusion"]
    note = (
        "Both models were tested on the same images, with the same seeds and the same budget. Intervals and p are of "
        "one comparison. The adjusted p allows for the number of comparisons, except for the primary one, which was "
        "named in advance. Detectable: the smallest difference in points that would be significant in 80 % of such "
        "experiments; empty where no possible difference would be, or where there is no conclusion."
    )
    return Table("Differences between two models", columns, rows, "comparisons", note, part_by="n")


def _conclusion(one: PairComparison) -> str:
    match one.conclusion:
        case Conclusion.NO_CONCLUSION:
            text = f"no conclusion: {one.obstacle}"
        case Conclusion.EQUIVALENT:
            text = f"equivalent within {format_margin(one.margin)}"
        case _:
            text = str(one.conclusion)
    return f"{text}{', primary' * one.is_primary}{', 99 % interval' * (one.error_rate < 0.05)}"


def crossovers_table(analysis: Analysis) -> Table:
    """The training-set sizes between which a model overtakes another one."""
    names = analysis.display_names
    rows = [[names[one.above], names[one.below], f"{one.low:,}", f"{one.high:,}"] for one in analysis.crossovers]
    title = "Crossovers: the second model is significantly better with fewer images, the first with more images"
    return Table(title, ["better with more", "better with fewer", "at most n", "at least n"], rows, "crossovers")


def forecasts_table(analysis: Analysis) -> Table:
    """Expected accuracy with more images than were measured."""
    rows = [
        [
            analysis.display_names[one.model],
            f"{one.train_size:,}",
            *_percent(one.accuracy),
            f"{one.law.scale:.3g}",
            f"{one.law.exponent:.3f}",
            percent(one.law.floor),
        ]
        for one in analysis.forecasts
    ]
    title = "Forecast with twice the images, from a law fitted to the measured sizes: error(n) = a n^-b + c"
    columns = ["model", "n", "accuracy, %", "from", "to", "a", "b", "c, %"]
    return Table(title, columns, rows, "forecasts")


def budgets_table(results: Sequence[RunResult]) -> Table:
    """Steps, images, epochs and FLOPs of one run of every model at every training-set size."""
    first = {(r.train_size, r.contender, r.cost.steps): r for r in results}
    rows = []
    for (size, contender, steps), r in sorted(first.items()):
        amounts = [f"{steps:,}", f"{r.cost.images_processed:,}", f"{r.epochs:.1f}", f"{r.cost.flops:.3g}"]
        sizes = [in_millions(r.cost.parameters), in_millions(r.cost.macs)]
        trials = "no record" if r.tuning is None else str(r.tuning.trials)
        rows.append([f"{size:,}", display_name(contender), *amounts, *sizes, trials])
    title = "Cost of one run. MACs are of one image, attention products included. FLOPs are of the training"
    columns = ["n", "model", "steps", "images", "epochs", "FLOPs", "parameters", "MACs", "trials"]
    return Table(title, columns, rows, "budgets", part_by="n")


def more_training_table(analysis: Analysis) -> Table:
    """Accuracy of every model with every budget, and its gain over the next shorter budget."""
    gains = {(one.model, one.train_size, one.longer): one.gain for one in analysis.gains}
    rows = []
    for p in sorted(analysis.accuracies, key=lambda p: (p.train_size, p.model)) if len(analysis.budgets) > 1 else ():
        gain = gains.get((p.model, p.train_size, p.budget))
        gained = ["", "", ""] if gain is None else _percent(gain, sign=True)
        rows.append([f"{p.train_size:,}", analysis.display_names[p.model], p.budget, *_percent(p.accuracy), *gained])
    title = "Accuracy with every budget, and the points gained over the next shorter one, paired by seed"
    columns = ["n", "model", "budget", "accuracy, %", "from", "to", "gain", "gain from", "gain to"]
    return Table(title, columns, rows, "more_training", part_by="n")


def interactions_table(analysis: Analysis) -> Table:
    """Change of the difference of two models between the shortest and the longest budget."""
    names = analysis.display_names
    rows = [
        [
            f"{one.train_size:,}",
            names[one.first],
            names[one.second],
            f"{one.shorter} to {one.longer}",
            *_percent(one.change, sign=True),
            format_p_value(one.adjusted_p_value),
        ]
        for one in sorted(analysis.interactions, key=lambda one: one.train_size)
    ]
    title = (
        "Change of the difference (first minus second) with the longest budget, in points. The adjusted p allows for "
        "the number of sizes"
    )
    columns = ["n", "first", "second", "budgets", "change", "from", "to", "adjusted p"]
    return Table(title, columns, rows, "interactions", part_by="n")


def equal_cost_table(analysis: Analysis) -> Table:
    """Difference of every pair at equal steps and at equal training FLOPs."""
    names, rows = analysis.display_names, []
    for one in sorted(analysis.equal_cost, key=lambda one: one.train_size):
        numbers = ["unknown", "", ""] if one.difference is None else _percent(one.difference, sign=True)
        source = "between two budgets" if one.is_interpolated else "no run is short enough"
        if one.difference is not None and not one.is_interpolated:
            source = "runs"
        pair = [names[one.first], names[one.second]]
        rows.append([f"{one.train_size:,}", *pair, str(one.cost), f"{one.ratio:.2f}", *numbers, source])
    title = (
        "First minus second model at equal training cost. The ratio is the cost of the first divided by that of the "
        "second. Ratios up to 1.25 count as equal where there is no shorter budget"
    )
    columns = ["n", "first", "second", "equal", "ratio", "points", "from", "to", "source"]
    return Table(title, columns, rows, "equal_cost", part_by="n")


def runs_table(cells: Sequence[CellStatus], results: Sequence[RunResult]) -> Table:
    """All runs of the experiment, those that failed or are not finished included."""
    by_run = {r.run: r for r in results}
    rows = []
    for cell in cells:
        r = by_run.get(cell.folder)
        state = cell.state if cell.state in (RunState.FINISHED, RunState.FAILED) else MISSING
        scores = ["", "", "", "", ""]
        if r is not None:
            interval = r.scores.accuracy_interval
            values = [percent(value, 2) for value in (interval.value, interval.low, interval.high)]
            scores = [*values, str(r.scores.test_evaluations), r.data.subset]
        names = [display_name(cell.contender), f"{cell.train_size:,}", cell.budget.text, str(cell.seed)]
        rows.append([*names, *scores, state])
    title = (
        "All runs, with Wilson's interval for other test images. Tested: number of evaluations of these weights on the "
        "test images. vit-vs-cnn status prints the errors of failed runs"
    )
    columns = ["model", "n", "budget", "seed", "accuracy, %", "from", "to", "tested", "subset", "state"]
    return Table(title, columns, rows, "runs")


def duplicates_table(
    contamination: Contamination, results: Sequence[RunResult], correct: Mapping[str, np.ndarray]
) -> Table:
    """Accuracy with and without the test images that are near-duplicates of images of the run."""
    rows = []
    for (contender, size), group in sorted(by_network(results).items(), key=lambda item: item[0][::-1]):
        clean = [contamination.clean(result) for result in group]
        number = float(np.mean([(~kept).sum() for kept in clean]))
        pairs = [(correct[r.run], kept) for r, kept in zip(group, clean, strict=True) if kept.any()]
        values = ["-"] * 3
        if pairs:  # of a subset that holds the whole test set nothing is left
            whole, without = (
                float(np.mean(shares))
                for shares in ([a.mean() for a, _ in pairs], [answers[kept].mean() for answers, kept in pairs])
            )
            values = [percent(whole, 2), percent(without, 2), points(without - whole, 2)]
        share = percent(float(np.mean([(~kept).mean() for kept in clean])), 2)
        rows.append([f"{size:,}", display_name(contender), f"{number:,.1f}", share, *values])
    title = "Test images that are near-duplicates of the n images of a run, and the accuracy without them"
    columns = ["n", "model", "duplicates", "share, %", "accuracy, %", "without them, %", "difference, points"]
    return Table(title, columns, rows, "duplicates", part_by="n")


def duplicate_pairs_table(contamination: Contamination) -> Table:
    """All near-duplicates, with the names of both images and their labels."""
    rows = [
        [test, train, f"{alike:.3f}", first, second, "differ" if first != second else "same"]
        for test, train, alike, first, second in contamination.pairs
    ]
    differ = sum(row[-1] == "differ" for row in rows)
    title = f"{len(rows):,} pairs of a test image and an image of a run; the labels of {differ:,} differ"
    columns = ["test image", "image used", "correlation of detail", "label of the first", "of the second", "labels"]
    return Table(title, columns, rows, "duplicate_pairs")


def _percent(estimate: Estimate, *, sign: bool = False) -> list[str]:
    """Value and ends of the interval; an end of a difference that the data do not determine is empty."""
    ends = [percent(end) if not sign or abs(end) < 1 else "" for end in (estimate.low, estimate.high)]
    return [(points if sign else percent)(estimate.value), *ends]
