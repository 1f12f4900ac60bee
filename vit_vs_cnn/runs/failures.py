"""Why a cell has no result, as its folder says; and whether somebody is running it."""

import contextlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from vit_vs_cnn.errors import CellsFailed
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.cell import Cell


@dataclass(frozen=True)
class Failure:
    """Why a cell has no result.

    Arguments:
        step: the optimizer step that it happened in; None outside of training.
        time: when, in UTC, as ISO 8601.
        began: when the command began whose run it was, by the clock of the machine that it was given on.
    """

    cell: str
    type: str
    message: str
    step: int | None
    time: str
    began: str | None = None

    def __str__(self) -> str:
        place = "" if self.step is None else f" at step {self.step}"
        return f"{self.cell}: {self.type}{place}: {self.message}"


def write_failure(cell: Cell, kind: str, message: str, began: datetime | None = None) -> None:
    """Note why a cell has no result, with the step that it was at, in a command that began then."""
    step = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        step = json.loads(cell.progress.read_text(encoding="utf-8"))["step"]
    lines = message.strip().splitlines() or ["no message"]
    now, first = datetime.now(UTC).isoformat(), " ".join(lines[0].split())
    failure = Failure(cell.name, kind, first, step, now, None if began is None else began.isoformat())
    write_text(cell.failure, json.dumps(asdict(failure), indent=1) + "\n")


def read_failure(folder: Path) -> Failure | None:
    """Why the cell of a folder has no result, if it failed when it was last run."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = Failure(**json.loads((folder / "failed.json").read_text(encoding="utf-8")))
        return found if isinstance(found.time, str) else None
    return None


def has_failed_since(cell: Cell, began: datetime) -> bool:
    """Whether the cell has failed in the command that began then, or later in another one: what failed before is tried
    again. Clocks may differ between machines, and be set back.
    """
    failure = read_failure(cell.folder)
    if failure is None or failure.began == began.isoformat():
        return failure is not None
    try:
        return datetime.fromisoformat(failure.time) >= began
    except (TypeError, ValueError):  # no time, or one without its zone: of no command
        return False


def is_being_run(folder: Path) -> bool:
    """Whether a living process holds the lock of a cell's folder. A process that was killed holds none."""
    if not (folder / ".lock").exists():
        return False
    try:
        with FileLock(folder / ".lock", timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # of somebody else, or a disk that can't be written to
        return _is_locked(folder / ".lock")


def _is_locked(path: Path) -> bool:
    """Whether a file is locked that one may read and not write."""
    try:
        import fcntl

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


def raise_failures(cells: list[Cell]) -> None:
    """Raise what keeps cells from having results. Raises CellsFailed: some have none."""
    failures = [failure for cell in cells if not cell.is_finished and (failure := read_failure(cell.folder))]
    if failures:
        raise CellsFailed([str(failure) for failure in failures])
