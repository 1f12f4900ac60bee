"""Forecasts follow a power law, and their intervals contain later measurements."""

import numpy as np
import pytest

from tests.analysis.tables import law_table
from vit_vs_cnn.analysis.forecast import extrapolate
from vit_vs_cnn.analysis.measurements import AccuracyPoint, measure
from vit_vs_cnn.statistics.intervals import Estimate

SIZES = (500, 1000, 2000, 4000, 8000)


def points(accuracies: dict[int, float], error: float = 0.001, rng=None) -> list[AccuracyPoint]:
    found = []
    for size, accuracy in accuracies.items():
        value = accuracy + (rng.normal(0, error) if rng else 0.0)
        interval = Estimate(value, value - 1.96 * error, value + 1.96 * error)
        found.append(AccuracyPoint("a", size, "", interval, (value,)))
    return found


@pytest.mark.parametrize("law", [(0.5, 0.25, 0.0), (0.5, 0.4, 0.1), (-1.0, 0.1, 0.2)])
def test_parameters_of_an_exact_power_law_are_recovered(law):
    table = law_table((*SIZES, 16_000), a=law)["a"]
    true = {n: table.pop(n) for n in (16_000,)}
    found = extrapolate(points(table), 16_000)
    assert found.law.exponent == pytest.approx(law[1], abs=0.02)
    assert found.law.floor == pytest.approx(law[2], abs=0.03)
    assert found.accuracy.value == pytest.approx(true[16_000], abs=0.001)


def test_interval_contains_the_truth_in_most_of_100_simulations():
    table = law_table((*SIZES, 16_000), a=(0.5, 0.3, 0.08))["a"]
    true = table.pop(16_000)
    rng = np.random.default_rng(0)
    found = [extrapolate(points(table, 0.006, rng), 16_000).accuracy for _ in range(100)]
    assert np.mean([one.low <= true <= one.high for one in found]) >= 0.9
    assert np.median([one.high - one.low for one in found]) < 0.1


def test_intervals_include_the_largest_measured_size_and_are_wider_for_curves_that_leave_their_law():
    """Without the largest size the law would have continued to rise."""
    exact = law_table(SIZES, a=(0.5, 0.3, 0.0))["a"]
    flat = exact | {8000: exact[4000]}
    found = [extrapolate(points(table, 1e-4), 16_000).accuracy for table in (exact, flat)]
    widths = [one.high - one.value for one in found]
    assert widths[1] > 0.9 * (exact[8000] - exact[4000]) > 10 * widths[0]
    # The accuracy may not rise any more, even if the measured accuracies follow the law exactly.
    table = law_table(SIZES, a=(0.5, 0.3, 0.0))["a"]
    found = extrapolate(points(table, 1e-5), 16_000).accuracy
    assert found.low == pytest.approx(table[8000], abs=1e-6)
    assert found.value > table[8000] + 0.02 and found.high < found.value + 0.02


def test_forecasts_without_the_largest_recorded_size_contain_it(regimes_cpu):
    results, correct = regimes_cpu
    measured = measure(results, correct).points("")
    for model in ("vit", "resnet"):
        *known, largest = [point for point in measured if point.model == model]
        found = extrapolate(known, largest.train_size)
        assert found.accuracy.low <= largest.accuracy.value <= found.accuracy.high
