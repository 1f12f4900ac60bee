"""Intervals agree with other libraries, and are printed as the data determine them."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from vit_vs_cnn.statistics.intervals import (
    Estimate,
    bootstrap_interval,
    format_interval,
    format_p_value,
    wilson_interval,
)


@pytest.mark.parametrize("correct", [37, 0, 101])
def test_wilson_interval_is_that_of_statsmodels(correct):
    estimate = wilson_interval(correct, 101)
    theirs = proportion_confint(correct, 101, 0.05, method="wilson")
    assert (estimate.low, estimate.high) == pytest.approx(theirs, abs=1e-12)
    assert estimate.value == correct / 101


def test_bootstrap_interval_of_a_mean_is_that_of_scipy():
    values = np.random.default_rng(0).exponential(size=101)
    mean = lambda means: means[:, 0]  # noqa: E731
    ours = bootstrap_interval(values[:, None], mean)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", rng=1).confidence_interval
    assert ours.value == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    assert bootstrap_interval(values[:, None], mean) == ours != bootstrap_interval(values[:, None], mean, seed=1)


def test_noise_that_an_images_quantities_share_cancels_in_differences_and_ratios():
    noise = np.random.default_rng(0).normal(10, 5, size=203)
    both = np.stack([2 * noise, noise], axis=1)
    difference = bootstrap_interval(both / [2, 1] + [1, 0], lambda means: means[:, 0] - means[:, 1])
    ratio = bootstrap_interval(both, lambda means: means[:, 0] / means[:, 1])
    assert vars(difference) == pytest.approx({"value": 1, "low": 1, "high": 1})
    assert vars(ratio) == pytest.approx({"value": 2, "low": 2, "high": 2})


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-0.028, 0.45, "-2.8 to 45.0"),
        (-1.0, 0.45, "45.0 or less"),
        (0.1, 1.0, "10.0 or more"),
        (-1.0, 1.0, "too few seeds and test images for an interval"),
    ],
)
def test_interval_is_printed_without_the_ends_that_the_data_do_not_determine(low, high, text):
    assert format_interval(Estimate(0.2, low, high)) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0496, "0.0496"), (0.04999, "0.04999"), (0.05, "0.05"), (0.0504, "0.05"), (1e-5, "< 0.0001"), (None, "-")],
)
def test_p_value_is_printed_on_its_side_of_5_percent(p, text):
    assert format_p_value(p) == text
