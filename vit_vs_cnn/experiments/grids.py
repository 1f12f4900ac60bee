"""Grids of sizes, seeds and steps, their estimated times, and the choice of a grid for given minutes."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from vit_vs_cnn.config.experiment import Budget, Experiment
from vit_vs_cnn.console import format_count
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.timing import runs_at_a_time
from vit_vs_cnn.experiments.tuning import count_splits
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION

#: Number of sizes, number of seeds and share of the config's steps, the best first. With more minutes a plan gets three
#: seeds for a conclusion, four sizes for a trend, the config's steps, a fifth size, seeds 4 and 5, and longer runs.
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

#: Time of a run without its steps and evaluations.
STARTUP_SECONDS = 2.0


@dataclass(frozen=True)
class GridPlan:
    """Sizes, seeds and steps of an experiment, and its estimated time.

    Arguments:
        steps: of a run, ascending; one for each budget.
        runs: number of runs, those of a search for recipes included.
    """

    train_sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    runs: int = 0
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """Text such as ``100, 1,300 images, 3 seeds, 600 steps each``."""
        sizes, budget = ", ".join(f"{size:,}" for size in self.train_sizes), Budget(steps=list(self.steps)).text
        return f"{sizes} images, {format_count(len(self.seeds), 'seed')}, {budget} each"

    @property
    def runs_text(self) -> str:
        return f"{self.runs} runs in about {duration(self.seconds)}"

    def is_larger_than(self, other: "GridPlan") -> bool:
        """True if a grid has the seeds of another one, at least as many sizes and as long runs, and differs."""
        is_different = (self.train_sizes, self.seeds, self.steps) != (other.train_sizes, other.seeds, other.steps)
        has_sizes = len(self.train_sizes) >= len(other.train_sizes) and self.train_sizes[-1] >= other.train_sizes[-1]
        return is_different and has_sizes and {*other.seeds} <= {*self.seeds} and self.steps >= other.steps

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
        """The grid with its number of runs and its time, including a search for recipes."""
        times = [
            self._run_seconds(name, size, steps)
            for name in self.times
            for size in grid.train_sizes
            for steps in grid.steps
            for _ in grid.seeds
        ]
        times += self._trials(grid)
        at_a_time = runs_at_a_time(self.experiment, len(times))
        name = self.experiment.executor.name
        has_own_process = at_a_time > 1 if name == "auto" else name != "local"
        seconds = _MARGIN * max(sum(times) / at_a_time, *times) + _PROCESS * has_own_process
        return replace(grid, runs=len(times), seconds=seconds)

    def _trials(self, grid: GridPlan) -> list[float]:
        """Seconds of each run of the search for recipes, with the longest budget; none if none are searched for."""
        tuning = self.experiment.tuning
        if tuning.trials is None:
            return []
        size = max(grid.train_sizes)
        return [
            self._run_seconds(name, size, max(grid.steps))
            for name in self.times
            if not self.experiment.contenders[name].finetune.head
            for _ in range(tuning.trials * count_splits(self.experiment, size))
        ]

    def _run_seconds(self, contender: str, train_size: int, steps: int) -> float:
        """Time of a run with its evaluations. A forward pass takes a third of a step."""
        step, protocol = self.times[contender], self.experiment.protocol
        if self.experiment.contenders[contender].finetune.head:
            return (train_size + self.pool.test_count) * step / (3 * protocol.batch_size) + STARTUP_SECONDS
        validation = _VALIDATIONS * self.experiment.data.validation_fraction * train_size
        test = self.pool.test_count if protocol.scored_on == "test" else 0
        return steps * step + (validation + test) * step / (3 * protocol.batch_size) + STARTUP_SECONDS


def free_settings(fixed: Collection[str]) -> list[str]:
    """Settings of the grid that the user did not set."""
    names = {name.removeprefix("protocol.").split(".")[0] for name in fixed}
    return [name for name in ("train_sizes", "seeds", "budget") if name not in names]


def candidate_grids(costs: GridTimeModel, fixed: Collection[str] = ()) -> list[GridPlan]:
    """The grids that an experiment may have, with their times, the best first.

    No grid has fewer sizes, fewer seeds or shorter runs than the next one. Grids with five seeds have five sizes and at
    least the config's steps, as far as the images and the user's settings allow.

    Arguments:
        fixed: settings that the user gave by name; of these, sizes, seeds and budget are kept.
    """
    protocol, pool, free = costs.experiment.protocol, costs.pool, free_settings(fixed)
    base = budget_steps(protocol.budget) or (STEPS,)
    named_sizes = tuple(sorted({pool.resolve(size) for size in protocol.train_sizes}))
    grids = []
    for size_count, seed_count, share in GRID_CANDIDATES:
        seeds, sizes = tuple(protocol.seeds), named_sizes
        if "seeds" in free:
            seeds = tuple(range(seed_count))
        if "train_sizes" in free:
            sizes = tuple(spread_sizes(pool, size_count))
        steps = tuple(sorted({max(1, round(step_count * share)) for step_count in base})) if "budget" in free else base
        grids.append(GridPlan(sizes, seeds, steps))
    return [costs.of(grid) for grid in dict.fromkeys(grids)]


def choose_grid(grids: Sequence[GridPlan], minutes: float) -> GridPlan:
    """The grid of ``best_grid``. Raises InputError: none fits."""
    if (chosen := best_grid(grids, minutes)) is not None:
        return chosen
    least = min(grids, key=lambda grid: grid.seconds)
    raise InputError(
        f"minutes {minutes:g}: the smallest plan ({least.text}) takes about {math.ceil(least.seconds / 6) / 10:g}; "
        f"use --minutes {math.ceil(least.seconds / 60)}, smaller images or smaller models"
    )


def best_grid(grids: Sequence[GridPlan], minutes: float) -> GridPlan | None:
    """The first grid that fits; instead of one without a conclusion the cheapest with one that nearly fits."""
    fitting = next((grid for grid in grids if grid.seconds <= 60 * minutes), None)
    if fitting is not None and fitting.allows_conclusion:
        return fitting
    allowed = [grid for grid in grids if grid.allows_conclusion and grid.seconds < MAX_OVERRUN * 60 * minutes]
    return min(allowed, key=lambda grid: grid.seconds, default=fitting)


def _least_size(pool: ExperimentData) -> float:
    """Ten images of each class, and enough for two training images of the rarest class."""
    counts = torch.bincount(pool.images.labels, minlength=pool.images.num_classes)
    rarest = float(counts.min()) / len(pool.images) * (1 - pool.data.validation_fraction)
    return float(max(PER_CLASS * len(counts), 2 / rarest if rarest else pool.largest))


def spread_sizes(pool: ExperimentData, count: int) -> list[int]:
    """Training-set sizes with about equal ratios, from all images down to ten of each class or a hundredth of all.

    The ratio of neighbouring sizes is at most 4.6, so the smallest of fewer than four sizes is larger. Sizes are
    rounded to two digits. There are fewer sizes than ``count`` if the ratio would be below 1.5, or if the rarest class
    would have fewer than two training images.
    """
    largest = pool.largest
    smallest = max(_least_size(pool), largest / SPAN, largest / MOST_RATIO ** (count - 1))
    while count > 1 and (largest / smallest) ** (1 / (count - 1)) < LEAST_RATIO:
        count -= 1
    below = [largest * (smallest / largest) ** (place / (count - 1)) for place in range(1, count)]
    return [*sorted({round(float(f"{size:.2g}")) for size in below} - {largest}), largest]


def budget_steps(budget: Budget) -> tuple[int, ...]:
    """Amounts of a budget in steps; empty for other units."""
    return tuple(int(amount) for amount in budget.amounts) if budget.unit == "steps" else ()
