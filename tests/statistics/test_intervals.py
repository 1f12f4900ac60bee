"""Intervals agree with other libraries, and are printed as the data determine them."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from vit_vs_cnn.statistics.intervals import (
    Estimate,
    bootstrap_interval,
    format_interval,
    format_p_value,
    wilson_interval,
)
from vit_vs_cnn.statistics.significance import fisher_exact, holm, mcnemar_exact, one_sided_p_value


@pytest.mark.parametrize("correct", [37, 0, 101])
def test_wilson_interval_equals_statsmodels(correct):
    estimate = wilson_interval(correct, 101)
    theirs = proportion_confint(correct, 101, 0.05, method="wilson")
    assert (estimate.low, estimate.high) == pytest.approx(theirs, abs=1e-12)
    assert estimate.value == correct / 101


def test_bootstrap_interval_of_a_mean_equals_scipy_and_shared_noise_cancels():
    values = np.random.default_rng(0).exponential(size=101)
    mean = lambda means: means[:, 0]  # noqa: E731
    ours = bootstrap_interval(values[:, None], mean)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", rng=1).confidence_interval
    assert ours.value == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    assert bootstrap_interval(values[:, None], mean) == ours != bootstrap_interval(values[:, None], mean, seed=1)
    noise = np.random.default_rng(0).normal(10, 5, size=203)
    both = np.stack([2 * noise, noise], axis=1)
    difference = bootstrap_interval(both / [2, 1] + [1, 0], lambda means: means[:, 0] - means[:, 1])
    ratio = bootstrap_interval(both, lambda means: means[:, 0] / means[:, 1])
    assert vars(difference) == pytest.approx({"value": 1, "low": 1, "high": 1})
    assert vars(ratio) == pytest.approx({"value": 2, "low": 2, "high": 2})


def test_undetermined_ends_of_an_interval_are_not_printed_and_p_values_are_on_their_side_of_5_percent():
    texts = {(-0.028, 0.45): "-2.8 to 45.0", (-1.0, 0.45): "45.0 or less", (0.1, 1.0): "10.0 or more"}
    texts[-1.0, 1.0] = "too few seeds and test images for an interval"
    assert {ends: format_interval(Estimate(0.2, *ends)) for ends in texts} == texts
    texts = {0.0496: "0.0496", 0.04999: "0.04999", 0.05: "0.05", 0.0504: "0.05", 1e-5: "< 0.0001", None: "-"}
    assert {p: format_p_value(p) for p in texts} == texts


@pytest.mark.parametrize("seed", range(5))
def test_mcnemar_equals_statsmodels(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.random(211) < 0.6, rng.random(211) < 0.55
    table = [[(first & second).sum(), (first & ~second).sum()], [(~first & second).sum(), (~first & ~second).sum()]]
    assert mcnemar_exact(first, second) == pytest.approx(mcnemar(table, exact=True).pvalue, abs=1e-12)


def test_fisher_equals_scipy():
    for failures, runs, others, other_runs in [(3, 5, 0, 5), (2, 3, 1, 7), (0, 4, 4, 4), (1, 3, 1, 3)]:
        expected = stats.fisher_exact([[failures, runs - failures], [others, other_runs - others]]).pvalue
        assert fisher_exact(failures, runs, others, other_runs) == pytest.approx(expected)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 11])
def test_holm_equals_statsmodels(count):
    p_values = np.random.default_rng(14).random(count) ** 3
    expected = multipletests(p_values, method="holm")[1] if count else p_values
    assert holm(p_values.tolist()) == pytest.approx(expected.tolist(), abs=1e-12)


def test_one_sided_p_value_equals_the_t_test_or_without_spread_the_sign_test():
    differences = np.random.default_rng(0).normal(0.3, 1, 23)
    for values in (differences, -differences):
        expected = stats.ttest_1samp(values, 0, alternative="greater").pvalue
        assert one_sided_p_value(values) == pytest.approx(expected, rel=1e-12)
    assert one_sided_p_value(np.full(7, 0.2)) == 2**-7
    assert one_sided_p_value(np.zeros(7)) == one_sided_p_value(np.full(7, -1.0)) == 1.0
