"""The trials of a search for recipes, and their table ``tuning.csv``."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.record import read_table, table_text
from vit_vs_cnn.typed_values import build

#: Name of the table in the folder of an experiment.
TRIALS_FILE = "tuning.csv"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One recipe that was tried for a model.

    Arguments:
        trial: its number; trial 0 is the recipe that the model had before the search.
        state: ``complete``, or ``diverged`` without accuracy.
        values: sampled settings, by dotted name; empty for trial 0.
    """

    model: str
    train_size: int
    trial: int
    state: str
    budget: str
    steps: int
    flops: float
    validation_accuracy: float | None = None
    validation_loss: float | None = None
    seeds: tuple[int, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    runs: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.state == "complete" and self.validation_accuracy is not None

    @property
    def values_text(self) -> str:
        return ", ".join(f"{name} {_text(value)}" for name, value in self.values.items()) or "own recipe"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        settings = " ".join(f"{name} {_text(inner)}" for name, inner in value.items() if name != "name")
        return f"{value['name']} {settings}" if "name" in value else settings
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def rank_trials(trials: Iterable[Trial]) -> list[Trial]:
    """Trials by validation accuracy, the best first; of equal ones the lower loss, then the lower number."""
    return sorted(
        trials,
        key=lambda trial: (
            not trial.is_complete,
            -(trial.validation_accuracy or 0.0),
            math.inf if trial.validation_loss is None else trial.validation_loss,
            trial.trial,
        ),
    )


def write_trials(path: Path, trials: Iterable[Trial]) -> None:
    write_text(path, table_text([asdict(trial) for trial in trials]))


def read_trials(path: Path) -> list[Trial]:
    """Read what ``write_trials`` wrote. Other columns are ignored. Raises InputError: not such a table."""
    columns = {field.name for field in fields(Trial)}
    trials = []
    for number, row in enumerate(read_table(path), start=2):
        try:
            trials.append(build(Trial, {n: value for n, value in row.items() if n in columns and value is not None}))
        except ValueError as error:
            raise InputError(f"{path} line {number}: {error}") from error
    return trials
