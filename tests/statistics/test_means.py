"""Means over seeds and images against closed forms, outside references and the resamples beside them."""

import numpy as np
import pytest
from scipy import stats

from vit_vs_cnn.statistics.estimate import Estimate, wilson_interval
from vit_vs_cnn.statistics.means import (
    Uncertain,
    accuracy_interval,
    accuracy_interval_without_images,
    difference_of_accuracies,
    difference_over_seeds,
    mean_of_accuracies,
    mean_over_seeds,
    shared_variance,
)
from vit_vs_cnn.statistics.measurements import Measurements
from vit_vs_cnn.statistics.resampling import Resamples, estimate_from


def _right(share: float, seeds: int = 3, images: int = 1009, *, seed: int = 0, spread: float = 0.05) -> np.ndarray:
    """Seeds that find the same images hard."""
    rng = np.random.default_rng(seed)
    ease = np.random.default_rng(99).normal(0, 1.0, images)
    level = stats.norm.ppf(share) * np.sqrt(2) + spread * rng.normal(size=(seeds, 1))
    return ease + level + rng.normal(0, 1.0, (seeds, images)) > 0


def test_wilsons_interval_solves_its_quadratic():
    estimate = wilson_interval(37, 101)
    z = stats.norm.ppf(0.975)
    for bound in (estimate.low, estimate.high):
        assert (37 / 101 - bound) ** 2 == pytest.approx(z**2 * bound * (1 - bound) / 101)


def test_a_single_networks_accuracy_has_wilsons_interval_whether_or_not_images_are_known():
    right = _right(0.4, seeds=1, images=101)
    expected = wilson_interval(int(right.sum()), 101)
    assert accuracy_interval(right) == expected
    assert accuracy_interval_without_images([float(right.mean())], 101) == expected


@pytest.mark.parametrize("df", [1, 2, 4, 29])
def test_seeds_alone_are_students_and_images_alone_normal(df):
    student = Uncertain(0.3, ((0.02, df),), 0.0)
    low, high = stats.t.interval(0.95, df, loc=0.3, scale=0.02)
    cut = student.interval(within=(-1e9, 1e9))
    assert (cut.low, cut.high) == (pytest.approx(low, abs=1e-8), pytest.approx(high, abs=1e-8))
    assert student.p_value == pytest.approx(2 * stats.t.sf(15, df), abs=1e-9)
    normal = Uncertain(0.3, (), 0.02).interval()
    assert (normal.low, normal.high) == pytest.approx(stats.norm.interval(0.95, 0.3, 0.02))


@pytest.mark.parametrize("students", [((0.02, 2),), ((0.02, 2), (0.01, 4))])
def test_the_sum_of_both_is_what_a_million_draws_give(students):
    uncertain = Uncertain(0.03, students, 0.015)
    rng = np.random.default_rng(1)
    drawn = 0.03 + 0.015 * rng.normal(size=1_000_000) + sum(a * rng.standard_t(df, 1_000_000) for a, df in students)
    estimate = uncertain.interval()
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1e-3)
    assert uncertain.p_value == pytest.approx(2 * (drawn < 0).mean(), abs=2e-3)


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_leaves_zero_out_exactly_where_the_p_value_is_below_its_error(paired):
    uncertain = difference_over_seeds(_right(0.62), _right(0.55, seed=1), paired_seeds=paired)
    p = uncertain.p_value
    assert 1e-6 < p < 0.5
    assert uncertain.interval(1 - p).low == pytest.approx(0, abs=1e-9)


def test_with_endless_test_images_the_interval_is_students():
    values = np.array([0.61, 0.63, 0.66, 0.60, 0.64])
    estimate = mean_of_accuracies(values, 10**15).interval()
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))


def test_what_a_network_does_by_itself_counts_once_and_what_seeds_share_in_full():
    coins = np.random.default_rng(3).random((5, 1009)) < 0.5
    assert shared_variance(coins.astype(float)) < 0.02
    same = np.broadcast_to(coins[0], (5, 1009)).astype(float)
    assert shared_variance(same) == pytest.approx(same[0].var())


def test_shared_variance_is_the_mean_covariance_of_different_seeds():
    rows = _right(0.6, seeds=4).astype(float)
    every = np.cov(rows, ddof=0)
    assert shared_variance(rows) == pytest.approx(every[~np.eye(4, dtype=bool)].mean())


def test_swapping_the_two_turns_the_sign_and_the_order_of_seeds_and_images_is_of_no_account():
    first, second = _right(0.6), _right(0.55, seed=1)
    forth, back = (difference_over_seeds(*pair, paired_seeds=True) for pair in ((first, second), (second, first)))
    turned = -back.interval()
    assert vars(forth.interval()) == pytest.approx(vars(turned))
    images = np.random.default_rng(0).permutation(first.shape[1])
    shuffled = difference_over_seeds(first[::-1][:, images], second[::-1][:, images], paired_seeds=True)
    assert vars(shuffled.interval()) == pytest.approx(vars(forth.interval()), abs=1e-12)
    assert shuffled.p_value == pytest.approx(forth.p_value, abs=1e-12)


def test_a_perfect_score_is_not_certain_and_none_is_beyond_it():
    perfect = np.ones((3, 59), dtype=bool)
    estimate = accuracy_interval(perfect)
    assert estimate.low == pytest.approx(wilson_interval(59, 59).low, abs=0.005)  # three that agree are as one
    assert estimate.high == 1.0
    assert difference_over_seeds(perfect, perfect, paired_seeds=True).p_value == 1.0


def test_rows_that_are_to_be_paired_must_be_as_many():
    with pytest.raises(ValueError, match="2 and 3"):
        difference_over_seeds(np.ones((2, 5), bool), np.ones((3, 5), bool), paired_seeds=True)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_resamples_of_a_mean_and_of_a_difference_have_this_distribution(seeds, known):
    """One engine: what is drawn for curves and crossings, and what is summed for means."""
    right = np.stack([_right(0.62, seeds), _right(0.55, seeds, seed=1)])[:, None]
    images = np.full((2, 1, seeds), 1009.0)
    table = Measurements(("a", "b"), (7,), (*range(seeds),), right.mean(-1), images, right if known else None)
    drawn = Resamples(table, count=40_000, seed=0).of(["a", "b"]).values
    a, b = right[0, 0], right[1, 0]
    if known:
        mean, difference = mean_over_seeds(a), difference_over_seeds(a, b, paired_seeds=True)
    else:
        mean = mean_of_accuracies(a.mean(1), 1009)
        difference = difference_of_accuracies(a.mean(1), b.mean(1), (1009, 1009))
    for summed, sample in ((mean, drawn[:, 0, 0]), (difference, drawn[:, 0, 0] - drawn[:, 1, 0])):
        ours, theirs = summed.interval(), estimate_from(summed.mean, sample)
        width = ours.high - ours.low
        assert (theirs.low, theirs.high) == pytest.approx((ours.low, ours.high), abs=0.04 * width)


def test_unpaired_seeds_have_a_students_part_on_each_side():
    first, second = _right(0.6, seeds=2), _right(0.55, seeds=5, seed=1)
    uncertain = difference_over_seeds(first, second, paired_seeds=False)
    assert [df for _, df in uncertain.students] == [1, 4]
    expected = first.mean(1).std(ddof=1) / np.sqrt(2), second.mean(1).std(ddof=1) / np.sqrt(5)
    assert [scale for scale, _ in uncertain.students] == pytest.approx(expected)
    single = difference_over_seeds(first[:1], second, paired_seeds=False)
    assert [df for _, df in single.students] == [4]


def test_a_known_difference_is_covered_in_19_of_20_simulations():
    """Hard and easy images, seeds that differ: truth is .08 by construction."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        ease = rng.uniform(0.2, 0.8, 300)
        shifts = rng.normal(0, 0.02, (2, 5, 1))
        first = rng.random((5, 300)) < ease + 0.08 + shifts[0]
        second = rng.random((5, 300)) < ease + shifts[1]
        estimate = difference_over_seeds(first, second, paired_seeds=True).interval()
        covered += estimate.low <= 0.08 <= estimate.high
    assert 0.93 * 400 <= covered <= 0.98 * 400


def test_an_estimate_seen_from_the_other_side():
    assert -Estimate(0.1, -0.2, 0.3) == Estimate(-0.1, -0.3, 0.2)
