"""A worker: it takes the cells that nobody else is running, one after the other, under their locks."""

import contextlib
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from filelock import Timeout
from rich.console import Console

from vit_vs_cnn.errors import INTERRUPTED, SOME_FAILED, InputError, Interrupted
from vit_vs_cnn.process import keep_freed_memory, quiet_lightning
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import has_failed_since, is_being_run, read_failure, write_failure
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.told import console_for_news, warnings_in_lines
from vit_vs_cnn.workers.cell_run import attempt
from vit_vs_cnn.workers.resumed import Turns
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside

POLL_SECONDS = 0.5
#: Seconds that workers which are asked to stop have to save their state.
PATIENCE = 60.0


@dataclass(frozen=True)
class Order:
    """The cells that one command wants run, by however many workers.

    Arguments:
        cells: all of the grid, each behind the one that it starts from.
        turns: how often a cell may lose its process, counted from when the command began.
        threads: of PyTorch in each worker.
        folder: the one that the command was given in; the config's paths start there.
        modules: where the command finds modules, the user's own among them.
    """

    cells: list[Cell]
    turns: Turns
    threads: int
    folder: Path = field(default_factory=Path.cwd)
    modules: list[str] = field(default_factory=lambda: [str(Path(place).absolute()) for place in sys.path])

    def is_settled(self, cell: Cell) -> bool:
        """Whether a cell is finished, or has failed since the command began: what failed before is tried again."""
        return has_failed_since(cell, self.turns.began) or cell.is_finished

    def left(self, among: list[Cell] | None = None) -> list[Cell]:
        """The cells that are not settled, among all or among those that were left before."""
        return [cell for cell in (self.cells if among is None else among) if not self.is_settled(cell)]


def take_cells(order: Order, pool: Pool, *, console: Console, patient: bool = False) -> None:
    """Run every cell that is free.

    A cell that starts from another one is free behind it, and fails with it. A worker ends where others are running
    all that is left.

    Arguments:
        order: which cells.
        pool: their images.
        console: where it is said what happens.
        patient: whether to wait for the cells that others are running, and to take those that they give up.

    Raises:
        InputError: what the user gave cannot be used.
        Interrupted: the user asked to stop; the state is saved.
    """
    told: set[Path] = set()
    waiting = order.cells
    with _old_objects_frozen():
        while waiting := order.left(waiting):
            busy = [cell for cell in waiting if not _take(cell, order, pool, console=console)]
            for cell in busy:
                if patient and cell.folder not in told and is_being_run(cell.folder):
                    console.print(f"{cell.name}  is being run by another process", soft_wrap=True)
                    told.add(cell.folder)
            if len(busy) < len(waiting):
                continue
            if not patient and all(is_being_run(cell.folder) for cell in busy):
                return
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _old_objects_frozen() -> Iterator[None]:
    """A block in which the collections behind each cell pass over what was there before: a third of a second each."""
    if gc.get_freeze_count():  # whoever froze them wants them to stay so
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _take(cell: Cell, order: Order, pool: Pool, *, console: Console) -> bool:
    """Run a cell; whether it is settled by now."""
    start = cell.start
    if isinstance(start, Cell) and not start.is_finished:
        if not has_failed_since(start, order.turns.began):
            return False
        write_failure(cell, "NotRun", f"{start.name}, which it starts from, failed", order.turns.began)
        return True
    try:
        run_one(cell, pool, turns=order.turns, console=console)
    except Timeout:
        return False
    if not cell.is_finished and (failure := read_failure(cell.folder)):
        console.print(f"failed: {failure}", soft_wrap=True)
    return True


def run_one(cell: Cell, pool: Pool, *, turns: Turns, console: Console) -> None:
    """``attempt`` a cell; one that several devices share becomes a program of its own.

    Raises:
        InputError: what the user gave cannot be used.
        filelock.Timeout: another process runs this cell.
        Interrupted: the user asked to stop; the state is saved.
    """
    if cell.world_size == 1 or is_launched_from_outside():
        attempt(cell, pool, console=console, turns=turns)
    elif is_being_run(cell.folder):
        raise Timeout(str(cell.lock))
    else:
        _run_in_own_process(cell)


def _run_in_own_process(cell: Cell) -> None:
    """Run a cell as a program; a request to stop reaches it, and it saves its state first.

    Lightning starts the processes of a shared run by calling the program again: so the cell must be the program.
    """
    cell.write_config()
    program = subprocess.Popen([sys.executable, "-m", "vit_vs_cnn", "cell", str(cell.folder), "--trust"])
    with on_termination(program.terminate):
        while program.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # a terminal sends Ctrl-C to the program, too
                program.wait()
    if program.returncode == INTERRUPTED:
        raise Interrupted(f"stopped in {cell.name}")
    if program.returncode == SOME_FAILED and cell.failure.exists():
        return
    if program.returncode or not (cell.is_finished or is_helper_process()):
        raise InputError(f"cell {cell.folder} ended with exit code {program.returncode}; what it printed stands above")


@contextlib.contextmanager
def on_termination(act: Callable[[], object]) -> Iterator[None]:
    """A block in which a scheduler's SIGTERM does this, and nothing else."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@dataclass(frozen=True)
class Outcome:
    """How a worker in another process ended.

    Arguments:
        kind: through (nothing was left that it could take); stopped (on request, the state saved); refused (something
            that the user gave cannot be used); lost (the process died).
        message: what was refused, or how it died.
    """

    kind: Literal["through", "stopped", "refused", "lost"]
    message: str = ""


def work(order: Order) -> Outcome:
    """``take_cells`` as what another process does; it has its own copy of the images.

    Modules of the user's own are found where the command finds them, and as early.
    """
    sys.path[:] = [*order.modules, *(place for place in sys.path if place not in order.modules)]
    quiet_lightning()
    keep_freed_memory()
    torch.set_num_threads(order.threads)
    try:
        with contextlib.chdir(order.folder), warnings_in_lines():
            if left := order.left():
                take_cells(order, _pool_of(left[0]), console=console_for_news(quiet=True))
    except (Interrupted, KeyboardInterrupt) as error:
        return Outcome("stopped", str(error))
    except InputError as error:
        return Outcome("refused", str(error))
    except OSError as error:
        return Outcome("refused", f"{error.filename or 'input or output'}: {error.strerror or error}")
    return Outcome("through")


def _pool_of(cell: Cell) -> Pool:
    """The images that all cells of a grid share.

    Raises:
        InputError: they are others here than where the command was given.
    """
    pool = Pool.of(cell.experiment, fingerprint=cell.fingerprint)
    if pool.fingerprint != cell.fingerprint:
        raise InputError(f"{pool.data.whence} is not the same for the process that runs cells as for yours")
    return pool
