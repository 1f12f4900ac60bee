"""The grid of sizes, seeds and steps that fits into ``minutes``, with estimated times."""

import copy
import itertools
import math
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console

from vit_vs_cnn.config.experiment import Budget, Experiment, experiment_from_dict, read_config
from vit_vs_cnn.config.identity import plain_values
from vit_vs_cnn.config.recipes import recipe_source
from vit_vs_cnn.config.schema import RecipeSource
from vit_vs_cnn.console import format_count, join_names
from vit_vs_cnn.data.image_cache import CachedImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.analysis_plan import find_binding_plan
from vit_vs_cnn.experiments.machine_settings import choose_precision, choose_settings
from vit_vs_cnn.experiments.timing import runs_at_a_time, seconds_per_step
from vit_vs_cnn.experiments.tuning import count_splits
from vit_vs_cnn.images.experiment_data import ExperimentData, open_source
from vit_vs_cnn.networks.kernels import trains_on_cpu
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION, too_few_images
from vit_vs_cnn.workers.probe import count_parallel_batches
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside

#: Number of sizes, number of seeds and share of the config's steps, the best first. With more and more minutes a plan
#: gets, in this order: three seeds for a conclusion, four sizes for a trend, the config's steps, a fifth size, five
#: seeds, and longer runs.
GRID_CANDIDATES = (
    *((5, 5, 4.0), (5, 5, 2.0), (5, 5, 1.0), (5, 3, 1.0), (4, 3, 1.0), (4, 3, 0.75), (4, 3, 0.5)),
    *((4, 3, 0.25), (3, 3, 0.25), (2, 3, 0.25), (1, 3, 0.25), (1, 1, 0.25)),
)
#: Fewer sizes show no trend over the number of images.
SIZES_FOR_A_TREND = 4
#: Images of each class at the smallest size, and the largest ratio of the largest to the smallest size.
PER_CLASS, SPAN = 10, 100
#: A plan may take up to this multiple of the given minutes if only that allows a conclusion.
MAX_OVERRUN = 1.25
#: Steps if the config has a budget in another unit.
STEPS = 600
#: Smallest and largest ratio of neighbouring sizes: closer ones add little, and the curve between others is unknown.
LEAST_RATIO, MOST_RATIO = 1.5, 100 ** (1 / 3)
_VALIDATIONS = 6  # of a run: five in the training and one at its end
_PROCESS = 12.0  # seconds until a new process has read the images
_MARGIN = 1.15  # other work on the machine, and the report

#: Share of the minutes for reading files and computing features.
_READING_SHARE = 0.5
#: Images of the smallest sample that is chosen, and of the timing.
_MIN_SAMPLE, _TIMED_FILES = 1000, 64

#: Suffixes of the names of a pretrained model and of the same network fine-tuned.
_PRETRAINED, _FINETUNED = "_pretrained", "_finetuned"
#: Time of a run without its steps and evaluations; of a linear probe, without its features.
STARTUP_SECONDS = 2.0


@dataclass(frozen=True)
class GridPlan:
    """Sizes, seeds and steps of an experiment, and its estimated time.

    Arguments:
        steps: of a run, ascending; one for each budget.
        runs: number of runs, those of a search for recipes included.
        has_training: whether the budget is used; False if all models are linear probes or have their own epochs.
    """

    train_sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    runs: int = 0
    seconds: float = 0.0
    has_training: bool = True

    @property
    def text(self) -> str:
        """Text such as ``100, 1,300 images, 3 seeds, 600 steps each``."""
        sizes = ", ".join(f"{size:,}" for size in self.train_sizes)
        budget = f", {Budget(steps=list(self.steps)).text} each" if self.has_training else ""
        return f"{sizes} images, {format_count(len(self.seeds), 'seed')}{budget}"

    @property
    def runs_text(self) -> str:
        return f"{self.runs} runs in about {duration(self.seconds)}"

    def is_larger_than(self, other: "GridPlan") -> bool:
        """True if a grid has the seeds of another one, at least as many sizes and as long runs, and differs."""
        has_sizes = len(self.train_sizes) >= len(other.train_sizes) and self.train_sizes[-1] >= other.train_sizes[-1]
        is_same = (self.train_sizes, self.seeds, self.steps) == (other.train_sizes, other.seeds, other.steps)
        return not is_same and has_sizes and {*other.seeds} <= {*self.seeds} and self.steps >= other.steps

    @property
    def allows_conclusion(self) -> bool:
        """A conclusion needs at least three seeds."""
        return len(self.seeds) >= MIN_SEEDS_FOR_CONCLUSION

    @property
    def allows_trend(self) -> bool:
        """A trend over the number of images needs a conclusion at four sizes."""
        return self.allows_conclusion and len(self.train_sizes) >= SIZES_FOR_A_TREND


@dataclass(frozen=True, eq=False)
class GridTimeModel:
    """Estimate of the time of a grid."""

    experiment: Experiment
    pool: ExperimentData
    times: Mapping[str, float]

    def of(self, grid: GridPlan) -> GridPlan:
        """The grid with its number of runs and its time, including a search for recipes with the longest budget."""
        largest, trials = max(grid.train_sizes), self.experiment.tuning.trials or 0
        times: list[float] = []
        features = 0.0
        for name in self.times:
            if self.experiment.models[name].finetune.head:
                features += self._feature_seconds(name)
                times += [STARTUP_SECONDS] * (len(grid.train_sizes) * len(grid.steps) * len(grid.seeds))
                continue
            for size, steps in itertools.product(grid.train_sizes, grid.steps):
                times += [self._run_seconds(name, size, steps)] * len(grid.seeds)
            if (pretrain := self.experiment.models[name].pretrain) is not None:
                times += [pretrain.steps * self.times[name]] * len(grid.seeds)
            searched = 0 if self.experiment.models[name].variants else trials * count_splits(self.experiment, largest)
            times += [self._run_seconds(name, largest, max(grid.steps))] * searched
        at_a_time = runs_at_a_time(self.experiment, len(times))
        name = self.experiment.executor.name
        has_own_process = at_a_time > 1 if name == "auto" else name != "local"
        seconds = features + max(sum(times) / at_a_time, *times)
        if self.experiment.gives_network:
            runs = [self._run_seconds(name, largest, max(grid.steps)) for name in self.experiment.trained_models]
            seconds += max(runs, default=STARTUP_SECONDS)
        seconds = _MARGIN * seconds + _PROCESS * has_own_process
        has_steps = any(self.experiment.models[name].finetune.epochs is None for name in self.experiment.trained_models)
        return replace(grid, runs=len(times), seconds=seconds, has_training=has_steps)

    def with_runs_of(self, experiment: Experiment) -> "GridTimeModel":
        """The estimate for an experiment with other runs. A step of fine-tuning takes as long as one of the probe."""
        probes = {name: name.replace(_FINETUNED, _PRETRAINED) for name in experiment.models}
        times = {name: self.times[name if name in self.times else probe] for name, probe in probes.items()}
        return replace(self, experiment=experiment, times=times)

    def _run_seconds(self, model: str, train_size: int, steps: int) -> float:
        """Time of a run with its evaluations. A forward pass takes a third of a step."""
        step, protocol, settings = self.times[model], self.experiment.protocol, self.experiment.models[model]
        if settings.distill is not None:  # the forward pass of the teacher
            step += self.times.get(settings.distill.teacher, step) / 3
        held_out = self.experiment.data.validation_fraction * train_size
        if settings.finetune.epochs is not None:
            training_images = round(train_size - held_out)
            steps = settings.finetune.count_steps(batch_size=protocol.batch_size, train_images=training_images)
        trainings = sum(variant.get("finetune") != "head" for variant in settings.variants) or 1
        evaluated = self.pool.test_count if protocol.scored_on == "test" else 0.0
        evaluated += trainings * _VALIDATIONS * held_out
        seconds = trainings * steps * step + evaluated * step / (3 * protocol.batch_size)
        return seconds + STARTUP_SECONDS * max(1, len(settings.variants))

    def _feature_seconds(self, model: str) -> float:
        """Time for the features of all images, which are computed once for all runs."""
        count = len(self.pool.images)
        if self.experiment.protocol.scored_on == "test" and self.pool.fold(0) is None:
            count += self.pool.test_count
        return count * self.feature_seconds_per_image(model)

    def feature_seconds_per_image(self, model: str) -> float:
        """Time for the features of an image; several are computed at a time."""
        protocol = self.experiment.protocol
        at_a_time = count_parallel_batches(protocol.thread_count) if trains_on_cpu(self.experiment) else 1
        return self.times[model] / (3 * protocol.batch_size) / at_a_time


def free_settings(fixed: Collection[str]) -> list[str]:
    """Settings of the grid that the user did not set."""
    names = {name.removeprefix("protocol.").split(".")[0] for name in fixed}
    return [name for name in ("train_sizes", "seeds", "budget") if name not in names]


def candidate_grids(costs: GridTimeModel, fixed: Collection[str] = ()) -> list[GridPlan]:
    """The grids that an experiment may have, with their times, the best first.

    No grid has fewer sizes, fewer seeds or shorter runs than the next one. Grids with five seeds have five sizes and at
    least the config's steps, as far as the images and the settings that the user fixed allow.
    """
    protocol, pool, free = costs.experiment.protocol, costs.pool, free_settings(fixed)
    base = budget_steps(protocol.budget) or (STEPS,)
    sizes, seeds, steps = tuple(sorted({pool.resolve(size) for size in protocol.train_sizes})), protocol.seeds, base
    grids = []
    for size_count, seed_count, share in GRID_CANDIDATES:
        if "seeds" in free:
            seeds = range(seed_count)
        if "train_sizes" in free:
            sizes = tuple(spread_sizes(pool, size_count))
        if "budget" in free:
            steps = tuple(sorted({max(1, round(step_count * share)) for step_count in base}))
        grids.append(GridPlan(sizes, tuple(seeds), steps))
    return [costs.of(grid) for grid in dict.fromkeys(grids)]


def choose_grid(grids: Sequence[GridPlan], minutes: float) -> GridPlan:
    """The grid of ``best_grid``. Raises InputError: none fits."""
    if (chosen := best_grid(grids, minutes)) is not None:
        return chosen
    least = min(grids, key=lambda grid: grid.seconds)
    conclusive = min((grid for grid in grids if grid.allows_conclusion), key=lambda grid: grid.seconds, default=least)
    needed, options = math.ceil(least.seconds / 6) / 10, _minutes_option(least)
    if (enough := _minutes_option(conclusive)) != options:
        options += f", or {enough} for a conclusion ({MIN_SEEDS_FOR_CONCLUSION} seeds)"
    raise InputError(
        f"minutes {minutes:g}: the smallest plan ({least.text}) takes about {needed:g} minutes; "
        f"use {options}. Smaller images (image_size of the data) and smaller models take less"
    )


def best_grid(grids: Sequence[GridPlan], minutes: float) -> GridPlan | None:
    """The first grid, in the given order, that fits into the minutes; None if none fits.

    If that grid allows no conclusion, or none fits, a grid that allows one and takes less than ``MAX_OVERRUN`` times
    the minutes is returned instead, the cheapest if there are several.
    """
    fitting = next((grid for grid in grids if grid.seconds <= 60 * minutes), None)
    if fitting is not None and fitting.allows_conclusion:
        return fitting
    allowed = [grid for grid in grids if grid.allows_conclusion and grid.seconds < MAX_OVERRUN * 60 * minutes]
    return min(allowed, key=lambda grid: grid.seconds, default=fitting)


def spread_sizes(pool: ExperimentData, count: int) -> list[int]:
    """Training-set sizes with about equal ratios, from all images down to ten of each class or a hundredth of all.

    The ratio of neighbouring sizes is at most 4.6, so the smallest of fewer than four sizes is larger. Sizes are
    rounded to two digits. There are fewer sizes than ``count`` if the ratio would be below 1.5, or if the rarest class
    would have fewer than two training images.
    """
    largest, counts = pool.largest, torch.bincount(pool.images.labels, minlength=pool.images.num_classes)
    rarest = float(counts.min()) / len(pool.images) * (1 - pool.data.validation_fraction)
    least = max(PER_CLASS * len(counts), 2 / rarest if rarest else largest)
    smallest = max(least, largest / SPAN, largest / MOST_RATIO ** (count - 1))
    while count > 1 and (largest / smallest) ** (1 / (count - 1)) < LEAST_RATIO:
        count -= 1
    below = [largest * (smallest / largest) ** (place / (count - 1)) for place in range(1, count)]
    return [*sorted({round(float(f"{size:.2g}")) for size in below} - {largest}), largest]


def budget_steps(budget: Budget) -> tuple[int, ...]:
    """Amounts of a budget in steps; empty for other units."""
    return tuple(int(amount) for amount in budget.amounts) if budget.unit == "steps" else ()


def choose_max_images(experiment: Experiment, console: Console) -> Experiment:
    """The experiment with a sample of its files, if reading all takes more than half of its ``minutes``.

    The time of reading includes the features for linear probes. A started experiment keeps its sample, and a user's
    choice of ``max_images`` is kept. Raises InputError: unusable files, or a network that fails.
    """
    options, minutes = experiment.data.file_options, experiment.minutes
    if minutes is None or options is None or options.max_images is not None or is_launched_from_outside():
        return experiment

    def with_options(**changes: Any) -> Experiment:
        changed = {experiment.data.kind: replace(options, **changes)}
        return replace(experiment, data=replace(experiment.data, **changed))

    if (started := _started_experiment(experiment)) is not None and started.data.file_options is not None:
        if (sample := started.data.file_options.max_images) is not None:
            console.print(f"Continuing with the sample of {sample:,} images; a larger one needs another --name")
        return with_options(max_images=sample)
    source = open_source(experiment.data)
    assert isinstance(source, CachedImages), "files are cached"
    count, few = len(source.listed.names), PER_CLASS * len(source.listed.class_names)
    largest = max((size for size in experiment.protocol.train_sizes if size != "all"), default=0)
    least = max(_MIN_SAMPLE, few, math.ceil(int(largest) / (1 - options.test_fraction)) + few)
    if count <= least:
        return experiment
    console.print(f"Estimating the time to read {count:,} images ...")
    # Files are decoded again at the input size of each pretrained network.
    decodings = 1 + sum(model.weights is not None for model in experiment.models.values())
    seconds = decodings * source.seconds_per_file(_TIMED_FILES) + _feature_seconds(
        with_options(max_images=max(_TIMED_FILES, few), skip_unreadable=True)
    )
    affordable, needed = _READING_SHARE * 60 * minutes / seconds, math.ceil(count * seconds / _READING_SHARE / 60)
    if affordable >= count:
        return experiment
    if least * seconds > 60 * minutes:
        raise InputError(
            f"minutes {minutes:g}: reading the smallest sample ({least:,} of {count:,} images) and computing its "
            f"features takes about {duration(least * seconds)}; use --minutes {math.ceil(2 * least * seconds / 60)}"
        )
    unit = 10 ** max(0, len(str(int(affordable))) - 2)  # rounded down to two digits
    sample = max(least, int(affordable) // unit * unit)
    console.print(
        f"Using a sample of {sample:,} of {count:,} images: reading all and computing their features takes about "
        f"{duration(count * seconds)}, more than half of --minutes {minutes:g}. To use all, start again with another "
        f"--name, --data.{experiment.data.kind}.max_images {count} and --minutes {needed}"
    )
    return with_options(max_images=sample)


def _feature_seconds(experiment: Experiment) -> float:
    """Time for the features of an image, of all linear probes, measured with the images of the experiment."""
    experiment = choose_precision(experiment)
    if not (probes := [name for name, model in experiment.models.items() if model.finetune.head]):
        return 0.0
    with warnings.catch_warnings(action="ignore"):  # the audit reports unusable files
        pool = ExperimentData.from_experiment(experiment)
        costs = GridTimeModel(experiment, pool, {name: seconds_per_step(experiment, name, pool) for name in probes})
    return sum(map(costs.feature_seconds_per_image, probes))


def plan_for_time(
    experiment: Experiment, *, fixed: Collection[str] = (), console: Console, pool: ExperimentData | None = None
) -> Experiment:
    """The experiment with the grid that fits into its ``minutes``; unchanged without ``minutes``.

    If the experiment was started before, the same minutes resume its grid, and more minutes plan a larger one. Settings
    that the user gave by name (``fixed``) are kept: sizes, seeds and budget.
    """
    minutes = experiment.minutes
    if minutes is None:
        return experiment
    _check_recipes(experiment, free_settings(fixed))
    if is_helper_process() or is_launched_from_outside():
        raise InputError(
            "minutes: only a single process can plan runs; run train once without a launcher, or leave minutes out"
        )
    started = _started_experiment(experiment)
    pool = pool or ExperimentData.from_experiment(experiment)
    experiment = choose_settings(experiment, pool, console, is_planned=False)
    if started is not None:
        return _continue_plan(experiment, started, pool, fixed=fixed, console=console)
    sets, all_costs = _model_sets(experiment), GridTimeModel(experiment, pool, _time_steps(experiment, pool, console))
    costs = all_costs.with_runs_of(sets[-1])
    candidates = candidate_grids(costs, fixed)
    chosen = least = choose_grid(candidates, minutes)
    searches = [replace(experiment, tuning=replace(experiment.tuning, trials=trials)) for trials in SEARCH_TRIALS]
    for larger in [*(searches if _may_search(experiment, fixed) else ()), *sets[:-1]]:
        more = all_costs.with_runs_of(larger)
        plans = _plans_allowing(least, more, fixed)
        if (plan := next((plan for plan in plans if plan.seconds <= 60 * minutes), None)) is None:
            continue
        without_search = more.with_runs_of(replace(larger, tuning=experiment.tuning)).of(plan)
        if plan.seconds - without_search.seconds <= MAX_SEARCH_SHARE * 60 * minutes:
            costs, candidates, chosen = more, plans, plan
            break
    for larger, left_out in _left_out(costs.experiment, sets):
        plan = min(_plans_allowing(least, all_costs.with_runs_of(larger), fixed), key=lambda plan: plan.seconds)
        console.print(f"Left out: {left_out}. To include this: {_minutes_option(plan)}")
    if (tuning := costs.experiment.tuning) != experiment.tuning:
        console.print(f"First a search for recipes with {tuning.trials} trials of each model")
    console.print(f"Chosen: {chosen.text}. {chosen.runs_text}", *_answers(chosen, candidates, costs), sep="\n")
    return _with_grid(costs.experiment, chosen, fixed)


def _plans_allowing(least: GridPlan, costs: GridTimeModel, fixed: Collection[str]) -> list[GridPlan]:
    """Candidate grids with a conclusion and a trend, as far as the grid ``least`` allows them."""
    return [
        plan
        for plan in candidate_grids(costs, fixed)
        if plan.allows_conclusion >= least.allows_conclusion and plan.allows_trend >= least.allows_trend
    ]


def _model_sets(experiment: Experiment) -> list[Experiment]:
    """Versions of the experiment, of which the first one that fits into the minutes is executed.

    With a pair of linear probes: (1) all models, and the probes fine-tuned too; (2) the same without models from
    scratch; (3) all models, without fine-tuning; (4) the probes alone. Otherwise the experiment as it is.
    """
    pretrained = {name: model for name, model in experiment.models.items() if model.weights is not None}
    others, pairs = experiment.models.keys() - pretrained.keys(), experiment.protocol.pairs
    sets = [experiment]
    if others and len(pretrained) > 1 and (not pairs or any({*pair} <= pretrained.keys() for pair in pairs)):
        sets.append(replace(experiment, models=pretrained, protocol=experiment.protocol.drop_models(others)))
    finetuned = [_finetuned_too(one) for one in sets]
    return sets if finetuned[0] is experiment else [*finetuned, *sets]


def _left_out(chosen: Experiment, sets: Sequence[Experiment]) -> list[tuple[Experiment, str]]:
    """For each kind of models that a chosen set leaves out, the smallest set with it, and its name."""
    results = []
    for one in reversed(sets):
        kinds = {name.endswith(_FINETUNED) for name in one.models.keys() - chosen.models.keys()}
        if chosen.models.keys() <= one.models.keys() and len(kinds) == 1:
            results.append((one, "fine-tuning of pretrained models" if kinds.pop() else "models from scratch"))
    return results


def _finetuned_too(experiment: Experiment) -> Experiment:
    """The experiment with each linear probe ``NAME_pretrained`` fine-tuned too; the same experiment without any.

    Each run of a fine-tuned network is the best of ``VARIANTS``, the probe included. Each pair of probes is a pair of
    fine-tuned networks too, which comes first: the primary comparison.
    """
    probes = {
        name: name.removesuffix(_PRETRAINED) + _FINETUNED
        for name, model in experiment.models.items()
        if name.endswith(_PRETRAINED) and model.finetune.head and model.weights
    }
    if not probes:
        return experiment
    values = experiment.to_dict()
    for probe, name in probes.items():
        settings = values["models"][probe]
        shared = {key: settings[key] for key in ("name", "options", "weights", "class_weights")}
        own = {"finetune": {"epochs": FINETUNING_EPOCHS}, "variants": [*VARIANTS]}
        values["models"].setdefault(name, copy.deepcopy(shared | own))
    if pairs := values["protocol"]["pairs"]:
        tuned = [[probes[name] for name in pair] for pair in pairs if {*pair} <= probes.keys()]
        values["protocol"]["pairs"] = [*tuned, *pairs]
    return experiment_from_dict(values, trusted=experiment.trusted)


#: What each run of a fine-tuned network tries, the same for all networks: a linear probe, and training of the last two
#: blocks or of all, with learning rates around that of Kumar et al. 2022 for AdamW.
_ADAMW = {"name": "adamw", "weight_decay": 0.05, "layer_decay": None}
VARIANTS: tuple[dict[str, Any], ...] = (
    {"finetune": "head"},
    *(
        {"finetune": {"last": last}, "optimizer": {**_ADAMW, "lr": lr}}
        for last, lr in itertools.product((2, None), (1e-4, 5e-4))
    ),
)
#: Epochs of each of these trainings.
FINETUNING_EPOCHS = 10.0


#: Share of the minutes that a search for recipes may take, and the numbers of trials for each model, the best first.
MAX_SEARCH_SHARE, SEARCH_TRIALS = 0.2, (8, 6, 4)


def _may_search(experiment: Experiment, fixed: Collection[str]) -> bool:
    """True if the user set neither recipes nor trials, and no model starts from weights.

    A search trains on all folds, so that the test images could not be rotated. Where there are pretrained networks,
    networks from scratch are not what an answer is about.
    """
    if any(model.weights is not None for model in experiment.models.values()):
        return False
    sources = {recipe_source(model) for model in experiment.models.values()}
    is_set = experiment.tuning.trials is not None or any(name.startswith("tuning") for name in fixed)
    return not is_set and bool(sources) and not sources & {RecipeSource.GIVEN, RecipeSource.SEARCHED}


def _with_searched_recipes(experiment: Experiment, started: Experiment, fixed: Collection[str]) -> Experiment:
    """The experiment with the recipes that a search found in its folder, or with the search that is unfinished there.

    A model for which the user now names other settings than those in the folder keeps these.
    """
    now, before = plain_values(experiment), plain_values(started)
    paths = [name.split(".") for name in fixed if name.startswith("models.")]
    changed = {path[1] for path in paths if _value_at(now, path) != _value_at(before, path)}
    searched = {
        name: model
        for name, model in started.models.items()
        if name in experiment.models.keys() - changed and recipe_source(model) is RecipeSource.SEARCHED
    }
    return replace(experiment, models={**experiment.models, **searched}, tuning=started.tuning)


def _value_at(block: Any, path: Sequence[str]) -> Any:
    for key in path:
        block = block.get(key) if isinstance(block, Mapping) else None
    return block


def _time_steps(experiment: Experiment, pool: ExperimentData, console: Console) -> dict[str, float]:
    console.print(f"Timing a few steps of {join_names([*experiment.models])} ...")
    times = {}
    for name in experiment.models:
        times[name] = seconds_per_step(experiment, name, pool)
        console.print(f"  {name}: {times[name]:.3g} s for a step of {experiment.protocol.batch_size} images")
    return times


def _answers(chosen: GridPlan, other_plans: Sequence[GridPlan], costs: GridTimeModel) -> list[str]:
    """Sentences on the answers that a grid allows, and on the minutes for those that it does not."""
    minutes, pool, lines = costs.experiment.minutes or 0.0, costs.pool, []
    if chosen.seconds > 60 * minutes:
        seeds, time = format_count(len(chosen.seeds), "seed"), duration(chosen.seconds)
        lines = [f"{seeds} take about {time}, more than {minutes:g} minutes; a conclusion needs them"]
    if pool.scored_on == "test" and (caveat := too_few_images(pool.test_count)) is not None:
        return [*lines, f"Too few images for an answer: {caveat}"]
    plans = sorted((chosen, *other_plans), key=lambda plan: plan.seconds)
    conclusion = next((plan for plan in plans if plan.allows_conclusion), None)
    trend = next((plan for plan in plans if plan.allows_trend), None)
    texts = ["a conclusion", "a trend over the number of images"]
    if not chosen.allows_conclusion:
        seeds = f"at least {MIN_SEEDS_FOR_CONCLUSION} seeds (protocol.seeds)"
        texts[0] = f"no conclusion (it needs {seeds if conclusion is None else _minutes_option(conclusion)})"
    if not chosen.allows_trend:
        texts[1] = "no trend over the number of images"
        texts[1] += "" if trend is None else f" (it needs {_minutes_option(trend)})"
    return [*lines, f"These runs allow {' and '.join(texts)}"]


def _minutes_option(plan: GridPlan) -> str:
    return f"--minutes {math.ceil(plan.seconds / 60)}"


def _started_experiment(experiment: Experiment) -> Experiment | None:
    """The experiment that was started in the folder of this one, or None. Raises InputError: it has other images."""
    path = experiment.folder / "experiment.yaml"
    if not path.exists():
        return None
    started = experiment_from_dict(read_config(path), trusted=False)
    sources = [replace(data, root=os.path.abspath(data.root)).description for data in (started.data, experiment.data)]
    if sources[0] != sources[1]:
        raise InputError(
            f"{experiment.folder} holds an experiment with other images ({started.data.description}, not "
            f"{experiment.data.description}); give this one a --name"
        )
    return started


def _continue_plan(
    experiment: Experiment, started: Experiment, pool: ExperimentData, *, fixed: Collection[str], console: Console
) -> Experiment:
    """Return the experiment with the grid of its folder, or with more models or a larger grid if more minutes allow it.

    Once an analysis was possible, the budget stays, because conclusions are about the longest budget.
    """
    base, sets = experiment, [one for one in _model_sets(experiment) if one.models.keys() >= started.models.keys()]
    sets = [_with_searched_recipes(one, started, fixed) for one in sets or [experiment]]
    experiment = sets[-1]
    minutes, before = experiment.minutes or 0.0, started.minutes or 0.0
    protocol = replace(experiment.protocol, **{name: getattr(started.protocol, name) for name in free_settings(fixed)})
    same = replace(experiment, protocol=protocol, minutes=max(minutes, before))
    if (steps := budget_steps(protocol.budget)) and minutes > before:
        if find_binding_plan(experiment.folder) is not None:
            fixed = [*fixed, "protocol.budget"]
            sets = [replace(one, protocol=replace(one.protocol, budget=protocol.budget)) for one in sets]
        all_costs = GridTimeModel(base, pool, _time_steps(replace(base, protocol=protocol), pool, console))
        sizes = sorted({pool.resolve(size) for size in protocol.train_sizes})
        grid = GridPlan(tuple(sizes), tuple(protocol.seeds), steps)
        for larger in sets:
            costs = all_costs.with_runs_of(larger)
            old = costs.of(grid)
            plans = [plan for plan in candidate_grids(costs, fixed) if plan.is_larger_than(old)]
            plans += [old] * (larger.models.keys() > started.models.keys())
            if (chosen := best_grid(plans, minutes)) is not None:
                text = f"New plan: {chosen.text}. {chosen.runs_text}, finished ones included"
                console.print(text, *_answers(chosen, [old, *plans], costs), sep="\n")
                return _with_grid(replace(larger, minutes=same.minutes), chosen, fixed)
        console.print(f"{minutes:g} minutes allow no larger plan")
    sizes = ", ".join(size if isinstance(size, str) else f"{size:,}" for size in protocol.train_sizes)
    seeds = format_count(len(protocol.seeds), "seed")
    plan = "the earlier plan" if protocol == started.protocol else "your settings in place of those of the earlier plan"
    text = f"Continuing with {plan}: {sizes} images, {seeds}, {protocol.budget.text} each"
    console.print(f"{text}; for a larger plan, increase --minutes")
    return same


def _with_grid(experiment: Experiment, chosen: GridPlan, fixed: Collection[str]) -> Experiment:
    """The experiment with the chosen sizes, seeds and budget, except those that the user set."""
    budget = Budget(steps=chosen.steps[0] if len(chosen.steps) == 1 else list(chosen.steps))
    values: dict[str, Any] = {"train_sizes": list(chosen.train_sizes), "seeds": list(chosen.seeds), "budget": budget}
    protocol = replace(experiment.protocol, **{name: values[name] for name in free_settings(fixed)})
    return replace(experiment, protocol=protocol)


def _check_recipes(experiment: Experiment, free: Collection[str]) -> None:
    for name, model in experiment.models.items():
        for place, setting in {"by_size": "train_sizes", "by_budget": "budget"}.items():
            if getattr(model, place) and setting in free:
                raise InputError(
                    f"models.{name}.{place}: minutes chooses protocol.{setting}, maybe others than these; "
                    "name them on the command line too, or leave minutes out"
                )
