"""Failures of runs, as their folders record them, and whether a process is running a run."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from filelock import FileLock, Timeout

from vit_vs_cnn.errors import (
    DamagedFile,
    InputError,
    Interrupted,
    ProcessLost,
    RunsFailed,
    TrainingDiverged,
)
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.typed_values import build


class FailureKind(StrEnum):
    """Kind of the failure of a run that other runs do not share."""

    DIVERGED = "training diverged"
    DAMAGED_FILE = "damaged file"
    PROCESS_LOST = "process lost"
    OUT_OF_MEMORY = "out of memory"
    PARENT_FAILED = "not run"
    ERROR = "error"

    @staticmethod
    def from_error(error: BaseException) -> "FailureKind | None":
        """The kind of an error; None for one that other runs would meet too, such as wrong input or a full disk."""
        import torch  # `status` reads failures without it

        match error:  # the first three are InputErrors
            case TrainingDiverged():
                return FailureKind.DIVERGED
            case DamagedFile():
                return FailureKind.DAMAGED_FILE
            case ProcessLost():
                return FailureKind.PROCESS_LOST
            case InputError() | OSError() | Interrupted():
                return None
            case MemoryError() | torch.OutOfMemoryError():
                return FailureKind.OUT_OF_MEMORY
        return FailureKind.ERROR if isinstance(error, Exception) else None


@dataclass(frozen=True)
class Failure:
    """Failure of a run.

    Arguments:
        step: optimizer step at which it failed; None outside of training.
        command_started: when the command that ran it started, by the clock of the machine of that command.
    """

    run: str
    kind: FailureKind
    message: str
    step: int | None
    time: str
    command_started: str | None = None

    @property
    def reason(self) -> str:
        place = "" if self.step is None else f" at step {self.step}"
        return f"{self.kind}{place}: {self.message}"

    def __str__(self) -> str:
        return f"{self.run}: {self.reason}"


def write_failure(
    run: Run, kind: FailureKind, error: BaseException | str, command_started: datetime | None = None
) -> None:
    """Record why a run has no result, with the step that it had reached."""
    lines = str(error).strip().splitlines() or ["no message"]
    message = " ".join(lines[0].split())
    if kind is FailureKind.ERROR:
        message = f"{type(error).__name__}: {message}"
    step = read_mapping(run.progress).get("step")
    failure = Failure(
        run=run.name,
        kind=kind,
        message=message,
        step=step if isinstance(step, int) else None,
        time=datetime.now(UTC).isoformat(),
        command_started=None if command_started is None else command_started.isoformat(),
    )
    write_text(run.failure, json.dumps(asdict(failure), indent=1) + "\n")


def read_failure(folder: Path) -> Failure | None:
    """The recorded failure of the run in a folder; None if it is missing or cannot be read."""
    try:
        return build(Failure, json.loads((folder / "failed.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def has_failed_since(run: Run, command_started: datetime) -> bool:
    """True if a run has failed since a command started. A command repeats runs that failed before.

    The clocks of machines may differ and may be set back, so failures of the command itself are known by its start.
    """
    failure = read_failure(run.folder)
    if failure is None or failure.command_started == command_started.isoformat():
        return failure is not None
    try:
        return datetime.fromisoformat(failure.time) >= command_started
    except (TypeError, ValueError):  # not a time, or one without time zone
        return False


def is_locked(folder: Path) -> bool:
    """True if a process holds the lock of a run's folder. The lock of a killed process is free."""
    if not (folder / ".lock").exists():
        return False
    try:
        with FileLock(folder / ".lock", timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # the folder of another user, or a read-only disk
        return False


def raise_failures(runs: list[Run]) -> None:
    """Raise RunsFailed if some runs have no result, with one line for each."""
    failures = [failure for run in runs if not run.is_finished and (failure := read_failure(run.folder))]
    if failures:
        raise RunsFailed([str(failure) for failure in failures])
