"""Search for recipes: equally many trials for each model, made of ordinary runs scored on validation images."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import yaml
from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, ModelConfig
from vit_vs_cnn.config.identity import default_options
from vit_vs_cnn.config.overrides import apply_values
from vit_vs_cnn.config.recipes import RECIPE_SETTINGS, recipe_hash
from vit_vs_cnn.config.schema import Recipe, RecipeSource, TuningProvenance
from vit_vs_cnn.config.search_space import DEFAULT_SPACE, sample_recipe
from vit_vs_cnn.console import format_count
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.machine_settings import choose_settings
from vit_vs_cnn.files import write_text
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.preparation import check_validation_batches
from vit_vs_cnn.networks.pretrained import weights_identities
from vit_vs_cnn.runs.experiment_folder import FailureKind, raise_failures, read_failure, write_experiment
from vit_vs_cnn.runs.run import Run, find_results
from vit_vs_cnn.runs.trials import TRIALS_FILE, Trial, rank_trials, write_trials
from vit_vs_cnn.training.optimization import Optimizer
from vit_vs_cnn.workers.supervisor import execute
from vit_vs_cnn.workers.trainer import is_launched_from_outside, world_size

#: Default of ``tuning.trials`` for ``tune``.
DEFAULT_TRIALS = 12
#: Splits are added until a trial is scored on this many validation images, up to the largest number of splits.
MIN_SCORED_IMAGES, MAX_SPLITS = 1000, 5


def tune(experiment: Experiment, *, console: Console) -> Experiment:
    """Search for the recipe of each model, and return the experiment with the best recipes, ready to run.

    Each model has equally many trials, with the largest training size and the longest budget. Trial 0 is its own
    recipe; the others are sampled from ``tuning.space``. Trials are scored on validation images. The folder of the
    experiment gets ``tuning/`` with the runs, ``tuning.csv`` with the trials, and ``tuned.yaml`` with the best recipes.
    """
    if is_launched_from_outside():
        raise InputError("tuning: recipes are searched for by one process; run tune without torchrun or srun")
    pool = ExperimentData(experiment.data, "validation", trust=experiment.trusted)
    experiment = choose_settings(experiment, pool, console, is_planned=False)
    size = max(pool.resolve(size) for size in experiment.protocol.train_sizes)
    settings = experiment.models
    searched = [name for name in experiment.in_order() if not (settings[name].finetune.head or settings[name].variants)]
    if not searched:
        raise InputError("tuning: all models are linear probes (finetune: head) or choose from variants")
    used = set().union(*(restrict_space(experiment, name) for name in searched))
    if unused := [name for name in experiment.tuning.space if name not in used]:
        raise InputError(f"tuning.space.{unused[0]}: no model has this option")
    tuned, trials = experiment, list[Trial]()
    for name in searched:
        planned = _trial_runs(tuned, name, size, pool)
        _run([run for _, runs in planned for run in runs], pool, console)
        own = [_trial(number, values, runs) for number, (values, runs) in enumerate(planned)]
        trials += own
        write_trials(experiment.folder / TRIALS_FILE, trials)
        tuned = _with_best(tuned, own, planned, console)
    tuned = replace(tuned, tuning=replace(tuned.tuning, trials=None))
    head = (
        f"# Recipes with the best validation accuracy; all trials are in {experiment.folder / TRIALS_FILE}.\n"
        f"#   vit-vs-cnn train --config {experiment.folder / 'tuned.yaml'}\n"
    )
    write_text(experiment.folder / "tuned.yaml", head + yaml.safe_dump(tuned.to_dict(), sort_keys=False))
    return tuned


def count_splits(experiment: Experiment, train_size: int) -> int:
    """Number of subsets of each trial, each with its own validation split."""
    if experiment.tuning.splits is not None:
        return experiment.tuning.splits
    scored = experiment.data.validation_fraction * train_size
    return max(1, min(MAX_SPLITS, math.ceil(MIN_SCORED_IMAGES / scored))) if scored else 1


def restrict_space(experiment: Experiment, name: str) -> list[str]:
    """Names of the settings in the search space, without options that the model's preset does not have."""
    model = experiment.models[name]
    options = {*default_options(str(model.name)), *model.options}
    space = experiment.tuning.space or DEFAULT_SPACE
    return [key for key in space if not key.startswith("options.") or key.split(".")[1] in options]


def _trial_runs(
    experiment: Experiment, name: str, train_size: int, pool: ExperimentData
) -> list[tuple[dict[str, Any], list[Run]]]:
    """The sampled settings of each trial of a model, and its runs, one for each split."""
    longest = experiment.select_budget(experiment.protocol.budget.largest)
    base = replace(
        longest,
        name="tuning",
        output=str(experiment.folder),
        protocol=replace(longest.protocol, scored_on="validation"),
        tuning=replace(experiment.tuning, trials=None),
    )
    first = experiment.protocol.seeds
    count = count_splits(experiment, train_size)
    seeds = [*first, *(seed for seed in range(len(first) + count) if seed not in first)][:count]
    space, options = experiment.tuning.space or DEFAULT_SPACE, restrict_space(experiment, name)
    own = base.recipe(name, train_size)
    common = world_size(base), weights_identities(experiment), train_size, pool.unlabelled_hash
    trials = []
    for number in range(experiment.tuning.trials or DEFAULT_TRIALS):
        sampled = sample_recipe(space, number, seed=experiment.tuning.seed) if number else {}
        sampled = {key: value for key, value in sampled.items() if key in options}
        recipe = replace(_with_sampled(own, sampled, base.data.augmentation), by_size={}, by_budget={})
        here = replace(base, models={**base.models, name: recipe})
        arguments = name, train_size, here.protocol.budget
        trials.append((sampled, [Run(here, *arguments, seed, pool.fingerprint, *common) for seed in seeds]))
    return trials


def _with_sampled(own: ModelConfig, sampled: Mapping[str, Any], shared: Augmentation) -> ModelConfig:
    """A model with the sampled values of a trial."""
    if any(name.startswith("augmentation.") for name in sampled):
        own = replace(own, augmentation=own.augmentation or shared)
    optimizer = sampled.get("optimizer")
    if isinstance(optimizer, Mapping) and "name" in optimizer:  # it is replaced as a whole
        own = replace(own, optimizer=Optimizer())
    return apply_values(own, sampled, location="tuning.space")


def _run(runs: Sequence[Run], pool: ExperimentData, console: Console) -> None:
    """Execute the runs of trials, and those that they need. Finished and diverged ones are not repeated."""
    with_starts = [one for run in runs if not _has_diverged(run) for one in _with_starts(run)]
    runs = list({run.folder: run for run in with_starts}.values())
    if not runs:
        return
    for run in runs:
        check_validation_batches(run, pool.draw(run.train_size, run.seed))
    write_experiment(runs[0].experiment, runs)
    unfinished = sum(not run.is_finished for run in runs)
    console.print(f"Search for recipes: {unfinished} of {len(runs)} runs left, in {runs[0].experiment.folder}")
    execute(runs, pool, console=console)
    raise_failures([run for run in runs if not _has_diverged(run)])


def _has_diverged(run: Run) -> bool:
    failure = None if run.is_finished else read_failure(run.folder)
    return failure is not None and failure.kind is FailureKind.DIVERGED


def _with_starts(run: Run) -> list[Run]:
    return [*(one for needed in run.needed if not needed.is_pretraining for one in _with_starts(needed)), run]


def _trial(number: int, values: Mapping[str, Any], runs: Sequence[Run]) -> Trial:
    """The trial with the results of its runs. Runs that diverged count no steps and FLOPs."""
    results = find_results(runs)
    is_complete = len(results) == len(runs)
    losses = [result.scores.loss for result in results if result.scores.loss is not None]
    return Trial(
        model=runs[0].model,
        train_size=runs[0].train_size,
        trial=number,
        state="complete" if is_complete else "diverged",
        budget=runs[0].budget.short,
        steps=max((result.cost.steps for result in results), default=0),
        flops=float(sum(result.cost.flops for result in results)),
        validation_accuracy=fmean(result.accuracy for result in results) if is_complete else None,
        validation_loss=fmean(losses) if len(losses) == len(runs) else None,
        seeds=tuple(run.seed for run in runs),
        values=json.loads(json.dumps(values)),
        runs=tuple(run.folder.name for run in runs),
    )


def _with_best(
    experiment: Experiment,
    trials: Sequence[Trial],
    planned: Sequence[tuple[dict[str, Any], list[Run]]],
    console: Console,
) -> Experiment:
    order = rank_trials(trials)
    best = order[0]
    name, size = best.model, best.train_size
    if not best.is_complete:
        raise InputError(
            f"models.{name}: with {size:,} images, {len(order)} of {format_count(len(order), 'trial')} diverged; "
            "lower the learning rates in tuning.space"
        )
    console.print(describe_choice(best, len(order)))
    runs = planned[best.trial][1]
    searched = runs[0].experiment.models[name]
    search = TuningProvenance(
        len(order),
        tuned_at=size,
        trial_rank=1,
        tuning_flops=sum(trial.flops for trial in order),
        trial_accuracies=tuple(trial.validation_accuracy or 0.0 for trial in order if trial.is_complete),
        trial_images=sum(result.data.validation_images for result in find_results(runs)),
    )
    model = experiment.models[name]
    recipe = Recipe(model.recipe.name, RecipeSource.SEARCHED, recipe_hash(searched), search)
    chosen = {setting: getattr(searched, setting) for setting in ("options", *RECIPE_SETTINGS)}
    changed = replace(model, **chosen, recipe=recipe, by_size={}, by_budget={})
    return replace(experiment, models={**experiment.models, name: changed})


def describe_choice(best: Trial, trials: int) -> str:
    accuracy = 100 * (best.validation_accuracy or 0.0)
    return (
        f"{best.model}, {best.train_size:,} images: trial {best.trial} is the best of {trials}: {best.values_text} "
        f"(validation accuracy {accuracy:.1f} %)"
    )
