"""What may be said of a difference."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from tests.experiments.regimes.tables import draws_of, seeded
from vit_vs_cnn.experiments.regimes.comparison import adjust_for_pairs, comparisons, holm, two_sided


def compared(gap, *, seeds=3, obstacle=None, spread=0.002):
    results = seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.5 - gap, 11: 0.6}}, seeds=seeds, spread=spread)
    return comparisons(draws_of(results), [obstacle, obstacle])


def test_three_seeds_and_an_interval_off_zero_give_a_verdict():
    first, second = compared(0.2)
    assert (first.verdict, first.reason, first.leader, first.follower) == ("ahead", None, "a", "b")
    assert first.p_value < 0.05
    assert (second.verdict, second.size) == ("no difference shown", 11)
    assert second.difference.low < 0 < second.difference.high


def test_the_lead_is_the_difference_seen_from_the_leader():
    (first, _) = compared(-0.2)
    assert first.leader == "b"
    assert first.lead.value == -first.difference.value > 0
    assert (first.lead.low, first.lead.high) == (-first.difference.high, -first.difference.low)


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_describe_only(seeds):
    (first, _) = compared(0.2, seeds=seeds)
    assert first.verdict == "descriptive only"
    assert first.reason is not None and first.reason.startswith(f"{seeds} seed")


def test_an_obstacle_forbids_the_verdict():
    (first, _) = compared(0.2, obstacle="their recipes had unequal trials (1, 12)")
    assert (first.verdict, first.reason) == ("no verdict", "their recipes had unequal trials (1, 12)")


def test_holms_p_values_are_those_of_statsmodels():
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 13):
        values = rng.random(count) ** 3
        expected = multipletests(values, method="holm")[1]
        np.testing.assert_allclose(holm(values.tolist()), expected)


def test_more_pairs_make_a_verdict_harder():
    (one, _) = compared(0.02, spread=0.0001, seeds=5)
    assert one.verdict == "ahead" or one.p_value < 0.5
    alone = adjust_for_pairs([[one]])
    many = adjust_for_pairs([[one]] * 20)
    assert alone[0][0].adjusted_p_value == one.p_value
    assert many[0][0].adjusted_p_value == pytest.approx(min(1.0, 20 * one.p_value))
    assert many[0][0].verdict == "no difference shown"


def test_sizes_are_corrected_apart():
    first, second = compared(0.2)
    (judged,) = adjust_for_pairs([[first, second]])
    assert [c.adjusted_p_value for c in judged] == [first.p_value, second.p_value]


def test_a_p_value_is_never_below_what_the_resamples_can_tell():
    assert two_sided(np.ones(99)) == 0.02
    assert two_sided(np.array([-1.0, 1.0])) == 1.0
