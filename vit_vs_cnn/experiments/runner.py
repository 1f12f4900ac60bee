"""All cells of an experiment, one after the other."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from filelock import Timeout
from rich.console import Console

from vit_vs_cnn.errors import INTERRUPTED, InputError, Interrupted
from vit_vs_cnn.experiments.cell import Cell, grid, read_result, write_text
from vit_vs_cnn.experiments.cell_run import run_cell
from vit_vs_cnn.experiments.config import Experiment
from vit_vs_cnn.experiments.plan import make_plan
from vit_vs_cnn.experiments.pool import Pool
from vit_vs_cnn.experiments.trainer import is_helper_process, is_launched_from_outside, quiet_lightning, world_size


def run_experiment(experiment: Experiment, *, console: Console) -> list[dict[str, Any]]:
    """Run what is not finished yet and return the results of all cells.

    Everything that can be wrong is looked at before the first cell trains: every image read, every subset drawn, every
    network and optimizer built, the devices counted.

    Several processes may run one experiment at a time: a cell that another one is running is left to it.

    Where torchrun or SLURM started several processes, or several nodes take part, all of them call this; the first one
    writes everything and gets the results, the others get an empty list.

    Raises:
        InputError: what the user gave cannot be used.
        Interrupted: the user asked to stop; the same command goes on.
    """
    quiet_lightning()
    processes = world_size(experiment)
    pool = Pool(experiment.data, experiment.protocol.scored_on)
    cells = grid(experiment, pool, world_size=processes)
    _check_all(cells, pool)
    if not is_helper_process():
        write_text(experiment.folder / "experiment.yaml", yaml.safe_dump(experiment.to_dict(), sort_keys=False))
        write_text(experiment.folder / "grid.json", json.dumps([cell.folder.name for cell in cells], indent=1))
    busy = []
    for cell in cells:
        if cell.is_finished:
            console.print(f"{cell.name}  finished before: {cell.folder}", soft_wrap=True)
        elif processes > 1 and not is_launched_from_outside():
            _run_in_own_process(cell)
        else:
            try:
                run_cell(cell, pool, console=console, wait=False)
            except Timeout:
                console.print(f"{cell.name}  is being run by another process", soft_wrap=True)
                busy.append(cell)
    for cell in busy:
        run_cell(cell, pool, console=console)
    return [] if is_helper_process() else [read_result(cell.folder / "result.json") for cell in cells]


def _check_all(cells: list[Cell], pool: Pool) -> None:
    checked = set()
    for cell in cells:
        if cell.is_finished:
            continue
        images = pool.draw(cell.train_size, cell.seed)
        if (kind := (cell.contender, cell.train_size)) not in checked:
            make_plan(cell, images)
            checked.add(kind)


def _run_in_own_process(cell: Cell) -> None:
    """Run a cell as a program of its own; a request to stop reaches it, and it saves its state first.

    Lightning starts the processes of a shared run by calling the program again: so the cell must be the program.
    """
    cell.write_config()
    program = subprocess.Popen([sys.executable, "-m", "vit_vs_cnn", "cell", str(cell.folder)])
    previous = signal.signal(signal.SIGTERM, lambda *_: program.terminate())
    try:
        while program.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # a terminal sends Ctrl-C to the program, too
                program.wait()
    finally:
        signal.signal(signal.SIGTERM, previous)
    if program.returncode == INTERRUPTED:
        raise Interrupted(f"stopped in {cell.name}")
    if program.returncode or not (cell.is_finished or is_helper_process()):
        raise InputError(f"cell {cell.folder} ended with exit code {program.returncode}; what it printed stands above")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The results of the finished cells of the grid that was last run in an experiment's folder.

    Cells of an earlier config that lie beside them are left out: they answer another question.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
    """
    try:
        names = json.loads((folder / "grid.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} is not the folder of an experiment: it has no readable grid.json") from error
    finished = [path for name in names if (path := folder / "cells" / name / "result.json").exists()]
    if not finished:
        raise InputError(f"{folder}: none of its {len(names)} cells is finished yet")
    return [read_result(path) for path in finished]
