"""One cell, in this process or, where several devices share it, as a program of its own."""

import contextlib
import signal
import subprocess
import sys
import threading

from rich.console import Console

from vit_vs_cnn.errors import INTERRUPTED, SOME_FAILED, InputError, Interrupted
from vit_vs_cnn.experiments.attempt import attempt
from vit_vs_cnn.experiments.trainer import is_helper_process, is_launched_from_outside
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import Pool


def run_one(cell: Cell, pool: Pool, *, console: Console, wait: bool = True) -> None:
    """``attempt`` a cell; one that several devices share becomes a program of its own.

    Raises:
        InputError: what the user gave cannot be used.
        filelock.Timeout: another process runs this cell, and ``wait`` is false.
        Interrupted: the user asked to stop; the state is saved.
    """
    if cell.world_size > 1 and not is_launched_from_outside():
        _run_in_own_process(cell)
    else:
        attempt(cell, pool, console=console, wait=wait)


def _run_in_own_process(cell: Cell) -> None:
    """Run a cell as a program; a request to stop reaches it, and it saves its state first.

    Lightning starts the processes of a shared run by calling the program again: so the cell must be the program.
    """
    cell.write_config()
    program = subprocess.Popen([sys.executable, "-m", "vit_vs_cnn", "cell", str(cell.folder), "--trust"])
    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, lambda *_: program.terminate()) if is_main else None
    try:
        while program.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # a terminal sends Ctrl-C to the program, too
                program.wait()
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, previous)
    if program.returncode == INTERRUPTED:
        raise Interrupted(f"stopped in {cell.name}")
    if program.returncode == SOME_FAILED and cell.failure.exists():
        return
    if program.returncode or not (cell.is_finished or is_helper_process()):
        raise InputError(f"cell {cell.folder} ended with exit code {program.returncode}; what it printed stands above")
