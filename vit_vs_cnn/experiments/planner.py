"""A grid that fits into so many minutes: sizes from the number of images, seeds and steps from what a step takes."""

import statistics
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException
from rich.console import Console
from torch.nn import functional as F

from vit_vs_cnn.data.datamodule import TrainingData
from vit_vs_cnn.data.loading import TrainingBatches
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.cell import Cell
from vit_vs_cnn.experiments.config import Budget, Experiment, experiment_from_dict, read_config
from vit_vs_cnn.experiments.plan import make_plan
from vit_vs_cnn.experiments.pool import CellImages, Pool
from vit_vs_cnn.experiments.trainer import is_helper_process, is_launched_from_outside, quiet_lightning

#: Sizes, seeds and share of the config's steps, the best first. Three seeds allow a verdict and three sizes a trend;
#: these come before longer runs, and longer runs before more of either.
LADDER = (
    *((5, 10, 4.0), (5, 5, 4.0), (5, 10, 2.0), (5, 5, 2.0), (5, 5, 1.0), (5, 3, 1.0), (4, 3, 1.0), (3, 3, 1.0)),
    *((3, 3, 0.5), (3, 3, 0.25), (2, 3, 0.25), (1, 3, 0.25), (1, 1, 0.25)),
)
#: What the smallest size holds of each class, and how far below the largest it lies, at most.
PER_CLASS, SPAN = 10, 100
#: Steps where the config counts its budget otherwise.
STEPS = 600
#: Neighbouring sizes closer than this tell nothing new.
_LEAST_RATIO = 1.5
_WARM_UP, _TIMED, _SECONDS = 2, 8, 6.0
_VALIDATIONS = 6  # of a run: five on the way and one at its end
_START = 2.0  # seconds that a cell takes beside its steps and evaluations
_MARGIN = 1.15  # other work on the machine, and the report


@dataclass(frozen=True)
class Grid:
    """Sizes, seeds and steps, and how long all of it takes.

    Arguments:
        train_sizes: labelled images, ascending.
        seeds: of every contender and size.
        steps: of every run.
        seconds: estimated, for one cell after the other.
    """

    train_sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    steps: int
    seconds: float


def planned(
    experiment: Experiment, *, fixed: Collection[str] = (), console: Console, pool: Pool | None = None
) -> Experiment:
    """The experiment with the grid that fits into its ``minutes``; as it is where it names none.

    Where the experiment has been begun, the grid of its folder wins, so that the same command goes on with it.

    Arguments:
        experiment: with the sizes, seeds and steps of its config.
        fixed: settings that the user gave by name; of these, sizes, seeds and budget are kept.
        console: where the choice is told.
        pool: its images, where they are at hand already.

    Raises:
        InputError: not even the smallest grid fits, the folder is of other images, or there are several processes.
    """
    if experiment.minutes is None:
        return experiment
    if (begun := _begun(experiment)) is not None:
        told = _grid_text(begun.protocol.train_sizes, begun.protocol.seeds, begun.protocol.budget.steps)
        console.print(f"Going on with the grid that was chosen before: {told}; another --name begins anew")
        return begun
    if is_helper_process() or is_launched_from_outside():
        raise InputError(
            "minutes: a grid is planned by one process; run train once without a launcher, or name no minutes"
        )
    quiet_lightning()
    pool = Pool(experiment.data, experiment.protocol.scored_on) if pool is None else pool
    console.print(f"Timing a few steps of {' and '.join(experiment.contenders)} ...")
    times = {name: seconds_per_step(experiment, name, pool) for name in experiment.contenders}
    grid = choose_grid(experiment, pool, times, fixed=fixed)
    for name, seconds in times.items():
        console.print(f"  {name}: {seconds:.3g} s for a step of {experiment.protocol.batch_size} images")
    cells = len(grid.train_sizes) * len(grid.seeds) * len(times)
    told = _grid_text(grid.train_sizes, grid.seeds, grid.steps)
    console.print(
        f"Chosen: {told}. {cells} runs in about {_minutes(grid.seconds)}, one after the other", soft_wrap=True
    )
    return _with_grid(experiment, grid)


def _begun(experiment: Experiment) -> Experiment | None:
    """The experiment with the grid of its folder, where there is one.

    Raises:
        InputError: that is about other images.
    """
    path = experiment.folder / "experiment.yaml"
    if not path.exists():
        return None
    there = experiment_from_dict(read_config(path))
    if (there.data.source, there.data.root) != (experiment.data.source, experiment.data.root):
        raise InputError(
            f"{experiment.folder} is about {there.data.source} in {there.data.root}; give this experiment a --name"
        )
    protocol = there.protocol
    chosen = {"train_sizes": protocol.train_sizes, "seeds": protocol.seeds, "budget": protocol.budget}
    return replace(experiment, protocol=replace(experiment.protocol, **chosen))


def _with_grid(experiment: Experiment, grid: Grid) -> Experiment:
    budget = Budget(steps=grid.steps)
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
    base = protocol.budget.steps or STEPS
    keeps_steps = any(name.startswith("protocol.budget") or name == "trainer.max_steps" for name in fixed)
    for size_count, seed_count, share in LADDER:
        seeds = protocol.seeds if "protocol.seeds" in fixed else list(range(seed_count))
        if "protocol.train_sizes" in fixed:
            sizes = sorted({pool.resolve(size) for size in protocol.train_sizes})
        else:
            sizes = spread_sizes(pool, size_count)
        steps = base if keeps_steps else max(1, round(base * share))
        seconds = sum(_cell_seconds(experiment, pool, times[name], n, steps) for n in sizes for name in times)
        yield Grid(tuple(sizes), tuple(seeds), steps, _MARGIN * seconds * len(seeds))


def spread_sizes(pool: Pool, count: int) -> list[int]:
    """So many sizes in even steps of log n, from all images down to ten of each class or a hundredth of all.

    Sizes are rounded to two digits. There are fewer where they would come closer than a factor of 1.5, or where the
    rarest class would be left with less than two images to train on.
    """
    largest, counts = pool.largest, torch.bincount(pool.images.labels, minlength=pool.images.num_classes)
    rarest = float(counts.min()) / len(pool.images) * (1 - pool.data.validation_fraction)
    smallest = max(PER_CLASS * len(counts), largest / SPAN, 2 / rarest if rarest else largest)
    while count > 1 and (largest / smallest) ** (1 / (count - 1)) < _LEAST_RATIO:
        count -= 1
    below = [largest * (smallest / largest) ** (place / (count - 1)) for place in range(1, count)]
    return [*sorted({round(float(f"{size:.2g}")) for size in below} - {largest}), largest]


def _cell_seconds(experiment: Experiment, pool: Pool, step: float, train_size: int, steps: int) -> float:
    """A run with its evaluations; a forward pass is a third of a step."""
    validation = _VALIDATIONS * experiment.data.validation_fraction * train_size
    test = len(pool.test) if experiment.protocol.scored_on == "test" else 0
    return steps * step + (validation + test) * step / (3 * experiment.protocol.batch_size) + _START


def seconds_per_step(experiment: Experiment, contender: str, pool: Pool) -> float:
    """The median time of a training step, over a few that are thrown away.

    Raises:
        InputError: a network that cannot be built, or devices that are not there.
    """
    size = min(pool.largest, max(1000, 2 * experiment.protocol.batch_size))
    images = pool.draw(size, 0)
    cell = Cell(experiment, contender, size, 0, "timed")
    network = make_plan(cell, images).network
    trainer = experiment.trainer
    try:
        fabric = Fabric(
            accelerator=trainer.get("accelerator", "auto"), devices=1, precision=trainer.get("precision", "32-true")
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise InputError(f"trainer: {' '.join(str(error).split())}") from error
    recipe = experiment.recipe(contender, size)
    model, optimizer = fabric.setup(network, recipe.optimizer.build(network))
    times = []
    batches = _batches(experiment, contender, images, fabric.device)
    for position in range(len(batches)):
        began = time.perf_counter()
        inputs, targets = batches.batch(position)
        fabric.backward(F.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        _wait(fabric.device)
        times.append(time.perf_counter() - began)
        if len(times) > _WARM_UP and sum(times) > _SECONDS:
            break
    return statistics.median(times[_WARM_UP:] or times)


def _batches(experiment: Experiment, contender: str, images: CellImages, device: torch.device) -> TrainingBatches:
    steps = _WARM_UP + _TIMED
    data = TrainingData(
        images.training,
        None,
        augmentation=experiment.augmentation(experiment.recipe(contender, len(images.training))),
        batch_size=experiment.protocol.batch_size,
        steps=steps,
    )
    batch_size = experiment.protocol.batch_size
    return TrainingBatches(images.training, data.augmenter, batch_size=batch_size, length=steps, seed=0, device=device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _grid_text(sizes: Collection[int | str], seeds: Collection[int], steps: int | None) -> str:
    named = ", ".join(size if isinstance(size, str) else f"{size:,}" for size in sizes)
    budget = "" if steps is None else f", {steps:,} steps each"
    return f"{named} images, {len(seeds)} seed{'s' * (len(seeds) != 1)}{budget}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
