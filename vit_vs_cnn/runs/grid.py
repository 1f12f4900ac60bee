"""What an experiment's folder says of its grid: the config, and which cells with which budget."""

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from vit_vs_cnn.config.experiment import Budget, Experiment
from vit_vs_cnn.config.parsing import build
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.record import is_record, read_recorded_runs
from vit_vs_cnn.runs.result import RunResult, read_result


def write_grid(experiment: Experiment, cells: list[Cell]) -> None:
    """Note the cells that are run now, and the config that they come from."""
    write_config(experiment)
    budgets = {cell.folder.name: cell.budget.to_dict() for cell in cells}
    write_text(experiment.folder / "grid.json", json.dumps(budgets, indent=1))


def write_config(experiment: Experiment) -> None:
    """Write ``experiment.yaml`` in the folder of an experiment."""
    write_text(experiment.folder / "experiment.yaml", yaml.safe_dump(experiment.to_dict(), sort_keys=False))


def read_grid(folder: Path) -> dict[str, Budget | None]:
    """The grid that was last run in an experiment's folder: the folder names of its cells, each with its budget.

    Folders that were made before experiments had several budgets do not note them.

    Raises:
        InputError: no experiment there.
    """
    if is_record(folder):
        return {run.name: result.parsed_budget for run, result in read_recorded_runs(folder).items()}
    try:
        grid = json.loads((folder / "grid.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if (folder / "tuning" / "grid.json").exists():
            message = f"{folder} is still choosing its recipes; what it runs for that is in {folder / 'tuning'}"
            raise InputError(message) from error
        inside = [path.parent.name for path in sorted(folder.glob("*/grid.json"))]
        meant = f"; did you mean {folder / inside[0]}?" if inside else ""
        message = f"{folder} is not the folder of an experiment: it has no readable grid.json{meant}"
        raise InputError(message) from error
    names = list(grid) if isinstance(grid, list | dict) else []
    if not (names and all(isinstance(name, str) for name in names)):
        raise InputError(f"{folder / 'grid.json'}: expected the names of cells' folders; train writes it anew")
    if isinstance(grid, list):
        return dict.fromkeys(names)
    budgets: dict[str, Budget] = {}
    for name in names:
        if (said := json.dumps(grid[name])) not in budgets:
            budgets[said] = build(Budget, grid[name], where=f"{folder / 'grid.json'}: {name}")
    return {name: budgets[json.dumps(grid[name])] for name in names}


def finished_beside(folder: Path, cells: Iterable[Cell]) -> int:
    """How many finished cells lie in the folder beside those and the ones that they start from."""
    mine = set()
    for cell in cells:
        start: Cell | Path | None = cell
        while isinstance(start, Cell):
            mine.add(start.folder.name)
            start = start.start
    return sum(path.parent.name not in mine for path in (folder / "cells").glob("*/result.json"))


def finished_cells(folder: Path, *, some: bool = True, longest: bool = False) -> dict[Path, RunResult]:
    """The results of the finished cells of that grid, by the cell's folder, in the grid's order.

    Cells of an earlier config that lie beside them are left out: they answer another question. A result that is damaged
    is left out with a warning.

    Arguments:
        some: whether there must be one.
        longest: whether those of shorter budgets are left out.

    Raises:
        InputError: no experiment there, or none of its cells is finished.
        DamagedFile: none is, as their results cannot be read.
    """
    found = read_recorded_runs(folder) if is_record(folder) else {}
    damaged, grid = [], {run.name: one.parsed_budget for run, one in found.items()} if found else read_grid(folder)
    for cell in [] if found else [folder / "cells" / name for name in grid]:
        if not (path := cell / "result.json").exists():
            continue
        try:
            found[cell] = read_result(path)
        except DamagedFile as error:
            damaged.append(error)
    if some and not found:
        raise damaged[0] if damaged else InputError(f"{folder}: none of its cells is finished yet")
    for error in damaged:
        warnings.warn(str(error), stacklevel=2)
    if longest:
        most = longest_budget(grid, found)
        return {cell: result for cell, result in found.items() if grid[cell.name] == most}
    return found


def longest_budget(grid: Mapping[str, Budget | None], cells: Iterable[Path]) -> Budget | None:
    """The longest budget that some of a grid's cells had; None where none is noted."""
    budgets = (budget for cell in cells if (budget := grid[cell.name]) is not None)
    return max(budgets, key=lambda budget: budget.amounts[0], default=None)
