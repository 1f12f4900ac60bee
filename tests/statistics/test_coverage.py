"""How often what is said of equal contenders is false: `python -m pytest -m slow tests/statistics`."""

from functools import partial

import numpy as np
import pytest

from benchmarks import calibration


def _share(simulate, count: int, what: str) -> float:
    return float(np.mean([simulate(seed)[what] for seed in range(count)]))


@pytest.mark.slow
@pytest.mark.parametrize("world", calibration.WORLDS)
@pytest.mark.parametrize(("seeds", "on_the_way"), [(3, False), (5, False), (10, True)])
def test_at_most_5_of_100_experiments_with_equal_contenders_say_ahead_anywhere(world, seeds, on_the_way):
    """Over all sizes and looks; of 400 simulations 5 % are within 3.3 points, three standard errors."""
    simulate = partial(
        calibration.false_ahead, effects=calibration.WORLDS[world], seeds=seeds, on_the_way=on_the_way, sizes=5
    )
    assert _share(simulate, 400, "ahead") <= 0.083


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_the_p_value_of_one_size_by_itself_is_on_the_safe_side_and_not_far(seeds):
    """Below 5 % in no more experiments with equal contenders than that, and in more than half as many."""
    simulate = partial(calibration.false_ahead, effects=calibration.normal, seeds=seeds, on_the_way=False, sizes=1)
    assert _share(simulate, 2000, "one size by itself, uncorrected") == pytest.approx(0.04, abs=0.015)


def test_a_gap_of_four_points_is_found_and_none_is_not():
    """The benchmark tells contenders apart: else low shares of false verdicts would mean nothing."""
    found = [calibration.power(seed, gap=0.04, seeds=5, sizes=1)["found"] for seed in range(5)]
    none = [calibration.power(seed, gap=0.0, seeds=5, sizes=1)["found"] for seed in range(20)]
    assert sum(found) == 5
    assert sum(none) <= 3
