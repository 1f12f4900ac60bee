"""All cells of an experiment."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, read_config
from vit_vs_cnn.config.trainer import AUTO
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.precision import begun_in, with_precision
from vit_vs_cnn.experiments.tuning import tune
from vit_vs_cnn.process import quiet_lightning
from vit_vs_cnn.runs.analysis_plan import AnalysisPlan, make_analysis_plan, register_plan
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.failures import raise_failures
from vit_vs_cnn.runs.grid import finished_beside, finished_cells, write_grid
from vit_vs_cnn.runs.images import CellImages, Pool
from vit_vs_cnn.runs.own import own_transform
from vit_vs_cnn.runs.plan import check_validation_batches, grid, make_plan, seen_before
from vit_vs_cnn.runs.result import RunResult, read_result
from vit_vs_cnn.runs.tuning_record import Place, Record, read_record, recipe_hash, shortfall
from vit_vs_cnn.told import counted
from vit_vs_cnn.workers.supervise import run_cells
from vit_vs_cnn.workers.trainer import is_helper_process, world_size


def run_experiment(experiment: Experiment, *, console: Console, pool: Pool | None = None) -> list[RunResult]:
    """Run what is not finished yet and return the results of all cells.

    Everything that can be wrong is looked at before the first cell trains: every image read, every subset drawn, every
    network and optimizer built, the devices counted. Where ``protocol.trials`` is set, ``tune`` comes next.

    Several processes may run one experiment at a time: a cell that another one is running is left to it.

    Where torchrun or SLURM started several processes, or several nodes take part, all of them call this; the first one
    writes everything and gets the results, the others get an empty list.

    Arguments:
        pool: the experiment's images, where they are at hand already.

    Raises:
        InputError: what the user gave cannot be used.
        CellsFailed: some cells failed, while the others were run; the same command tries those again.
        Interrupted: the user asked to stop; the same command goes on.
    """
    quiet_lightning()
    _refuse_other_networks(experiment)
    experiment, processes = begun_in(experiment), world_size(experiment)
    pool = pool or Pool.of(experiment)
    cells = grid(experiment, pool, world_size=processes)
    _check_all(cells, pool)
    if experiment.trainer.get("precision") == AUTO:
        experiment = with_precision(experiment, pool, console=console)
        cells = grid(experiment, pool, world_size=processes)
    if experiment.protocol.trials is not None:
        experiment = tune(experiment, console=console)
        cells = grid(experiment, pool, world_size=processes)
    if experiment.tuning.record is not None:
        _check_recipes(cells, read_record(Path(experiment.tuning.record)), console)
    sizes = {size: pool.resolve(size) for size in experiment.protocol.train_sizes}
    plan = make_analysis_plan(experiment, sizes)
    if not is_helper_process():
        for text in register_plan(plan, cells).deviation_texts:
            console.print(text, soft_wrap=True)
        if others := finished_beside(experiment.folder, cells):
            console.print(_told_of(others, experiment.folder), soft_wrap=True)
        write_grid(experiment, cells)
    run_cells(_primary_first(cells, plan), pool, console=console)
    if is_helper_process():
        return []
    raise_failures(cells)
    return [read_result(cell.folder / "result.json") for cell in cells]


def _primary_first(cells: list[Cell], plan: AnalysisPlan) -> list[Cell]:
    """Runs at the size, seeds and longest budget of the primary comparison, then the others."""
    longest = max(cell.budget.amounts[0] for cell in cells)

    def is_primary(cell: Cell) -> bool:
        return cell.train_size == plan.size and cell.seed in plan.seeds and cell.budget.amounts[0] == longest

    return sorted(cells, key=lambda cell: not is_primary(cell))


def _refuse_other_networks(experiment: Experiment) -> None:
    """Refuse a changed network for a contender that has finished runs in the folder of the experiment.

    Raises:
        InputError: one has; its finished runs would be left out of the report.
    """
    folder = experiment.folder
    try:
        values = read_config(folder / "experiment.yaml").get("contenders")
        with warnings.catch_warnings(action="ignore"):  # a damaged result is reported when its run is reached
            finished = {result.contender for result in finished_cells(folder, some=False).values()}
    except InputError:  # nothing is there, or it is damaged and written anew
        return
    before = values if isinstance(values, Mapping) else {}
    for name, contender in experiment.contenders.items():
        was = before[name].get("model") if name in finished and isinstance(before.get(name), Mapping) else None
        if not isinstance(was, Mapping) or was == contender.model:
            continue
        changed = [key for key in {**was, **contender.model} if was.get(key) != contender.model.get(key)]
        differences = ", ".join(f"{key} {was.get(key)} then, {contender.model.get(key)} now" for key in changed)
        raise InputError(
            f"{folder}: {name} has finished runs of another network (contenders.{name}.model: {differences}); "
            "choose another --name, or add the new network under another contender name"
        )


def _told_of(others: int, folder: Path) -> str:
    runs, are = counted(others, "finished run"), "is" if others == 1 else "are"
    return (
        f"{runs} in {folder} {are} not of this command, by a setting, a size or a seed: "
        "kept, and not in the report; a command that names their settings reports them again"
    )


def _check_recipes(cells: list[Cell], record: Record, console: Console) -> None:
    """Tell which recipes are not the best of the trials on record, before their cells run."""
    several = len({cell.budget.short for cell in cells}) > 1
    for cell in {(cell.contender, cell.train_size, cell.budget.short): cell for cell in reversed(cells)}.values():
        place = Place(cell.contender, cell.train_size, cell.budget.short)
        tuning = record.tuning_of(place, recipe_hash(cell.identity))
        if why := "has no trial there" if tuning is None else shortfall(tuning):
            where = f"{cell.train_size} images" + f" and {cell.budget.text}" * several
            console.print(f"{record.path}: {cell.contender} at {where} {why}: no verdict", soft_wrap=True)


def _check_all(cells: list[Cell], pool: Pool) -> None:
    """Every subset as indices, and what weights from elsewhere have seen; every network once, on the images of the
    first cell that has it.
    """
    recipes = []
    for cell in cells:
        if cell.is_finished:
            continue
        images = pool.draw(cell.train_size, cell.seed)
        check_validation_batches(cell, images)
        if isinstance(cell.start, Path) or cell.recipe.weights is not None:
            seen_before(cell, images, pool)
        if (recipe := (cell.contender, cell.recipe)) not in recipes:
            make_plan(cell, images)
            _check_transform(cell, images)
            recipes.append(recipe)


def _check_transform(cell: Cell, images: CellImages) -> None:
    augmentation = cell.experiment.augmentation(cell.recipe)
    transform = own_transform(augmentation, trust=cell.experiment.trusted)
    if transform is not None:
        transform(images.training.take(torch.tensor([0])), [0])
