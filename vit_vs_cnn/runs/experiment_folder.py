"""The folder of an experiment: its config, the names of its runs, and their results."""

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from vit_vs_cnn.config.experiment import Budget, Experiment
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.record import is_record, read_recorded_runs
from vit_vs_cnn.runs.result import RunResult, read_result
from vit_vs_cnn.runs.run import Run


def write_experiment(experiment: Experiment, cells: list[Run]) -> None:
    """Write the config of an experiment, and the names of its runs with their budgets."""
    write_config(experiment)
    budgets = {cell.folder.name: cell.budget.to_dict() for cell in cells}
    write_text(experiment.folder / "grid.json", json.dumps(budgets, indent=1))


def write_config(experiment: Experiment) -> None:
    """Write ``experiment.yaml`` in the folder of an experiment."""
    write_text(experiment.folder / "experiment.yaml", yaml.safe_dump(experiment.to_dict(), sort_keys=False))


def read_run_names(folder: Path) -> dict[str, Budget | None]:
    """The runs of the last command in the folder of an experiment: names of their folders, each with its budget.

    Raises:
        InputError: the folder has no experiment.
    """
    if is_record(folder):
        return {run.name: result.parsed_budget for run, result in read_recorded_runs(folder).items()}
    try:
        grid = json.loads((folder / "grid.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if (folder / "tuning" / "grid.json").exists():
            message = f"{folder} is still searching for recipes; the runs of the search are in {folder / 'tuning'}"
            raise InputError(message) from error
        inside = [path.parent.name for path in sorted(folder.glob("*/grid.json"))]
        meant = f"; did you mean {folder / inside[0]}?" if inside else ""
        message = f"{folder} is not the folder of an experiment: it has no readable grid.json{meant}"
        raise InputError(message) from error
    try:
        return {name: Budget(**values) for name, values in grid.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder / 'grid.json'}: expected names of runs with budgets; train writes it anew"
        ) from error


def read_finished_results(folder: Path, *, some: bool = True, longest: bool = False) -> dict[Path, RunResult]:
    """The results of the finished runs of the last command, by the folder of each run, in their order.

    Runs of an earlier config are left out. A damaged result is left out with a warning.

    Raises:
        InputError: the folder has no experiment or no finished run.
        DamagedFile: no result can be read.
    """
    results = read_recorded_runs(folder) if is_record(folder) else {}
    budgets = {run.name: result.parsed_budget for run, result in results.items()} or read_run_names(folder)
    damaged = []
    for run in [] if results else [folder / "cells" / name for name in budgets]:
        if not (path := run / "result.json").exists():
            continue
        try:
            results[run] = read_result(path)
        except DamagedFile as error:
            damaged.append(error)
    if some and not results:
        raise damaged[0] if damaged else InputError(f"{folder}: none of its runs is finished yet")
    for error in damaged:
        warnings.warn(str(error), stacklevel=2)
    if longest:
        budget = longest_budget(budgets, results)
        return {run: result for run, result in results.items() if budgets[run.name] == budget}
    return results


def longest_budget(grid: Mapping[str, Budget | None], cells: Iterable[Path]) -> Budget | None:
    """The longest budget of some runs; None if none is recorded."""
    budgets = (budget for cell in cells if (budget := grid[cell.name]) is not None)
    return max(budgets, key=lambda budget: budget.amounts[0], default=None)
