"""Execution of an experiment: checks, precision, search for recipes, runs."""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, experiment_from_dict, read_config
from vit_vs_cnn.config.identity import defaults_of_model
from vit_vs_cnn.config.schema import ARCHITECTURE_SETTINGS
from vit_vs_cnn.config.user_code import make_transform
from vit_vs_cnn.console import format_count, join_names
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan, make_analysis_plan, register_plan
from vit_vs_cnn.experiments.machine_settings import choose_settings
from vit_vs_cnn.experiments.tuning import tune
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.mappings import flatten, group_by
from vit_vs_cnn.networks.preparation import check_start_overlap, check_validation_batches, grid, prepare_network
from vit_vs_cnn.runs.experiment_folder import (
    FINAL_FOLDER,
    FailureKind,
    raise_failures,
    read_failure,
    read_finished_results,
    write_config,
    write_experiment,
)
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.run import Run, find_results, find_unfinished
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.workers.supervisor import execute
from vit_vs_cnn.workers.trainer import is_helper_process, world_size


def run_experiment(
    experiment: Experiment,
    *,
    console: Console,
    pool: ExperimentData | None = None,
    force: bool = False,
    missing_weights: Mapping[str, str] | None = None,
    deadline: float | None = None,
    report_stage: Callable[[str], None] | None = None,
) -> list[RunResult]:
    """Search for recipes if ``tuning.trials`` is set, execute the runs that are not finished, and return all results.

    All input is checked before the first run trains. Several processes may work on one experiment. If torchrun or SLURM
    started several processes for each run, all of them call this, and all but the first get an empty list.

    Arguments:
        force: whether finished runs with other settings may be left out of the report.
        missing_weights: models that were left out because their weights could not be loaded, by model.
        deadline: value of ``time.monotonic()`` at which runs are stopped, except those of the first stage at the
            largest size. Models are then executed in stages (``_stages``); without it, all together.
        report_stage: called after a stage with new results, with a sentence on the next one.

    Raises InputError, RunsFailed and Interrupted, as ``train``. The same command resumes.
    """
    processes = world_size(experiment)
    if pool is None or (pool.rotates and experiment.searches_recipes):
        pool = ExperimentData.from_experiment(experiment)
    experiment = choose_settings(experiment, pool, console)
    runs = grid(experiment, pool, world_size=processes)
    if not force:
        _refuse_other_settings(experiment.folder, runs, are_recipes_final=experiment.tuning.trials is None)
    _check_all(runs, pool)
    if experiment.tuning.trials is not None:
        write_config(experiment)  # an interrupted search is resumed with the same grid
        experiment = tune(experiment, console=console)
        runs = grid(experiment, pool, world_size=processes)
        if not force:
            _refuse_other_settings(experiment.folder, runs)
    sizes = {size: pool.resolve(size) for size in experiment.protocol.train_sizes}
    plan = make_analysis_plan(experiment, sizes, missing_weights)
    if not is_helper_process():
        for text in register_plan(plan, experiment.folder, find_results(runs)).deviation_texts:
            console.print(text)
        write_experiment(experiment, runs)
    stages = [_primary_first(runs, plan)] if deadline is None else _stages(runs, plan)
    first_answer = [run for run in stages[0] if _is_primary(run, plan)]

    def is_over() -> bool:
        has_time = deadline is None or time.monotonic() < deadline
        return not has_time and all(run.is_finished or run.failure.exists() for run in first_answer)

    for number, stage in enumerate(stages):
        if is_over():
            break
        before = len(find_unfinished(stage))
        execute(stage, pool, console=console, is_over=is_over)
        following = find_unfinished([run for later in stages[number + 1 :] for run in later])
        if report_stage is not None and following and len(find_unfinished(stage)) < before:
            models = join_names([*dict.fromkeys(run.model for run in following)])
            left = "" if deadline is None else f", {duration(max(0.0, deadline - time.monotonic()))} at most"
            report_stage(f"Next: {models} ({format_count(len(following), 'run')}{left})")
    if is_helper_process():
        return []
    if (smaller := _with_half_micro_batches(experiment, runs, console)) is not None:
        options: dict[str, Any] = {"deadline": deadline, "report_stage": report_stage}
        return run_experiment(
            smaller, console=console, pool=pool, force=force, missing_weights=missing_weights, **options
        )
    raise_failures(runs)
    results = find_results(runs)
    if left := len(runs) - len(results):
        text = f"Time limit reached: {left} of {format_count(len(runs), 'run')} are not finished"
        console.print(f"{text}. Repeat the command to continue with them")
    return results


def _with_half_micro_batches(experiment: Experiment, runs: list[Run], console: Console) -> Experiment | None:
    """The experiment with half the images at a time for models that ran out of memory in all of their runs, or None."""
    models = dict(experiment.models)
    for name, own in group_by(runs, lambda run: run.model).items():
        failures = [failure for run in own if not run.is_finished and (failure := read_failure(run.folder))]
        batch = experiment.protocol.batch_size // own[0].world_size
        images = batch // own[0].grad_accum_steps
        is_set = experiment.trainer.get("accumulate_grad_batches", 1) != 1 or models[name].finetune.head
        has_overflow = any(failure.kind is FailureKind.OUT_OF_MEMORY for failure in failures)
        if has_overflow and images > 1 and not is_set and not any(run.is_finished for run in own):
            half = max(size for size in range(1, images // 2 + 1) if batch % size == 0)
            models[name] = replace(models[name], micro_batch=half)
            console.print(f"{name}: out of memory with {images} images at a time; starting again with {half}")
    return None if models == experiment.models else replace(experiment, models=models)


def train_on_all_images(folder: Path, model: str, reason: str, *, trusted: bool, console: Console) -> None:
    """Train a model of an experiment on all images, those of the test folds included, in the folder ``final``.

    Nothing is done if the images have their own test images, or if the model starts from the weights of another one, is
    pretrained or has a teacher. ``reason`` names in words why it is this model.
    """
    experiment = experiment_from_dict(read_config(folder / "experiment.yaml"), trusted=trusted)
    longest = replace(experiment.select_budget(experiment.protocol.budget.largest), minutes=None)
    seed = max(experiment.protocol.seeds) + 1
    conditions: dict[str, Any] = {"scored_on": "validation", "test_folds": False, "train_sizes": ["all"]}
    protocol = replace(longest.protocol, seeds=[seed], pairs=None, **conditions)
    models = {model: experiment.models[model]}
    final = replace(longest, name=FINAL_FOLDER, output=str(folder), protocol=protocol, models=models)
    pool = ExperimentData.from_experiment(final)
    needs_others = any(getattr(models[model], name) is not None for name in ("starts_from", "pretrain", "distill"))
    if getattr(pool.source, "folds", None) is None or needs_others:
        return
    runs = grid(final, pool, world_size=world_size(final))
    size = f"{runs[0].train_size:,} images, test images included"
    if not runs[0].is_finished:
        console.print(f"Last: {model} is trained on all {size} ...")
    _check_all(runs, pool)
    write_experiment(final, runs)
    execute(runs, pool, console=console)
    raise_failures(runs)
    console.print(
        f"Network to use: {model} ({reason}) in {final.folder}, trained on all {size}. Its accuracy is not measured; "
        f"those below are of networks trained on fewer images. To use it: vit-vs-cnn predict {folder} IMAGES"
    )


def _stages(runs: list[Run], plan: AnalysisPlan) -> list[list[Run]]:
    """Runs in the order of information per minute: linear probes, fine-tuned networks, networks from scratch.

    A run that starts from the weights of another one, or is taught by it, comes with that one.
    """

    def stage(run: Run) -> int:
        if run.needed:
            return max(map(stage, run.needed))
        return 2 if run.recipe.weights is None else int(not run.recipe.finetune.head)

    return [*map(list, group_by(sorted(_primary_first(runs, plan), key=stage), stage).values())]


def _primary_first(runs: list[Run], plan: AnalysisPlan) -> list[Run]:
    """Runs at the size, seeds and longest budget of the primary comparison, then the others."""
    return sorted(runs, key=lambda run: not _is_primary(run, plan))


def _is_primary(run: Run, plan: AnalysisPlan) -> bool:
    longest = run.experiment.protocol.budget.amounts[-1]
    return run.train_size == plan.size and run.seed in plan.seeds and run.budget.amounts[0] == longest


#: Parts of a run's identity in which the runs of one experiment may differ, and its own number.
_FREE_PARTS = ("train_size", "seed", "budget", "version")


def _refuse_other_settings(folder: Path, runs: list[Run], *, are_recipes_final: bool = True) -> None:
    """Raise InputError if settings changed so that the report would no longer contain finished runs of a model.

    Adding or removing sizes, seeds, budgets and models is allowed. Recipes are compared if no search may change them.
    """
    with warnings.catch_warnings(action="ignore"):  # a damaged result is reported when its run is reached
        finished = read_finished_results(folder, some=False, known=find_results(runs))
    folders = {run.folder for run in runs}
    same_kind = {(run.model, run.train_size, run.budget.short): run for run in runs}
    for path, result in finished.items():
        run = same_kind.get((result.model, result.train_size, str(result.budget)))
        if path in folders or run is None or not result.recipe:
            continue
        own_fields = {"model": result.recipe, "batch_size": result.batch_size, "scored_on": result.scores.scored_on}
        was, now = _fixed_settings({**result.conditions, **own_fields}), _fixed_settings(run.identity)
        defaults = flatten(defaults_of_model(str(run.recipe.name)))
        for name in {**was, **now}:
            is_recipe = name.startswith("model.") and name.split(".")[1] not in ARCHITECTURE_SETTINGS
            if was.get(name) == now.get(name) or (is_recipe and not are_recipes_final):
                continue
            default = defaults.get(name, "default")
            difference = f"{name} {was.get(name, default)} then, {now.get(name, default)} now"
            difference = "other images" if name == "data.fingerprint" else difference
            raise InputError(
                f"{folder} has finished runs of {result.model} with other settings "
                f"({difference.replace('model.', f'models.{result.model}.')}); choose another --name, or "
                "keep those runs without reporting them with --force"
            )


def _fixed_settings(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an identity by dotted name, without those in which the runs of one experiment may differ."""
    return flatten({name: value for name, value in identity.items() if name not in _FREE_PARTS})


def _check_all(runs: list[Run], pool: ExperimentData) -> None:
    """Check every subset and every start from other weights, and every network once, on the images of one run."""
    recipes = []
    for run in find_unfinished(runs):
        images = pool.at_resolution(run.resolution).draw(run.train_size, run.seed)
        check_validation_batches(run, images)
        if run.recipe.weights is not None:
            check_start_overlap(run, images, pool)
        if (recipe := (run.model, run.recipe)) not in recipes:
            for one in (run, *run.variants):
                prepare_network(one, images)
            augmentation = run.experiment.augmentation(run.recipe)
            if (transform := make_transform(augmentation, trust=run.experiment.trusted)) is not None:
                transform(images.training.take(torch.tensor([0])), [0])
            recipes.append(recipe)
