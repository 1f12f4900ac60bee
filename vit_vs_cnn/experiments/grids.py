"""Grids of sizes, seeds and steps: how long each takes, which fit into so many minutes, and what adds to one."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from vit_vs_cnn.config.experiment import Budget, Experiment
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.tuning import count_splits
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION
from vit_vs_cnn.told import counted
from vit_vs_cnn.workers.step_time import side_by_side

#: Number of sizes, number of seeds and share of the config's steps, the best first. With more minutes a plan gets three
#: seeds for a conclusion, four sizes for a trend, the config's steps, a fifth size, seeds 4 and 5, and longer runs.
LADDER = (
    *((5, 5, 4.0), (5, 5, 2.0), (5, 5, 1.0), (5, 3, 1.0), (4, 3, 1.0), (4, 3, 0.75), (4, 3, 0.5)),
    *((4, 3, 0.25), (3, 3, 0.25), (2, 3, 0.25), (1, 3, 0.25), (1, 1, 0.25)),
)
#: Largest number of sizes and of seeds in a plan, and the largest share of the config's steps.
MAX_SIZES, MAX_SEEDS, _MAX_SHARE = (max(column) for column in zip(*LADDER, strict=True))
#: Fewer sizes show no trend over the number of images.
SIZES_FOR_A_TREND = 4
#: What the smallest size holds of each class, and how far below the largest it lies, at most.
PER_CLASS, SPAN = 10, 100
#: A plan takes fewer times its minutes than this where only the excess allows a conclusion.
MAX_OVERRUN = 1.25
#: Steps where the config counts its budget otherwise.
STEPS = 600
#: Neighbouring sizes closer than this tell nothing new; between some that are further apart than four in two decades,
#: a curve is guessed.
LEAST_RATIO, MOST_RATIO = 1.5, 100 ** (1 / 3)
_CLOSER, _FURTHER = 1.03, 1.1  # two digits of a size may move it by so much
_VALIDATIONS = 6  # of a run: five on the way and one at its end
_PROCESS = 12.0  # seconds until a process of its own has read the images and begins
_MARGIN = 1.15  # other work on the machine, and the report

#: Seconds that a run takes beside its steps and evaluations.
START = 2.0
#: A run: contender, training size, steps and seed.
Run = tuple[str, int, int, int]


@dataclass(frozen=True)
class Grid:
    """Sizes, seeds and steps, and how long all of it takes.

    Arguments:
        train_sizes: labelled images, ascending.
        seeds: of every contender and size.
        steps: of a run, ascending; several budgets have every run made with each.
        runs: that are still to be made, of all contenders, those included that choose recipes.
        at_a_time: how many of them go side by side.
        seconds: estimated, for all of them and with what is spent.
        spent: seconds that finished runs of the grid took.
    """

    train_sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    runs: int = 0
    at_a_time: float = 1.0
    seconds: float = 0.0
    spent: float = 0.0

    @property
    def text(self) -> str:
        """For a reader: ``100, 1,300 images, 3 seeds, 600 steps each``."""
        named, budget = ", ".join(f"{size:,}" for size in self.train_sizes), Budget(steps=list(self.steps)).text
        return f"{named} images, {counted(len(self.seeds), 'seed')}, {budget} each"

    @property
    def counts(self) -> str:
        """Shorter: ``3 seeds, 2 sizes, 600 steps``."""
        sizes = counted(len(self.train_sizes), "size")
        return f"{counted(len(self.seeds), 'seed')}, {sizes}, {Budget(steps=list(self.steps)).text}"

    @property
    def allows_conclusion(self) -> bool:
        """A conclusion needs at least three seeds."""
        return len(self.seeds) >= MIN_SEEDS_FOR_CONCLUSION

    @property
    def allows_trend(self) -> bool:
        """A trend over the number of images needs a conclusion at four sizes."""
        return self.allows_conclusion and len(self.train_sizes) >= SIZES_FOR_A_TREND


@dataclass(frozen=True, eq=False)
class Costs:
    """What the time of a grid is reckoned from.

    Arguments:
        experiment: what is to be run.
        pool: its images.
        times: seconds of a step of each contender.
        done: seconds that each finished run took.
    """

    experiment: Experiment
    pool: Pool
    times: Mapping[str, float]
    done: Mapping[Run, float] | None = None

    def of(self, grid: Grid) -> Grid:
        """The grid with its time, that of the search for recipes included. Finished runs take what they took."""
        once = {
            (name, size, steps): self._run_seconds(name, size, steps)
            for name in self.times
            for size in grid.train_sizes
            for steps in grid.steps
        }
        done = self.done or {}
        finished = [done[*run, seed] for run in once for seed in grid.seeds if (*run, seed) in done]
        left = [seconds for run, seconds in once.items() for seed in grid.seeds if (*run, seed) not in done]
        left += self._trials(grid)
        at_a_time = side_by_side(self.experiment, max(1, len(finished) + len(left)))
        seconds = spent = sum(finished) / at_a_time
        if left:
            seconds += _MARGIN * max(sum(left) / at_a_time, *left)
            has_own_process = at_a_time > 1 if (name := self.experiment.executor.name) == "auto" else name != "local"
            seconds += _PROCESS * has_own_process
        return replace(grid, runs=len(left), at_a_time=at_a_time, seconds=seconds, spent=spent)

    def _trials(self, grid: Grid) -> list[float]:
        """Seconds of each run of the search for recipes, with the longest budget; none if none are searched for."""
        tuning = self.experiment.tuning
        if tuning.trials is None:
            return []
        sizes = {self.pool.resolve(size) for size in tuning.sizes} if tuning.sizes else {max(grid.train_sizes)}
        return [
            self._run_seconds(name, size, max(grid.steps))
            for name in self.times
            if not self.experiment.contenders[name].tune.head
            for size in sizes
            for _ in range(tuning.trials * count_splits(self.experiment, size))
        ]

    def _run_seconds(self, contender: str, train_size: int, steps: int) -> float:
        """A run with its evaluations; a forward pass is a third of a step.

        Of a linear probe the passes that its features take at most: other runs may have computed them.
        """
        step, protocol = self.times[contender], self.experiment.protocol
        if self.experiment.contenders[contender].tune.head:
            return (train_size + self.pool.test_count) * step / (3 * protocol.batch_size) + START
        validation = _VALIDATIONS * self.experiment.data.validation_fraction * train_size
        test = self.pool.test_count if protocol.scored_on == "test" else 0
        return steps * step + (validation + test) * step / (3 * protocol.batch_size) + START


def free_of(fixed: Collection[str]) -> list[str]:
    """What of the grid the user did not name."""
    names = {
        "budget" if name == "trainer.max_steps" else name.removeprefix("protocol.").split(".")[0] for name in fixed
    }
    return [name for name in ("train_sizes", "seeds", "budget") if name not in names]


def ladder(costs: Costs, fixed: Collection[str] = ()) -> list[Grid]:
    """The grids that an experiment may have, with their times, the best first.

    No grid has fewer sizes, fewer seeds or shorter runs than the next one. Grids with five seeds have five sizes and at
    least the config's steps, as far as the images and the user's settings allow.

    Arguments:
        fixed: settings that the user gave by name; of these, sizes, seeds and budget are kept.
    """
    protocol, pool, free = costs.experiment.protocol, costs.pool, free_of(fixed)
    base = steps_of(protocol.budget) or (STEPS,)
    grids = []
    for size_count, seed_count, share in LADDER:
        seeds = list(range(seed_count)) if "seeds" in free else protocol.seeds
        if "train_sizes" in free:
            sizes = spread_sizes(pool, size_count)
        else:
            sizes = sorted({pool.resolve(size) for size in protocol.train_sizes})
        steps = tuple(sorted({max(1, round(one * share)) for one in base})) if "budget" in free else base
        grids.append(costs.of(Grid(tuple(sizes), tuple(seeds), steps)))
    return grids


def first_that_fits(grids: Sequence[Grid], minutes: float) -> Grid:
    """The first rung of a ladder that fits, or the one of ``conclusion_by_overrun``. Raises InputError: none fits."""
    fitting = next((grid for grid in grids if grid.seconds <= 60 * minutes), None)
    if fitting is not None and fitting.allows_conclusion:
        return fitting
    if (chosen := conclusion_by_overrun(grids, minutes) or fitting) is not None:
        return chosen
    least = min(grids, key=lambda grid: grid.seconds)
    raise InputError(
        f"minutes {minutes:g}: the least ({least.text}) takes about {math.ceil(least.seconds / 6) / 10:g} here; give "
        f"--minutes {math.ceil(least.seconds / 60)}, smaller images or smaller models"
    )


def conclusion_by_overrun(grids: Sequence[Grid], minutes: float) -> Grid | None:
    """The cheapest grid that allows a conclusion, if it takes less than ``MAX_OVERRUN`` times the minutes."""
    allowed = [grid for grid in grids if grid.allows_conclusion and grid.seconds < MAX_OVERRUN * 60 * minutes]
    return min(allowed, key=lambda grid: grid.seconds, default=None)


def additions(
    costs: Costs, grid: Grid, *, max_seeds: int = MAX_SEEDS, longest: int | None, fixed: Collection[str] = ()
) -> Iterator[Grid]:
    """Larger and larger grids that contain a grid, with the time of each.

    First come the seeds that a conclusion needs, then sizes up to five, then budgets twice as long beside the present
    ones, then seeds up to five. Seeds 4 and 5 are added together, because seeds can be added only once after an
    analysis.

    Arguments:
        grid: the present one.
        max_seeds: number of seeds that no grid exceeds.
        longest: steps that no budget exceeds; None to add no budget.
        fixed: settings that the user gave by name: sizes, seeds and budget among them stay.
    """
    free = free_of(fixed)
    most = max_seeds if "seeds" in free else len(grid.seeds)
    if len(grid.seeds) < (needed := min(MIN_SEEDS_FOR_CONCLUSION, most)):
        grid = costs.of(_with_seeds(grid, needed))
        yield grid
    while "train_sizes" in free and (size := one_more_size(costs.pool, grid.train_sizes)) is not None:
        grid = costs.of(replace(grid, train_sizes=tuple(sorted((*grid.train_sizes, size)))))
        yield grid
    while "budget" in free and longest is not None and 2 * grid.steps[-1] <= longest:
        grid = costs.of(replace(grid, steps=(*grid.steps, 2 * grid.steps[-1])))
        yield grid
    if len(grid.seeds) < most:
        yield costs.of(_with_seeds(grid, most))


def _with_seeds(grid: Grid, count: int) -> Grid:
    """The grid with so many seeds: its own and the numbers that follow."""
    first = max(grid.seeds) + 1
    return replace(grid, seeds=(*grid.seeds, *range(first, first + count - len(grid.seeds))))


def longest_steps(budget: Budget) -> int:
    """As long as runs of a ladder get where the config has this budget."""
    return int(_MAX_SHARE * max(steps_of(budget) or (STEPS,)))


def images_for(pool: Pool, sizes: int) -> int:
    """How many images to train on so many sizes take: the smallest of them, ``LEAST_RATIO`` times for each other."""
    return math.ceil(_least_size(pool) * LEAST_RATIO ** (sizes - 1))


def _least_size(pool: Pool) -> float:
    """Ten images of each class, and so many that the rarest has two to train on."""
    counts = torch.bincount(pool.images.labels, minlength=pool.images.num_classes)
    rarest = float(counts.min()) / len(pool.images) * (1 - pool.data.validation_fraction)
    return float(max(PER_CLASS * len(counts), 2 / rarest if rarest else pool.largest))


def spread_sizes(pool: Pool, count: int) -> list[int]:
    """So many sizes in even steps of log n, from all images down to ten of each class or a hundredth of all.

    No two neighbours are further apart than a factor of 4.6, so that fewer than four sizes reach less far down. Sizes
    are rounded to two digits. There are fewer where they would come closer than a factor of 1.5, or where the
    rarest class would be left with less than two images to train on.
    """
    largest = pool.largest
    smallest = max(_least_size(pool), largest / SPAN, largest / MOST_RATIO ** (count - 1))
    while count > 1 and (largest / smallest) ** (1 / (count - 1)) < LEAST_RATIO:
        count -= 1
    below = [largest * (smallest / largest) ** (place / (count - 1)) for place in range(1, count)]
    return [*sorted({_two_digits(size) for size in below} - {largest}), largest]


def one_more_size(pool: Pool, sizes: Sequence[int]) -> int | None:
    """A size beside those that are there: of the evenly spread ones or, where none fits, in the middle of a wide gap.

    It is the one that is furthest from its neighbours and no further than a factor of 4.6 from one of them. None where
    all would come closer to one than a factor of 1.5, or there are five sizes.
    """
    if len(sizes) >= MAX_SIZES:
        return None
    _, middle = max(((b / a, math.sqrt(a * b)) for a, b in pairwise(sizes)), default=(1.0, 0.0))
    for wanted in (spread_sizes(pool, max(SIZES_FOR_A_TREND, len(sizes) + 1)), [_two_digits(middle)]):
        apart = {size: min(max(size, there) / max(1, min(size, there)) for there in sizes) for size in wanted}
        fitting = [size for size in wanted if LEAST_RATIO / _CLOSER <= apart[size] <= MOST_RATIO * _FURTHER]
        if fitting:
            return max(fitting, key=lambda size: (apart[size], -size))
    return None


def _two_digits(size: float) -> int:
    return round(float(f"{size:.2g}"))


def steps_of(budget: Budget) -> tuple[int, ...]:
    """The amounts of a budget in steps; none of another."""
    return tuple(int(amount) for amount in budget.amounts) if budget.unit == "steps" else ()
