"""Simulated experiments with equal models: false claims are rare, and intervals contain the truth.

``python -m benchmarks.calibration`` prints these shares for more experiments and more precisely.
"""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import calibration
from benchmarks.calibration import World

INTERVALS = ("interval of the difference", "interval of an accuracy")


def assert_calibrated(world: World, count: int) -> None:
    """At most 5 % of false claims and 93 % coverage at least, within four standard errors of the simulation."""
    found = [calibration.claims(seed, world) for seed in range(count)]
    shares = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    limit = 0.06 if world.added else 0.05  # of the two analyses together
    for name, share in shares.items():
        if name in INTERVALS and world.unstable:
            continue  # failures change the mean accuracy, which then has no conclusion
        if name in INTERVALS:
            assert share >= 0.93 - 4 * np.sqrt(0.93 * 0.07 / count), (name, share)
        else:
            assert share <= limit + 4 * np.sqrt(limit * (1 - limit) / count), (name, share)


@pytest.mark.parametrize("world", [World(), World(added=2)])
def test_false_claims_are_rare_and_intervals_contain_the_truth(world):
    assert_calibrated(world, 300)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"images": 50},
        {"images": 3000},
        {"seeds": 5},
        {"sizes": 1},
        {"models": 6},
        {"noise": 0.045},
        {"shape": "lognormal", "images": 3000},
        {"noise_ratio": 1.5},
        {"unstable": 1},
        {"seeds": 10, "unstable": 2},
        {"added": 2},
        {"folds": True, "images": 60},
        {"folds": True, "images": 60, "sizes": 1},
    ],
    ids=str,
)
def test_false_claims_are_rare_in_many_kinds_of_experiments(changes):
    assert_calibrated(replace(World(), **changes), 500)


def test_a_difference_of_12_points_is_found():
    """Otherwise few false claims would mean nothing."""
    assert np.mean([calibration.power(seed, World(gap=0.12))["significant"] for seed in range(40)]) > 0.9
