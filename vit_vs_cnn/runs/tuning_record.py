"""The record that ``tune`` leaves of its trials, and what it says of the recipe that a run was given."""

import csv
import hashlib
import io
import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from statistics import StatisticsError, fmean
from typing import Any, NamedTuple

from vit_vs_cnn.config.experiment import Budget, read_config
from vit_vs_cnn.config.identity import hash_of
from vit_vs_cnn.config.schema import nearest
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.result import RunResult, TuningProvenance, read_result
from vit_vs_cnn.statistics.pair_comparison import Obstacle, ObstacleKind

#: The file in an experiment's folder.
RECORD = "tuning.csv"
BY_HAND = "Recipes by hand, no record of trials"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A line of the record: one recipe that was tried for a contender at a size, with a budget.

    Arguments:
        state: complete; pruned or fail where it was ended; running or waiting where it is not through.
        validation_accuracy: the mean over its splits; of a pruned trial the last; None if there is none.
        images: fingerprint of those that may be trained on.
        budget: of one run, such as ``400 steps``; of records of earlier versions in steps.
        steps: of one run.
        flops: of the training of all its runs, to their end.
        recipe: its ``recipe_hash``, by which a run is found to have it.
        values: what the search gave to which setting.
        space: what it drew from, as text of a config.
        lacks: settings of the shared space that the model does not have.
        cells: the folders of its runs.
    """

    contender: str
    train_size: int
    trial: int
    state: str
    validation_accuracy: float | None
    validation_loss: float | None
    images: str
    budget: str
    steps: int
    flops: float
    draw_seed: int
    seeds: list[int]
    recipe: str
    values: dict[str, Any]
    space: dict[str, Any]
    lacks: list[str]
    cells: list[str]

    @property
    def is_complete(self) -> bool:
        return self.state == "complete" and self.validation_accuracy is not None

    def told(self, *, with_budget: bool) -> str:
        """Whose recipe at which size, its values, and how well it did."""
        values = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in self.values.items()}
        place = f"{self.train_size} images" + f", {self.budget}" * with_budget
        listed = ", ".join(f"{key} {value}" for key, value in values.items())
        return f"{self.contender} at {place}: {listed} (validation {100 * (self.validation_accuracy or 0.0):.1f} %)"


COLUMNS = tuple(field.name for field in fields(Trial))
#: Columns that are read as JSON.
_IN_JSON = ("seeds", "values", "space", "lacks", "cells")


def recipe_hash(identity: Mapping[str, Any]) -> str:
    """Of what of a cell's identity was chosen for its contender, and of what it was chosen with: batch size, precision,
    clipping and the like. A budget, size, seed or image more leaves it as it is.
    """
    return hash_of({name: identity.get(name) for name in ("contender", "batch_size", "trainer")})


class TuningObstacleKind(StrEnum):
    """Why recipes that were searched for unequally allow no conclusion."""

    NO_RECORD = "no record"
    NOT_BEST = "not the best"
    UNEQUAL = "unequal"


@dataclass(frozen=True)
class TuningObstacle:
    """Why contenders cannot be compared: their recipes had unequal numbers of trials, or are not their best trials.

    Arguments:
        cases: the contenders concerned, each with the search that its recipe came from.
    """

    kind: TuningObstacleKind
    cases: tuple[tuple[str, TuningProvenance | None], ...]

    @property
    def text(self) -> str:
        """A clause for a sentence on why there is no conclusion."""
        names = dict.fromkeys(name for name, _ in self.cases)
        match self.kind:
            case TuningObstacleKind.NO_RECORD:
                return f"there is no record of the trials of {' and '.join(names)}"
            case TuningObstacleKind.NOT_BEST:
                return " and ".join(f"{name} {shortfall(tuning)}" for name, tuning in self.cases if tuning)
        counts = sorted({tuning.trials for _, tuning in self.cases if tuning})
        return f"their recipes had unequal trials ({', '.join(map(str, counts))})"

    @property
    def obstacle(self) -> Obstacle:
        """The same, as what stands in the way of a conclusion."""
        return Obstacle(ObstacleKind.TUNING, self.text)


def shortfall(tuning: TuningProvenance) -> str | None:
    """A phrase to append to a contender's name if its recipe is not that of its best trial; None if it is."""
    if tuning.tuned_at is None or tuning.trial_rank == 1:
        return None
    of = f"of its {tuning.trials} trials"
    return f"runs none {of}" if tuning.trial_rank is None else f"runs number {tuning.trial_rank} {of}, not the best"


def tuning_obstacle(tunings: Mapping[str, Iterable[TuningProvenance | None]]) -> TuningObstacle | None:
    """Why recipes found with unequal effort, or not the best ones, allow no conclusion; None if nothing does.

    Recipes by hand are alike if all are; trials are equal in number, or in FLOPs up to one trial.

    Arguments:
        tunings: searches of the recipes of each contender's runs.
    """
    cases = [(name, tuning) for name, found in tunings.items() for tuning in dict.fromkeys(found)]
    searched = [tuning for _, tuning in cases if tuning is not None]
    if searched and len(searched) < len(cases):
        return TuningObstacle(TuningObstacleKind.NO_RECORD, tuple(case for case in cases if case[1] is None))
    if short := tuple((name, tuning) for name, tuning in cases if tuning is not None and shortfall(tuning)):
        return TuningObstacle(TuningObstacleKind.NOT_BEST, short)
    if len({tuning.trials for tuning in searched}) > 1 and not _equal_flops(searched):
        return TuningObstacle(TuningObstacleKind.UNEQUAL, tuple(cases))
    return None


def _equal_flops(found: Sequence[TuningProvenance]) -> bool:
    if any(one.tuning_flops is None or not one.trials for one in found):
        return False
    flops = [one.tuning_flops or 0.0 for one in found]
    return max(flops) - min(flops) <= max((one.tuning_flops or 0.0) / one.trials for one in found)


class Place(NamedTuple):
    """Where recipes of a contender were tried: at a size, with a budget, such as ``400 steps``."""

    contender: str
    train_size: int
    budget: str

    @property
    def amount(self) -> float:
        """That of the budget."""
        return float(self.budget.split()[0])

    @property
    def order(self) -> tuple[str, int, float]:
        return self.contender, self.train_size, self.amount


@dataclass(frozen=True)
class Record:
    """All trials of an experiment.

    Arguments:
        path: of the file.
        hash: of its bytes.
    """

    path: Path
    hash: str
    trials: tuple[Trial, ...]

    @cached_property
    def by_place(self) -> dict[Place, list[Trial]]:
        """The trials of each contender at each size and budget, the best first."""
        places: dict[Place, list[Trial]] = {}
        for trial in self.trials:
            places.setdefault(Place(trial.contender, trial.train_size, trial.budget), []).append(trial)
        return {place: ranked(places[place]) for place in sorted(places, key=lambda one: one.order)}

    def place_of(self, contender: str, train_size: int, budget: str) -> Place | None:
        """Where the recipe of a run was tried: at the nearest size, with the nearest budget; None if it nowhere was."""
        theirs = [place for place in self.by_place if place.contender == contender]
        size = nearest(train_size, {place.train_size for place in theirs})
        there = [place for place in theirs if place.train_size == size]
        amount, _, unit = budget.partition(" ")
        alike = [place for place in there if place.budget.endswith(f" {unit}")] or there
        best = nearest(float(amount), {place.amount for place in alike})
        return next((place for place in alike if place.amount == best), None)

    def tuning_of(self, run: Place, recipe: str) -> TuningProvenance | None:
        """The search that the recipe of a run came from; None if the record has no trial of its contender.

        Arguments:
            recipe: its ``recipe_hash``.
        """
        place = self.place_of(*run)
        if place is None:
            return None
        trials = self.by_place[place]
        ranks = (rank for rank, one in enumerate(trials, start=1) if one.is_complete and one.recipe == recipe)
        return TuningProvenance(
            trials=len(trials),
            tuned_at=place.train_size,
            trial_rank=next(ranks, None),
            tuning_flops=sum(one.flops for one in trials),
        )


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """By validation accuracy; among equals the lowest loss first, then the first one; those that were ended last."""
    return sorted(
        trials,
        key=lambda one: (not one.is_complete, -(one.validation_accuracy or 0.0), one.validation_loss or 0.0, one.trial),
    )


def write_record(path: Path, trials: Iterable[Trial]) -> None:
    """Write ``tuning.csv``: a line for each trial."""
    lines = []
    for trial in trials:
        values = asdict(trial)
        lines.append([json.dumps(values[name]) if name in _IN_JSON else values[name] for name in COLUMNS])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *lines])
    write_text(path, text.getvalue())


def read_record(path: Path) -> Record:
    """Read what ``write_record`` wrote.

    Raises:
        InputError: no such file, a column that is missing, or a cell of the wrong kind.
    """
    try:
        content = path.read_bytes()
        lines = list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"tuning.record {path}: {getattr(error, 'strerror', None) or error}") from error
    if not lines or (missing := [name for name in COLUMNS if lines[0].get(name) is None and name != "budget"]):
        lacks = f"has no column {missing[0]}" if lines else "has no trial"
        raise InputError(f"tuning.record {path} {lacks}; expected a {RECORD} as tune writes it")
    trials = tuple(_trial(line, f"tuning.record {path} line {number}") for number, line in enumerate(lines, start=2))
    return Record(path, hashlib.sha256(content).hexdigest()[:10], trials)


def _trial(line: Mapping[str, str], where: str) -> Trial:
    numbers = {"train_size": int, "trial": int, "steps": int, "draw_seed": int, "flops": float}
    values: dict[str, Any] = {name: line[name] for name in ("contender", "state", "images", "recipe")}
    name = ""
    try:
        for name, kind in numbers.items():
            values[name] = kind(line[name])
        for name in ("validation_accuracy", "validation_loss"):
            values[name] = float(line[name]) if line[name] else None
        name = "budget"
        values[name] = Budget.of_text(line.get(name) or f"{values['steps']} steps").short  # earlier versions had none
        for name in _IN_JSON:
            values[name] = _plain(line[name], dict if name in ("values", "space") else list)
    except (TypeError, ValueError, RecursionError, InputError) as error:
        raise InputError(f"{where}: {name} {str(line[name])[:80]!r}: {error}") from error
    if values["train_size"] < 1 or not 0 <= values["flops"] < math.inf:
        raise InputError(f"{where}: train_size must be at least 1, and flops a number of at least 0")
    return Trial(**values)


def _plain(text: str, kind: type) -> Any:
    value = json.loads(text)
    if not isinstance(value, kind):
        raise ValueError(f"expected a {kind.__name__}")
    return value


def record_of(folder: Path) -> tuple[Record | None, tuple[str, ...]]:
    """The record that an experiment's config names, there or, where the folder was moved, in it; None if it names none.

    Where it cannot be read, there is none, and a sentence says so.
    """
    lost = ("The record of the trials could not be read, so the report does not list them",)
    try:
        tuning = read_config(folder / "experiment.yaml").get("tuning")
    except InputError:
        return None, lost
    named = tuning.get("record") if isinstance(tuning, Mapping) else None
    if not isinstance(named, str):
        return None, ()
    path = Path(named)
    try:
        return read_record(path if path.exists() else folder / path.name), ()
    except InputError as error:
        warnings.warn(f"{error}; the report does not list the trials", stacklevel=2)
        return None, lost


def doubts(record: Record, results: Iterable[RunResult]) -> list[str]:
    """What weakens a record as evidence for some results, a sentence each; nothing if nothing does.

    Its trials are held against the results of their runs, where these lie beside it, and these against the record: runs
    that it does not name are of recipes that were tried and are not told of.
    """
    found, results = [], list(results)
    images = {one.images for one in record.trials}
    if any(not str(r.data.fingerprint).startswith(tuple(images)) for r in results):
        found.append("The recipes were chosen on other images.")
    steps = sorted({one.steps for one in record.trials})
    if {r.cost.planned_steps for r in results} - {None, *steps}:
        found.append(f"The trials had another budget than the runs: {' and '.join(f'{one:,}' for one in steps)} steps.")
    cells = record.path.parent / "tuning" / "cells"
    if not cells.is_dir():
        return [*found, "The runs of the trials do not lie beside their record, which is not held against them."]
    if wrong := sum(not _agrees(trial, cells) for trial in record.trials):
        found.append(f"{wrong} of {len(record.trials)} trials on record do not agree with the results of their runs.")
    named = {name for trial in record.trials for name in trial.cells}
    if more := [one for one in cells.iterdir() if one.name not in named and (one / "result.json").exists()]:
        found.append(
            f"{len(more)} finished runs beside the record are of no trial on it: recipes tried before, or otherwise."
        )
    return found


def _agrees(trial: Trial, cells: Path) -> bool:
    """Whether the mean over the runs of a trial that came to an end is what the record says."""
    if not trial.is_complete:
        return True
    try:
        mean = fmean(read_result(cells / name / "result.json").accuracy for name in trial.cells)
    except (DamagedFile, StatisticsError):
        return False
    return math.isclose(mean, trial.validation_accuracy or 0.0, abs_tol=1e-9)
