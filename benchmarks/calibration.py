"""Simulated false claims, coverage of intervals, and power of the comparisons.

    python -m benchmarks.calibration                       # about 40 minutes on two cores
    python -m benchmarks.calibration --simulations 40      # a quick run

Accuracies are simulated and analysed by the functions that analyse experiments (``regimes.comparisons.compare_all``,
``experiments.analysis_plan.AnalysisPlan``). Every share is printed with its Monte-Carlo standard error.

A network classifies image i correctly where ease_i + noise exceeds a threshold. Of the variance 0.85 is ease, which all
networks share, 0.05 is common to the networks of one seed, and 0.1 is each network's own. Seed noise is the standard
deviation, in points, over seeds of the difference of two models on infinitely many images.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import stats

from benchmarks import command_line, environment
from vit_vs_cnn.analysis import comparisons as comparisons_module
from vit_vs_cnn.analysis.comparisons import compare_all
from vit_vs_cnn.analysis.measurements import Measurements
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan
from vit_vs_cnn.statistics.mean_distribution import accuracy_interval
from vit_vs_cnn.statistics.pair_comparison import Conclusion, PairComparison
from vit_vs_cnn.statistics.significance import ERROR_RATE
from vit_vs_cnn.statistics.variance import pool_seed_variance

#: Accuracy without a gap, accuracy of a failed run, and failure rate of unstable training.
ACCURACY, CHANCE, FAILURE_RATE = 0.7, 0.1, 0.2
SIGNIFICANT = Conclusion.SIGNIFICANTLY_BETTER


@dataclass(frozen=True)
class World:
    """A simulated experiment.

    Arguments:
        gap: advantage of the first model over all others, as a share.
        noise: standard deviation over seeds of the difference of two models, as a share.
        noise_ratio: of the noise at the largest size to that at the others.
        shape: distribution of the noise, normal or lognormal.
        unstable: number of models whose runs fail with probability ``FAILURE_RATE``.
        added: seeds that are added after the first analysis.
        folds: whether seeds hold out different folds of ``images``; training sets then overlap.
    """

    images: int = 200
    seeds: int = 3
    sizes: int = 4
    models: int = 2
    gap: float = 0.0
    noise: float = 0.015
    noise_ratio: float = 1.0
    shape: str = "normal"
    unstable: int = 0
    added: int = 0
    folds: bool = False


def simulate(rng: np.random.Generator, world: World) -> Measurements:
    """Results of an experiment."""
    seeds = world.seeds + world.added
    shape = (world.models, world.sizes, seeds)
    effect = rng.standard_normal(shape)
    if world.shape == "lognormal":
        effect = (np.exp(effect) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    noise = np.full(world.sizes, world.noise / np.sqrt(2))  # of each of the two models
    noise[-1] *= world.noise_ratio
    level = ACCURACY + noise[:, None] * effect
    level[1:] -= world.gap
    if world.folds:  # training sets of two folds share 3/4 of their images, and so part of their effect
        level[:] = level - noise[:, None] * effect * (1 - np.sqrt(0.75))
        level += noise[:, None] * np.sqrt(0.25) * rng.standard_normal((world.models, world.sizes, 1))
    failed = rng.random(shape) < FAILURE_RATE
    failed[world.unstable :] = False
    level = np.where(failed, CHANCE, np.clip(level, 0.02, 0.995))
    image_sets = seeds if world.folds else 1
    ease = np.sqrt(0.85) * rng.standard_normal((image_sets, world.images), dtype=np.float32)
    shared = np.sqrt(0.05) * rng.standard_normal((1, 1, seeds, world.images), dtype=np.float32)
    own = np.float32(np.sqrt(0.1)) * rng.standard_normal((*shape, world.images), dtype=np.float32)
    correct = ease + shared + own > stats.norm.ppf(1 - level).astype(np.float32)[..., None]
    return Measurements(
        models=tuple("abcdefgh"[: world.models]),
        sizes=tuple(500 * 4**i for i in range(world.sizes)) if not world.folds else _fold_sizes(world),
        seeds=tuple(range(seeds)),
        accuracy=correct.mean(-1),
        images=np.full(shape, float(world.images)),
        correct={place: correct[place] for place in np.ndindex(shape)},
        uses_folds=world.folds,
        chance=CHANCE,
    )


def _fold_sizes(world: World) -> tuple[int, ...]:
    """Training-set sizes where a fifth of all images is held out."""
    return tuple(4 * world.images // 4**i for i in reversed(range(world.sizes)))


def analyze(measured: Measurements, world: World, *, added: bool = False) -> list[PairComparison]:
    """Compare all models. The primary comparison is between the first two, at the largest size."""
    later = tuple(range(world.seeds, world.seeds + world.added)) if added else ()
    plan = AnalysisPlan(
        seeds=tuple(range(world.seeds)),
        models=measured.models,
        train_sizes=measured.sizes,
        size=measured.sizes[-1],
        pair=("a", "b"),
        equivalence_margin=1.0,
        added_seeds=(later,) if later else (),
    )
    return compare_all(measured, plan)


def claims(seed: int, world: World) -> dict[str, bool]:
    """Claims about a simulated experiment. Without a gap every claim is false."""
    measured = simulate(np.random.default_rng([seed, 1]), world)
    analyses = [analyze(measured, world), *([analyze(measured, world, added=True)] if world.added else [])]
    significant = [
        comparison
        for analysis_comparisons in analyses
        for comparison in analysis_comparisons
        if comparison.conclusion is SIGNIFICANT
    ]
    primary = next(analysis for analysis in analyses[0] if analysis.is_primary)
    point = measured.scores("a", measured.sizes[-1], measured.seeds[: world.seeds])
    accuracy = accuracy_interval(point, fold_train_size=measured.fold_train_size(measured.sizes[-1]))
    return {
        "primary": any(comparison.is_primary for comparison in significant),
        "any secondary": any(not comparison.is_primary for comparison in significant),
        "interval of the difference": primary.difference.low <= world.gap <= primary.difference.high,
        "interval of an accuracy": accuracy.low <= ACCURACY <= accuracy.high,
    }


def power(seed: int, world: World, freedom_share: float | None = None) -> dict[str, bool]:
    """Significance of the primary comparison."""
    if freedom_share is not None:
        comparisons_module.pool_seed_variance = partial(pool_seed_variance, freedom_share=freedom_share)
    measured = simulate(np.random.default_rng([seed, 2]), world)
    primary = next(comparison for comparison in analyze(measured, world) if comparison.is_primary)
    return {"significant": primary.conclusion is SIGNIFICANT}


Row = tuple[str, Callable[[int], Mapping[str, float]]]


def tables() -> Iterator[tuple[str, Sequence[Row]]]:
    """Every table: its title, and a row for each world."""
    base = World()
    worlds = {
        "3 seeds, 4 sizes, 200 images, noise 1.5": base,
        "50 images": replace(base, images=50),
        "500 images": replace(base, images=500),
        "10,000 images": replace(base, images=10_000),
        "5 seeds": replace(base, seeds=5),
        "10 seeds": replace(base, seeds=10),
        "5 seeds, 10,000 images": replace(base, seeds=5, images=10_000),
        "10 seeds, 10,000 images": replace(base, seeds=10, images=10_000),
        "1 size": replace(base, sizes=1),
        "1 size, 10,000 images": replace(base, sizes=1, images=10_000),
        "2 sizes": replace(base, sizes=2),
        "5 sizes": replace(base, sizes=5),
        "4 models": replace(base, models=4),
        "4 models, 10,000 images": replace(base, models=4, images=10_000),
        "6 models (analysis of variance)": replace(base, models=6),
        "noise 0.5": replace(base, noise=0.005),
        "noise 4.5": replace(base, noise=0.045),
        "noise 4.5, 10,000 images": replace(base, noise=0.045, images=10_000),
        "lognormal noise, 10,000 images": replace(base, shape="lognormal", images=10_000),
        "noise 1.5 times at the largest size": replace(base, noise_ratio=1.5),
        "noise 1.5 times, 10,000 images": replace(base, noise_ratio=1.5, images=10_000),
        "noise 2 times at the largest size": replace(base, noise_ratio=2.0),
        "noise 2 times, 10,000 images": replace(base, noise_ratio=2.0, images=10_000),
        "one model unstable": replace(base, unstable=1),
        "one model unstable, 10,000 images": replace(base, unstable=1, images=10_000),
        "both models unstable, 10 seeds": replace(base, unstable=2, seeds=10),
        "2 seeds added to 3": replace(base, added=2),
        "2 seeds added to 3, 10,000 images": replace(base, added=2, images=10_000),
        "5 seeds added to 5": replace(base, seeds=5, added=5),
        "rotating folds of 60 images": replace(base, folds=True, images=60),
        "rotating folds of 200 images, 5 seeds": replace(base, folds=True, seeds=5),
        "rotating folds of 200 images, noise 4.5": replace(base, folds=True, noise=0.045),
    }
    title = "Equal models: share of experiments with a false claim, and coverage of 95 % intervals"
    yield title, [(name, partial(claims, world=world)) for name, world in worlds.items()]
    gaps = [(60, 0.1), (60, 0.2), (200, 0.1), (500, 0.04), (10_000, 0.02), (10_000, 0.04)]
    yield (
        "Power of the primary comparison, 4 sizes, noise 1.5",
        [
            (f"{images:,} images, {100 * gap:.0f} points, {seeds} seeds", partial(power, world=world))
            for images, gap in gaps
            for seeds in (3, 5)
            for world in [World(images=images, gap=gap, seeds=seeds)]
        ],
    )
    title = (
        "Share of degrees of freedom where one size varies more (3 seeds, 4 sizes, 10,000 images): significant results"
    )
    yield (
        title,
        [
            (f"share {share:g}, {text}", partial(power, world=world, freedom_share=share))
            for share in (0.0, 0.15, 0.5, 1.0)
            for text, world in {
                "equal models": World(images=10_000),
                "equal models, noise 1.5 times": World(images=10_000, noise_ratio=1.5),
                "equal models, noise 2 times": World(images=10_000, noise_ratio=2.0),
                "4 points": World(images=10_000, gap=0.04),
            }.items()
        ],
    )


def shares(simulation: Callable[[int], Mapping[str, float]], count: int, pool: ProcessPoolExecutor) -> dict[str, str]:
    """Mean of every value over the simulations, in percent, with its standard error."""
    results = list(pool.map(simulation, range(count), chunksize=max(1, count // 32)))
    columns = {name: [float(result[name]) for result in results] for name in results[0]}
    return {
        name: f"{100 * np.mean(values):.1f} ± {100 * np.std(values) / np.sqrt(count):.1f} %"
        for name, values in columns.items()
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--simulations", type=int, default=2000, help="of each row")
    count = parser.parse_args().simulations
    print(f"{environment('numpy', 'scipy')}; {count} simulations of each row")
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        for title, rows in (*tables(), repeated_analyses()):
            print(f"\n{title}:\n")
            for place, (name, simulation) in enumerate(rows):
                columns = shares(simulation, count, pool)
                if place == 0:
                    print(f"| | {' | '.join(columns)} |\n{'| --- ' * (len(columns) + 1)}|")
                print(f"| {name} | {' | '.join(columns.values())} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


def repeated_analyses() -> tuple[str, Sequence[Row]]:
    """Table of experiments with equal models on the same test images, each with its own runs."""
    worlds = {"4 sizes, 200 images": World(), "1 size, 10,000 images": World(sizes=1, images=10_000)}
    rows = [(name, partial(repeated_claims, world=world)) for name, world in worlds.items()]
    return "Equal models: share of false claims in any primary comparison of several experiments", rows


def repeated_claims(seed: int, world: World) -> dict[str, bool]:
    """Whether any of the first experiments has a false claim, if their analyses are counted, and at 5 % each."""
    measured = simulate(np.random.default_rng([seed, 3]), replace(world, seeds=5 * world.seeds))
    counted, each, results = False, False, {}
    for number in range(5):
        plan = AnalysisPlan(
            seeds=measured.seeds[world.seeds * number :][: world.seeds],
            models=measured.models,
            train_sizes=measured.sizes,
            size=measured.sizes[-1],
            pair=("a", "b"),
            equivalence_margin=1.0,
            earlier_analyses=tuple("abcde"[:number]),
        )
        primary = next(comparison for comparison in compare_all(measured, plan) if comparison.is_primary)
        counted, each = counted or primary.conclusion is SIGNIFICANT, each or primary.p_value < ERROR_RATE
        results |= {f"first {number + 1}": counted, f"first {number + 1}, each at 5 %": each}
    return results


if __name__ == "__main__":
    main()
