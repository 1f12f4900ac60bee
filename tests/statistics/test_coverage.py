"""How often the interval of a difference holds: `python -m pytest -m slow tests/statistics`."""

import pytest

from benchmarks.interval_coverage import World, coverage


@pytest.mark.slow
@pytest.mark.parametrize(
    "world", [World(3), World(5), World(3, own_effect=0.04), World(5, own_effect=0.04), World(3, accuracy=0.97)]
)
def test_equal_contenders_are_told_apart_in_5_of_100_simulations(world):
    """Of 2,000 simulations 5 % are within 1.5 points, three standard errors, of what is found."""
    found = coverage(world, 2000)
    assert 0.935 <= found["interval"] <= 0.965
    assert found["ahead"] == pytest.approx(1 - found["interval"])


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_unpaired_seeds_are_told_apart_no_more_often_than_that_and_never_judged(seeds):
    found = coverage(World(seeds, paired=False), 1000)
    assert 0.93 <= found["interval"] <= 0.995
    assert found["ahead"] == 0
