"""The executor that is this process: one cell after the other."""

from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console

from vit_vs_cnn.experiments.workers.own_process import run_one
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import has_failed_since, read_failure, write_failure
from vit_vs_cnn.runs.images import Pool


def run_here(cells: list[Cell], pool: Pool, *, console: Console) -> None:
    """Run what is not finished. A cell that another command is running is left to it, and waited for at the end.

    Raises:
        InputError: what the user gave cannot be used.
        Interrupted: the user asked to stop; the state is saved.
    """
    began, busy = datetime.now(UTC), []
    failed: set[Path] = set()
    for cell in cells:
        if cell.is_finished:
            console.print(f"{cell.name}  finished before: {cell.folder}", soft_wrap=True)
            continue
        try:
            _run(cell, pool, failed, console=console, wait=False)
        except Timeout:
            console.print(f"{cell.name}  is being run by another process", soft_wrap=True)
            busy.append(cell)
    for cell in busy:
        with FileLock(cell.lock):
            pass  # the other process is through
        if not cell.is_finished and not has_failed_since(cell, began):
            _run(cell, pool, failed, console=console, wait=True)


def _run(cell: Cell, pool: Pool, failed: set[Path], *, console: Console, wait: bool) -> None:
    if fail_behind_its_start(cell, failed):
        return
    run_one(cell, pool, console=console, wait=wait)
    if not cell.is_finished and (failure := read_failure(cell.folder)):
        console.print(f"failed: {failure}", soft_wrap=True)
        failed.add(cell.folder)


def fail_behind_its_start(cell: Cell, failed: set[Path]) -> bool:
    """Whether the cell that this one starts from is among the failed ones; then this one is noted as failed, too."""
    start = cell.start
    if not (isinstance(start, Cell) and start.folder in failed):
        return False
    write_failure(cell, "NotRun", f"{start.name}, which it starts from, failed")
    failed.add(cell.folder)
    return True
