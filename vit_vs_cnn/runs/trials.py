"""The trials of a search for recipes, and their table ``tuning.csv``."""

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from vit_vs_cnn.dataclass_io import from_plain
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.plain import Plain

#: Name of the table in the folder of an experiment.
TRIALS_FILE = "tuning.csv"
#: Columns that contain JSON.
_JSON_COLUMNS = ("seeds", "values", "cells")
_NUMBER_COLUMNS = ("train_size", "trial", "steps", "flops", "validation_accuracy", "validation_loss")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One recipe that was tried for a model.

    Arguments:
        contender: name of the model in the config.
        train_size: training-set size, validation images included.
        trial: its number; trial 0 is the recipe that the model had before the search.
        state: ``complete``, or ``diverged`` without accuracy (``fail`` or ``pruned`` in older tables).
        budget: of each run, such as ``400 steps``.
        steps: optimizer steps of each run.
        flops: training FLOPs of all its runs.
        validation_accuracy: mean over its runs.
        validation_loss: mean over its runs, in nats.
        seeds: one for each run.
        values: sampled settings, by dotted name; empty for trial 0.
        cells: names of the folders of its runs.
    """

    contender: str
    train_size: int
    trial: int
    state: str
    budget: str
    steps: int
    flops: float
    validation_accuracy: float | None = None
    validation_loss: float | None = None
    seeds: tuple[int, ...] = ()
    values: Plain = field(default_factory=Plain)
    cells: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.state == "complete" and self.validation_accuracy is not None

    @property
    def values_text(self) -> str:
        """Its settings for a reader."""
        return ", ".join(f"{name} {_text(value)}" for name, value in self.values.items()) or "own recipe"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        settings = " ".join(f"{name} {_text(inner)}" for name, inner in value.items() if name != "name")
        return f"{value['name']} {settings}" if "name" in value else settings
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Trials by validation accuracy, the best first; of equal ones the lower loss, then the lower number.

    Trials without accuracy come last.
    """
    return sorted(
        trials,
        key=lambda one: (
            not one.is_complete,
            -(one.validation_accuracy or 0.0),
            math.inf if one.validation_loss is None else one.validation_loss,
            one.trial,
        ),
    )


def write_trials(path: Path, trials: Iterable[Trial]) -> None:
    """Write a table with one row for each trial."""
    columns = [one.name for one in fields(Trial)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for trial in trials:
        values = asdict(trial)
        writer.writerow([json.dumps(values[name]) if name in _JSON_COLUMNS else values[name] for name in columns])
    write_text(path, text.getvalue())


def read_trials(path: Path) -> list[Trial]:
    """Read what ``write_trials`` wrote. Other columns are ignored.

    Raises:
        InputError: the file cannot be read, or is not such a table.
    """
    columns = [one.name for one in fields(Trial)]
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    trials = []
    for number, row in enumerate(rows, start=2):
        try:
            given = {name: row[name] for name in columns if row.get(name)}
            given |= {name: json.loads(given[name]) for name in _JSON_COLUMNS if name in given}
            given |= {name: float(given[name]) for name in _NUMBER_COLUMNS if name in given}
            given |= {name: int(given[name]) for name in ("train_size", "trial", "steps") if name in given}
            given.setdefault("budget", f"{given.get('steps')} steps")  # older tables had none
            trials.append(from_plain(Trial, given))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(f"{path} line {number}: {error}") from error
    return trials
