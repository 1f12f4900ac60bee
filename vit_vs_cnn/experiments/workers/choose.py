"""The executor that a config names."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rich.console import Console

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.trainer import is_launched_from_outside
from vit_vs_cnn.experiments.workers.local import run_here
from vit_vs_cnn.experiments.workers.schedule import Schedule, Workers
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.status_view import CellsView


def run_cells(cells: list[Cell], pool: Pool, *, console: Console) -> None:
    """Run what is not finished of the cells of one folder, by the executor of their experiment.

    A cell that fails leaves its reason in its folder; the others are run all the same.

    Raises:
        InputError: what the user gave cannot be used.
        Interrupted: the user asked to stop; the same command goes on.
    """
    experiment = cells[0].experiment
    executor, missing = experiment.executor, [cell for cell in cells if not cell.is_finished]
    if executor.name == "local" or not missing:
        with threads_set(executor.threads):
            run_here(cells, pool, console=console)
        return
    if is_launched_from_outside():
        raise InputError(f"executor {executor.name}: a launcher has started the processes already; take local")
    view = CellsView(experiment.folder, console)
    workers: Workers
    if executor.name == "processes":
        from vit_vs_cnn.experiments.workers.processes import LocalProcesses

        workers = LocalProcesses(experiment, len(missing))
    else:
        from vit_vs_cnn.experiments.workers.on_ray import RayTasks

        workers = RayTasks(executor, console=console)
    with view.shown():
        Schedule(cells, workers, retries=executor.retries).run(view.note, view.refresh)


@contextmanager
def threads_set(count: int | None) -> Iterator[None]:
    """PyTorch with so many threads, and with as many as before behind the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
