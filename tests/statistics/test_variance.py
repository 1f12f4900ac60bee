"""Variances over seeds and images agree with numpy and statsmodels."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from vit_vs_cnn.statistics.variance import (
    POOLED_FREEDOM_SHARE,
    binomial_variance,
    image_variance,
    pool_seed_variance,
    two_way_anova,
)


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


def accuracies(models: int = 6, seeds: int = 4, spread: float = 0.01) -> np.ndarray:
    rng = np.random.default_rng(1)
    means, effects = rng.normal(0.6, 0.1, (models, 1)), rng.normal(0, 0.02, seeds)
    return means + effects + rng.normal(0, spread, (models, seeds))


def test_two_way_anova_has_the_residuals_of_statsmodels():
    values = accuracies()
    models, seeds = np.indices(values.shape)
    table = pd.DataFrame({"y": values.ravel(), "model": models.ravel(), "seed": seeds.ravel()})
    fit = ols("y ~ C(model) + C(seed)", table).fit()
    residual = anova_lm(fit).loc["Residual"]
    variance, p_equal = two_way_anova(values)
    assert variance == (pytest.approx(2 * residual["mean_sq"]), residual["df"])
    assert p_equal == pytest.approx(stats.bartlett(*fit.resid.to_numpy().reshape(values.shape)).pvalue)


def test_models_of_unequal_variance_are_reported():
    values = accuracies(seeds=8)
    values[0] += np.random.default_rng(2).normal(0, 0.2, 8)
    assert two_way_anova(values)[1] < 0.05 < two_way_anova(accuracies(seeds=8))[1]
    assert two_way_anova(np.full((5, 3), 0.5)) == ((0.0, 8), 1.0)
