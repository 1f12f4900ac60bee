"""All cells of an experiment, one after the other."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from rich.console import Console

from vit_vs_cnn.errors import INTERRUPTED, InputError, Interrupted
from vit_vs_cnn.experiments.cell import Cell, grid, read_result, write_text
from vit_vs_cnn.experiments.cell_run import make_plan, quiet_lightning, run_cell
from vit_vs_cnn.experiments.config import Experiment, experiment_from_dict, read_config
from vit_vs_cnn.experiments.pool import Pool


def run_experiment(experiment: Experiment, *, console: Console) -> list[dict[str, Any]]:
    """Run what is not finished yet and return the results of all cells.

    Everything that can be wrong is looked at before the first cell trains: every network is built, every subset drawn.

    Raises:
        InputError: what the user gave cannot be used.
        Interrupted: the user asked to stop; the same command goes on.
    """
    quiet_lightning()
    pool = Pool(experiment.data)
    cells = grid(experiment, pool)
    _check_all(cells, pool)
    write_text(experiment.folder / "experiment.yaml", yaml.safe_dump(experiment.to_dict(), sort_keys=False))
    write_text(experiment.folder / "grid.json", json.dumps([cell.folder.name for cell in cells], indent=1))
    for cell in cells:
        if cell.is_finished:
            console.print(f"{cell.name}  finished before: {cell.folder}", soft_wrap=True)
        elif _needs_own_process(experiment):
            _run_in_own_process(cell)
        else:
            run_cell(cell, pool, console=console)
    return [read_result(cell.folder / "result.json") for cell in cells]


def _check_all(cells: list[Cell], pool: Pool) -> None:
    checked = set()
    for cell in cells:
        if (kind := (cell.contender, cell.train_size)) not in checked and not cell.is_finished:
            make_plan(cell, pool.draw(cell.train_size, cell.seed))
            checked.add(kind)


def _needs_own_process(experiment: Experiment) -> bool:
    """Lightning starts the processes of a distributed run by calling the program again: then a cell is a program."""
    if not experiment.trainer.keys() & {"devices", "num_nodes", "strategy"} and torch.cuda.device_count() < 2:
        return False
    trainer = lightning.Trainer(
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{k: v for k, v in experiment.trainer.items() if k in ("accelerator", "devices", "num_nodes", "strategy")},
    )
    return trainer.world_size > 1


def _run_in_own_process(cell: Cell) -> None:
    """Run a cell as a program of its own; a request to stop reaches it, and it saves its state first."""
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
    if not cell.is_finished:
        raise InputError(f"cell {cell.folder} ended with exit code {program.returncode}; what it printed stands above")


def read_cell(folder: Path) -> Cell:
    """The cell whose config.yaml lies in a folder.

    Raises:
        InputError: no such file, or not of a cell.
    """
    values = read_config(folder / "config.yaml")
    try:
        return Cell(experiment_from_dict(values["experiment"]), **values["cell"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / 'config.yaml'} is not the config of a cell: {error!r}") from error


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
