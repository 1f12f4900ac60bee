"""The frontier against a look at every pair."""

import numpy as np
import pytest

from vit_vs_cnn.regimes.curves import CurvePoint, LearningCurve
from vit_vs_cnn.regimes.frontier import cost_frontier
from vit_vs_cnn.statistics.estimate import Estimate


def grid_of(costs, accuracies):
    """Contenders a, b, ... at sizes 7 and 11, two seeds each that differ by a tenth of the cost."""
    results, curves = [], []
    for c, (cost, row) in enumerate(zip(costs, accuracies, strict=True)):
        name = "abcdefgh"[c]
        for size in (7, 11):
            results += [
                {"contender": name, "train_size": size, "parameters": cost * f, "flops": None} for f in (0.95, 1.05)
            ]
        points = [CurvePoint(n, Estimate(a, a, a), (a,)) for n, a in zip((7, 11), row, strict=True)]
        curves.append(LearningCurve(name, tuple(points)))
    return results, curves


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
    costs = [100.0 * (1 + i) for i in rng.permutation(7)]
    accuracies = rng.random((7, 2)).tolist()
    points = cost_frontier(*grid_of(costs, accuracies), ahead_by(least, accuracies))
    assert len(points) == 14
    for p in points:
        beaten = any(q.size == p.size and q.value <= p.value and q.accuracy - p.accuracy > least for q in points)
        assert p.is_on_frontier == (not beaten)
    assert {p.is_on_frontier for p in points} == {True, False}


def test_two_of_equal_cost_and_accuracy_are_both_on_it():
    points = cost_frontier(*grid_of([5.0, 5.0], [[0.5, 0.6], [0.5, 0.6]]), set())
    assert all(p.is_on_frontier for p in points)


def test_the_cost_is_the_mean_over_seeds_and_unknown_costs_are_left_out():
    points = cost_frontier(*grid_of([5.0], [[0.5, 0.6]]), set())
    assert {(p.cost, p.value) for p in points} == {("parameters", 5.0)}
