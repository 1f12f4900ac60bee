"""The record that ``tune`` leaves of its trials, and what it says of the recipe that a run was given."""

import csv
import hashlib
import io
import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from vit_vs_cnn.config.experiment import Budget, hash_of, read_config
from vit_vs_cnn.config.schema import nearest
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text

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


@dataclass(frozen=True)
class Chance:
    """How the recipe of a run was found.

    Arguments:
        trials: how many recipes were tried; None if there is no record of it.
        tuning_flops: of their training; None if not known.
        trial_rank: the place of the recipe among them, 1 for the best; None if it is none of them, or not known.
        tuned_at: the size at which they were tried; None if there is no record.
    """

    trials: int | None = None
    tuning_flops: float | None = None
    trial_rank: int | None = None
    tuned_at: int | None = None

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "Chance":
        """That of a cell's result, or of a line of results.csv, of which the first ones have the trials alone."""
        return cls(**{field.name: result.get(field.name) for field in fields(cls)})

    @property
    def obstacle(self) -> str | None:
        """Why the recipe allows no verdict, whatever the others had; it is read behind a contender's name."""
        if self.tuned_at is None or self.trial_rank == 1:
            return None
        of = f"of its {self.trials} trials"
        return f"runs none {of}" if self.trial_rank is None else f"runs number {self.trial_rank} {of}, not the best"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def unequal_chances(chances: Mapping[str, Iterable[Chance]]) -> str | None:
    """Why recipes found with unequal effort, or not the best ones, allow no verdict; None where nothing does.

    Recipes by hand are alike if all are; trials are equal in number, or in FLOPs up to one trial.

    Arguments:
        chances: of the runs of each contender.
    """
    by_name = {name: list(dict.fromkeys(theirs)) for name, theirs in chances.items()}
    found = [one for theirs in by_name.values() for one in theirs]
    counts = sorted({one.trials for one in found if one.trials is not None})
    if counts and any(one.trials is None for one in found):
        lacking = [name for name, theirs in by_name.items() if any(one.trials is None for one in theirs)]
        return f"there is no record of the trials of {' and '.join(lacking)}"
    if wrong := [f"{name} {one.obstacle}" for name, theirs in by_name.items() for one in theirs if one.obstacle]:
        return " and ".join(wrong)
    if unequal := unequal_trials(found):
        return f"their recipes had unequal trials ({', '.join(map(str, unequal))})"
    return None


def unequal_trials(chances: Sequence[Chance]) -> list[int]:
    """The numbers of trials of recipes that are each the best of theirs; empty where these numbers are fair."""
    counts = sorted({one.trials or 0 for one in chances})
    if any(one.trials is None or one.obstacle for one in chances):
        return []
    return counts if len(counts) > 1 and not _equal_flops(chances) else []


def _equal_flops(found: Sequence[Chance]) -> bool:
    if any(one.tuning_flops is None or not one.trials for one in found):
        return False
    flops = [one.tuning_flops or 0.0 for one in found]
    return max(flops) - min(flops) <= max((one.tuning_flops or 0.0) / (one.trials or 1) for one in found)


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

    def chance(self, contender: str, train_size: int, identity: Mapping[str, Any]) -> Chance:
        """How the recipe of a run was found.

        Arguments:
            identity: of its cell.
        """
        place = self.place_of(contender, train_size, Budget(**identity["budget"]).short)
        if place is None:
            return Chance()
        trials, mine = self.by_place[place], recipe_hash(identity)
        ranks = (rank for rank, one in enumerate(trials, start=1) if one.is_complete and one.recipe == mine)
        return Chance(len(trials), sum(one.flops for one in trials), next(ranks, None), place.train_size)


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
    lost = ("The record of the trials could not be read, so recipes count as set by hand",)
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
        warnings.warn(f"{error}; recipes count as set by hand", stacklevel=2)
        return None, lost


def doubts(record: Record, results: Iterable[Mapping[str, Any]]) -> list[str]:
    """What weakens a record as evidence for some results, a sentence each; nothing if nothing does.

    Its trials are held against the results of their runs, where these lie beside it, and these against the record: runs
    that it does not name are of recipes that were tried and are not told of.
    """
    found, results = [], list(results)
    images = {one.images for one in record.trials}
    if any(not str((r.get("data") or {}).get("fingerprint")).startswith(tuple(images)) for r in results):
        found.append("The recipes were chosen on other images.")
    steps = sorted({one.steps for one in record.trials})
    if {r["planned_steps"] for r in results if "planned_steps" in r} - {*steps}:
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
        told = [json.loads((cells / name / "result.json").read_text(encoding="utf-8")) for name in trial.cells]
        mean = sum(float(one["accuracy"]) for one in told) / len(told)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return False
    return math.isclose(mean, trial.validation_accuracy or 0.0, abs_tol=1e-9)


def with_chances(results: Iterable[Mapping[str, Any]], record: Record | None) -> list[dict[str, Any]]:
    """Results of cells with what the record says of their recipes; what an earlier version typed is replaced."""
    return [{**result, **_chance(result, record).to_dict()} for result in results]


def _chance(result: Mapping[str, Any], record: Record | None) -> Chance:
    identity = result.get("identity")
    if record is None or not identity:
        return Chance()
    return record.chance(result["contender"], result["train_size"], identity)
