"""A grid that fits into so many minutes: sizes from the number of images, seeds and steps from what a step takes.

And contenders that compute equally much at the size of these images.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console

from vit_vs_cnn.config.experiment import Budget, Experiment, experiment_from_dict, read_config
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.matching import matched
from vit_vs_cnn.experiments.step_time import seconds_per_step, side_by_side
from vit_vs_cnn.experiments.trials import splits_at
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside, quiet_lightning

#: Sizes, seeds and share of the config's steps, the best first. Three seeds allow a verdict and four sizes a trend;
#: these come before longer runs, and longer runs before more of either. One size or two show no trend, and it is said.
LADDER = (
    *((5, 10, 4.0), (5, 5, 4.0), (5, 10, 2.0), (5, 5, 2.0), (5, 5, 1.0), (5, 3, 1.0), (4, 3, 1.0), (3, 3, 1.0)),
    *((4, 3, 0.5), (3, 3, 0.5), (3, 3, 0.25), (2, 3, 0.25), (1, 3, 0.25), (1, 1, 0.25)),
)
#: What the smallest size holds of each class, and how far below the largest it lies, at most.
PER_CLASS, SPAN = 10, 100
#: Steps where the config counts its budget otherwise.
STEPS = 600
#: Neighbouring sizes closer than this tell nothing new; between some that are further apart than four in two decades,
#: a curve is guessed.
_LEAST_RATIO, MOST_RATIO = 1.5, 100 ** (1 / 3)
_VALIDATIONS = 6  # of a run: five on the way and one at its end
_START = 2.0  # seconds that a cell takes beside its steps and evaluations
_PROCESS = 12.0  # seconds until a process of its own has read the images and begins
_MARGIN = 1.15  # other work on the machine, and the report


@dataclass(frozen=True)
class Grid:
    """Sizes, seeds and steps, and how long all of it takes.

    Arguments:
        train_sizes: labelled images, ascending.
        seeds: of every contender and size.
        steps: of a run; several budgets have every run made with each.
        asked_sizes: how many sizes there would be with images enough.
        runs: of all contenders, those included that choose recipes.
        at_a_time: how many of them go side by side.
        seconds: estimated, for all of them.
    """

    train_sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    asked_sizes: int = 0
    runs: int = 0
    at_a_time: float = 1.0
    seconds: float = 0.0


def planned(
    experiment: Experiment, *, fixed: Collection[str] = (), console: Console, pool: Pool | None = None
) -> Experiment:
    """The experiment with the grid that fits into its ``minutes``; as it is where it names none.

    Where the experiment has been begun, grid and models of its folder win, so that the same command goes on with it.

    Arguments:
        experiment: with the sizes, seeds and steps of its config.
        fixed: settings that the user gave by name; of these, sizes, seeds, budget and models are kept.
        console: where the choice is told.
        pool: its images, where they are at hand already.

    Raises:
        InputError: not even the smallest grid fits, the folder is of other images, or there are several processes.
    """
    if experiment.minutes is None:
        return experiment
    if (begun := _begun(experiment, fixed)) is not None:
        budget = begun.protocol.budget
        told = _grid_text(begun.protocol.train_sizes, begun.protocol.seeds, _steps_of(budget))
        console.print(
            f"Going on with the grid that was chosen before: {told}; another --name begins anew", soft_wrap=True
        )
        return begun
    if is_helper_process() or is_launched_from_outside():
        raise InputError(
            "minutes: a grid is planned by one process; run train once without a launcher, or name no minutes"
        )
    quiet_lightning()
    pool = Pool(experiment.data, experiment.protocol.scored_on) if pool is None else pool
    experiment = _with_matched_models(experiment, pool, fixed, console)
    console.print(f"Timing a few steps of {' and '.join(experiment.contenders)} ...")
    times = {name: seconds_per_step(experiment, name, pool) for name in experiment.contenders}
    grid = choose_grid(experiment, pool, times, fixed=fixed)
    for name, seconds in times.items():
        console.print(f"  {name}: {seconds:.3g} s for a step of {experiment.protocol.batch_size} images")
    told = _grid_text(grid.train_sizes, grid.seeds, grid.steps)
    console.print(
        f"Chosen: {told}. {grid.runs} runs in about {_minutes(grid.seconds)}, {_how(grid, experiment)}", soft_wrap=True
    )
    if (told := _few_sizes(grid, fixed)) is not None:
        console.print(told, soft_wrap=True)
    return _with_grid(experiment, grid)


def _few_sizes(grid: Grid, fixed: Collection[str]) -> str | None:
    """What too few sizes do not show, and why there are no more; None for enough, and for those that the user named."""
    count = len(grid.train_sizes)
    if count > 2 or "train_sizes" not in _free(fixed):
        return None
    why = "the images are too few for more" if grid.asked_sizes > count else "the minutes allow no more"
    sizes = "One size shows" if count == 1 else "Two sizes show"
    return f"{sizes} no trend over the number of images: {why}"


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


def _begun(experiment: Experiment, fixed: Collection[str]) -> Experiment | None:
    """The experiment with the grid of its folder, where there is one; what the user names now is kept, nevertheless.

    Raises:
        InputError: that is about other images.
    """
    path = experiment.folder / "experiment.yaml"
    if not path.exists():
        return None
    there = experiment_from_dict(read_config(path), trusted=False, recorded=True)
    if (there.data.source, there.data.root) != (experiment.data.source, experiment.data.root):
        raise InputError(
            f"{experiment.folder} is about {there.data.source} in {there.data.root}; give this experiment a --name"
        )
    chosen = {name: getattr(there.protocol, name) for name in _free(fixed)}
    contenders = dict(experiment.contenders)
    for name, contender in experiment.contenders.items():
        if name in there.contenders and _still_named(name, contender.model, there.contenders[name].model, fixed):
            contenders[name] = replace(contender, model=there.contenders[name].model)
    return replace(experiment, protocol=replace(experiment.protocol, **chosen), contenders=contenders)


def _still_named(name: str, now: Mapping[str, Any], there: Mapping[str, Any], fixed: Collection[str]) -> bool:
    """Whether all that the user names of a model is so in the folder's, too."""
    place = f"contenders.{name}.model"
    if any(key in ("contenders", f"contenders.{name}", place) for key in fixed):
        return False
    named = [key.removeprefix(f"{place}.") for key in fixed if key.startswith(f"{place}.")]
    return all(now.get(key) == there.get(key) for key in named)


def _free(fixed: Collection[str]) -> list[str]:
    """What of the grid the user did not name."""
    names = {
        "budget" if name == "trainer.max_steps" else name.removeprefix("protocol.").split(".")[0] for name in fixed
    }
    return [name for name in ("train_sizes", "seeds", "budget") if name not in names]


def _with_grid(experiment: Experiment, grid: Grid) -> Experiment:
    budget = Budget(steps=grid.steps[0] if len(grid.steps) == 1 else list(grid.steps))
    protocol = replace(experiment.protocol, train_sizes=list(grid.train_sizes), seeds=list(grid.seeds), budget=budget)
    return replace(experiment, protocol=protocol)


def choose_grid(experiment: Experiment, pool: Pool, times: dict[str, float], *, fixed: Collection[str] = ()) -> Grid:
    """The first rung of the ladder that fits.

    Arguments:
        experiment: what is to be run, with its minutes.
        pool: its images.
        times: seconds of a step of each contender.
        fixed: settings that the user gave by name.

    Raises:
        InputError: none fits.
    """
    assert experiment.minutes is not None
    grids = []
    for grid in _grids(experiment, pool, times, fixed):
        if grid.seconds <= 60 * experiment.minutes:
            return grid
        grids.append(grid)
    least = min(grids, key=lambda grid: grid.seconds)
    raise InputError(
        f"minutes {experiment.minutes:g}: the least ({_grid_text(least.train_sizes, least.seeds, least.steps)}) "
        f"takes about {_minutes(least.seconds)} here; give more minutes, smaller images or smaller models"
    )


def _grids(experiment: Experiment, pool: Pool, times: dict[str, float], fixed: Collection[str]) -> Iterator[Grid]:
    protocol = experiment.protocol
    base = _steps_of(protocol.budget) or (STEPS,)
    free = _free(fixed)
    for size_count, seed_count, share in LADDER:
        most = protocol.max_seeds or seed_count
        seeds = list(range(min(seed_count, most))) if "seeds" in free else protocol.seeds
        if "train_sizes" in free:
            sizes = spread_sizes(pool, size_count)
        else:
            sizes = sorted({pool.resolve(size) for size in protocol.train_sizes})
        steps = tuple(max(1, round(one * share)) for one in base) if "budget" in free else base
        yield _estimated(experiment, pool, times, Grid(tuple(sizes), tuple(seeds), steps, size_count))


def _estimated(experiment: Experiment, pool: Pool, times: dict[str, float], grid: Grid) -> Grid:
    """A grid with its time. Every contender and size has a run for each seed, and for each split of each trial."""
    once = [
        _cell_seconds(experiment, pool, times[name], n, steps)
        for n in grid.train_sizes
        for steps in grid.steps
        for name in times
    ]
    trials = _trials(experiment, pool, grid) if experiment.protocol.trials is not None else {}
    tried = [
        count * _cell_seconds(experiment, pool, times[name], n, max(grid.steps))
        for n, count in trials.items()
        for name in times
    ]
    runs = len(grid.seeds) * len(once) + len(times) * sum(trials.values())
    at_a_time = side_by_side(experiment, runs)
    seconds = _MARGIN * max((len(grid.seeds) * sum(once) + sum(tried)) / at_a_time, *once)
    if experiment.executor.name != "local":
        seconds += _PROCESS
    return replace(grid, runs=runs, at_a_time=at_a_time, seconds=seconds)


def _trials(experiment: Experiment, pool: Pool, grid: Grid) -> dict[int, int]:
    """How many runs choose the recipe of one contender, by the size at which it is tuned."""
    named = experiment.tuning.sizes
    sizes = grid.train_sizes if named is None else {pool.resolve(size) for size in named}
    return {size: (experiment.protocol.trials or 0) * splits_at(experiment, size) for size in sizes}


def spread_sizes(pool: Pool, count: int) -> list[int]:
    """So many sizes in even steps of log n, from all images down to ten of each class or a hundredth of all.

    No two neighbours are further apart than a factor of 4.6, so that fewer than four sizes reach less far down. Sizes
    are rounded to two digits. There are fewer where they would come closer than a factor of 1.5, or where the
    rarest class would be left with less than two images to train on.
    """
    largest, counts = pool.largest, torch.bincount(pool.images.labels, minlength=pool.images.num_classes)
    rarest = float(counts.min()) / len(pool.images) * (1 - pool.data.validation_fraction)
    smallest = max(PER_CLASS * len(counts), largest / SPAN, 2 / rarest if rarest else largest)
    smallest = max(smallest, largest / MOST_RATIO ** (count - 1))
    while count > 1 and (largest / smallest) ** (1 / (count - 1)) < _LEAST_RATIO:
        count -= 1
    below = [largest * (smallest / largest) ** (place / (count - 1)) for place in range(1, count)]
    return [*sorted({round(float(f"{size:.2g}")) for size in below} - {largest}), largest]


def _cell_seconds(experiment: Experiment, pool: Pool, step: float, train_size: int, steps: int) -> float:
    """A run with its evaluations; a forward pass is a third of a step."""
    validation = _VALIDATIONS * experiment.data.validation_fraction * train_size
    test = len(pool.test) if experiment.protocol.scored_on == "test" else 0
    return steps * step + (validation + test) * step / (3 * experiment.protocol.batch_size) + _START


def _steps_of(budget: Budget) -> tuple[int, ...]:
    return tuple(int(amount) for amount in budget.amounts) if budget.unit == "steps" else ()


def _grid_text(sizes: Collection[int | str], seeds: Collection[int], steps: Collection[int]) -> str:
    named = ", ".join(size if isinstance(size, str) else f"{size:,}" for size in sizes)
    budget = f", {Budget(steps=list(steps)).text} each" if steps else ""
    return f"{named} images, {len(seeds)} seed{'s' * (len(seeds) != 1)}{budget}"


def _how(grid: Grid, experiment: Experiment) -> str:
    if experiment.executor.name == "ray":
        return "one after the other; Ray runs as many at a time as the cluster has room for"
    return "one after the other" if grid.at_a_time == 1 else f"{grid.at_a_time:.2g} at a time"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
