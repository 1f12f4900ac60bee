"""The order in which cells go to other processes, and what follows from how each ended there."""

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Protocol, runtime_checkable

from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.experiments.workers.local import fail_behind_its_start
from vit_vs_cnn.experiments.workers.outcome import Outcome
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import has_failed_since, is_being_run, write_failure

POLL_SECONDS = 1.0


@runtime_checkable
class Workers(Protocol):
    """Processes that run cells."""

    def can_take(self) -> bool:
        """Whether another cell may be submitted now."""
        ...

    def submit(self, cell: Cell) -> None:
        """Have a cell run."""
        ...

    def wait(self, seconds: float) -> list[tuple[Cell, Outcome]]:
        """Those that have ended, after ``seconds`` at the latest."""
        ...

    def stop(self) -> None:
        """Have all save their state and end."""
        ...


class Schedule:
    """Cells on their way through workers.

    A cell whose process was lost goes again, from its last checkpoint, as often as ``retries`` says. A cell that starts
    from another one waits for it. A cell that another command is running is left to it.

    Arguments:
        cells: all of the grid, each behind the one that it starts from.
        workers: who runs them.
        retries: how often a cell may lose its process and go again.
    """

    def __init__(self, cells: list[Cell], workers: Workers, *, retries: int) -> None:
        self.waiting = [cell for cell in cells if not cell.is_finished]
        self.workers = workers
        self.retries = retries
        self.running: set[Path] = set()
        self.failed: set[Path] = set()
        self._losses: Counter[Path] = Counter()
        self._began = datetime.now(UTC)

    def run(self, note: Callable[[str], None], refresh: Callable[[], None]) -> None:
        """Until every cell is through.

        Arguments:
            note: told, in one line, of a cell that goes again.
            refresh: called now and then.

        Raises:
            InputError: what the user gave cannot be used.
            Interrupted: the user asked to stop; the cells that were running have saved their state.
        """
        try:
            with _termination_interrupts():
                while self.waiting or self.running:
                    self._submit()
                    for cell, outcome in self.workers.wait(POLL_SECONDS):
                        self._take(cell, outcome, note)
                    refresh()
        except KeyboardInterrupt as error:
            raise Interrupted("stopped") from error
        finally:
            self.workers.stop()

    def _submit(self) -> None:
        for cell in list(self.waiting):
            if not self.workers.can_take():
                return
            if cell.is_finished or has_failed_since(cell, self._began) or fail_behind_its_start(cell, self.failed):
                self.waiting.remove(cell)  # another command has run it
            elif not (self._waits_for_its_start(cell) or is_being_run(cell.folder)):
                self.waiting.remove(cell)
                self.running.add(cell.folder)
                self.workers.submit(cell)

    def _waits_for_its_start(self, cell: Cell) -> bool:
        return isinstance(cell.start, Cell) and not cell.start.is_finished

    def _take(self, cell: Cell, outcome: Outcome, note: Callable[[str], None]) -> None:
        self.running.discard(cell.folder)
        match outcome.kind:
            case "through":
                if not cell.is_finished:
                    self.failed.add(cell.folder)
            case "busy":
                self.waiting.append(cell)
            case "stopped":
                raise Interrupted(outcome.message or f"stopped in {cell.name}")
            case "refused":
                raise InputError(outcome.message)
            case "lost":
                self._lose(cell, outcome.message, note)

    def _lose(self, cell: Cell, message: str, note: Callable[[str], None]) -> None:
        self._losses[cell.folder] += 1
        if self._losses[cell.folder] <= self.retries:
            note(f"{cell.name}  lost its process ({message}) and goes on from its last checkpoint")
            self.waiting.insert(0, cell)
            return
        times = self._losses[cell.folder]
        write_failure(cell, "ProcessLost", f"{times} times, last because {message}; out of memory, perhaps")
        self.failed.add(cell.folder)


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """A scheduler's SIGTERM does what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
