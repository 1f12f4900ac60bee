"""Tests of difference against statsmodels and scipy, and against simulations whose truth is known."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import cochrans_q, mcnemar
from statsmodels.stats.multitest import multipletests

from vit_vs_cnn.comparison.significance import (
    cochran_q,
    difference_over_seeds,
    friedman_nemenyi,
    holm,
    mcnemar_exact,
    p_value_over_seeds,
    paired_bootstrap,
)
from vit_vs_cnn.comparison.statistics import paired_difference


def _pair(rng, count: int, accuracy: tuple[float, float], spread: float = 1.5):
    """Two networks of given true accuracies on images of unequal difficulty, which both find hard or easy."""
    ease = rng.normal(0, spread, count)
    offsets = [stats.norm.ppf(a) * np.sqrt(1 + spread**2) for a in accuracy]
    return [ease + offset + rng.normal(0, 1, count) > 0 for offset in offsets]


@pytest.mark.parametrize("seed", range(5))
def test_mcnemar_is_that_of_statsmodels(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.random(211) < 0.6, rng.random(211) < 0.55
    table = [[(first & second).sum(), (first & ~second).sum()], [(~first & second).sum(), (~first & ~second).sum()]]
    ours = mcnemar_exact(first, second)
    assert ours.p_value == pytest.approx(mcnemar(table, exact=True).pvalue, abs=1e-12)
    assert (ours.only_first, ours.only_second) == (table[0][1], table[1][0])


def test_networks_that_agree_on_every_image_do_not_differ():
    right = np.array([True, False, True])
    assert mcnemar_exact(right, right).p_value == 1.0


def test_equal_networks_are_told_apart_in_at_most_6_percent_of_500_simulated_pairs():
    rng = np.random.default_rng(7)
    found = sum(mcnemar_exact(*_pair(rng, 10_000, (0.8, 0.8))).p_value < 0.05 for _ in range(500))
    assert found <= 0.06 * 500


@pytest.mark.parametrize("accuracy", [0.55, 0.8, 0.92])
def test_a_true_difference_of_2_points_on_10000_images_is_found_in_over_95_percent(accuracy):
    rng = np.random.default_rng(8)
    found = sum(mcnemar_exact(*_pair(rng, 10_000, (accuracy + 0.02, accuracy))).p_value < 0.05 for _ in range(200))
    assert found > 0.95 * 200


def test_seeds_of_equal_kinds_are_told_apart_in_at_most_6_percent():
    """Five seeds on each side, each seed with an accuracy of its own."""
    rng = np.random.default_rng(9)
    found = 0
    for _ in range(500):
        ease = rng.normal(1, 1.5, 400)
        first, second = ease + rng.normal(0, 0.1, (2, 5, 1)) + rng.normal(0, 1, (2, 5, 400)) > 0
        found += p_value_over_seeds(first, second, paired_seeds=True) < 0.05
    assert found <= 0.06 * 500


def test_the_bootstrap_covers_a_known_difference_in_19_of_20_simulations():
    rng = np.random.default_rng(10)
    covered = 0
    for number in range(300):
        first, second = _pair(rng, 1000, (0.75, 0.70))
        estimate = paired_bootstrap(first[None], second[None], seed=number, resamples=1000)
        covered += estimate.low <= 0.05 <= estimate.high
    assert 0.92 * 300 <= covered <= 0.98 * 300


def test_with_one_seed_the_bootstrap_is_scipys():
    rng = np.random.default_rng(11)
    first, second = _pair(rng, 499, (0.7, 0.6))
    ours = paired_bootstrap(first[None], second[None], seed=3, resamples=20_000)
    theirs = stats.bootstrap(
        (first.astype(float) - second,), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=3e-3), pytest.approx(theirs.high, abs=3e-3))


def test_the_bootstrap_draws_seeds_too():
    """Seeds that differ by far more than images do: the interval must cover both of them."""
    good, bad = np.ones((1, 997), bool), np.zeros((1, 997), bool)
    first, second = np.concatenate([good, bad]), np.concatenate([bad, bad])
    estimate = paired_bootstrap(first, second, seed=0)
    assert (estimate.low, estimate.value, estimate.high) == (0.0, 0.5, 1.0)


def test_rows_that_are_to_be_paired_must_be_as_many():
    with pytest.raises(ValueError, match="2 and 3"):
        paired_bootstrap(np.ones((2, 5), bool), np.ones((3, 5), bool), seed=0)


def test_the_paired_interval_is_that_of_the_tables():
    rng = np.random.default_rng(12)
    first, second = rng.random((3, 211)) < 0.6, rng.random((3, 211)) < 0.5
    ours = difference_over_seeds(first, second, paired_seeds=True)
    theirs = paired_difference(first.tolist(), second.tolist())
    assert (ours.value, ours.low, ours.high) == pytest.approx((theirs.value, theirs.low, theirs.high))


@pytest.mark.parametrize("paired", [True, False])
def test_the_p_value_is_where_the_interval_begins_to_leave_zero_out(paired):
    rng = np.random.default_rng(13)
    first, second = rng.random((3, 211)) < 0.62, rng.random((3, 211)) < 0.5
    p = p_value_over_seeds(first, second, paired_seeds=paired)
    assert 1e-6 < p < 0.5
    assert difference_over_seeds(first, second, paired_seeds=paired, confidence=1 - p).low == pytest.approx(0, abs=1e-9)


def test_holm_is_that_of_statsmodels():
    p_values = np.random.default_rng(14).random(11) ** 3
    assert holm(p_values.tolist()) == pytest.approx(multipletests(p_values, method="holm")[1].tolist(), abs=1e-12)


def test_cochrans_q_is_that_of_statsmodels():
    correct = np.random.default_rng(15).random((4, 211)) < np.array([[0.5], [0.6], [0.62], [0.7]])
    theirs = cochrans_q(correct.T.astype(int))
    q, p = cochran_q(correct)
    assert (q, p) == (pytest.approx(theirs.statistic), pytest.approx(theirs.pvalue))


def test_friedman_is_scipys_and_nemenyis_distance_that_of_demsars_table():
    values = np.random.default_rng(16).random((4, 14))
    ours = friedman_nemenyi(values.tolist())
    assert (ours.statistic, ours.p_value) == pytest.approx(tuple(stats.friedmanchisquare(*values)))
    assert ours.critical_difference == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
    assert sum(ours.ranks) == pytest.approx(10)
