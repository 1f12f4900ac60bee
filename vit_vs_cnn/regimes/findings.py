"""What an analysis is of: the finished cells of an experiment's folder, or accuracies that were recorded as a table."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_vs_cnn.bounds import AT_LEAST_0, AT_LEAST_1, SHARE, check_numbers
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.analysis import Analysis, analyse
from vit_vs_cnn.regimes.answer import answer
from vit_vs_cnn.regimes.budgets import Budgets
from vit_vs_cnn.regimes.comparison import SizedComparison, comparisons
from vit_vs_cnn.regimes.measurements import in_order, load_answers, measurements_of
from vit_vs_cnn.regimes.recommendation import recommendation
from vit_vs_cnn.runs.cell import budget_of
from vit_vs_cnn.runs.design import read_design
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.runs.ledger import account_of, test_set_of
from vit_vs_cnn.runs.record import read_table
from vit_vs_cnn.runs.tuning_record import Record, record_of, with_chances

if TYPE_CHECKING:
    import pandas

    from vit_vs_cnn.runs.auditing.contamination import Contamination

#: Share of the test images that may show pictures that were trained on before nothing else is said first.
LEAK = 0.1
WITHOUT_PREDICTIONS = (
    "Some predictions could not be read. Intervals are computed from accuracies alone, which makes them wider."
)
#: What a reader of a table of cells looks for first.
FIRST = ("contender", "train_size", "seed", "accuracy")
#: Columns of numbers in results.csv; the others are words.
WHOLE = ("train_size", "seed", "scored_images", "test_evaluations", "parameters", "macs", "steps", "images")
REAL = ("accuracy", "loss", "calibration_error", "epochs", "flops", "train_seconds", "images_per_second")
#: How recipes were found, as far as that is known.
OF_RECIPES: dict[str, type] = {"trials": int, "tuning_flops": float, "trial_rank": int, "tuned_at": int}
NEEDED = ("contender", "scored_on", *WHOLE[:3], "parameters", "macs", "steps", "accuracy", *REAL[-2:])


@dataclass(frozen=True, eq=False)
class Findings:
    """The finished cells of an experiment, and what they say.

    Arguments:
        results: of each, by budget, size, seed and contender.
        analysis: of these.
        correct: whether each network was right on each image, by cell; None if unknown or of different images.
        notes: what weakens the intervals, a sentence each.
        record: of the trials that its recipes come from; None for recipes by hand.
    """

    results: list[dict[str, Any]]
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
    def longest(self) -> list[dict[str, Any]]:
        """The results of the longest budget, of which the analysis is."""
        return [dict(result) for result in Budgets(self.results).longest]

    @property
    def answer(self) -> str:
        """Who is ahead, by how much, and what more data would change, in two sentences."""
        return _sentences(self.leak, self._answer)

    @property
    def _answer(self) -> str:
        return answer(self.analysis, own_images=are_own_images(self.results[0]["data"].get("source")))

    @property
    def recommendation(self) -> str:
        """What to do, in plain words."""
        return _sentences(self.leak, recommendation(self.analysis))

    def frame(self) -> "pandas.DataFrame":
        """One row for each finished cell: contender, training size, seed, accuracy, and all else that was measured."""
        import pandas

        rows = [{key: value for key, value in r.items() if is_one_value(key, value)} for r in self.results]
        return pandas.DataFrame(rows, columns=list(dict.fromkeys([*FIRST, *(key for row in rows for key in row)])))


def are_own_images(source: Any) -> bool:
    """Whether images are the reader's, by ``data.source``: neither synthetic nor of a public data set."""
    return source not in (None, "objects", "cifar10", "cifar100")


def _sentences(*parts: str | None) -> str:
    return " ".join(filter(None, parts))


def is_one_value(key: str, value: Any) -> bool:
    """Whether a value of a result has a place in a table; a curve that there is none of is no value, either."""
    return key != "validation_curve" and not isinstance(value, dict | list)


def findings_of(folder: Path) -> Findings:
    """Read and analyse what is finished; predictions that can't be read weaken the intervals and stop nothing.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    record, lost = record_of(folder)
    results, design = with_chances(sorted(finished_cells(folder).values(), key=_place), record), read_design(folder)
    reserved = _reserved(folder, results)
    try:
        answers = load_answers(folder, results)
    except InputError as error:
        warnings.warn(f"{error}; intervals are computed without the predictions", stacklevel=2)
        notes = (*lost, WITHOUT_PREDICTIONS)
        return Findings(results, analyse(reserved, design=design), None, notes, folder, record)
    told = {"majority": answers.majority, "few_classes": answers.few_classes, "design": design}
    return Findings(results, analyse(reserved, answers.correct, **told), answers.correct, lost, folder, record)


def _reserved(folder: Path, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The results, each with what the ledger of its test set has against a verdict."""
    account = account_of(folder, test_set_of(results[0]))
    told = {name: account.reservation(name) for name in {r["contender"] for r in results}}
    return [{**r, "reservation": told[r["contender"]]} for r in results]


def _place(result: Mapping[str, Any]) -> tuple[float, int, int, str]:
    budget = budget_of(result)
    return (float(budget.amounts[0]) if budget else 0.0, result["train_size"], result["seed"], result["contender"])


def judged_results(folder: Path) -> list[Mapping[str, Any]]:
    """The results that the comparisons of ``findings_of`` are of: those of the longest budget.

    Raises:
        InputError: as ``findings_of``.
    """
    return Budgets(
        in_order(_reserved(folder, with_chances(finished_cells(folder).values(), record_of(folder)[0])))
    ).longest


def comparisons_of(folder: Path, results: Sequence[Mapping[str, Any]]) -> list[SizedComparison]:
    """The comparisons of ``findings_of`` alone, which need no resamples, out of its ``judged_results``.

    Raises:
        InputError: as ``findings_of``.
    """
    try:
        correct = load_answers(folder, results).correct
    except InputError:
        correct = None
    return comparisons(measurements_of(results, correct), results, read_design(folder))


def recorded_analysis(path: Path, *, resamples: int = 4000) -> Analysis:
    """What a results.csv says, with the design.json beside it where there is one.

    Raises:
        InputError: as ``recorded_results``, or a design that can't be read.
    """
    return analyse(recorded_results(path), design=read_design(path.parent), resamples=resamples)


def recorded_results(path: Path) -> list[dict[str, Any]]:
    """Read a results.csv as ``report`` writes it: one result for each line.

    Raises:
        InputError: no such table, a column that is missing, or a cell that is no number.
    """
    lines = read_table(path)
    if not lines:
        raise InputError(f"{path} has no line of results")
    if missing := [column for column in NEEDED if column not in lines[0]]:
        raise InputError(f"{path} has no column {missing[0]}; expected a results.csv as report writes it")
    return [_result(line, f"{path} line {number}") for number, line in enumerate(lines, start=2)]


def _result(line: dict[str, Any], where: str) -> dict[str, Any]:
    kinds = dict.fromkeys((*WHOLE, "planned_steps"), int) | dict.fromkeys(REAL, float)
    known = {column: kind for column, kind in OF_RECIPES.items() if line.get(column)}
    result: dict[str, Any] = line | dict.fromkeys(OF_RECIPES)
    for column, kind in (kinds | known).items():
        if column in line:
            value = line[column]
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            if isinstance(value, bool) or not (is_whole if kind is int else isinstance(value, int | float)):
                raise InputError(f"{where}: {column} {value!r} is no {kind.__name__}")
            result[column] = kind(value)
    bounds = dict.fromkeys(REAL, AT_LEAST_0) | {"accuracy": SHARE}
    bounds |= {"train_size": AT_LEAST_1, "scored_images": AT_LEAST_1}
    try:
        check_numbers(result, **{name: its for name, its in bounds.items() if name in result})
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return result
