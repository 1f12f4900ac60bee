"""The frontier against a look at every pair."""

import numpy as np
import pytest

from tests.results import make_result
from vit_vs_cnn.regimes.curves import CurvePoint, LearningCurve
from vit_vs_cnn.regimes.frontier import cost_frontier
from vit_vs_cnn.statistics.estimate import Estimate


def frontier(costs, accuracies, ahead=()):
    """Points of contenders a, b, ... at sizes 7 and 11 by parameters, of two seeds each that differ by a tenth."""
    results, curves = [], []
    for c, (cost, row) in enumerate(zip(costs, accuracies, strict=True)):
        name = "abcdefgh"[c]
        for size in (7, 11):
            each = enumerate((round(0.95 * cost), round(1.05 * cost)))
            results += [make_result(contender=name, train_size=size, seed=s, parameters=count) for s, count in each]
        points = [CurvePoint(n, Estimate(a, a, a), (a,)) for n, a in zip((7, 11), row, strict=True)]
        curves.append(LearningCurve(name, tuple(points)))
    return [point for point in cost_frontier(results, curves, ahead) if point.cost == "parameters"]


def ahead_by(least, accuracies):
    """Who is ahead of whom if a gap of so much is a verdict."""
    return {
        ("abcdefgh"[i], "abcdefgh"[j], size)
        for place, size in enumerate((7, 11))
        for i, one in enumerate(accuracies)
        for j, other in enumerate(accuracies)
        if one[place] - other[place] > least
    }


@pytest.mark.parametrize("least", [0.0, 0.3])
def test_on_the_frontier_is_who_nobody_beats_by_a_verdict_with_the_same_data(least):
    rng = np.random.default_rng(0)
    costs = [100 * (1 + int(i)) for i in rng.permutation(7)]
    accuracies = rng.random((7, 2)).tolist()
    points = frontier(costs, accuracies, ahead_by(least, accuracies))
    assert len(points) == 14
    for p in points:
        beaten = any(q.size == p.size and q.value <= p.value and q.accuracy - p.accuracy > least for q in points)
        assert p.is_on_frontier == (not beaten)
    assert {p.is_on_frontier for p in points} == {True, False}


def test_two_of_equal_cost_and_accuracy_are_both_on_it():
    points = frontier([500, 500], [[0.5, 0.6], [0.5, 0.6]])
    assert all(p.is_on_frontier for p in points)


def test_the_cost_is_the_mean_over_seeds():
    assert [point.value for point in frontier([500], [[0.5, 0.6]])] == [500, 500]
