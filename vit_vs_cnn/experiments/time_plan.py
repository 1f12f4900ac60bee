"""A grid of sizes, seeds and steps that fits into ``minutes``, and contenders with equal compute at the image size."""

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from vit_vs_cnn.config.experiment import Budget, Experiment, experiment_from_dict, read_config
from vit_vs_cnn.config.identity import plain_values
from vit_vs_cnn.config.recipes import recipe_source
from vit_vs_cnn.config.schema import RecipeSource
from vit_vs_cnn.console import format_count, join_names
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import grids
from vit_vs_cnn.experiments.grids import SIZES_FOR_A_TREND, GridPlan, GridTimeModel, free_of, steps_of
from vit_vs_cnn.experiments.timing import choose_precision, reuse_saved_precision, seconds_per_step
from vit_vs_cnn.experiments.width_matching import match_macs
from vit_vs_cnn.process import quiet_lightning
from vit_vs_cnn.runs.analysis_plan import find_binding_plan
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.preparation import grid
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION, too_few_images
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside, world_size


def plan_for_time(
    experiment: Experiment, *, fixed: Collection[str] = (), console: Console, pool: ExperimentData | None = None
) -> Experiment:
    """The experiment with the grid that fits into its ``minutes``; unchanged without ``minutes``.

    The plan has five seeds where the minutes allow, and at least three where they allow a conclusion. Three seeds may
    exceed the minutes by less than a quarter. More minutes give three seeds first, then four sizes, the config's steps,
    a fifth size, seeds 4 and 5, and longer runs (``grids.GRID_CANDIDATES``).

    If the experiment was started before, the same minutes resume its grid, and more minutes plan a larger one, in which
    finished runs count (``_continue_plan``).

    Arguments:
        experiment: with the sizes, seeds and steps of its config.
        fixed: settings that the user gave by name; of these, sizes, seeds, budget and contenders are kept.
        console: prints the plan and what it can answer.
        pool: images of the experiment, if they are open already.

    Raises:
        InputError: not even the smallest grid fits, the folder is of other images, there are several processes, or a
            recipe is for a size or a budget that may not be chosen.
    """
    minutes = experiment.minutes
    if minutes is None:
        return experiment
    _check_recipes(experiment, free_of(fixed))
    if is_helper_process() or is_launched_from_outside():
        raise InputError(
            "minutes: a grid is planned by one process; run train once without a launcher, or name no minutes"
        )
    quiet_lightning()
    begun_experiment = _begun_experiment(experiment)
    pool = pool or ExperimentData.of(experiment)
    experiment = _with_matched_models(reuse_saved_precision(experiment), pool, fixed, console)
    if begun_experiment is not None:
        if any(name.endswith(_FINETUNED) for name in begun_experiment.contenders.keys() - experiment.contenders.keys()):
            experiment = _finetuned_too(experiment)
        experiment = _with_searched_recipes(experiment, begun_experiment, fixed)
        return _continue_plan(experiment, begun_experiment, pool, fixed=fixed, console=console)
    experiment = choose_precision(experiment, pool, console=console)
    costs = GridTimeModel(experiment, pool, _timed(experiment, pool, console))
    candidates = grids.candidate_grids(costs, fixed)
    chosen = grids.choose_grid(candidates, minutes)
    if (tuned := _with_finetuning(costs, chosen, fixed, console)) is not None:
        costs, candidates, chosen = tuned
        experiment = costs.experiment
    if (searching := _with_search(costs, chosen, fixed)) is not None:
        experiment, candidates, chosen = searching
        trials = [f"{experiment.tuning.trials} for {name}" for name in _trained_models(experiment)]
        console.print(
            f"Search for recipes first: {join_names(trials)}; each model trains with its best", soft_wrap=True
        )
    runs = f"{chosen.runs} runs in about {duration(chosen.seconds)}, {_execution_text(chosen, experiment)}"
    console.print(f"Chosen: {chosen.text}. {runs}", soft_wrap=True)
    for line in (*_overrun(chosen, minutes), *_answers(chosen, candidates, costs, fixed)):
        console.print(line, soft_wrap=True)
    return _with_grid(experiment, chosen, fixed)


#: Suffixes of the names of a pretrained contender and of the same network fine-tuned.
_PRETRAINED, _FINETUNED = "_pretrained", "_finetuned"


def _with_finetuning(
    costs: GridTimeModel, without: GridPlan, fixed: Collection[str], console: Console
) -> tuple[GridTimeModel, list[GridPlan], GridPlan] | None:
    """The experiment with its linear probes fine-tuned too, its grids, and the grid that fits into ``minutes``.

    None if there are no linear probes of optional weights, or if the remaining time would no longer allow a conclusion
    or a trend; then the command prints how many minutes fine-tuning takes.

    Arguments:
        without: the grid that fits without fine-tuning.
    """
    experiment = _finetuned_too(costs.experiment)
    if experiment is costs.experiment:
        return None
    times = {name: costs.times[name.replace(_FINETUNED, _PRETRAINED)] for name in experiment.contenders}
    there = replace(costs, experiment=experiment, times=times)
    candidates = grids.candidate_grids(there, fixed)
    minutes = experiment.minutes or 0.0
    allowing = [
        grid_plan
        for grid_plan in candidates
        if grid_plan.allows_conclusion >= without.allows_conclusion and grid_plan.allows_trend >= without.allows_trend
    ]
    chosen = next((grid_plan for grid_plan in allowing if grid_plan.seconds <= 60 * minutes), None)
    if chosen is None:
        least = _enough(min(allowing, key=lambda grid_plan: grid_plan.seconds))
        console.print(f"Pretrained models are not fine-tuned: that takes --minutes {least}", soft_wrap=True)
        return None
    return there, candidates, chosen


def _finetuned_too(experiment: Experiment) -> Experiment:
    """The experiment with each linear probe of optional weights fine-tuned too; the same experiment without any.

    Each pair of such probes is a pair of fine-tuned networks too, which comes first: the primary comparison. A
    fine-tuned network is compared with its probe.
    """
    probes = {
        name: name.removesuffix(_PRETRAINED) + _FINETUNED
        for name, contender in experiment.contenders.items()
        if name.endswith(_PRETRAINED) and contender.finetune.head and contender.weights and contender.weights.optional
    }
    if not probes:
        return experiment
    values = experiment.to_dict()
    for probe, name in probes.items():
        settings = values["contenders"][probe]
        values["contenders"].setdefault(name, {key: settings[key] for key in ("model", "weights")})
    if pairs := values["protocol"]["pairs"]:
        tuned = [[probes[name] for name in pair] for pair in pairs if {*pair} <= probes.keys()]
        values["protocol"]["pairs"] = [*tuned, *pairs, *([name, probe] for probe, name in probes.items())]
    return experiment_from_dict(values, trusted=experiment.trusted)


#: Share of the minutes that a search for recipes may take, and the numbers of trials for each model, the best first.
MAX_SEARCH_SHARE, SEARCH_TRIALS = 0.2, (8, 6, 4)


def _with_search(
    costs: GridTimeModel, without: GridPlan, fixed: Collection[str]
) -> tuple[Experiment, list[GridPlan], GridPlan] | None:
    """The experiment with a search for recipes, its possible grids of runs, and the grid that fits into ``minutes``.

    None if the user set recipes or trials, if the search would take more than a fifth of ``minutes``, or if the
    remaining time would no longer allow a conclusion or a trend.

    Arguments:
        without: the grid that fits without a search.
    """
    experiment, minutes = costs.experiment, costs.experiment.minutes or 0.0
    sources = {recipe_source(experiment.contenders[name]) for name in _trained_models(experiment)}
    is_set = any(key.startswith("tuning") for key in fixed) or experiment.tuning.trials is not None
    if is_set or not sources or RecipeSource.GIVEN in sources or RecipeSource.SEARCHED in sources:
        return None
    for trials in SEARCH_TRIALS:
        searching = replace(experiment, tuning=replace(experiment.tuning, trials=trials))
        there = replace(costs, experiment=searching)
        candidates = grids.candidate_grids(there, fixed)
        chosen = next((grid_plan for grid_plan in candidates if grid_plan.seconds <= 60 * minutes), None)
        if chosen is None or (chosen.allows_conclusion, chosen.allows_trend) != (
            without.allows_conclusion,
            without.allows_trend,
        ):
            continue
        if chosen.seconds - costs.of(chosen).seconds <= MAX_SEARCH_SHARE * 60 * minutes:
            return searching, candidates, chosen
    return None


def _trained_models(experiment: Experiment) -> list[str]:
    """Models with a recipe: all but linear probes."""
    return [name for name, contender in experiment.contenders.items() if not contender.finetune.head]


def _timed(experiment: Experiment, pool: ExperimentData, console: Console) -> dict[str, float]:
    console.print(f"Timing a few steps of {' and '.join(experiment.contenders)} ...")
    times = {name: seconds_per_step(experiment, name, pool) for name in experiment.contenders}
    for name, seconds in times.items():
        console.print(f"  {name}: {seconds:.3g} s for a step of {experiment.protocol.batch_size} images")
    return times


def _overrun(chosen: GridPlan, minutes: float) -> list[str]:
    """A line on a grid that takes more than the minutes, because fewer seeds would allow no conclusion."""
    if chosen.seconds <= 60 * minutes:
        return []
    seeds = format_count(len(chosen.seeds), "seed")
    return [f"{seeds} take about {duration(chosen.seconds)}, more than {minutes:g} minutes; a conclusion needs them"]


def _answers(
    chosen: GridPlan, other_plans: Sequence[GridPlan], costs: GridTimeModel, fixed: Collection[str]
) -> list[str]:
    """Lines on the answers that a grid allows, on the time of a conclusion and a trend, and on missing images.

    Arguments:
        other_plans: larger and smaller grids, whose times are printed.
    """
    minutes = costs.experiment.minutes or 0.0
    candidates = sorted((chosen, *other_plans), key=lambda grid_plan: grid_plan.seconds)
    conclusion = next((grid_plan for grid_plan in candidates if grid_plan.allows_conclusion), None)
    trend = next((grid_plan for grid_plan in candidates if grid_plan.allows_trend), None)
    images = _too_few_sizes(costs.pool, candidates, fixed)
    if costs.pool.scored_on == "test" and (obstacle := too_few_images(costs.pool.test_count)) is not None:
        return [f"Too few images for an answer: {obstacle}", *images]
    if conclusion is None:
        most = max(len(grid_plan.seeds) for grid_plan in candidates)
        needed = f"a conclusion needs at least {MIN_SEEDS_FOR_CONCLUSION} seeds"
        return [f"No conclusion: {needed}, and {most} will be run (protocol.seeds)", *images]
    line = f"A conclusion takes about {duration(conclusion.seconds)} here ({conclusion.counts})"
    if trend is not None:
        line += f", a trend over the number of images about {duration(trend.seconds)} ({trend.counts})"
    if not chosen.allows_conclusion:
        line += f". {minutes:g} minutes allow no conclusion, only a description of single runs"
        line += f"; --minutes {_enough(conclusion)} allows one"
    elif trend is not None and not chosen.allows_trend:
        line += f". {minutes:g} minutes allow a conclusion and no trend; --minutes {_enough(trend)} allows both"
    elif trend is not None:
        line += f". {minutes:g} minutes allow both"
    return [line, *images]


def _too_few_sizes(pool: ExperimentData, candidates: Sequence[GridPlan], fixed: Collection[str]) -> list[str]:
    """A line on too few images for a trend; none if the user set the sizes."""
    most = max(len(grid_plan.train_sizes) for grid_plan in candidates)
    needed, classes = grids.images_for(pool, SIZES_FOR_A_TREND), pool.images.num_classes
    if most >= SIZES_FOR_A_TREND or "train_sizes" not in free_of(fixed) or pool.largest >= needed:
        return []
    return [
        f"{most} size{'s show' if most > 1 else ' shows'} no trend over the number of images, and the images are too "
        f"few for {SIZES_FOR_A_TREND}: that takes {needed:,} to train on, {math.ceil(needed / classes)} for each of "
        f"{classes} classes; there are {pool.largest:,}"
    ]


def _enough(grid_plan: GridPlan) -> int:
    return math.ceil(grid_plan.seconds / 60)


def _with_matched_models(
    experiment: Experiment, pool: ExperimentData, fixed: Collection[str], console: Console
) -> Experiment:
    """Match the compute of each ViT to the model it is compared with, and print what changes."""
    images = pool.images
    matched = match_macs(experiment, images.image_shape, images.num_classes, fixed=fixed)
    for name, contender in matched.contenders.items():
        if contender != experiment.contenders[name]:
            patch, width = (contender.model[key] for key in ("patch_size", "embed_dim"))
            size = " x ".join(map(str, images.image_shape[1:]))
            console.print(
                f"Matched in multiply-accumulates at {size} pixels: {name} has patches of {patch} and width {width}",
                soft_wrap=True,
            )
    return matched


def _begun_experiment(experiment: Experiment) -> Experiment | None:
    """The experiment that was started in the folder of this one, or None.

    Raises:
        InputError: it has other images.
    """
    path = experiment.folder / "experiment.yaml"
    if not path.exists():
        return None
    from_dict = experiment_from_dict(read_config(path), trusted=False)
    sources = [replace(data, root=os.path.abspath(data.root)).description for data in (from_dict.data, experiment.data)]
    if sources[0] != sources[1]:
        raise InputError(
            f"{experiment.folder} holds an experiment with other images ({from_dict.data.description}, not "
            f"{experiment.data.description}); give this one a --name"
        )
    return from_dict


def _with_searched_recipes(experiment: Experiment, started: Experiment, fixed: Collection[str]) -> Experiment:
    """The experiment with the recipes that a search found in its folder, or with the search that is unfinished there.

    A contender is left as it is if the user now names other settings for it than those in the folder.
    """
    contenders = dict(experiment.contenders)
    now, before = (plain_values(values)["contenders"] for values in (experiment, started))
    for name in experiment.contenders.keys() & started.contenders.keys():
        place = f"contenders.{name}."
        names = [key.removeprefix(place).split(".") for key in fixed if key.startswith(place)]
        is_same = all(_value_at(now[name], path) == _value_at(before[name], path) for path in names)
        if is_same and recipe_source(started.contenders[name]) is RecipeSource.SEARCHED:
            contenders[name] = started.contenders[name]
    return replace(experiment, contenders=contenders, tuning=started.tuning)


def _value_at(block: Any, path: Sequence[str]) -> Any:
    for key in path:
        block = block.get(key) if isinstance(block, Mapping) else None
    return block


def _continue_plan(
    experiment: Experiment, started: Experiment, pool: ExperimentData, *, fixed: Collection[str], console: Console
) -> Experiment:
    """The experiment with the grid of its folder; if more minutes are given, with a larger one if they allow one.

    Finished runs of the larger grid count with the time that they took. Once an analysis was possible, the budget
    stays, because conclusions are about the longest budget.

    Arguments:
        experiment: with the sizes, seeds and steps of its config.
        started: experiment of the folder.
    """
    minutes, protocol = experiment.minutes or 0.0, experiment.protocol
    begun_protocol = replace(protocol, **{name: getattr(started.protocol, name) for name in free_of(fixed)})
    same = replace(experiment, protocol=begun_protocol)
    steps, may_grow = steps_of(begun_protocol.budget), started.minutes is None or minutes > started.minutes
    if not may_grow or not steps:
        reason = "more --minutes plan a larger one" if steps else f"its budget is in {begun_protocol.budget.unit}"
        console.print(f"{_continued_text(same)}; {reason}, another --name begins anew", soft_wrap=True)
        return same if may_grow else replace(same, minutes=started.minutes)
    cells = grid(same, pool, world_size=world_size(same))
    if find_binding_plan(cells) is not None:
        fixed = [*fixed, "protocol.budget"]
        experiment = replace(experiment, protocol=replace(protocol, budget=begun_protocol.budget))
    costs = GridTimeModel(experiment, pool, _timed(same, pool, console), _seconds_of_finished(cells))
    sizes = sorted({pool.resolve(size) for size in begun_protocol.train_sizes})
    old = costs.of(GridPlan(tuple(sizes), tuple(begun_protocol.seeds), steps))
    candidates = [plan for plan in grids.candidate_grids(costs, fixed) if plan.is_larger_than(old)]
    chosen = next((plan for plan in candidates if plan.seconds <= 60 * minutes), old)
    if not chosen.allows_conclusion:
        chosen = grids.conclusion_by_overrun(candidates, minutes) or chosen
    if chosen is old:
        console.print(f"{_continued_text(same)}: {minutes:g} minutes add nothing to it", soft_wrap=True)
        lines = []
    else:
        console.print(
            f"Planned anew from {old.counts}: {chosen.text}. {chosen.runs} runs are left, in about "
            f"{duration(chosen.seconds - chosen.spent)}, {_execution_text(chosen, same)}; finished runs took "
            f"{duration(chosen.spent)}",
            soft_wrap=True,
        )
        lines = _overrun(chosen, minutes)
    for line in (*lines, *_answers(chosen, [old, *candidates], costs, fixed)):
        console.print(line, soft_wrap=True)
    return same if chosen is old else _with_grid(same, chosen, fixed)


def _seconds_of_finished(cells: Sequence[Run]) -> dict[grids.RunKey, float]:
    """Seconds that each finished run took."""
    results = {}
    for cell in cells:
        if cell.is_finished:
            seconds = read_result(cell.folder / "result.json").cost.train_seconds
            results[cell.contender, cell.train_size, steps_of(cell.budget)[0], cell.seed] = (
                grids.STARTUP_SECONDS + seconds
            )
    return results


def _continued_text(experiment: Experiment) -> str:
    protocol = experiment.protocol
    sizes = ", ".join(size if isinstance(size, str) else f"{size:,}" for size in protocol.train_sizes)
    seeds = format_count(len(protocol.seeds), "seed")
    return f"Going on with the grid that was chosen before: {sizes} images, {seeds}, {protocol.budget.text} each"


def _with_grid(experiment: Experiment, chosen: GridPlan, fixed: Collection[str]) -> Experiment:
    """The experiment with the chosen sizes, seeds and budget, except those that the user set."""
    budget = Budget(steps=chosen.steps[0] if len(chosen.steps) == 1 else list(chosen.steps))
    values: dict[str, Any] = {"train_sizes": list(chosen.train_sizes), "seeds": list(chosen.seeds), "budget": budget}
    return replace(experiment, protocol=replace(experiment.protocol, **{name: values[name] for name in free_of(fixed)}))


def _check_recipes(experiment: Experiment, free: Collection[str]) -> None:
    for name, contender in experiment.contenders.items():
        for place, over, setting in (
            ("by_size", contender.by_size, "train_sizes"),
            ("by_budget", contender.by_budget, "budget"),
        ):
            if over and setting in free:
                raise InputError(
                    f"contenders.{name}.{place}: minutes chooses protocol.{setting}, maybe others than these; "
                    "name them on the command line too, or leave minutes out"
                )


def _execution_text(chosen: GridPlan, experiment: Experiment) -> str:
    if experiment.executor.name == "ray":
        return "one after the other; Ray runs as many at a time as the cluster has room for"
    return "one after the other" if chosen.at_a_time == 1 else f"{chosen.at_a_time:.2g} at a time"
