"""What an analysis is of: the finished cells of an experiment's folder, or accuracies that were recorded as a table."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.analysis import Analysis, analyse
from vit_vs_cnn.regimes.answer import answer
from vit_vs_cnn.regimes.budgets import Budgets
from vit_vs_cnn.regimes.comparison import SizedComparison, comparisons
from vit_vs_cnn.regimes.measurements import in_order, load_answers, measurements_of
from vit_vs_cnn.regimes.recommendation import recommendation
from vit_vs_cnn.runs.design import read_design
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.runs.ledger import account_of
from vit_vs_cnn.runs.record import read_result_table
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.tuning_record import Record, record_of
from vit_vs_cnn.statistics.verdict import Obstacle

if TYPE_CHECKING:
    import pandas

    from vit_vs_cnn.runs.auditing.contamination import Contamination

#: Share of the test images that may show pictures that were trained on before nothing else is said first.
LEAK = 0.1
WITHOUT_PREDICTIONS = (
    "Some predictions could not be read. Intervals are computed from accuracies alone, which makes them wider."
)


@dataclass(frozen=True, eq=False)
class Findings:
    """The finished cells of an experiment, and what they say.

    Arguments:
        results: of each, by budget, size, seed and contender.
        analysis: of these.
        correct: whether each network was right on each image, by run; None if unknown or of different images.
        notes: what weakens the intervals, a sentence each.
        record: of the trials that its recipes come from; None for recipes by hand.
    """

    results: list[RunResult]
    analysis: Analysis
    correct: Mapping[str, np.ndarray] | None
    notes: tuple[str, ...]
    folder: Path
    record: Record | None

    @cached_property
    def duplicates(self) -> "Contamination | str":
        """Test images that show a picture that was trained on, searched for once; or why they are not known."""
        from vit_vs_cnn.runs.auditing.contamination import contamination_of, reason_not_searched

        if (reason := reason_not_searched(self.results)) is not None:
            return f"{reason}."
        try:
            return contamination_of(self.folder, self.results)
        except (InputError, OSError):
            return "Near-duplicates were not searched for: the images were not available."

    @property
    def leak(self) -> str | None:
        """A sentence on test images that were trained on in another form, where they are more than ``LEAK`` of all."""
        return self._leak(self.duplicates)

    @property
    def stored_answer(self) -> str:
        """``answer`` from what is stored: no image is read, and near-duplicates are not searched for."""
        from vit_vs_cnn.runs.auditing.contamination import stored_contamination

        known = vars(self).get("duplicates") or stored_contamination(self.folder, self.results)
        return _sentences(self._leak(known), self._answer)

    def _leak(self, found: "Contamination | str | None") -> str | None:
        if found is None or isinstance(found, str):
            return None
        most = max(map(len, found.by_subset.values()), default=0)
        if most <= LEAK * found.test_images:
            return None
        return (
            f"Not to be relied on: {most:,} of {found.test_images:,} test images show a picture that was trained on: "
            "accuracy is in part what was learned by heart. vit-vs-cnn audit lists them; leave them out of one side."
        )

    @property
    def longest(self) -> list[RunResult]:
        """The results of the longest budget, of which the analysis is."""
        return Budgets(self.results).longest

    @property
    def answer(self) -> str:
        """Who is ahead, by how much, and what more data would change, in two sentences."""
        return _sentences(self.leak, self._answer)

    @property
    def _answer(self) -> str:
        return answer(self.analysis, own_images=are_own_images(self.results[0].data.source))

    @property
    def recommendation(self) -> str:
        """What to do, in plain words."""
        return _sentences(self.leak, recommendation(self.analysis))

    def frame(self) -> "pandas.DataFrame":
        """One row for each finished run: contender, training-set size, seed, accuracy, and all else of its result."""
        import pandas

        return pandas.DataFrame([result.to_row() for result in self.results])


def are_own_images(source: Any) -> bool:
    """Whether images are the reader's, by ``data.source``: neither synthetic nor of a public data set."""
    return source not in (None, "objects", "cifar10", "cifar100")


def _sentences(*parts: str | None) -> str:
    return " ".join(filter(None, parts))


def findings_of(folder: Path) -> Findings:
    """Read and analyse what is finished; predictions that can't be read weaken the intervals and stop nothing.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    record, lost = record_of(folder)
    results, design = sorted(finished_cells(folder).values(), key=_place), read_design(folder)
    reserved = reservations_of(folder, results)
    try:
        answers = load_answers(folder, results)
    except InputError as error:
        warnings.warn(f"{error}; intervals are computed without the predictions", stacklevel=2)
        analysis = analyse(results, design=design, reserved=reserved)
        return Findings(results, analysis, None, (*lost, WITHOUT_PREDICTIONS), folder, record)
    analysis = analyse(
        results,
        answers.correct,
        majority=answers.majority,
        few_classes=answers.few_classes,
        design=design,
        reserved=reserved,
    )
    return Findings(results, analysis, answers.correct, lost, folder, record)


def reservations_of(folder: Path, results: Sequence[RunResult]) -> dict[str, Obstacle]:
    """Objections of the test-set log to conclusions on a contender, by its name."""
    account = account_of(folder, results[0].test_set)
    names = dict.fromkeys(result.contender for result in results)
    return {name: why for name in names if (why := account.reservation(name)) is not None}


def _place(result: RunResult) -> tuple[float, int, int, str]:
    budget = result.parsed_budget
    return (float(budget.amounts[0]) if budget else 0.0, result.train_size, result.seed, result.contender)


def judged_results(folder: Path) -> list[RunResult]:
    """The results that the comparisons of ``findings_of`` are of: those of the longest budget.

    Raises:
        InputError: as ``findings_of``.
    """
    return Budgets(in_order(list(finished_cells(folder).values()))).longest


def comparisons_of(folder: Path, results: Sequence[RunResult]) -> list[SizedComparison]:
    """The comparisons of ``findings_of`` alone, which need no resamples, out of its ``judged_results``.

    Raises:
        InputError: as ``findings_of``.
    """
    try:
        correct = load_answers(folder, results).correct
    except InputError:
        correct = None
    reserved = reservations_of(folder, results)
    return comparisons(measurements_of(results, correct), results, read_design(folder), reserved)


def recorded_analysis(path: Path, *, resamples: int = 4000) -> Analysis:
    """Analyse a table of runs, with the design.json beside it where there is one.

    Raises:
        InputError: as ``read_result_table``, or a design that can't be read.
    """
    return analyse(read_result_table(path), design=read_design(path.parent), resamples=resamples)
