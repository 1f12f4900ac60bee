"""Intervals that outside references agree with."""

import numpy as np
import pytest
from scipy import stats

from vit_vs_cnn.statistics.bootstrap import bootstrap, mean_difference, mean_of


def test_the_interval_of_a_mean_is_that_of_scipys_bootstrap():
    values = np.random.default_rng(0).exponential(size=101)
    ours = mean_of(values)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", rng=1).confidence_interval
    assert ours.value == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.02)
    assert ours.high == pytest.approx(theirs.high, abs=0.02)
    assert mean_of(values) == ours
    assert mean_of(values, seed=1) != ours


def test_what_images_share_cancels_in_a_difference_and_in_a_ratio():
    generator = np.random.default_rng(0)
    hard = generator.normal(10, 5, size=203)
    difference = mean_difference(hard + 1, hard)
    assert difference.low == pytest.approx(1) == difference.high
    ratio = bootstrap(np.stack([2 * hard, hard], axis=1), lambda means: means[:, 0] / means[:, 1])
    assert ratio.low == pytest.approx(2) == ratio.high
