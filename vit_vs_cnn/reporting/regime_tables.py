"""Every table of a report on data sizes: plain numbers, the unit in the column's name."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vit_vs_cnn.regimes import Analysis, Crossing, display_name
from vit_vs_cnn.regimes.budgets import COST_NAMES
from vit_vs_cnn.regimes.convergence import LITTLE
from vit_vs_cnn.regimes.crossing import NEAR
from vit_vs_cnn.regimes.frontier import COSTS
from vit_vs_cnn.regimes.multiplier import WHY_NONE, Multiplier
from vit_vs_cnn.reporting.document import Table
from vit_vs_cnn.reporting.style import in_millions, interval, percent, points, rounded
from vit_vs_cnn.reporting.tables import RERUN
from vit_vs_cnn.runs.answers import MAJORITY
from vit_vs_cnn.runs.auditing.contamination import Contamination
from vit_vs_cnn.runs.result import RunResult, RunState, by_network
from vit_vs_cnn.runs.status import CellStatus
from vit_vs_cnn.statistics.estimate import Estimate, p_text
from vit_vs_cnn.statistics.looks import SEEDS_FOR_A_VERDICT

#: What a state is called where nobody knows yet who will read it, and when.
MISSING = "not finished"


def curves_table(analysis: Analysis) -> Table:
    """Accuracy of every contender at every size."""
    seen = {(c.contender, c.size): _none(c.epochs, lambda v: f"{v:.3g}") for c in analysis.convergence}
    rows = [] if analysis.majority is None else [[MAJORITY, "", percent(analysis.majority), "", "", "", ""]]
    rows += [
        [
            display_name(curve.contender),
            f"{p.size:,}",
            *_percent(p.accuracy),
            str(len(p.by_seed)),
            seen[curve.contender, p.size],
        ]
        for curve in analysis.curves
        for p in curve.points
    ]
    title = f"Accuracy on {analysis.test_images:,} images, mean over the seeds, with its 95 % interval"
    columns = ["contender", "n", "accuracy, %", "from", "to", "seeds", "epochs"]
    single = any(len(p.by_seed) == 1 for curve in analysis.curves for p in curve.points)
    return Table(title, columns, rows, "learning_curves", note=f"The interval of one seed covers {RERUN}." * single)


def convergence_table(analysis: Analysis) -> Table:
    """What every contender's runs still gained at their end."""
    rows = []
    for c in sorted(analysis.convergence, key=lambda c: (c.size, c.contender)):
        gained = ["", ""] if c.gain is None else [points(c.gain.value), percent(c.gain.error)]
        told = c.state if c.reason is None else f"{c.state}: {c.reason}"
        steps = [_none(c.steps, lambda v: f"{v:,}"), _none(c.epochs, lambda v: f"{v:.3g}")]
        rows.append([f"{c.size:,}", display_name(c.contender), *steps, *gained, told])
    title = (
        "What the last quarter of the runs still gained on their validation images, the mean over the seeds. Settled: "
        f"{100 * LITTLE:g} points are ruled out. A rate that falls to zero gains at its end whatever the budget, so "
        "this errs towards still improving"
    )
    columns = ["n", "contender", "steps", "epochs", "gain, points", "standard error", "at the end"]
    return Table(title, columns, rows, "convergence", part_by="n")


def worth_table(analysis: Analysis) -> Table:
    """What every pretrained network does with so many images, and how many it would need from scratch."""
    accuracy = {(curve.contender, p.size): p.accuracy for curve in analysis.curves for p in curve.points}
    rows = [
        [
            display_name(one.pretrained),
            one.start_kind,
            f"{one.size:,}",
            *_percent(accuracy[one.pretrained, one.size]),
            *([""] * 3 if one.size not in one.differences else _percent(one.differences[one.size], sign=True)),
            one.text,
        ]
        for one in analysis.worth
    ]
    title = "What pretraining is worth: the same network from scratch, with the same seeds, subsets and test images"
    columns = ["contender", "start", "n", "accuracy, %", "from", "to", "over scratch, points", "low", "high"]
    note = (
        "Images from scratch: more than a size at which the one from scratch is below by the whole 95 % interval of "
        "the difference, fewer than one at which it is above. Each interval is for itself, not corrected for their "
        "number."
    )
    return Table(title, [*columns, "images from scratch"], rows, "pretraining", note=note)


def starts_table(analysis: Analysis) -> Table:
    """Who is ahead among networks whose trainings began in the same way."""
    rows = [
        [kind, f"{c.size:,}", display_name(c.leader), *_percent(c.lead, sign=True), c.verdict]
        for kind, pair in analysis.pairs_by_start()
        for c in pair.comparisons
    ]
    columns = ["start", "n", "higher accuracy", "by points", "from", "to", "verdict"]
    return Table("Who is ahead, by how training began", columns, rows, "starts", part_by="start")


def differences_table(analysis: Analysis) -> Table:
    """Every pair at every size, and what may be said of it."""
    rows = []
    for pair in analysis.pairs:
        for c in pair.comparisons:
            verdict = c.verdict if c.reason is None else f"{c.verdict}: {c.reason}"
            names = [display_name(c.leader), display_name(c.follower)]
            p = [p_text(c.p_value), p_text(c.adjusted_p_value)]
            gap = percent(c.smallest_gap) if c.seeds >= SEEDS_FOR_A_VERDICT and c.smallest_gap is not None else ""
            found = [*_percent(c.lead, sign=True), *p, str(c.seeds), gap]
            rows.append([f"{c.size:,}", *names, *found, f"{verdict}{' (primary)' * c.primary}"])
    title = (
        "Who has the higher accuracy, by how many points, on the same images with the same seeds and the same budget "
        "(equal compute: under accuracy and cost). p is that of the "
        "line by itself; corrected, as the verdict is, it allows for all pairs and sizes (Holm, half of the error for "
        "the primary comparison) and for looks on the way. Would show: the gap that these seeds find in 80 % of cases. "
        "Empty: these seeds and test images cannot tell"
    )
    columns = ["n", "higher", "lower", "points", "from", "to", "p", "p, corrected", "seeds", "would show", "verdict"]
    return Table(title, columns, rows, "differences", part_by="n")


def multipliers_table(analysis: Analysis) -> Table:
    """How many times the data one contender needs for the accuracy of another."""
    found = [m for pair in analysis.pairs for m in pair.multipliers]
    rows = [
        [display_name(m.behind), display_name(m.ahead), f"{m.size:,.0f}", *_multiplier(m), m.method, m.state]
        for m in found
    ]
    title = (
        "The data multiplier M(n): so many times the data the first needs for what the second does with n images. It "
        "is left out where the runs that it stands on were still improving, or may have been, and where the first no "
        "longer rises"
    )
    columns = ["needs", "to equal", "n", "times", "from", "to", "method", "state"]
    return Table(title, columns, rows, "data_multiplier")


def equivalents_table(analysis: Analysis) -> Table:
    """What each contender is worth in images of the best one; no line where nothing is known of any."""
    rows = []
    for m in analysis.equivalents if any(one.state not in WHY_NONE for one in analysis.equivalents) else ():
        rows.append([f"{m.size:,.0f}", display_name(m.ahead), *_multiplier(m, m.size), m.state])
    best = display_name(analysis.equivalents[0].behind) if analysis.equivalents else ""
    title = (
        f"How many images {best}, the best at the largest size, needs for what each other contender does with n; left "
        "out where the runs that it stands on were still improving, or may have been"
    )
    columns = ["n", "contender", f"images of {best}", "from", "to", "state"]
    return Table(title, columns, rows, "equivalents", part_by="n")


def crossings_table(analysis: Analysis) -> Table:
    """At what size one contender overtakes another."""
    rows = []
    for c in (crossing for pair in analysis.pairs for crossing in pair.crossings):
        names = [display_name(c.overtaker), display_name(c.overtaken)]
        rows.append([*names, *_crossing(c), percent(c.probability_in_range, 0), c.method])
    title = (
        "The size at which the first overtakes the second, with its 95 % interval; P is the share of resamples that "
        "cross within the sizes that were run. Methods that disagree tell more of the error than their intervals do"
    )
    columns = ["overtakes", "whom", "n", "from", "to", "state", "P, %", "method"]
    return Table(title, columns, rows, "crossing")


def laws_table(analysis: Analysis) -> Table:
    """The fitted power laws, and how far they can be trusted."""
    rows = []
    for law in analysis.laws:
        b, c = law.exponent, law.floor
        last = _none(law.leave_last_out, points)
        fit = [_none(law.p_value, lambda v: f"{v:.2g}"), _none(law.aicc, lambda v: f"{v:.1f}"), last]
        floor = f"{percent(c.value)} ({interval(c)})" if "floor" in law.model else "0"
        exponent = f"{b.value:.3f} ({b.low:.3f} to {b.high:.3f})"
        chosen = "yes" if law.is_chosen else "no"
        rows.append([display_name(law.contender), law.model, exponent, floor, *fit, chosen])
    title = (
        "Power laws err(n) = e^a n^-b + c fitted to the mean errors; p is that of the residuals if the law were true; "
        "the last size is left out and foretold from the others"
    )
    columns = ["contender", "model", "b", "c, %", "p", "AICc", "error of the last size, points", "chosen"]
    return Table(title, columns, rows, "power_laws")


def frontier_table(analysis: Analysis) -> Table:
    """Accuracy against every cost."""
    rows = []
    for p in analysis.frontier:
        numbers = [f"{p.size:,}", f"{p.value:.4g}", percent(p.accuracy)]
        rows.append([COSTS[p.cost], display_name(p.contender), *numbers, "yes" if p.is_on_frontier else "no"])
    title = "Accuracy and its cost; off the frontier is who another one, as cheap, is ahead of by a verdict"
    columns = ["cost", "contender", "n", "value", "accuracy, %", "on the frontier"]
    return Table(title, columns, rows, "cost_frontier")


def budgets_table(results: Sequence[RunResult]) -> Table:
    """What each contender was given at each size: steps, images, epochs and FLOPs side by side."""
    first = {(r.train_size, r.contender, r.cost.steps): r for r in results}
    rows = []
    for (size, contender, steps), r in sorted(first.items()):
        taken = [f"{steps:,}", f"{r.cost.images_processed:,}", f"{r.epochs:.1f}", f"{r.cost.flops:.3g}"]
        sizes = [in_millions(r.cost.parameters), in_millions(r.cost.macs)]
        trials = "no record" if r.tuning is None else str(r.tuning.trials)
        rows.append([f"{size:,}", display_name(contender), *taken, *sizes, trials])
    title = "What one run was given. MACs are of one image, attention products counted; FLOPs are of the training"
    columns = ["n", "contender", "steps", "images", "epochs", "FLOPs", "parameters", "MACs", "trials"]
    return Table(title, columns, rows, "budgets", part_by="n")


def more_training_table(analysis: Analysis) -> Table:
    """Every contender with every budget, and what the longer one gained."""
    rows = []
    for p in analysis.by_budget:
        gained = ["", "", ""] if p.gained is None else _percent(p.gained, sign=True)
        rows.append([f"{p.size:,}", display_name(p.contender), p.budget, *_percent(p.accuracy), *gained])
    title = "Accuracy with every budget, and what it gained over the one before, paired by seed, in points"
    columns = ["n", "contender", "budget", "accuracy, %", "from", "to", "gained", "gained from", "gained to"]
    return Table(title, columns, rows, "more_training", part_by="n")


def equal_cost_table(analysis: Analysis) -> Table:
    """Every pair at equal steps and at equal training FLOPs."""
    rows = []
    for pair in analysis.pairs:
        for one in sorted(pair.at_equal, key=lambda one: one.size):
            told = ["not known", "", ""] if one.difference is None else _percent(one.difference, sign=True)
            names = [display_name(pair.ahead), display_name(pair.behind)]
            how = "between two budgets" if one.interpolated else "no run as short" if one.difference is None else "run"
            rows.append([f"{one.size:,}", *names, COST_NAMES[one.cost], f"{one.ratio:.2f}", *told, how])
    title = (
        "The first minus the second with equally much training, by both counts. The ratio is what the first was given "
        "for each unit of the second; up to 1.25 counts as equal where there is no shorter budget"
    )
    columns = ["n", "first", "second", "at equal", "ratio", "points", "from", "to", "how"]
    return Table(title, columns, rows, "equal_cost", part_by="n")


def cells_table(cells: Sequence[CellStatus], results: Sequence[RunResult]) -> Table:
    """Every cell of the grid, also those that failed or are not finished."""
    by_cell = {r.run: r for r in results}
    rows = []
    for cell in cells:
        r = by_cell.get(cell.folder)
        state = cell.state if cell.state in (RunState.FINISHED, RunState.FAILED) else MISSING
        scores = ["", "", "", "", ""]
        budget = cell.budget.text
        if r is not None:
            interval = r.scores.accuracy_interval
            values = [percent(value, 2) for value in (interval.value, interval.low, interval.high)]
            scores = [*values, str(r.scores.test_evaluations), r.data.subset]
        rows.append([display_name(cell.contender), f"{cell.train_size:,}", budget, str(cell.seed), *scores, state])
    title = (
        "Every cell of the grid, with Wilson's interval for its test images; tested: number of test-set "
        "evaluations of its weights. vit-vs-cnn status has the errors"
    )
    columns = ["contender", "n", "budget", "seed", "accuracy, %", "from", "to", "tested", "subset", "state"]
    return Table(title, columns, rows, "cells")


def duplicates_table(
    contamination: Contamination, results: Sequence[RunResult], correct: Mapping[str, np.ndarray]
) -> Table:
    """Accuracy with and without the test images that have a near-duplicate in the subset that was used."""
    rows = []
    for (contender, size), group in sorted(by_network(results).items(), key=lambda item: item[0][::-1]):
        clean = [contamination.clean(result.data.subset) for result in group]
        number = float(np.mean([(~kept).sum() for kept in clean]))
        pairs = [(correct[r.run], kept) for r, kept in zip(group, clean, strict=True) if kept.any()]
        values = ["-"] * 3
        if pairs:  # of a subset that holds the whole test set nothing is left
            whole, without = (
                float(np.mean(shares))
                for shares in ([a.mean() for a, _ in pairs], [answers[kept].mean() for answers, kept in pairs])
            )
            values = [percent(whole, 2), percent(without, 2), points(without - whole, 2)]
        share = percent(number / contamination.test_images, 2)
        rows.append([f"{size:,}", display_name(contender), f"{number:,.1f}", share, *values])
    title = "Test images with a near-duplicate among the n images that were used, and the accuracy without them"
    columns = ["n", "contender", "duplicates", "share, %", "accuracy, %", "without them, %", "difference, points"]
    return Table(title, columns, rows, "duplicates", part_by="n")


def duplicate_pairs_table(contamination: Contamination) -> Table:
    """Every near-duplicate with the names of both images, and whether their labels differ."""
    rows = [
        [test, train, f"{alike:.3f}", first, second, "differ" if first != second else "same"]
        for test, train, alike, first, second in contamination.pairs
    ]
    differ = sum(row[-1] == "differ" for row in rows)
    title = f"The {len(rows):,} pairs of a test image and an image that was used; the labels of {differ:,} differ"
    columns = ["test image", "image used", "correlation of detail", "label of the first", "of the second", "labels"]
    return Table(title, columns, rows, "duplicate_pairs")


def _percent(estimate: Estimate, *, sign: bool = False) -> list[str]:
    """Value and ends; an end of a difference that the data do not give is empty."""
    ends = [percent(end) if not sign or abs(end) < 1 else "" for end in (estimate.low, estimate.high)]
    return [(points if sign else percent)(estimate.value), *ends]


def _multiplier(m: Multiplier, unit: float = 1) -> list[str]:
    """Value and ends in multiples of n, or of ``unit``: n itself gives images."""
    if m.state in WHY_NONE:
        return ["none", "", ""]
    below, beyond = f"< {_three(m.less_than * unit)}", f"> {_three(m.more_than * unit)}"
    value = (below if m.state == "censored below" else beyond) if m.value is None else _three(m.value * unit)
    low = below if m.low is None else _three(m.low * unit)
    return [value, low, beyond if m.high is None else _three(m.high * unit)]


def _crossing(c: Crossing) -> list[str]:
    smallest, largest = c.range
    if c.state == "far extrapolated":  # a number would be a guess
        return [f"none up to {NEAR * largest:,}", "", "", c.state]
    beyond = f"> {largest:,}" if c.method == "interpolation" else "never"
    found = "none" if c.size is None else _three(c.size)
    low = f"< {smallest:,}" if c.low is None else _three(c.low)
    return [found, low, beyond if c.high is None else _three(c.high), c.state]


def _three(value: float) -> str:
    return rounded(value, 3)


def _none(value: Any, text: Any) -> str:
    return "" if value is None else text(value)
