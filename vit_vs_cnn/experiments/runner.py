"""Execution of an experiment: checks, precision, search for recipes, runs."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.timing import choose_precision
from vit_vs_cnn.experiments.tuning import tune
from vit_vs_cnn.process import quiet_lightning
from vit_vs_cnn.runs.analysis_plan import AnalysisPlan, make_analysis_plan, register_plan
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.experiment_folder import (
    raise_failures,
    read_finished_results,
    write_config,
    write_experiment,
)
from vit_vs_cnn.runs.preparation import check_start_overlap, check_validation_batches, grid, prepare_network
from vit_vs_cnn.runs.result import RunResult, read_result
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.user_code import make_transform
from vit_vs_cnn.workers.supervisor import execute
from vit_vs_cnn.workers.trainer import is_helper_process, world_size


def run_experiment(
    experiment: Experiment,
    *,
    console: Console,
    pool: ExperimentData | None = None,
    force: bool = False,
    missing_weights: Mapping[str, str] | None = None,
) -> list[RunResult]:
    """Search for recipes if ``tuning.trials`` is set, execute the runs that are not finished, and return all results.

    All input is checked before the first run trains. Several processes may work on one experiment. If torchrun or SLURM
    started several processes for each run, all of them call this, and all but the first get an empty list.

    Arguments:
        force: whether finished runs with other settings may be left out of the report.
        missing_weights: models that were left out because their weights could not be loaded, by contender.

    Raises:
        InputError: wrong input, or finished runs have other settings.
        RunsFailed: some runs failed, while the others were executed. The same command tries those again.
        Interrupted: the user asked to stop. The same command resumes.
    """
    quiet_lightning()
    experiment = choose_precision(experiment)
    processes = world_size(experiment)
    if pool is None or (pool.rotates and experiment.searches_recipes):
        pool = ExperimentData.from_experiment(experiment)
    cells = grid(experiment, pool, world_size=processes)
    if not force:
        _refuse_other_settings(experiment.folder, cells, are_recipes_final=experiment.tuning.trials is None)
    _check_all(cells, pool)
    if experiment.tuning.trials is not None:
        write_config(experiment)  # an interrupted search is resumed with the same grid
        experiment = tune(experiment, console=console)
        cells = grid(experiment, pool, world_size=processes)
        if not force:
            _refuse_other_settings(experiment.folder, cells)
    sizes = {size: pool.resolve(size) for size in experiment.protocol.train_sizes}
    plan = make_analysis_plan(experiment, sizes, missing_weights)
    if not is_helper_process():
        for text in register_plan(plan, experiment.folder).deviation_texts:
            console.print(text, soft_wrap=True)
        write_experiment(experiment, cells)
    execute(_primary_first(cells, plan), pool, console=console)
    if is_helper_process():
        return []
    raise_failures(cells)
    return [read_result(cell.folder / "result.json") for cell in cells]


def _primary_first(cells: list[Run], plan: AnalysisPlan) -> list[Run]:
    """Runs at the size, seeds and longest budget of the primary comparison, then the others."""
    longest = max(cell.budget.amounts[0] for cell in cells)

    def is_primary(cell: Run) -> bool:
        return cell.train_size == plan.size and cell.seed in plan.seeds and cell.budget.amounts[0] == longest

    return sorted(cells, key=lambda cell: not is_primary(cell))


#: Parts of a run's identity in which the runs of one experiment may differ, and its own number.
_FREE_PARTS = ("train_size", "seed", "budget", "version")


def _refuse_other_settings(folder: Path, cells: list[Run], *, are_recipes_final: bool = True) -> None:
    """Raise InputError if settings changed so that the report would no longer contain finished runs of a contender.

    Adding or removing sizes, seeds, budgets and contenders is allowed.

    Arguments:
        are_recipes_final: whether recipes are compared, too; False if a search may still change them.
    """
    with warnings.catch_warnings(action="ignore"):  # a damaged result is reported when its run is reached
        finished = read_finished_results(folder, some=False)
    folders = {cell.folder for cell in cells}
    same_kind = {(cell.contender, cell.train_size, cell.budget.short): cell for cell in cells}
    for path, result in finished.items():
        cell = same_kind.get((result.contender, result.train_size, str(result.budget)))
        if path in folders or cell is None or not result.recipe:
            continue
        own_fields = {"contender": result.recipe, "batch_size": result.batch_size, "scored_on": result.scores.scored_on}
        was, now = _flat({**result.conditions, **own_fields}), _flat(cell.identity)
        for name in {**was, **now}:
            is_recipe = name.startswith("contender.") and not name.startswith("contender.model.")
            if was.get(name) == now.get(name) or (is_recipe and not are_recipes_final):
                continue
            difference = f"{name} {was.get(name, 'default')} then, {now.get(name, 'default')} now"
            difference = "other images" if name == "data.fingerprint" else difference
            raise InputError(
                f"{folder} has finished runs of {result.contender} with other settings "
                f"({difference.replace('contender.', f'contenders.{result.contender}.')}); choose another --name, or "
                "keep those runs without reporting them with --force"
            )


def _flat(identity: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings of an identity by dotted name, without those in which the runs of one experiment may differ."""
    flat: dict[str, Any] = {}
    for name, value in identity.items():
        if prefix or name not in _FREE_PARTS:
            flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _check_all(cells: list[Run], pool: ExperimentData) -> None:
    """Check every subset and every start from other weights, and every network once, on the images of one run."""
    recipes = []
    for cell in cells:
        if cell.is_finished:
            continue
        images = pool.draw(cell.train_size, cell.seed)
        check_validation_batches(cell, images)
        if cell.recipe.weights is not None:
            check_start_overlap(cell, images, pool)
        if (recipe := (cell.contender, cell.recipe)) not in recipes:
            prepare_network(cell, images)
            augmentation = cell.experiment.augmentation(cell.recipe)
            if (transform := make_transform(augmentation, trust=cell.experiment.trusted)) is not None:
                transform(images.training.take(torch.tensor([0])), [0])
            recipes.append(recipe)
