"""The table of runs and the answer, as the terminal shows them at the end of an experiment."""

from collections.abc import Sequence
from statistics import fmean

from vit_vs_cnn.regimes.analysis import Analysis
from vit_vs_cnn.regimes.answer import describe_comparison
from vit_vs_cnn.regimes.budgets import longest_results
from vit_vs_cnn.reporting.document import Document, Table
from vit_vs_cnn.reporting.style import in_millions, looks, percent, seconds
from vit_vs_cnn.runs.answers import MAJORITY
from vit_vs_cnn.runs.record import table_text
from vit_vs_cnn.runs.result import RunResult, by_network
from vit_vs_cnn.told import counted

# Nine columns that fit a terminal 80 wide.
COLUMNS = ("contender", "n", "accuracy", "95 % CI", "params", "MACs", "steps", "images/s", "time")
#: Note on intervals where only one seed was run.
ONE_SEED = "The interval of one seed covers other test images only. Another seed changes the accuracy by more."


def rows_of(results: Sequence[RunResult], analysis: Analysis) -> list[tuple[str, ...]]:
    """The texts of ``COLUMNS`` for each model and training-set size; speed and time are means over runs."""
    accuracies = {(p.model, p.train_size): p.accuracy for model in analysis.models for p in analysis.curve(model.key)}
    rows = []
    for (contender, size), runs in sorted(by_network(results).items(), key=lambda item: item[0][::-1]):
        if (accuracy := accuracies.get((contender, size))) is None:  # no planned seed is finished
            continue
        first = runs[0].cost
        measured = (f"{percent(accuracy.value)} %", f"{percent(accuracy.low)}-{percent(accuracy.high)}")
        sizes = (in_millions(first.parameters), in_millions(first.macs))
        speed, time = fmean(r.cost.images_per_second for r in runs), fmean(r.cost.train_seconds for r in runs)
        rows.append((contender, f"{size:,}", *measured, *sizes, _steps(runs), f"{speed:,.0f}", seconds(time)))
    return rows


def _steps(results: Sequence[RunResult]) -> str:
    """Steps of a run; the fewest, where some stopped before their budget ended."""
    fewest = min((r.cost for r in results), key=lambda cost: cost.steps)
    early = any(r.cost.ended_early for r in results)
    return f"{fewest.steps:,} of {fewest.planned_steps:,}" if early else f"{fewest.steps:,}"


def results_table(results: Sequence[RunResult], analysis: Analysis, *, title: str) -> Table:
    """One row for each model and training-set size with the longest budget."""
    results = longest_results(results)
    rows = rows_of(results, analysis)
    if analysis.chance is not None:
        name = MAJORITY.replace(" frequent", "\nfrequent")  # or nine columns would not fit
        rows.insert(0, (name, "", f"{percent(analysis.chance)} %", *[""] * (len(COLUMNS) - 3)))
    return Table(title, COLUMNS, rows, note=_note(results, analysis), part_by="n")


def results_document(results: Sequence[RunResult], analysis: Analysis, *, title: str) -> Document:
    """The table alone, for the terminal."""
    document = Document(title, looks=looks(analysis.display_names))
    document.add(results_table(results, analysis, title=title))
    return document


def results_csv(results: Sequence[RunResult]) -> str:
    """One line for each run, with all fields of its result."""
    return table_text([result.to_row() for result in results])


def further_comparisons(analysis: Analysis) -> list[str]:
    """Lines after the answer: the primary comparison, and the number of the others that the answer does not show."""
    advice = analysis.recommendation
    rest = [one for one in analysis.comparisons if one.names != {advice.best, advice.rival}]
    lines = []
    if (primary := analysis.primary) is not None and primary in rest:
        text = describe_comparison(primary, analysis.display_names)
        lines.append(f"With {primary.train_size:,} images: {text}.")
        rest.remove(primary)
    if rest:
        more = counted(len(rest), "more comparison")
        lines.append(f"The report contains {more}.")
    return lines


def _note(results: Sequence[RunResult], analysis: Analysis) -> str:
    """How to read the table."""
    meaning = f"The interval covers other seeds and other test images; {analysis.seeds} seeds were run."
    other_folds = ", others for each seed" if len({r.data.fold for r in results}) > 1 else ""
    note = (
        f"Accuracy on {results[0].scores.scored_images:,} {results[0].scores.scored_on} images{other_folds}. "
        f"{ONE_SEED if analysis.seeds == 1 else meaning} "
        "n includes validation images. MACs are of one image, time is of one training."
    )
    if len({str(r.augmentation) for r in results}) > 1:
        note += " The contenders' augmentations differ."
    if all(r.tuning is None for r in results):
        note += " Recipes are set by hand."
    return note
