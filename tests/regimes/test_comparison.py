"""Pairs at every size: what is compared with what, and over which family p-values are corrected."""

import numpy as np
import pytest

from tests.regimes.tables import seeded
from vit_vs_cnn.regimes.comparison import adjust_for_pairs, comparisons, over_all_sizes
from vit_vs_cnn.regimes.measurements import in_order, measurements_of


def compared(gap, *, seeds=3, obstacle=None, spread=0.002):
    results = seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.5 - gap, 11: 0.6}}, seeds=seeds, spread=spread)
    return comparisons(measurements_of(in_order(results)), ("a", "b"), (7, 11), [obstacle, obstacle])


def test_each_size_is_judged_by_itself():
    first, second = compared(0.2)
    assert (first.verdict, first.reason, first.leader, first.size) == ("ahead", None, "a", 7)
    assert (second.verdict, second.size) == ("no difference shown", 11)
    assert second.difference.low < 0 < second.difference.high


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_describe_only(seeds):
    (first, _) = compared(0.2, seeds=seeds)
    assert first.verdict == "descriptive only"
    assert first.reason is not None and first.reason.startswith(f"{seeds} seed")


def test_an_obstacle_forbids_the_verdict():
    (first, _) = compared(0.2, obstacle="their recipes had unequal trials (1, 12)")
    assert (first.verdict, first.reason) == ("no verdict", "their recipes had unequal trials (1, 12)")


def test_only_seeds_that_both_have_are_compared():
    results = seeded({"a": {7: 0.5}, "b": {7: 0.4}}, seeds=4, spread=0.02)
    few = [r for r in results if (r["contender"], r["seed"]) != ("b", 3)]
    (found,) = comparisons(measurements_of(in_order(few)), ("a", "b"), (7,), [None])
    by_seed = [[r["accuracy"] for r in few if r["contender"] == name][:3] for name in "ab"]
    assert found.seeds == 3
    assert found.difference.value == pytest.approx(np.mean(by_seed[0]) - np.mean(by_seed[1]))


def test_sizes_are_corrected_apart_and_all_together():
    first, second = compared(0.2)
    (judged,) = adjust_for_pairs([[first, second]])
    assert [c.adjusted_p_value for c in judged] == [first.p_value, second.p_value]
    together = over_all_sizes([judged])
    assert together["a", "b", 7] == pytest.approx(2 * first.p_value)
    assert together["a", "b", 11] == pytest.approx(second.p_value)


def test_pairs_of_a_size_are_corrected_for_their_number():
    (one, _) = compared(0.02, spread=0.0001, seeds=5)
    many = adjust_for_pairs([[one]] * 20)
    assert many[0][0].adjusted_p_value == pytest.approx(min(1.0, 20 * one.p_value))
    assert many[0][0].family == 20
