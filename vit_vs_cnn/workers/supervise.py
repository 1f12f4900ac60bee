"""Workers are started, replaced where they are lost, and stopped, until every cell is through."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

import torch
from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import is_being_run
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.status_view import CellsView, finished_before
from vit_vs_cnn.workers.processes import LocalProcesses, count_workers
from vit_vs_cnn.workers.resumed import Turns, describe_command
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside
from vit_vs_cnn.workers.work import POLL_SECONDS, Order, Outcome, on_termination, take_cells

#: Pixels that an experiment trains on, each as often as it is seen, from which on processes of their own pay off: on
#: two cores that is half a minute of the smallest networks.
WORTH_PIXELS = 2e7
#: What workers have to end by themselves when nothing is left; then they are stopped, as those that still queue.
SECONDS_TO_END = 5.0


@runtime_checkable
class Workers(Protocol):
    """A way to start workers: processes, tasks of a cluster, jobs of a queue."""

    #: Workers at a time.
    most: int

    def start(self, order: Order, count: int) -> None:
        """So many workers more."""
        ...

    def running(self) -> int:
        """How many were started and have not ended."""
        ...

    def ended(self, seconds: float) -> list[Outcome]:
        """How those ended that have, waiting for so long at the most; each is told once."""
        ...

    def stop(self) -> None:
        """Have all save their state and end."""
        ...


def run_cells(cells: list[Cell], pool: Pool, *, console: Console) -> None:
    """Run what is not finished of the cells of one folder, by the executor of their experiment.

    A cell that fails leaves its reason in its folder; the others are run all the same.

    Raises:
        InputError: what the user gave cannot be used.
        Interrupted: the user asked to stop; the same command goes on.
    """
    experiment = cells[0].experiment
    executor, turns = experiment.executor, Turns(datetime.now(UTC), experiment.executor.retries)
    finished = {cell.folder for cell in cells if cell.is_finished}
    missing = [cell for cell in cells if cell.folder not in finished]
    order = Order(missing, turns, experiment.protocol.threads)
    running = next((cell.folder for cell in missing if not is_helper_process() and is_being_run(cell.folder)), None)
    if running is not None:
        command = f"Another command is training in {experiment.folder} ({describe_command(running)})"
        console.print(f"{command}; both share the remaining runs", soft_wrap=True)
    if not missing or executor.name == "local" or (executor.name == "auto" and not pay_off(missing, pool)):
        if finished:
            console.print(finished_before(len(finished), len(cells)), soft_wrap=True)
        with threads_set(order.threads):
            take_cells(order, pool, console=console, patient=True)
        return
    if is_launched_from_outside():
        raise InputError(f"executor {executor.name}: a launcher has started the processes already; take local")
    workers = _workers(experiment, len(missing), console)
    view = CellsView(experiment.folder, console)
    with view.shown():
        supervise(order, workers, view)


def pay_off(cells: list[Cell], pool: Pool) -> bool:
    """Whether processes of their own, each of which has its images read, let cells of an experiment finish earlier."""
    experiment = cells[0].experiment
    if len(cells) < 2 or count_workers(experiment) < 2 or any(cell.world_size > 1 for cell in cells):
        return False
    if is_launched_from_outside() or multiprocessing.current_process().daemon:
        return False
    if experiment.protocol.budget.unit == "flops":
        return True
    batch_size, (_, height, width) = experiment.protocol.batch_size, pool.images.image_shape
    steps = sum(cell.budget.to_steps(batch_size=batch_size, train_images=cell.train_size, macs=0) for cell in cells)
    return steps * batch_size * height * width > WORTH_PIXELS


def _workers(experiment: Experiment, cells: int, console: Console) -> Workers:
    match experiment.executor.name:
        case "auto" | "processes":
            return LocalProcesses(experiment, cells)
        case "slurm":
            from vit_vs_cnn.workers.on_slurm import SlurmJobs

            return SlurmJobs(experiment, cells)
    from vit_vs_cnn.workers.on_ray import RayTasks

    return RayTasks(experiment.executor, cells, console=console)


def supervise(order: Order, workers: Workers, view: CellsView) -> None:
    """Keep workers at it until every cell is settled.

    A worker that is lost is replaced; its cell goes on from its last checkpoint, with whoever takes it. Cells that
    another command is running are left to it.

    Raises:
        InputError: what the user gave cannot be used, or workers die before they settle any cell.
        Interrupted: the user asked to stop; the cells that were running have saved their state.
    """
    losses, left, before = 0, order.cells, len(order.cells)
    try:
        with on_termination(_interrupt):
            while left := order.left(left):
                if len(left) < before:
                    losses, before = 0, len(left)
                if not workers.running() and (free := [cell for cell in left if not is_being_run(cell.folder)]):
                    workers.start(order, min(workers.most, len(free)))
                for outcome in workers.ended(POLL_SECONDS):
                    match outcome.kind:
                        case "stopped":
                            raise Interrupted(outcome.message or "stopped")
                        case "refused":
                            raise InputError(outcome.message)
                        case "lost":
                            losses += 1
                            _check_progress(losses, workers, order, outcome)
                            view.note(f"a worker was lost ({outcome.message}); another one goes on from its checkpoint")
                            workers.start(order, 1)
                view.refresh()
            deadline = time.monotonic() + SECONDS_TO_END
            while workers.running() and time.monotonic() < deadline:
                workers.ended(POLL_SECONDS)
    except KeyboardInterrupt as error:
        raise Interrupted("stopped") from error
    finally:
        workers.stop()


def _check_progress(losses: int, workers: Workers, order: Order, outcome: Outcome) -> None:
    """A cell that keeps losing its process fails by itself; workers that die before that reach no cell at all."""
    if losses > workers.most * (order.turns.retries + 2):
        raise InputError(
            f"executor: {losses} workers ended without finishing a cell, the last one: {outcome.message}; "
            "executor.retries allows more"
        )


def _interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def threads_set(count: int) -> Iterator[None]:
    """PyTorch with so many threads, and with as many as before behind the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
