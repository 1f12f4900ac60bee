"""Where an interrupted run goes on, and how often one that loses its process may."""

import contextlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from vit_vs_cnn.errors import DamagedFile, InputError, ProcessLost
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.training.callbacks import ENDED_EARLY, LOGGED
from vit_vs_cnn.training.checkpoints import read_checkpoint

#: What a checkpoint must have for a run to go on as if it had not been interrupted.
TO_GO_ON = ("optimizer_states", "lr_schedulers", "loops", "callbacks")


@dataclass(frozen=True)
class Resumed:
    """Where a run goes on.

    Arguments:
        step: optimizer steps that are done.
        ended_early: whether it had come to its end before its budget did.
        logged: what the last step logged.
    """

    step: int
    ended_early: bool
    logged: dict[str, float]

    @classmethod
    def of(cls, cell: Cell) -> "Resumed":
        """By the cell's checkpoint.

        Raises:
            DamagedFile: it is no checkpoint, lacks what a run needs to go on, or is of a run with another recipe.
        """
        again = "move it away to have this one start anew"
        try:
            contents = read_checkpoint(cell.checkpoint)
        except InputError as error:
            raise DamagedFile(f"{error}; {again}") from error
        about = contents["vit_vs_cnn"]
        if about.get("identity") != cell.identity:
            raise DamagedFile(f"checkpoint {cell.checkpoint} is of another run; {again}")
        step = contents.get("global_step")
        if not isinstance(step, int) or any(not contents.get(name) for name in TO_GO_ON) or not _has_moments(contents):
            raise DamagedFile(f"checkpoint {cell.checkpoint} lacks the state of the optimizer or of the run; {again}")
        return cls(step, bool(about.get(ENDED_EARLY)), dict(about.get(LOGGED) or {}))


def _has_moments(contents: Mapping[str, Any]) -> bool:
    """Whether an optimizer that keeps something of each parameter has kept it; plain SGD keeps nothing."""
    states = contents["optimizer_states"]
    groups = [group for state in states for group in state.get("param_groups", [])]
    keeps = any(group.get("momentum") or "betas" in group for group in groups)
    return bool(groups) and (not keeps or contents["global_step"] == 0 or all(state.get("state") for state in states))


@dataclass(frozen=True)
class Turns:
    """How often a cell may lose its process in one command, whoever runs it.

    A turn is noted in the cell's folder under its lock, and struck out where it ends: what stands there when a turn
    begins was left by a process that died.

    Arguments:
        began: when the command began.
        retries: how often a cell whose process was lost is taken up again.
        process: number of the process of the command.
        host: name of its machine.
    """

    began: datetime
    retries: int
    process: int = field(default_factory=os.getpid)
    host: str = field(default_factory=platform.node)

    @contextlib.contextmanager
    def turn(self, cell: Cell) -> Iterator[None]:
        """A block in which a cell runs; its lock is held.

        Raises:
            ProcessLost: it has lost its process too often.
        """
        path, began, lost = cell.folder / "turns.json", self.began.isoformat(), 0
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(path.read_text(encoding="utf-8"))
            lost = int(said["turns"]) if said["command"] == began else 0
        try:
            if lost > self.retries:
                raise ProcessLost(f"{lost} times, from the last checkpoint on; out of memory, perhaps")
            turn = {"command": began, "turns": lost + 1, "process": self.process, "host": self.host}
            write_text(path, json.dumps(turn) + "\n")
            yield
        finally:
            path.unlink(missing_ok=True)


def describe_command(folder: Path) -> str:
    """The command that is running the cell of a folder: ``process 42 on node1, since 2026-11-26 09:30 UTC``."""
    turn = read_mapping(folder / "turns.json")
    try:
        began = datetime.fromisoformat(turn["command"])
        return f"process {turn['process']} on {turn['host']}, since {began:%Y-%m-%d %H:%M} UTC"
    except (KeyError, TypeError, ValueError):
        return "process unknown"
