"""Tests of difference against statsmodels and scipy, and against simulations whose truth is known."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import cochrans_q, mcnemar
from statsmodels.stats.multitest import multipletests

from vit_vs_cnn.statistics.significance import cochran_q, friedman_nemenyi, holm, mcnemar_exact, mean_above_zero


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
    assert ours == pytest.approx(mcnemar(table, exact=True).pvalue, abs=1e-12)


def test_networks_that_agree_on_every_image_do_not_differ():
    right = np.array([True, False, True])
    assert mcnemar_exact(right, right) == 1.0


def test_equal_networks_are_told_apart_in_at_most_6_percent_of_500_simulated_pairs():
    rng = np.random.default_rng(7)
    found = sum(mcnemar_exact(*_pair(rng, 10_000, (0.8, 0.8))) < 0.05 for _ in range(500))
    assert found <= 0.06 * 500


@pytest.mark.parametrize("accuracy", [0.55, 0.8, 0.92])
def test_a_true_difference_of_2_points_on_10000_images_is_found_in_over_95_percent(accuracy):
    rng = np.random.default_rng(8)
    found = sum(mcnemar_exact(*_pair(rng, 10_000, (accuracy + 0.02, accuracy))) < 0.05 for _ in range(200))
    assert found > 0.95 * 200


@pytest.mark.parametrize("count", [1, 2, 5, 11])
def test_holm_is_that_of_statsmodels(count):
    p_values = np.random.default_rng(14).random(count) ** 3
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


def test_a_mean_above_zero_is_the_one_sided_t_test_and_without_spread_the_sign_test():
    differences = np.random.default_rng(0).normal(0.3, 1, 23)
    for values in (differences, -differences):
        expected = stats.ttest_1samp(values, 0, alternative="greater").pvalue
        assert mean_above_zero(values) == pytest.approx(expected, rel=1e-12)
    assert mean_above_zero(np.full(7, 0.2)) == 2**-7
    assert mean_above_zero(np.zeros(7)) == mean_above_zero(np.full(7, -1.0)) == 1.0
