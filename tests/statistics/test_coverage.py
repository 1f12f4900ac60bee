"""Experiments with equal models: false claims are rare, and intervals contain the truth.

Only an exact integral can find a wrong level: of 200 simulated experiments 11 % may make a false claim.

``python -m benchmarks.calibration`` prints these shares for more experiments and more precisely.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks import calibration
from benchmarks.calibration import World
from vit_vs_cnn.statistics.mean_distribution import SeedScores
from vit_vs_cnn.statistics.pair_comparison import ComparisonRules, Conclusion, PairComparison, compare_models

INTERVALS = ("interval of the difference", "interval of an accuracy")


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_error_rates_are_exact_if_only_seeds_vary(level):
    """Integrals over the mean and deviation of three seeds, without simulation; their error is below 0.0001."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    r = 3 * (nodes + 1)  # the deviation of three seeds is sigma r / sqrt(2), with r from a chi distribution
    weights = 3 * weights * stats.chi.pdf(r, 2)
    outside = [significance_threshold(SIGMA * deviation / np.sqrt(2), level) for deviation in r]
    for threshold in np.transpose(outside):
        probability = weights @ (2 * stats.norm.sf(threshold * np.sqrt(3) / SIGMA))
        assert probability == pytest.approx(level, rel=0.02)


SIGMA = 0.01


def significance_threshold(deviation: float, level: float) -> tuple[float, float]:
    """Smallest measured difference of three seeds that is significant, and half the width of their interval."""

    def compare(difference: float) -> PairComparison:
        first = 0.5 + difference + deviation * np.array([-1.0, 0.0, 1.0])
        scores = (SeedScores(values, np.full(3, 10**12)) for values in (first, np.full(3, 0.5)))
        return compare_models(("a", "b"), *scores, rules=ComparisonRules(error_rate=level, is_primary=True))

    low, high = 0.0, 0.5
    for _ in range(16):
        middle = (low + high) / 2
        is_significant = compare(middle).conclusion is Conclusion.SIGNIFICANTLY_BETTER
        low, high = (low, middle) if is_significant else (middle, high)
    return high, compare(0.0).difference.high


WORLDS = [
    *({}, {"added": 2}, {"images": 50}, {"images": 3000}, {"seeds": 5}, {"sizes": 1}, {"noise": 0.045}),
    {"models": 5, "sizes": 1, "images": 2000, "pair_noise": (3.0, 3.0)},
    *({"shape": "lognormal", "images": 3000}, {"noise_ratio": 1.5}, {"unstable": 1}, {"seeds": 10, "unstable": 2}),
    *({"folds": True, "images": 60}, {"folds": True, "images": 60, "sizes": 1}),
]
SLOW = [pytest.param(world, 500, marks=pytest.mark.slow) for world in WORLDS]


@pytest.mark.parametrize(("changes", "count"), [(WORLDS[1], 200), *SLOW], ids=str)
def test_false_claims_are_rare_and_intervals_contain_the_truth(changes, count):
    """At most 5 % of false claims and 93 % coverage at least, within four standard errors of the simulation."""
    world = replace(World(), **changes)
    found = [calibration.claims(seed, world) for seed in range(count)]
    limit = 0.06 if world.added else 0.05  # of the two analyses together
    for name in found[0]:
        share = float(np.mean([one[name] for one in found]))
        if name not in INTERVALS:
            assert share <= limit + 4 * np.sqrt(limit * (1 - limit) / count), (name, share)
        elif not world.unstable:  # failures change the mean accuracy, which then has no conclusion
            assert share >= 0.93 - 4 * np.sqrt(0.93 * 0.07 / count), (name, share)


@pytest.mark.parametrize("world", [World(images=50), World(folds=True), World(sizes=1, unstable=1, loss=0.4)])
def test_the_fast_analysis_of_a_simulation_is_that_of_experiments(world):
    for seed in range(5):
        measured = calibration.simulate(np.random.default_rng([seed, 1]), world)
        primary = next(one for one in calibration.analyze(measured, world) if one.is_primary)
        (fast,) = calibration.primaries(seed, world)
        assert fast.distribution.p_value == pytest.approx(primary.distribution.p_value)
        assert fast.is_significant == (primary.conclusion is Conclusion.SIGNIFICANTLY_BETTER)
        assert fast.is_unstable == (str(primary.caveat or "").startswith("training is unstable"))


def test_a_difference_of_12_points_is_found():
    """Otherwise few false claims would mean nothing."""
    assert np.mean([one.is_significant for one in calibration.primaries(0, World(gap=0.12, images=2000), 40)]) > 0.9
