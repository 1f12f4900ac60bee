"""Variances over seeds and images agree with numpy."""

import numpy as np
import pytest

from vit_vs_cnn.statistics.variance import POOLED_FREEDOM_SHARE, binomial_variance, image_variance, pool_seed_variance


def test_image_variance_is_the_mean_covariance_of_different_seeds():
    rng = np.random.default_rng(0)
    scores = (rng.normal(size=211) + rng.normal(size=(4, 211)) > 0).astype(float)
    covariances = np.cov(scores, ddof=0)
    assert image_variance(scores) == pytest.approx(covariances[~np.eye(4, dtype=bool)].mean())
    assert image_variance(scores[:1]) == pytest.approx(scores[0].var())


@pytest.mark.parametrize("accuracy", [0.0, 0.5, 1.0])
def test_binomial_variance_is_positive_and_close_to_that_of_many_images(accuracy):
    assert binomial_variance(accuracy, 60) > 0
    assert binomial_variance(accuracy, 10**6) == pytest.approx(accuracy * (1 - accuracy) / 10**6, abs=1e-11)


#: Differences by training-set size; those at 7 vary more than those at 5 and 3.
DIFFERENCES = {5: np.array([0.01, 0.03, 0.02]), 7: np.array([0.0, 0.1]), 3: np.array([0.05, 0.06, 0.04]), 9: np.ones(1)}


def test_variances_of_sizes_are_pooled_unless_one_is_larger_or_has_fewer_than_two_seeds():
    groups = [values for values in DIFFERENCES.values() if len(values) > 1]
    expected = sum((len(values) - 1) * values.var(ddof=1) for values in groups) / 5
    for size in (5, 3):
        assert pool_seed_variance(DIFFERENCES, size) == (pytest.approx(expected), 5)
    assert pool_seed_variance(DIFFERENCES, 7) == (pytest.approx(0.005), pytest.approx(1 + 4 * POOLED_FREEDOM_SHARE))
    assert pool_seed_variance(DIFFERENCES, 7, freedom_share=0.0) == (pytest.approx(0.005), 1)
    assert pool_seed_variance(DIFFERENCES, 9) is pool_seed_variance(DIFFERENCES, 11) is None
