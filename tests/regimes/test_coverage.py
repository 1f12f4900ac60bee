"""How often intervals hold, over 1,000 simulated experiments: `python -m pytest -m slow tests/regimes`."""

import pytest

from tests.regimes.synthetic import APART, FLOORED, PURE, coverage


@pytest.mark.slow
@pytest.mark.parametrize("world", [PURE, FLOORED, APART], ids=["pure", "floored", "apart"])
def test_intervals_hold_the_truth_in_93_of_100_simulations_or_more(world):
    """More where they are interpolated: what may be wrong between two sizes is added whether or not it is."""
    shares = coverage(world, 1000)
    names = ["data multiplier"] if world is APART else ["crossing by interpolation"]
    names += ["crossing by power law"] if world is PURE else []
    for name in names:
        assert shares[name] >= 0.93, shares
