"""Simulated false claims, coverage of intervals, and power of the comparisons.

    python -m benchmarks.calibration                       # about 40 minutes on two cores
    python -m benchmarks.calibration --simulations 40      # a quick run
    python -m benchmarks.calibration --tables power        # tables whose title contains one of the words

Accuracies are simulated and analysed by the functions that analyse experiments (``analysis.comparisons.compare_all``,
``experiments.analysis_plan.AnalysisPlan``). Every share is printed with its 95 % interval (Wilson).

A network classifies image i correctly where a sum of normal effects exceeds a threshold: the ease of the image, an
effect of the seed on the image, an effect of the model on the image, and noise of the single network. The variances of
these effects are those of recorded experiments (``IMAGE_EFFECTS``). Seed noise is the standard deviation, in points,
over seeds of the difference of two models on infinitely many images.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas
from scipy import special

from benchmarks import command_line, interval_text
from benchmarks.timing import environment
from vit_vs_cnn.analysis.comparisons import compare_all
from vit_vs_cnn.analysis.measurements import FAILURE_GAP, Measurements, failed_to_learn, far_below_others
from vit_vs_cnn.console import format_count
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan
from vit_vs_cnn.statistics.intervals import wilson_interval
from vit_vs_cnn.statistics.mean_distribution import (
    MeanDistribution,
    SeedScores,
    accuracy_interval,
    difference_over_seeds,
)
from vit_vs_cnn.statistics.pair_comparison import EQUIVALENCE_MARGIN, Conclusion, PairComparison
from vit_vs_cnn.statistics.significance import ERROR_RATE
from vit_vs_cnn.statistics.variance import POOLED_FREEDOM_SHARE, pool_seed_variance

#: Accuracy of a run that learned nothing.
CHANCE = 0.1
#: Variances of four effects on an image: its ease, the seed, the model, and the single network. The share is that of
#: the effect of images that all seeds have in common in the variance of a single seed's difference. In the records
#: with at least 5,000 images it is 0.21 to 0.41.
IMAGE_EFFECTS = {
    "share 0": (0.85, 0.05, 0.0, 0.1),
    "share 0.23": (0.6, 0.05, 0.15, 0.2),
    "share 0.4": (0.6, 0.02, 0.23, 0.15),
}
SIGNIFICANT = Conclusion.SIGNIFICANTLY_BETTER


@dataclass(frozen=True)
class World:
    """A simulated experiment.

    Arguments:
        accuracy: without a gap.
        gap: advantage of the first model over all others, as a share.
        noise: standard deviation over seeds of the difference of two models, as a share.
        noise_ratio: of the noise at the largest size to that at the others.
        pair_noise: of the noise of the first and of the second model to that of the others.
        shape: distribution of the noise: ``normal``, ``lognormal``, ``uniform``, or ``tK``, Student's with K degrees of
            freedom, divided by the standard deviation of ``t3``.
        unstable: number of models whose runs fail with probability ``failure_rate``.
        loss: accuracy that a failed run loses; None if it falls to chance.
        equal_means: whether models are equal in their mean over all runs, and not in runs that do not fail.
        added: seeds that are added after the first analysis.
        folds: whether seeds hold out different folds of ``images``; training sets then overlap.
        image_effects: name in ``IMAGE_EFFECTS``.
        validation_images: number of each run.
        freedom_share: share of the degrees of freedom of other sizes that the analysis of ``primaries`` counts.
    """

    images: int = 200
    seeds: int = 3
    sizes: int = 4
    models: int = 2
    accuracy: float = 0.7
    gap: float = 0.0
    noise: float = 0.015
    noise_ratio: float = 1.0
    pair_noise: tuple[float, float] = (1.0, 1.0)
    shape: str = "normal"
    unstable: int = 0
    failure_rate: float = 0.2
    loss: float | None = None
    equal_means: bool = False
    added: int = 0
    folds: bool = False
    image_effects: str = "share 0.23"
    validation_images: int = 500
    freedom_share: float = POOLED_FREEDOM_SHARE


def simulate_arrays(rng: np.random.Generator, world: World, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Correctness of predictions (experiment, model, size, seed, image), and validation accuracies, of experiments."""
    seeds = world.seeds + world.added
    shape = (count, world.models, world.sizes, seeds)
    effect = rng.standard_normal(shape)
    if world.shape == "lognormal":
        effect = (np.exp(effect) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    elif world.shape == "uniform":
        effect = np.sqrt(3) * rng.uniform(-1, 1, shape)
    elif world.shape.startswith("t"):
        effect = rng.standard_t(int(world.shape[1:]), shape) / np.sqrt(3)
    noise = np.full((world.models, world.sizes, 1), world.noise / np.sqrt(2))  # of each of the two models
    noise[:, -1] *= world.noise_ratio
    noise[:2] *= np.reshape(world.pair_noise, (2, 1, 1))
    level = world.accuracy + noise * effect
    level[:, 1:] -= world.gap
    if world.folds:  # training sets of two folds share 3/4 of their images, and so part of their effect
        level -= noise * effect * (1 - np.sqrt(0.75))
        level += noise * np.sqrt(0.25) * rng.standard_normal((*shape[:3], 1))
    failed = rng.random(shape) < world.failure_rate
    failed[:, world.unstable :] = False
    if world.equal_means and world.loss is not None:
        level[:, world.unstable :] -= world.failure_rate * world.loss
    level = np.clip(level, 0.02, 0.995)
    level = np.where(failed, CHANCE if world.loss is None else np.clip(level - world.loss, 0.02, 0.995), level)
    image_sets = seeds if world.folds else 1
    by_ease, by_seed, by_model, by_network = np.sqrt(IMAGE_EFFECTS[world.image_effects]).astype(np.float32)
    normal = partial(rng.standard_normal, dtype=np.float32)
    effects = by_ease * normal((count, 1, 1, image_sets, world.images))
    effects = effects + by_seed * normal((count, 1, 1, seeds, world.images))
    effects = effects + by_model * normal((*shape[:3], image_sets, world.images))
    effects = effects + by_network * normal((*shape, world.images))
    validation = rng.binomial(world.validation_images, level) / world.validation_images
    return effects > special.ndtri(1 - level).astype(np.float32)[..., None], validation


def simulate(rng: np.random.Generator, world: World) -> Measurements:
    """Results of an experiment."""
    (correct,), (validation,) = simulate_arrays(rng, world, 1)
    models, sizes, seeds = tuple("abcdefgh"[: world.models]), _sizes(world), tuple(range(world.seeds + world.added))
    places = {(models[m], sizes[n], seeds[s]): (m, n, s) for m, n, s in np.ndindex(validation.shape)}
    return Measurements(
        models=models,
        sizes=sizes,
        seeds=seeds,
        runs={run: SeedScores.from_correct([correct[place]]) for run, place in places.items()},
        validation={run: (float(validation[place]), world.validation_images) for run, place in places.items()},
        uses_folds=world.folds,
        chance=CHANCE,
    )


def _sizes(world: World) -> tuple[int, ...]:
    """Training-set sizes. Folds hold out a fifth of all images."""
    if world.folds:
        return tuple(4 * world.images // 4**i for i in reversed(range(world.sizes)))
    return tuple(500 * 4**i for i in range(world.sizes))


def analyze(measured: Measurements, world: World, *, added: bool = False) -> list[PairComparison]:
    """Compare all models. The primary comparison is between the first two, at the largest size."""
    later = tuple(range(world.seeds, world.seeds + world.added)) if added else ()
    return compare_all(measured, plan_for(measured, range(world.seeds), added_seeds=(later,) if later else ()))


def plan_for(measured: Measurements, seeds: Sequence[int], **options: Any) -> AnalysisPlan:
    """Plan whose primary comparison is between the first two models, at the largest size."""
    return AnalysisPlan(
        seeds=tuple(seeds),
        models=measured.models,
        train_sizes=measured.sizes,
        size=measured.sizes[-1],
        pair=("a", "b"),
        equivalence_margin=1.0,
        **options,
    )


@dataclass(frozen=True)
class Primary:
    """The primary comparison, and whether training of one of its models is called unstable."""

    distribution: MeanDistribution
    is_unstable: bool

    @property
    def is_significant(self) -> bool:
        return self.distribution.p_value < ERROR_RATE and not self.is_unstable

    @property
    def is_covered(self) -> bool:
        """True if the interval contains 0."""
        return self.distribution.p_value >= ERROR_RATE

    @property
    def is_equivalent(self) -> bool:
        return self.distribution.tail_probability(EQUIVALENCE_MARGIN - abs(self.distribution.mean)) < ERROR_RATE


def claims(seed: int, world: World) -> dict[str, bool]:
    """Claims about a simulated experiment. Without a gap every claim is false."""
    measured = simulate(np.random.default_rng([seed, 1]), world)
    analyses = [analyze(measured, world), *([analyze(measured, world, added=True)] if world.added else [])]
    significant = [pair for pairs in analyses for pair in pairs if pair.conclusion is SIGNIFICANT]
    primary = next(pair for pair in analyses[0] if pair.is_primary)
    point = measured.scores("a", measured.sizes[-1], measured.seeds[: world.seeds])
    accuracy = accuracy_interval(point, fold_train_size=measured.fold_train_size(measured.sizes[-1]))
    return {
        "primary": any(pair.is_primary for pair in significant),
        "any secondary": any(not pair.is_primary for pair in significant),
        "interval of the difference": primary.difference.low <= world.gap <= primary.difference.high,
        "interval of an accuracy": accuracy.low <= world.accuracy <= accuracy.high,
    }


@lru_cache(maxsize=2)
def primaries(seed: int, world: World, count: int = 1) -> list[Primary]:
    """Primary comparisons of simulated experiments, and no others. A test holds them equal to those of ``analyze``."""
    correct, validation = simulate_arrays(np.random.default_rng([seed, 1]), world, count)
    accuracy, train_size = correct.mean(-1), _sizes(world)[-1] if world.folds else None
    images, results = np.full(world.seeds, float(world.images)), []
    for of_images, of_runs, of_validation in zip(correct[:, :2, -1], accuracy[:, :2], validation[:, :2], strict=True):
        rows = zip(of_runs.reshape(-1, world.seeds), of_validation.reshape(-1, world.seeds), strict=True)
        failed = np.array([_failed_runs(*row, world) for row in rows]).reshape(of_runs.shape)
        learned = [not failed[:, size].all(1).any() for size in range(world.sizes)]
        differences = {size: values for size, values in enumerate(of_runs[0] - of_runs[1]) if learned[size]}
        variance = pool_seed_variance(differences, world.sizes - 1, freedom_share=world.freedom_share)
        pairs = zip(of_runs[:, -1], of_images.astype(float), strict=True)
        scores = (SeedScores(accuracies, images, [*masks]) for accuracies, masks in pairs)
        distribution = difference_over_seeds(*scores, seed_variance=variance, fold_train_size=train_size)
        results.append(Primary(distribution, any(0 < row.sum() < len(row) for row in failed[:, -1])))
    return results


def _failed_runs(accuracies: np.ndarray, validation: np.ndarray, world: World) -> np.ndarray:
    """Mask of failed runs. Only where one is possible are the functions called, as they take most of the time."""
    if accuracies.min() > 2 * CHANCE and np.ptp(validation) <= FAILURE_GAP:
        return np.zeros(len(accuracies), dtype=bool)
    images = np.full(len(accuracies), world.validation_images)
    return failed_to_learn(accuracies, CHANCE, world.images) | far_below_others(validation, images)


def primary_properties(seed: int, world: World, count: int, columns: Mapping[str, Any]) -> list[dict[str, bool]]:
    """Simulate primary comparisons, and return a row with some of their properties for each.

    Arguments:
        columns: by the name of a column, the attribute of ``Primary``, or this attribute and the settings in which the
            world of this column differs.
    """
    pairs = [(value, {}) if isinstance(value, str) else value for value in columns.values()]
    values = [[getattr(p, name) for p in primaries(seed, replace(world, **new), count)] for name, new in pairs]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


#: Function that simulates ``count`` experiments of a world with a random seed.
Simulation = Callable[..., Sequence[Mapping[str, bool]]]
#: Number of experiments that are simulated at once.
BATCH = 20


def tables() -> Iterator[tuple[str, Simulation, dict[str, World]]]:
    """Every table: its title, and the world of each row, by its name."""
    base, many, most = World(), World(images=1000), World(images=10_000)
    pair = replace(many, models=8, sizes=1)
    worlds = {
        "3 seeds, 4 sizes, 200 images, noise 1.5": base,
        **{f"{images} images": replace(base, images=images) for images in (6, 50)},
        "1,000 images": many,
        "5 seeds": replace(base, seeds=5),
        "5 seeds, 1,000 images": replace(many, seeds=5),
        "10 seeds, 1,000 images": replace(many, seeds=10),
        "1 size": replace(base, sizes=1),
        "1 size, 1,000 images": replace(many, sizes=1),
        **{f"{sizes} sizes": replace(base, sizes=sizes) for sizes in (2, 3, 5)},
        "accuracy 97 %": replace(base, accuracy=0.97, noise=0.005),
        "noise 0.5": replace(base, noise=0.005),
        "noise 4.5, 1,000 images": replace(many, noise=0.045),
        **{f"{name} noise, 1,000 images": replace(many, shape=name) for name in ("lognormal", "uniform", "t3", "t2")},
        "t1 (Cauchy) noise, 1,000 images": replace(many, shape="t1"),
        "images: share 0, 1,000 images": replace(many, image_effects="share 0"),
        "images: share 0.4, 1,000 images": replace(many, image_effects="share 0.4"),
        "8 models, 1 size, 1,000 images": pair,
        "8 models, the pair varies 2 times as much": replace(pair, pair_noise=(2.0, 2.0)),
        "8 models, the pair varies 3 times as much": replace(pair, pair_noise=(3.0, 3.0)),
        "8 models, one of the pair varies 3 times as much": replace(pair, pair_noise=(3.0, 1.0)),
        "8 models, the pair varies 2.3 and 0.05 times as much": replace(pair, pair_noise=(2.3, 0.05)),
        "8 models, 5 seeds, the pair varies 3 times as much": replace(pair, seeds=5, pair_noise=(3.0, 3.0)),
        "5 models, 4 sizes, the pair varies 3 times as much": replace(many, models=5, pair_noise=(3.0, 3.0)),
        "noise 1.5 times at the largest size, 1,000 images": replace(many, noise_ratio=1.5),
        "noise 2 times at the largest size, 1,000 images": replace(many, noise_ratio=2.0),
        "noise 3 times at the largest size, 1,000 images": replace(many, noise_ratio=3.0),
        "noise 2 times at the largest size, 4 sizes, 10,000 images": replace(most, noise_ratio=2.0),
        "noise 3 times at the largest size, 4 sizes, 10,000 images": replace(most, noise_ratio=3.0),
        "noise 2 times at the largest size, 5 sizes, 10,000 images": replace(most, sizes=5, noise_ratio=2.0),
        "noise 3 times at the largest size, 5 sizes, 10,000 images": replace(most, sizes=5, noise_ratio=3.0),
        "one model learns nothing in 20 % of its runs": replace(base, unstable=1),
        "rotating folds of 60 images": replace(base, folds=True, images=60),
        "rotating folds of 200 images, 5 seeds": replace(base, folds=True, seeds=5),
        "rotating folds of 200 images, noise 4.5": replace(base, folds=True, noise=0.045),
        "rotating folds of 200 images, 1 size": replace(base, folds=True, sizes=1),
        "rotating folds of 200 images, 1 size, noise 4.5": replace(base, folds=True, sizes=1, noise=0.045),
    }
    title = "Equal models: share of experiments with a false primary claim, and coverage of its 95 % interval"
    columns = {"false claim": "is_significant", "coverage": "is_covered", "called unstable": "is_unstable"}
    yield title, partial(primary_properties, columns=columns), worlds
    worlds = {
        "2 models": base,
        "2 models, 1,000 images": many,
        "4 models": replace(base, models=4),
        "2 seeds added to 3, 1,000 images": (added := replace(many, added=2)),
        "2 seeds added to 3, 1,000 images, 1 size": replace(added, sizes=1),
        "2 seeds added to 3, 1,000 images, lognormal noise": replace(added, shape="lognormal"),
        "2 seeds added to 3, 10,000 images, noise 2 times": replace(added, images=10_000, noise_ratio=2.0),
        "2 seeds added to 3, 10,000 images, noise 3 times": replace(added, images=10_000, noise_ratio=3.0),
        "5 seeds added to 5": replace(base, seeds=5, added=5),
    }
    title = "Equal models, all comparisons: share of experiments with a false claim, and coverage of 95 % intervals"
    yield title, partial(one_by_one, claims), worlds
    failing = World(images=1000, sizes=1, accuracy=0.82, noise=0.01, unstable=1)
    worlds = {
        f"{100 * loss:.0f} points in {100 * rate:.0f} %": replace(failing, loss=loss, failure_rate=rate)
        for loss in (0.1, 0.2, 0.4, 0.6)
        for rate in (0.05, 0.1, 0.2, 0.3)
    }
    variants = {"5 seeds": ([20, 60], {"seeds": 5}), "4 sizes": ([20, 60], {"sizes": 4})}
    variants["36 validation images"] = [20, 40, 60], {"validation_images": 36}
    for text, (losses, changes) in variants.items():
        for name in (f"{loss} points in 20 %" for loss in losses):
            worlds[f"{name}, {text}"] = replace(worlds[name], **changes)
    title = "Failures: one model loses points in some of its runs (3 seeds, 1 size): significant or unstable"
    columns = {"equal without failures": "is_significant", "equal means": ("is_significant", {"equal_means": True})}
    yield title, partial(primary_properties, columns=columns | {"called unstable": "is_unstable"}), worlds
    worlds = {
        f"{images:,} images, {seeds} seeds": World(images=images, seeds=seeds, gap=0.01, noise=0.005, sizes=1)
        for images in (2000, 10_000)
        for seeds in (3, 5)
    }
    title = "Equivalence within 1 point: share called equivalent if the true difference is 1 point, noise 0.5"
    yield title, partial(primary_properties, columns={"equivalent": "is_equivalent"}), worlds
    worlds = {
        f"{images:,} images, {100 * gap:.0f} points, {seeds} seeds": World(images=images, gap=gap, seeds=seeds)
        for images, gap in [(60, 0.1), (60, 0.2), (200, 0.1), (500, 0.04), (10_000, 0.02), (10_000, 0.04)]
        for seeds in (3, 5)
    }
    columns = {name: ("is_significant", {"image_effects": name}) for name in IMAGE_EFFECTS}
    yield "Power of the primary comparison, 4 sizes, noise 1.5", partial(primary_properties, columns=columns), worlds
    worlds = {
        f"share {share:g}, {text}": replace(many, freedom_share=share, **changes)
        for share in (0.0, 0.15, 0.5, 1.0)
        for text, changes in {
            "equal models": {},
            "equal models, noise 2 times": {"noise_ratio": 2.0},
            "4 points": {"gap": 0.04},
        }.items()
    }
    title = (
        "Degrees of freedom from other sizes if one varies more (3 seeds, 4 sizes, 1,000 images): significant results"
    )
    yield title, partial(primary_properties, columns={"significant": "is_significant"}), worlds
    worlds = {
        f"{images} images, {format_count(size_count, 'size')}, {text}": replace(
            base, folds=True, images=images, sizes=size_count, **changes
        )
        for images, gaps in ((60, (0.1, 0.2)), (200, (0.04, 0.1)))
        for size_count in (1, 4)
        for text, changes in {
            "equal models": {},
            "equal models, noise 4.5": {"noise": 0.045},
            **{f"{100 * gap:.0f} points": {"gap": gap} for gap in gaps},
        }.items()
    }
    title = "Rotating folds, 3 seeds: significant results, also if the noise of test images counts as known"
    yield title, significance_with_known_test_variance, worlds
    worlds = {"4 sizes, 200 images": World(), "1 size, 10,000 images": World(sizes=1, images=10_000)}
    title = "Equal models: share of false claims in any primary comparison of several experiments"
    yield title, partial(one_by_one, repeated_claims), worlds


def repeated_claims(seed: int, world: World) -> dict[str, bool]:
    """False claims in any of the first experiments on one test set, if their analyses are counted, and at 5 % each."""
    measured = simulate(np.random.default_rng([seed, 3]), replace(world, seeds=5 * world.seeds))
    counted, each, results = False, False, {}
    for number in range(5):
        seeds = measured.seeds[world.seeds * number :][: world.seeds]
        plan = plan_for(measured, seeds, earlier_analyses=tuple("abcde"[:number]))
        primary = next(comparison for comparison in compare_all(measured, plan) if comparison.is_primary)
        counted, each = counted or primary.conclusion is SIGNIFICANT, each or primary.p_value < ERROR_RATE
        results |= {f"first {number + 1}": counted, f"first {number + 1}, each at 5 %": each}
    return results


def significance_with_known_test_variance(seed: int, world: World, count: int) -> list[dict[str, bool]]:
    """Significance if the variance from test images counts as known, and only the rest of it is that of the seeds."""
    correct, _ = simulate_arrays(np.random.default_rng([seed, 1]), world, count)
    first, second = np.moveaxis(correct[:, :2].astype(float), 1, 0)
    factor, results = 1 / world.seeds + world.images / _sizes(world)[-1], []
    for primary, difference in zip(primaries(seed, world, count), first - second, strict=True):
        variance = pool_seed_variance(dict(enumerate(difference.mean(-1))), world.sizes - 1)
        assert variance is not None, "there are three seeds"
        noise = difference[-1].var(-1).mean() / world.images
        of_seeds = (factor * max(0.0, variance.variance - noise)) ** 0.5
        parts = ((of_seeds, variance.degrees_of_freedom),)
        known = MeanDistribution(primary.distribution.mean, parts, (noise / world.seeds) ** 0.5)
        results.append({"as the package": primary.is_significant, "noise known": known.p_value < ERROR_RATE})
    return results


def one_by_one(
    simulation: Callable[[int, World], dict[str, bool]], seed: int, world: World, count: int
) -> list[dict[str, bool]]:
    """Results of a function that simulates one experiment at a time."""
    return [simulation(count * seed + number, world) for number in range(count)]


def shares(simulation: Simulation, world: World, count: int, pool: ProcessPoolExecutor) -> dict[str, str]:
    """Share of the simulations with each property, in percent, with its 95 % interval."""
    batches = pool.map(partial(simulation, world=world, count=BATCH), range(count // BATCH))
    results = pandas.DataFrame([result for batch in batches for result in batch])
    return {str(name): interval_text(wilson_interval(int(of.sum()), len(of)), " %") for name, of in results.items()}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--simulations", type=int, default=5000, help="of each row")
    parser.add_argument("--tables", nargs="+", default=[""], metavar="WORD", help="words of titles; default: all")
    args = parser.parse_args()
    print(f"{environment('numpy', 'scipy')}; {args.simulations} simulations of each row")
    start = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        for title, simulation, worlds in tables():
            if not any(word.lower() in title.lower() for word in args.tables):
                continue
            print(f"\n{title}:\n")
            for place, (name, world) in enumerate(worlds.items()):
                columns = shares(simulation, world, args.simulations, pool)
                if place == 0:
                    print(f"| | {' | '.join(columns)} |\n{'| --- ' * (len(columns) + 1)}|")
                print(f"| {name} | {' | '.join(columns.values())} |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
