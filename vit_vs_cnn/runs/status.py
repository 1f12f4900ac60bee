"""How far an experiment is, read from its folder while it runs, or after."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vit_vs_cnn.config.experiment import read_config
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import read_rows
from vit_vs_cnn.runs.cell import read_result
from vit_vs_cnn.runs.failures import is_being_run, read_failure
from vit_vs_cnn.runs.grid import read_grid

STATES = ("running", "failed", "waiting", "done")


@dataclass(frozen=True)
class CellStatus:
    """One cell as its folder shows it.

    Arguments:
        state: done; running, by a process that lives; failed, when it was last run; waiting, begun or not.
        step: optimizer steps done; None if it has not begun.
        steps: how many there will be, or were to be; None while that is not known.
        seconds: that its training took, for a cell that is done.
    """

    folder: str
    contender: str
    train_size: int
    seed: int
    state: Literal["done", "running", "failed", "waiting"]
    step: int | None = None
    steps: int | None = None
    steps_per_second: float | None = None
    seconds: float | None = None
    accuracy: float | None = None
    reason: str | None = None
    host: str | None = None

    @property
    def name(self) -> str:
        """For a reader: contender, size, seed."""
        return f"{self.contender}-n{self.train_size}-s{self.seed}"


@dataclass(frozen=True)
class ExperimentStatus:
    """All cells of the grid that was last run in a folder.

    Arguments:
        seconds_left: an estimate, from the cells that are done, for as many processes as run now; None where nothing
            is done yet to tell from.
    """

    name: str
    cells: list[CellStatus]
    seconds_left: float | None

    def count(self, state: str) -> int:
        """How many cells are in a state."""
        return sum(cell.state == state for cell in self.cells)


def read_status(folder: Path) -> ExperimentStatus:
    """The status of the experiment in a folder. Raises InputError: no experiment is there."""
    names = read_grid(folder)
    values = read_config(folder / "experiment.yaml")
    try:
        budget = dict(values["protocol"]["budget"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / 'experiment.yaml'} has no protocol.budget; train writes it anew") from error
    cells = [_read_cell(folder / "cells" / name, steps=budget.get("steps")) for name in names]
    workers = (values.get("executor") or {}).get("workers") or 1
    running = sum(cell.state == "running" for cell in cells)
    left = seconds_left(cells, workers=max(workers, running), by_size=budget.get("epochs") is not None)
    return ExperimentStatus(folder.resolve().name, cells, left)


def _read_cell(folder: Path, *, steps: int | None) -> CellStatus:
    match = re.fullmatch(r"(.+)-n(\d+)-s(-?\d+)-[0-9a-f]+", folder.name)
    if match is None:
        raise InputError(f"{folder}: this is not the name of a cell's folder")
    about: dict[str, Any] = {"folder": folder.name, "contender": match[1], "train_size": int(match[2])}
    about |= {"seed": int(match[3]), "steps": steps}
    if (result := _result(folder / "result.json")) is not None:
        if isinstance(result, str):
            return CellStatus(**about, state="failed", reason=result)
        keys = {"step": "steps", "steps": "planned_steps", "seconds": "train_seconds", "accuracy": "accuracy"}
        about |= {name: result.get(key) for name, key in keys.items()}
        about["steps"] = about["steps"] or about["step"]
        return CellStatus(**about, state="done")
    about |= {"step": max((int(row[0]) for row in read_rows(folder / "metrics.csv")), default=None)}
    progress = _read_json(folder / "progress.json")
    about |= {name: progress[name] for name in ("step", "steps") if name in progress}
    if is_being_run(folder):
        rate = progress.get("steps_per_second")
        return CellStatus(**about, state="running", steps_per_second=rate, host=progress.get("host"))
    if failure := read_failure(folder):
        place = "" if failure.step is None else f" at step {failure.step}"
        return CellStatus(**about, state="failed", reason=f"{failure.type}{place}: {failure.message}")
    return CellStatus(**about, state="waiting")


def _result(path: Path) -> Mapping[str, Any] | str | None:
    """The result; why it can't be read; None where there is none."""
    if not path.exists():
        return None
    try:
        return read_result(path)
    except InputError as error:
        return f"DamagedFile: {error}"


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there, or about to be
        return {}
    return values if isinstance(values, dict) else {}


def seconds_left(cells: Sequence[CellStatus], *, workers: int, by_size: bool) -> float | None:
    """Seconds until all cells are through; None where there is nothing to tell from.

    The training time of a contender's cells that are done is taken for its others: as it is under a budget in steps or
    FLOPs, in proportion to the training size under a budget in epochs. The sum over the cells is shared out evenly
    over the workers; the longest cell that runs is a lower bound.

    Arguments:
        cells: all of the grid. Those that failed are not tried again before the command is.
        by_size: whether a cell's time grows with its training size.
    """
    left = [_left(cell, cells, by_size=by_size) for cell in cells if cell.state in ("running", "waiting")]
    if any(seconds is None for seconds in left):
        return None
    known = [seconds for seconds in left if seconds is not None]
    return max(sum(known) / max(1, min(workers, len(known))), *known) if known else 0.0


def _left(cell: CellStatus, cells: Sequence[CellStatus], *, by_size: bool) -> float | None:
    if cell.step is not None and cell.steps and cell.steps_per_second:
        return max(0, cell.steps - cell.step) / cell.steps_per_second
    share = 1 - cell.step / cell.steps if cell.step is not None and cell.steps else 1.0
    whole = _expected(cell, cells, by_size=by_size)
    return None if whole is None else share * whole


def _expected(cell: CellStatus, cells: Sequence[CellStatus], *, by_size: bool) -> float | None:
    """Seconds of a whole cell: the mean over those of its contender that are done or tell their speed."""

    def scale(other: CellStatus) -> float:
        return cell.train_size / other.train_size if by_size else 1.0

    akin = [other for other in cells if other.contender == cell.contender]
    times = [other.seconds * scale(other) for other in akin if other.seconds is not None]
    if not times:
        times = [o.steps / o.steps_per_second * scale(o) for o in akin if o.steps and o.steps_per_second]
    return sum(times) / len(times) if times else None
