"""The table at the end of an experiment, and what may be said of its differences."""

from collections.abc import Sequence
from statistics import fmean

from vit_vs_cnn.regimes import Analysis, multiplier_line
from vit_vs_cnn.regimes.analysis import Pair
from vit_vs_cnn.regimes.answer import headline
from vit_vs_cnn.regimes.budgets import COST_NAMES, Budgets, more_than_once
from vit_vs_cnn.regimes.fairness import SevereWarning
from vit_vs_cnn.reporting.document import Document, Table
from vit_vs_cnn.reporting.style import in_millions, looks, percent, points, seconds
from vit_vs_cnn.runs.answers import MAJORITY
from vit_vs_cnn.runs.design import EQUAL
from vit_vs_cnn.runs.record import table_text
from vit_vs_cnn.runs.result import RunResult, by_network
from vit_vs_cnn.statistics.estimate import Estimate, points_range
from vit_vs_cnn.statistics.verdict import DECIDED

# Nine columns that fit a terminal 80 wide.
COLUMNS = ("contender", "n", "accuracy", "95 % CI", "params", "MACs", "steps", "images/s", "time")

#: Pairs of which a terminal has a line for every size.
MOST_PAIRS = 3
#: What stands beside every figure of a single seed.
RERUN = "these images only, and rerunning (the same seed on another number of threads, say) moves more"
#: The same in the note of a terminal's table.
ONE_SEED = "The interval is about other images; another run moves more."


def rows_of(results: Sequence[RunResult], analysis: Analysis) -> list[tuple[str, ...]]:
    """For each training size and contender its texts, as ``COLUMNS`` has them; speed and time are of one run, on
    average."""
    accuracies = {(c.contender, point.size): point.accuracy for c in analysis.curves for point in c.points}
    rows = []
    for (contender, size), runs in sorted(by_network(results).items(), key=lambda item: item[0][::-1]):
        first, reached = runs[0], accuracies[contender, size]
        accuracy = (f"{percent(reached.value)} %", f"{percent(reached.low)}-{percent(reached.high)}")
        sizes = (in_millions(first.cost.parameters), in_millions(first.cost.macs))
        speed, time = fmean(r.cost.images_per_second for r in runs), fmean(r.cost.train_seconds for r in runs)
        rows.append((contender, f"{size:,}", *accuracy, *sizes, _steps(runs), f"{speed:,.0f}", seconds(time)))
    return rows


def _steps(results: Sequence[RunResult]) -> str:
    """Steps of a run; where some ended before their budget, the fewest."""
    fewest = min((r.cost for r in results), key=lambda cost: cost.steps)
    early = any(r.cost.ended_early for r in results)
    return f"{fewest.steps:,} of {fewest.planned_steps:,}" if early else f"{fewest.steps:,}"


def results_table(results: Sequence[RunResult], analysis: Analysis, *, title: str) -> Table:
    """A row for each contender and size with the longest budget, with what a reader must know to read it."""
    results = Budgets(results).longest
    rows = rows_of(results, analysis)
    if analysis.majority is not None:
        name = MAJORITY.replace(" frequent", "\nfrequent")  # or nine columns would not fit
        rows.insert(0, (name, "", f"{percent(analysis.majority)} %", *[""] * (len(COLUMNS) - 3)))
    note = f"{_caption(results)} {convergence_sentence(analysis)}"
    return Table(title, COLUMNS, rows, note=note, part_by="n")


def results_document(results: Sequence[RunResult], analysis: Analysis, *, title: str) -> Document:
    """The table alone, for the terminal."""
    document = Document(title, looks=looks(analysis.contenders))
    document.add(results_table(results, analysis, title=title))
    return document


def results_csv(results: Sequence[RunResult]) -> str:
    """One line for each run, with all of its result."""
    return table_text([result.to_row() for result in results])


def comparison_lines(analysis: Analysis, *, most_pairs: int = MOST_PAIRS) -> list[str]:
    """For each training size and pair of contenders: who is ahead, by how much, on the same images and seeds.

    Before that, what is wrong with a network or with their compute; behind it, the multiplier or why there is none. Of
    many pairs only some are told: the primary one and the two of the answer at every size, of the others what is
    decided at their largest size.
    """
    severe = [warning for warning in analysis.warnings if isinstance(warning, SevereWarning)]
    warnings = [f"warning: {warning}" for warning in (*analysis.few_classes, *severe)]
    found = [c for pair in analysis.pairs for c in pair.comparisons]
    pairs = _foremost(analysis, most_pairs)
    shown = [c for pair in pairs for c in pair.comparisons]
    shown += [pair.at_largest for pair in analysis.pairs if pair not in pairs and pair.at_largest.verdict in DECIDED]
    shown.sort(key=lambda c: c.size)
    lines = [f"n = {comparison.size:,}: {comparison.sentence}" for comparison in shown]
    if len(found) > 1:
        told = "Each interval is of its line by itself; p and verdict are corrected over all "
        lines.append(told + (f"{len(found)} comparisons (Holm)" if len(shown) < len(found) else "lines (Holm)"))
    if left := len(found) - len(shown):
        lines.append(f"{left} more comparisons are in the report")
    multiplier = multiplier_line(analysis)
    more = [line for pair in pairs for line in (*_budget_lines(pair), *_equal_lines(pair))]
    return [*warnings, *lines, *more, *([] if multiplier is None else [multiplier])]


def _foremost(analysis: Analysis, most_pairs: int) -> Sequence[Pair]:
    """Those that are told in full: of many the primary pair, and that of the answer."""
    if len(analysis.pairs) <= most_pairs:
        return analysis.pairs
    answered = headline(analysis)
    return [pair for pair in analysis.pairs if pair == answered or any(c.primary for c in pair.comparisons)]


def _budget_lines(pair: Pair) -> list[str]:
    """What more training changes, a line for each size."""
    lines = []
    for size in sorted({gap.size for gap in pair.gaps}):
        told = [f"{_points(gap.difference)} with {gap.budget}" for gap in pair.gaps if gap.size == size]
        lines.append(f"n = {size:,}: {pair.ahead} minus {pair.behind}: {', '.join(told)}")
    return lines


def _equal_lines(pair: Pair) -> list[str]:
    """Both at equal cost, where that is not what they were given, and is known."""
    return [
        f"n = {one.size:,}: {pair.ahead} minus {pair.behind}: {_points(one.difference)} at equal {COST_NAMES[one.cost]}"
        for one in pair.at_equal
        if one.difference is not None and more_than_once(one.ratio) > EQUAL
    ]


def equal_time_lines(results: Sequence[RunResult], analysis: Analysis, *, most_pairs: int = MOST_PAIRS) -> list[str]:
    """Both in equal training time, as it was measured: for information, as times vary with what else runs."""
    budgets, lines = Budgets(results), []
    for pair in _foremost(analysis, most_pairs):
        known = [one for one in budgets.at_equal(pair.ahead, pair.behind, "seconds") if one.difference is not None]
        told = [f"{points(one.difference.value)} at n = {one.size:,}" for one in known if one.difference]
        if told:
            lines.append(f"in equal training time, for information: {pair.ahead} minus {pair.behind} {', '.join(told)}")
    return lines


def _points(difference: Estimate) -> str:
    return f"{points(difference.value)} points ({points_range(difference, sign=True)})"


def convergence_sentence(analysis: Analysis) -> str:
    """Which runs were still improving when their budget ended, by their own validation curves."""
    by_state: dict[str, list[str]] = {}
    for c in analysis.convergence:
        gained = f" ({points(c.gain.value)} points)" if c.gain and c.state == "still improving" else ""
        by_state.setdefault(c.state, []).append(f"{c.contender} at n = {c.size:,}{gained}")
    if set(by_state) == {"not known"}:
        reasons = " or ".join(sorted({c.reason or "" for c in analysis.convergence}))
        return f"Were runs still improving at their end? Not known: {reasons}."
    if (improving := by_state.get("still improving")) is None:
        some = " (of some that is not known)" if "not known" in by_state else ""
        return f"No run is shown to improve in its last quarter{some}."
    return f"Still improving in their last quarter: {', '.join(improving)}."


def _caption(results: Sequence[RunResult]) -> str:
    seeds = len({r.seed for r in results})
    meaning = ONE_SEED if seeds == 1 else f"The interval is about other images and seeds; {seeds} seeds were run."
    caption = (
        f"Accuracy on {results[0].scores.scored_images:,} {results[0].scores.scored_on} images. {meaning} "
        "n includes validation images. MACs are of one image, time is of one training."
    )
    if len({str(r.augmentation) for r in results}) > 1:
        caption += " The contenders' augmentations differ."
    if all(r.tuning is None for r in results):
        caption += " Recipes are set by hand."
    return caption
