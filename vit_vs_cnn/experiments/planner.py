"""A grid of sizes, seeds and steps that fits into ``minutes``, and contenders with equal compute at the image size.

Where an experiment has been started, more minutes add to its grid.
"""

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from vit_vs_cnn.config.experiment import Budget, Contender, Experiment, experiment_from_dict, read_config
from vit_vs_cnn.config.merging import override
from vit_vs_cnn.config.recipes import recipe_source
from vit_vs_cnn.config.schema import RecipeSource
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import grids
from vit_vs_cnn.experiments.grids import SIZES_FOR_A_TREND, Costs, Grid, free_of, steps_of
from vit_vs_cnn.experiments.matching import matched
from vit_vs_cnn.experiments.precision import begun_in, with_precision
from vit_vs_cnn.process import quiet_lightning
from vit_vs_cnn.runs.analysis_plan import find_binding_plan
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.plan import grid
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION, too_few_images
from vit_vs_cnn.told import counted, listed
from vit_vs_cnn.workers.step_time import seconds_per_step
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside, world_size


def planned(
    experiment: Experiment, *, fixed: Collection[str] = (), console: Console, pool: Pool | None = None
) -> Experiment:
    """The experiment with the grid that fits into its ``minutes``; unchanged without ``minutes``.

    The plan has five seeds where the minutes allow, and at least three where they allow a conclusion. Three seeds may
    exceed the minutes by less than a quarter. More minutes give
    three seeds first, then four sizes, the config's steps, a fifth size, seeds 4 and 5, and longer runs
    (``grids.LADDER``).

    Where the experiment has been started, grid and contenders of its folder win, so that the same command resumes it.
    More minutes than before add to that grid (``grids.additions``), and finished runs count with their time. Once an
    analysis was possible (``design.json``), no longer budget is added, because conclusions are about the longest
    budget. The command prints how to add it. Seeds are then added once, for a second analysis.

    Arguments:
        experiment: with the sizes, seeds and steps of its config.
        fixed: settings that the user gave by name; of these, sizes, seeds, budget and contenders are kept.
        console: prints the plan and what it can answer.
        pool: its images, where they are at hand already.

    Raises:
        InputError: not even the smallest grid fits, the folder is of other images, there are several processes, or a
            recipe is for a size or a budget that may not be chosen.
    """
    minutes = experiment.minutes
    if minutes is None:
        return experiment
    _check_recipes(experiment, free_of(fixed))
    experiment = begun_in(experiment)
    if (there := _folders_experiment(experiment)) is not None:
        return _gone_on_with(there, experiment, fixed, console, pool)
    pool = _opened(experiment, pool)
    experiment = with_precision(_with_matched_models(experiment, pool, fixed, console), pool, console=console)
    costs = Costs(experiment, pool, _timed(experiment, pool, console))
    rungs = grids.ladder(costs, fixed)
    chosen = grids.first_that_fits(rungs, minutes)
    if (searching := _with_search(costs, chosen, fixed)) is not None:
        experiment, rungs, chosen = searching
        trials = [f"{experiment.tuning.trials} for {name}" for name in _trained_models(experiment)]
        console.print(f"Search for recipes first: {listed(trials)}; each model trains with its best", soft_wrap=True)
    runs = f"{chosen.runs} runs in about {duration(chosen.seconds)}, {_how(chosen, experiment)}"
    console.print(f"Chosen: {chosen.text}. {runs}", soft_wrap=True)
    for told in (*_overrun(chosen, minutes), *_answers(chosen, rungs, costs, fixed)):
        console.print(told, soft_wrap=True)
    return _with_grid(experiment, chosen, fixed)


#: Share of the minutes that a search for recipes may take, and the numbers of trials for each model, the best first.
MAX_SEARCH_SHARE, SEARCH_TRIALS = 0.2, (8, 6, 4)


def _with_search(costs: Costs, without: Grid, fixed: Collection[str]) -> tuple[Experiment, list[Grid], Grid] | None:
    """The experiment with a search for recipes, its possible grids of runs, and the grid that fits into ``minutes``.

    None if the user set recipes or trials, if the search would take more than a fifth of ``minutes``, or if the
    remaining time would no longer allow a conclusion or a trend.

    Arguments:
        without: the grid that fits without a search.
    """
    experiment, minutes = costs.experiment, costs.experiment.minutes or 0.0
    sources = {recipe_source(experiment.contenders[name]) for name in _trained_models(experiment)}
    named = any(key.startswith("tuning") for key in fixed) or experiment.tuning.trials is not None
    if named or not sources or RecipeSource.GIVEN in sources or RecipeSource.SEARCHED in sources:
        return None
    for trials in SEARCH_TRIALS:
        searching = replace(experiment, tuning=replace(experiment.tuning, trials=trials))
        there = replace(costs, experiment=searching)
        rungs = grids.ladder(there, fixed)
        chosen = next((rung for rung in rungs if rung.seconds <= 60 * minutes), None)
        if chosen is None or (chosen.allows_conclusion, chosen.allows_trend) != (
            without.allows_conclusion,
            without.allows_trend,
        ):
            continue
        if chosen.seconds - costs.of(chosen).seconds <= MAX_SEARCH_SHARE * 60 * minutes:
            return searching, rungs, chosen
    return None


def _trained_models(experiment: Experiment) -> list[str]:
    """Models with a recipe: all but linear probes."""
    return [name for name, contender in experiment.contenders.items() if not contender.tune.head]


#: Settings of ``data`` that say where images lie and how they are fetched.
FETCHING = ("root", "cache", "download", "mirror", "verify_checksum", "skip_unreadable")


def with_begun_images(experiment: Experiment, *, fixed: Collection[str] = (), console: Console) -> Experiment:
    """The experiment with the settings of its images as its folder has them, where it names minutes and has been begun:
    what is finished there is of those images. Which settings those are is told; what the user names is kept.

    Arguments:
        fixed: settings that the user gave by name.

    Raises:
        InputError: the user names a setting by which other images would be made than those that are there.
    """
    if experiment.minutes is None or (there := _folders_experiment(experiment)) is None:
        return experiment
    data, before = experiment.to_dict()["data"], there.to_dict()["data"]
    kind, kept = experiment.data.kind, []
    block = "cifar" if kind.startswith("cifar") else "own" if kind == "given" else kind
    of_images = [f"{block}.{name}" for name in data[block] if name not in FETCHING]
    for place in (*of_images, "validation_fraction", "augmentation", "shuffle_labels"):
        now, was = (_at(values, place.split(".")) for values in (data, before))
        if now == was:
            continue
        if not any(key == f"data.{place}" or key.startswith(f"data.{place}.") for key in fixed):
            override(data, place, was)
            kept.append(f"data.{place} {was}")
        elif place in of_images:
            raise InputError(f"{experiment.folder} holds runs with data.{place} {was}, not {now}; give these a --name")
    if kept:
        told = f"The images stay as they are in {experiment.folder} ({', '.join(kept)})"
        console.print(f"{told}; another --name begins anew", soft_wrap=True)
    return experiment_from_dict({**experiment.to_dict(), "data": data}, trusted=experiment.trusted)


def _opened(experiment: Experiment, pool: Pool | None) -> Pool:
    """The images of an experiment. Raises InputError: other processes would plan, too."""
    if is_helper_process() or is_launched_from_outside():
        raise InputError(
            "minutes: a grid is planned by one process; run train once without a launcher, or name no minutes"
        )
    quiet_lightning()
    return pool or Pool.of(experiment)


def _timed(experiment: Experiment, pool: Pool, console: Console) -> dict[str, float]:
    console.print(f"Timing a few steps of {' and '.join(experiment.contenders)} ...")
    times = {name: seconds_per_step(experiment, name, pool) for name in experiment.contenders}
    for name, seconds in times.items():
        console.print(f"  {name}: {seconds:.3g} s for a step of {experiment.protocol.batch_size} images")
    return times


def _overrun(chosen: Grid, minutes: float) -> list[str]:
    """A line on a grid that takes more than the minutes, because fewer seeds would allow no conclusion."""
    if chosen.seconds <= 60 * minutes:
        return []
    seeds = counted(len(chosen.seeds), "seed")
    return [f"{seeds} take about {duration(chosen.seconds)}, more than {minutes:g} minutes; a conclusion needs them"]


def _answers(chosen: Grid, others: Sequence[Grid], costs: Costs, fixed: Collection[str]) -> list[str]:
    """Lines on what a grid can answer, on the time of a conclusion, a trend and more seeds, and on missing images.

    Arguments:
        others: larger and smaller grids, whose times are printed.
    """
    minutes = costs.experiment.minutes or 0.0
    rungs = sorted((chosen, *others), key=lambda rung: rung.seconds)
    conclusion = next((rung for rung in rungs if rung.allows_conclusion), None)
    trend = next((rung for rung in rungs if rung.allows_trend), None)
    images = _too_few_sizes(costs.pool, rungs, fixed)
    if costs.pool.scored_on == "test" and (obstacle := too_few_images(costs.pool.test_count)) is not None:
        return [f"Too few images for an answer: {obstacle}", *images]
    if conclusion is None:
        most = max(len(rung.seeds) for rung in rungs)
        needed = f"a conclusion needs at least {MIN_SEEDS_FOR_CONCLUSION} seeds"
        return [f"No conclusion: {needed}, and protocol.seeds has {most}", *images]
    more = [rung for rung in rungs if chosen.allows_conclusion and len(rung.seeds) > len(chosen.seeds)]
    line = f"A conclusion takes about {duration(conclusion.seconds)} here ({conclusion.counts})"
    if trend is not None:
        line += f", a trend over the number of images about {duration(trend.seconds)} ({trend.counts})"
    if more:
        line += f". More seeds come after sizes and steps: {more[0].counts} take about {duration(more[0].seconds)}"
    if not chosen.allows_conclusion:
        line += f". {minutes:g} minutes allow no conclusion, only a description of single runs"
        line += f"; --minutes {_enough(conclusion)} allows one"
    elif trend is not None and not chosen.allows_trend:
        line += f". {minutes:g} minutes allow a conclusion and no trend; --minutes {_enough(trend)} allows both"
    elif trend is not None:
        line += f". {minutes:g} minutes allow both"
    return [line, *images]


def _too_few_sizes(pool: Pool, rungs: Sequence[Grid], fixed: Collection[str]) -> list[str]:
    """Why no minutes would give a trend, where that is so; nothing where the user named the sizes."""
    most = max(len(rung.train_sizes) for rung in rungs)
    if most >= SIZES_FOR_A_TREND or "train_sizes" not in free_of(fixed):
        return []
    told = f"{most} size{'s show' if most > 1 else ' shows'} no trend over the number of images"
    needed, classes = grids.images_for(pool, SIZES_FOR_A_TREND), pool.images.num_classes
    if pool.largest >= needed:
        return [f"{told}, and there is no room for {SIZES_FOR_A_TREND} between those that are there"]
    return [
        f"{told}, and the images are too few for {SIZES_FOR_A_TREND}: that takes {needed:,} to train on, "
        f"{math.ceil(needed / classes)} for each of {classes} classes; there are {pool.largest:,}"
    ]


def _enough(rung: Grid) -> int:
    return math.ceil(rung.seconds / 60)


def _with_matched_models(experiment: Experiment, pool: Pool, fixed: Collection[str], console: Console) -> Experiment:
    """The experiment with ViTs that compute as much as what they are compared with, told where that changes them."""
    images = pool.images
    found = matched(experiment, images.image_shape, images.num_classes, fixed=fixed)
    for name, contender in found.contenders.items():
        if contender != experiment.contenders[name]:
            patch, width = (contender.model[key] for key in ("patch_size", "embed_dim"))
            size = " x ".join(map(str, images.image_shape[1:]))
            console.print(
                f"Matched in multiply-accumulates at {size} pixels: {name} has patches of {patch} and width {width}",
                soft_wrap=True,
            )
    return found


def _folders_experiment(experiment: Experiment) -> Experiment | None:
    """What was begun in the experiment's folder, as if it lay there; None for nothing.

    Raises:
        InputError: that is about other images.
    """
    path = experiment.folder / "experiment.yaml"
    if not path.exists():
        return None
    there = experiment_from_dict(read_config(path), trusted=False, recorded=True)
    whole = [replace(one, root=os.path.abspath(one.root)).whence for one in (there.data, experiment.data)]
    if whole[0] != whole[1]:
        if experiment.data.source == "folder" and not Path(experiment.data.root).is_dir():
            raise InputError(f"data.root {experiment.data.root}: no such folder")
        raise InputError(
            f"{experiment.folder} holds an experiment with other images ({there.data.whence}, not "
            f"{experiment.data.whence}); give this one a --name"
        )
    return replace(there, name=experiment.name, output=experiment.output)


def _gone_on_with(
    there: Experiment, experiment: Experiment, fixed: Collection[str], console: Console, pool: Pool | None
) -> Experiment:
    """The experiment with grid and contenders of its folder, and what more minutes add; what the user names is kept."""
    chosen = {name: getattr(there.protocol, name) for name in free_of(fixed)}
    contenders = {
        name: _kept(name, experiment, there, fixed) if name in there.contenders else contender
        for name, contender in experiment.contenders.items()
    }
    protocol = replace(experiment.protocol, **chosen)
    begun = replace(experiment, protocol=protocol, contenders=contenders, tuning=there.tuning)
    now = experiment.contenders
    if other := [name for name, kept in contenders.items() if replace(now[name], model=kept.model) != kept]:
        told = f"The recipe of {' and '.join(other)} stays as it was last run in {experiment.folder}"
        how = "a setting that is named (--contenders.NAME.optimizer.lr) changes it, another --name begins anew"
        console.print(f"{told}, whatever the config says; {how}", soft_wrap=True)
    assert experiment.minutes is not None
    if there.minutes is not None and experiment.minutes <= there.minutes:
        console.print(f"{_going_on(begun)}; more --minutes add to it, another --name begins anew", soft_wrap=True)
        return replace(begun, minutes=there.minutes)
    pool = _opened(experiment, pool)
    return _with_more(begun, experiment.protocol.budget, pool, fixed=fixed, console=console)


def _kept(name: str, experiment: Experiment, there: Experiment, fixed: Collection[str]) -> Contender:
    """A contender as the folder has it, as far as the user names nothing else: all of it, or its model.

    A class of the user's own is none that a file may name.
    """
    now, before = experiment.contenders[name], there.contenders[name]
    plain, plain_before = (one.to_dict()["contenders"][name] for one in (experiment, there))
    if "class_path" in str(plain_before):
        return now
    if _still_named(f"contenders.{name}", plain, plain_before, fixed):
        return before
    same = _still_named(f"contenders.{name}.model", plain["model"], plain_before["model"], fixed)
    return replace(now, model=before.model) if same else now


def _still_named(place: str, now: Mapping[str, Any], before: Mapping[str, Any], fixed: Collection[str]) -> bool:
    """Whether all that the user names of a block is so in the folder's, too."""
    if any(place == key or place.startswith(f"{key}.") for key in fixed):
        return False
    named = [key.removeprefix(f"{place}.").split(".") for key in fixed if key.startswith(f"{place}.")]
    return all(_at(now, path) == _at(before, path) for path in named)


def _at(block: Any, path: Sequence[str]) -> Any:
    for key in path:
        block = block.get(key) if isinstance(block, Mapping) else None
    return block


def _with_more(
    begun: Experiment, written: Budget, pool: Pool, *, fixed: Collection[str], console: Console
) -> Experiment:
    """What was begun, with as much added as fits into the minutes.

    Arguments:
        written: the budget of the config, whatever the folder has.
    """
    assert begun.minutes is not None
    protocol = begun.protocol
    if not steps_of(protocol.budget):
        told = f"{_going_on(begun)}; minutes add nothing to a budget in {protocol.budget.unit}"
        console.print(told, soft_wrap=True)
        return begun
    cells = grid(begun, pool, world_size=world_size(begun))
    plan = find_binding_plan(cells)
    costs = Costs(begun, pool, _timed(begun, pool, console), _seconds_of_finished(cells))
    sizes = {pool.resolve(size): size for size in protocol.train_sizes}
    old = costs.of(Grid(tuple(sorted(sizes)), tuple(protocol.seeds), steps_of(protocol.budget)))
    are_seeds_added = plan is not None and not {*old.seeds} <= {*plan.seeds}
    max_seeds = len(old.seeds) if are_seeds_added else grids.MAX_SEEDS
    longest = grids.longest_steps(written) if plan is None else None
    rungs = [old, *grids.additions(costs, old, max_seeds=max_seeds, longest=longest, fixed=fixed)]
    chosen = [rung for rung in rungs if rung is old or rung.seconds <= 60 * begun.minutes][-1]
    if not chosen.allows_conclusion:
        chosen = grids.conclusion_by_overrun(rungs, begun.minutes) or chosen
    overrun = _overrun(chosen, begun.minutes) if chosen is not old else []
    for told in (_growth(begun, chosen, rungs), *overrun, *_answers(chosen, rungs, costs, fixed)):
        console.print(told, soft_wrap=True)
    if plan is not None and (added := chosen.seeds[len(old.seeds) :]):
        console.print(
            f"Seeds {', '.join(map(str, added))} are added after a first analysis: the second analysis has an error "
            "rate of 1 % and 99 % intervals, and seeds added later are exploratory",
            soft_wrap=True,
        )
    if plan is not None and "budget" in free_of(fixed):
        longer = costs.of(replace(chosen, steps=(*chosen.steps, 2 * chosen.steps[-1])))
        console.print(
            f"No longer budget is added after a first analysis: --protocol.budget.steps '{list(longer.steps)}' takes "
            f"about {duration(longer.seconds - chosen.seconds)} more, and its results are exploratory",
            soft_wrap=True,
        )
    return _with_grid(begun, chosen, fixed, sizes)


def _seconds_of_finished(cells: Sequence[Cell]) -> dict[grids.Run, float]:
    """What each finished run took."""
    found = {}
    for cell in cells:
        if cell.is_finished:
            seconds = read_result(cell.folder / "result.json").cost.train_seconds
            found[cell.contender, cell.train_size, steps_of(cell.budget)[0], cell.seed] = grids.START + seconds
    return found


def _growth(begun: Experiment, chosen: Grid, rungs: Sequence[Grid]) -> str:
    """What the minutes add to the first of some grids, each of which holds the one before."""
    old, *more = rungs
    if chosen is not old:
        left = f"{chosen.runs} runs are left, in about {duration(chosen.seconds - chosen.spent)}, {_how(chosen, begun)}"
        spent = f"what is finished took {duration(chosen.spent)}"
        return f"Added to what is there ({old.counts}): now {chosen.text}. {left}; {spent}"
    told = f"{_going_on(begun)}: {begun.minutes:g} minutes add nothing to it"
    if not more:
        return f"{told}, as all that may be added is there; another --name begins anew"
    return f"{told}; the next step ({more[0].counts}) takes --minutes {_enough(more[0])}, what is finished counted in"


def _going_on(begun: Experiment) -> str:
    protocol = begun.protocol
    named = ", ".join(size if isinstance(size, str) else f"{size:,}" for size in protocol.train_sizes)
    seeds = counted(len(protocol.seeds), "seed")
    return f"Going on with the grid that was chosen before: {named} images, {seeds}, {protocol.budget.text} each"


def _with_grid(
    experiment: Experiment, chosen: Grid, fixed: Collection[str], called: Mapping[int, int | str] | None = None
) -> Experiment:
    """The experiment with what was chosen, as far as the user did not name it.

    Arguments:
        called: sizes that are there, as the protocol has them, such as "all".
    """
    budget = Budget(steps=chosen.steps[0] if len(chosen.steps) == 1 else list(chosen.steps))
    sizes = [(called or {}).get(size, size) for size in chosen.train_sizes]
    values: dict[str, Any] = {"train_sizes": sizes, "seeds": list(chosen.seeds), "budget": budget}
    protocol = replace(experiment.protocol, **{name: values[name] for name in free_of(fixed)})
    return replace(experiment, protocol=protocol)


def _check_recipes(experiment: Experiment, free: Collection[str]) -> None:
    for name, contender in experiment.contenders.items():
        for place, over, what in (
            ("by_size", contender.by_size, "train_sizes"),
            ("by_budget", contender.by_budget, "budget"),
        ):
            if over and what in free:
                raise InputError(
                    f"contenders.{name}.{place}: minutes chooses protocol.{what}, maybe others than these; name them "
                    "on the command line too, or leave minutes out"
                )


def _how(chosen: Grid, experiment: Experiment) -> str:
    if experiment.executor.name == "ray":
        return "one after the other; Ray runs as many at a time as the cluster has room for"
    return "one after the other" if chosen.at_a_time == 1 else f"{chosen.at_a_time:.2g} at a time"
