"""How often what is said of equal contenders is false, how often intervals hold, and how small a gap is found.

    python -m benchmarks.calibration            # about fifteen minutes on two cores
    python -m benchmarks.calibration --quick    # a tenth of the simulations and less, to see that it runs

Everything is judged by the code that judges real cells (``regimes.comparison``, ``crossing``, ``multiplier``), over
simulated accuracies. Each share stands with its Monte-Carlo standard error.

Seeds differ in one of four ways: by a normal effect; by a skewed one (a centred exponential); as in a lottery in which
a run fails with probability .2 and then has the accuracy of chance; and, where the two contenders must differ but their
mean may not, by such a lottery in one of them alone. A network is right on image i where its threshold is below
ease_i + noise: of that variance .6 is ease, which all networks share, .1 is common to the networks of one seed, and .3
each network's own.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import optimize, stats

from vit_vs_cnn.regimes.comparison import SizedComparison, comparisons
from vit_vs_cnn.regimes.crossing import PairLaws, crossings
from vit_vs_cnn.regimes.curves import learning_curve
from vit_vs_cnn.regimes.lottery import two_groups
from vit_vs_cnn.regimes.multiplier import multipliers
from vit_vs_cnn.regimes.power_laws import fit_draws, models_for
from vit_vs_cnn.runs.design import Design
from vit_vs_cnn.statistics.measurements import Measurements
from vit_vs_cnn.statistics.resampling import Resamples

SIZES = {
    3: (500, 5000, 50_000),
    4: (500, 2300, 11_000, 50_000),
    5: (500, 1600, 5000, 16_000, 50_000),
}
NAMES = ("resnet", "vit")
#: Standard deviation over seeds of accuracy: common to both contenders, and of each by itself.
COMMON, OWN = 0.007, 0.007
CHANCE, FAILS = 0.1, 0.2

Effects = Callable[[np.random.Generator, tuple[int, ...]], Float[np.ndarray, "contenders sizes seeds"]]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "contenders sizes seeds"]:
    return OWN * rng.standard_normal(shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "contenders sizes seeds"]:
    return 4 * OWN * (1 - rng.exponential(size=shape))


def lottery(rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "contenders sizes seeds"]:
    """Failed runs lose 60 points, which brings .7 down to chance."""
    return normal(rng, shape) - 0.6 * (rng.random(shape) < FAILS)


def one_lottery(rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "contenders sizes seeds"]:
    """The second contender is 15 points better where it does not fail: the means are equal."""
    found = normal(rng, shape)
    found[1] += 0.15 - 0.75 * (rng.random(shape[1:]) < FAILS)
    return found


WORLDS: dict[str, Effects] = {"normal": normal, "skewed": skewed, "lottery in both": lottery}


def simulated(
    rng: np.random.Generator,
    truth: Float[np.ndarray, "contenders sizes"],
    seeds: int,
    images: int,
    effects: Effects,
    *,
    train_sizes: Sequence[float] | np.ndarray = (),
) -> Measurements:
    """The accuracies, and the answers behind them, of two contenders at the sizes of a table of their true means."""
    shape = (*truth.shape, seeds)
    level = truth[..., None] + COMMON * rng.standard_normal((1, 1, seeds)) + effects(rng, shape)
    ease = np.sqrt(0.6) * rng.standard_normal(images, dtype=np.float32)
    shared = np.sqrt(0.1) * rng.standard_normal((1, 1, seeds, images), dtype=np.float32)
    noise = np.float32(np.sqrt(0.3)) * rng.standard_normal((*shape, images), dtype=np.float32)
    threshold = stats.norm.ppf(1 - np.clip(level, 0.02, 0.995)).astype(np.float32)
    correct: Bool[np.ndarray, "contenders sizes seeds count"] = ease + shared + noise > threshold[..., None]
    sizes = tuple(map(int, train_sizes)) or SIZES.get(truth.shape[1], (5000,))
    return Measurements(NAMES, sizes, tuple(range(seeds)), correct.mean(-1), np.full(shape, float(images)), correct)


def judged(measured: Measurements, planned: int, *, on_the_way: bool = False) -> list[SizedComparison]:
    """The comparisons at all sizes, as an experiment with this plan has them."""
    design = Design(tuple(range(planned)), on_the_way, NAMES, measured.sizes, measured.sizes[-1], NAMES, 1.0)
    return comparisons(measured, [], design)


def first_seeds(measured: Measurements, count: int) -> Measurements:
    assert measured.correct is not None
    return Measurements(
        measured.contenders,
        measured.sizes,
        measured.seeds[:count],
        measured.accuracy[..., :count],
        measured.images[..., :count],
        measured.correct[..., :count, :],
    )


def false_ahead(seed: int, *, effects: Effects, seeds: int, on_the_way: bool, sizes: int) -> dict[str, bool]:
    """Whether anything false is said of contenders of equal means, at any size and any look."""
    rng = np.random.default_rng([seed, seeds])
    measured = simulated(rng, np.full((2, sizes), 0.7), seeds, 1000, effects)
    looks = range(3, seeds + 1) if on_the_way else (seeds,)
    found = [judged(first_seeds(measured, k), seeds, on_the_way=on_the_way) for k in looks]
    ahead = {c.size for of_look in found for c in of_look if c.verdict == "ahead"}
    warned = {n for i, n in enumerate(measured.sizes) if any(two_groups(of[i], 1000) for of in measured.accuracy)}
    contradicted = any(c.verdict == "ahead" and c.lead.low <= 0 for of_look in found for c in of_look)
    assert not contradicted, "a verdict beside an interval that holds zero"
    return {
        "ahead": bool(ahead),
        "ahead, and no warning of two groups": bool(ahead - warned),
        "ahead, primary": any(c.verdict == "ahead" for of_look in found for c in of_look if c.primary),
        "one size by itself, uncorrected": found[-1][-1].p_value < 0.05,
    }


def power(seed: int, *, gap: float, seeds: int, sizes: int) -> dict[str, bool]:
    """Whether a gap at every size is found at the primary one, by contenders whose difference varies by a point."""
    rng = np.random.default_rng([seed, seeds, round(1e4 * gap)])
    truth = np.stack([np.full(sizes, 0.7), np.full(sizes, 0.7 - gap)])
    measured = simulated(rng, truth, seeds, 10_000, normal)
    found = judged(measured, seeds)[-1]
    return {"found": found.verdict == "ahead", "equivalent": found.verdict == "equivalent"}


def false_groups(seed: int, *, seeds: int) -> dict[str, float]:
    """In what share seeds of one normal distribution are said to be of two groups; images play no part."""
    draws = 0.5 + 0.05 * np.random.default_rng([seed, seeds]).standard_normal((1000, seeds))
    return {"two groups": float(np.mean([two_groups(row, 10**8) is not None for row in draws]))}


Curve = Callable[[Any], Any]


def power_law(n: Any, a: float = 0.46, b: float = 0.15, c: float = 0.0) -> Any:
    return 1 - np.exp(a) * np.asarray(n, dtype=float) ** -b - c


def sigmoid(n: Any, low: float = 0.25, high: float = 0.85, middle: float = 5000.0, steepness: float = 1.5) -> Any:
    """With a steepness of 1.5 it goes from a tenth to nine tenths of its rise within 1.3 decades of data."""
    return low + (high - low) / (1 + (np.asarray(n, dtype=float) / middle) ** -steepness)


#: Each truth: two curves that cross, and one that the second contender follows with four times the data.
TRUTHS: dict[str, tuple[Curve, Curve, Curve]] = {
    "power law": (power_law, partial(power_law, a=1.58, b=0.29), power_law),
    "sigmoid": (
        partial(sigmoid, low=0.3, high=0.8, middle=4000, steepness=0.8),
        partial(sigmoid, low=0.2, high=0.9, middle=7000, steepness=1.5),
        sigmoid,
    ),
    "saturating": (
        partial(power_law, a=0.55, b=0.24, c=0.18),
        partial(power_law, a=2.4, b=0.49, c=0.16),
        partial(power_law, a=1.9, b=0.5, c=0.15),
    ),
}
TIMES = 4.0


def coverage(seed: int, *, truth: str, sizes: int, seeds: int = 5) -> dict[str, bool]:
    """Whether each interval holds what is true."""
    rng, n = np.random.default_rng([seed, sizes]), np.array(SIZES[sizes])
    first, second, followed = TRUTHS[truth]
    table = np.stack([first(n), second(n)])
    measured = simulated(rng, table, seeds, 1000, normal)
    at, exact = 0, table[0, 0] - table[1, 0]
    difference, accuracy = (
        judged(measured, seeds)[at].difference,
        learning_curve(measured, NAMES[0]).points[at].accuracy,
    )
    draws = Resamples(measured, count=600, seed=seed).of(NAMES)
    ends = (float(np.log(n[0])), float(np.log(n[-1])))
    place = optimize.root_scalar(lambda x: float(first(np.exp(x)) - second(np.exp(x))), bracket=ends).root
    crossing = crossings(draws, {})[0]
    behind = simulated(rng, np.stack([followed(n), followed(n / TIMES)]), seeds, 1000, normal)
    needed = multipliers(Resamples(behind, count=600, seed=seed).of(NAMES), {})[0]
    return {
        "accuracy": _holds(accuracy.low, table[0, 0], accuracy.high),
        "difference": _holds(difference.low, exact, difference.high),
        "crossing": crossing.overtaker == NAMES[1] and _holds(crossing.low, np.exp(place), crossing.high),
        "crossing, both ends known": crossing.is_shown,
        "multiplier": _holds(needed.low, TIMES, needed.high),
        "multiplier, both ends known": needed.low is not None and needed.high is not None,
    }


#: Two curves of each kind that cross at a known size, beyond what is run, and the one that is followed with four times
#: the data.
BEYOND: dict[str, tuple[Curve, Curve, Curve]] = {
    "power law": (power_law, partial(power_law, a=0.46 + 0.07 * np.log(20_000), b=0.22), power_law),
    "sigmoid": TRUTHS["sigmoid"],
    "saturating": (
        TRUTHS["saturating"][0],
        partial(power_law, a=1.757, b=0.35, c=0.16),
        partial(power_law, a=0.9, b=0.3, c=0.15),
    ),
}


def extrapolation(seed: int, *, truth: str, sizes: int, seeds: int = 5) -> dict[str, bool]:
    """Whether what the fitted laws say beyond the largest size holds, and has an end.

    The crossing is twice the largest size away; the multiplier of 4 is that at the largest size.
    """
    rng = np.random.default_rng([seed, sizes])
    first, second, followed = BEYOND[truth]
    where = float(np.exp(optimize.root_scalar(lambda x: first(np.exp(x)) - second(np.exp(x)), bracket=(5, 12)).root))
    n = np.round(np.geomspace(where / 40, where / 2, sizes))
    told: dict[str, bool] = {}
    for what, table in {
        "crossing": np.stack([first(n), second(n)]),
        "multiplier": np.stack([followed(n), followed(n / TIMES)]),
    }.items():
        draws = Resamples(simulated(rng, table, seeds, 1000, normal, train_sizes=n), count=600, seed=seed).of(NAMES)
        for model in models_for(draws):
            laws: PairLaws = {model: [fit_draws(draws, place, model) for place in (0, 1)]}
            if what == "crossing":
                found, true = crossings(draws, laws)[-1], where
                shown = found.overtaker == NAMES[1]
            else:
                found, true = next(m for m in multipliers(draws, laws) if m.method == model and m.size == n[-1]), TIMES
                shown = found.ahead == NAMES[0]
            told[f"{what}, {model}"] = shown and _holds(found.low, true, found.high)
            told[f"{what}, {model}: has an end"] = found.high is not None
    return told


def _holds(low: float | None, true: Any, high: float | None) -> bool:
    return bool((low is None or low <= true) and (high is None or true <= high))


def shares(simulate: Callable[[int], Mapping[str, float]], count: int, pool: ProcessPoolExecutor) -> dict[str, str]:
    """Of the simulations in which each was so, in percent, with its standard error."""
    found = list(pool.map(simulate, range(count), chunksize=max(1, count // 32)))
    every = {name: [float(one[name]) for one in found] for name in found[0]}
    return {n: f"{100 * np.mean(a):.1f} ± {100 * np.std(a) / np.sqrt(count):.1f} %" for n, a in every.items()}


#: Two words on the world that is simulated, and how to simulate it once.
World = tuple[str, str, Callable[[int], Mapping[str, float]]]


def lines(count: int, pool: ProcessPoolExecutor) -> Iterator[str]:
    """The whole benchmark as tables in Markdown, line by line."""
    few, many = max(4, count // 4), max(4, count // 2)
    yield from _table('False "ahead", five sizes, 1,000 test images', _equal(on_the_way=False), count, pool)
    yield from _table("The same with looks at 3 to 10 seeds", _equal(on_the_way=True), many, pool)
    held = [
        (truth, f"{sizes} sizes", partial(coverage, truth=truth, sizes=sizes)) for truth in TRUTHS for sizes in SIZES
    ]
    yield from _table("Coverage of 95 % intervals, five seeds, sizes from 500 to 50,000", held, count, pool)
    beyond = [
        (truth, f"{sizes} sizes", partial(extrapolation, truth=truth, sizes=sizes))
        for truth in BEYOND
        for sizes in (4, 5)
    ]
    yield from _table("Coverage of what laws say beyond the largest size, five seeds", beyond, few, pool)
    groups = [("normal", f"{seeds} seeds", partial(false_groups, seeds=seeds)) for seeds in (3, 4, 5, 6, 10)]
    yield from _table(
        "Seeds of one distribution said to be of two groups (1,000 in each simulation)", groups, count, pool
    )
    gaps = [
        (f"{100 * gap:g} points", f"{sizes} size{'s' * (sizes > 1)}, {seeds} seeds", one)
        for sizes in (1, 5)
        for gap in (0.0, 0.01, 0.02, 0.04)
        for seeds in (3, 5, 10)
        for one in [partial(power, gap=gap, seeds=seeds, sizes=sizes)]
    ]
    yield from _table("Power at the primary comparison, seeds' sd 1 point, 10,000 images", gaps, many, pool)


def _equal(*, on_the_way: bool) -> list[World]:
    return [
        (name, f"{seeds} seeds", partial(false_ahead, effects=effects, seeds=seeds, on_the_way=on_the_way, sizes=5))
        for name, effects in {**WORLDS, "lottery in one, equal means": one_lottery}.items()
        for seeds in ((10,) if on_the_way else (3, 5, 10))
    ]


def _table(title: str, worlds: Sequence[World], count: int, pool: ProcessPoolExecutor) -> Iterator[str]:
    yield f"\n{title}; {count} simulations of each:\n"
    for place, (name, what, simulate) in enumerate(worlds):
        told = shares(simulate, count, pool)
        if place == 0:
            yield from (f"| | | {' | '.join(told)} |", "| --- " * (len(told) + 2) + "|")
        yield f"| {name} | {what} | {' | '.join(told.values())} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few simulations")
    parser.add_argument("--simulations", type=int, default=800, help="of each world; fewer where one takes long")
    given = parser.parse_args()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "scipy"))
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(f"{machine}, Python {platform.python_version()}, {versions}")
    began = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        for line in lines(20 if given.quick else given.simulations, pool):
            print(line, flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
