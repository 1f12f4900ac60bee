"""Variances and distributions of means over seeds and images agree with closed forms, numpy, scipy and statsmodels."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from statsmodels.stats.power import TTestPower

from vit_vs_cnn.statistics.intervals import wilson_interval
from vit_vs_cnn.statistics.mean_distribution import (
    MAX_SEEDS,
    MeanDistribution,
    SeedScores,
    accuracy_interval,
    difference_over_seeds,
    mean_over_seeds,
    numbers_needed,
)
from vit_vs_cnn.statistics.variance import (
    POOLED_FREEDOM_SHARE,
    SeedVariance,
    binomial_variance,
    image_variance,
    pool_seed_variance,
)

WIDE = (-1e9, 1e9)
MANY_IMAGES = 10**15


def simulated(accuracy: float, seeds: int = 3, images: int = 1009, *, seed: int = 0) -> np.ndarray:
    """Correctness of the predictions of several seeds, which misclassify mostly the same images."""
    ease = np.random.default_rng(99).normal(0, 1.0, images)
    rng = np.random.default_rng(seed)
    level = stats.norm.ppf(accuracy) * np.sqrt(2) + 0.05 * rng.normal(size=(seeds, 1))
    return ease + level + rng.normal(0, 1.0, (seeds, images)) > 0


def scores(accuracy: float, seeds: int = 3, images: int = 1009, *, seed: int = 0) -> SeedScores:
    return SeedScores.from_correct(simulated(accuracy, seeds, images, seed=seed))


def without_predictions(accuracies, images: int) -> SeedScores:
    return SeedScores(np.array(accuracies), np.full(len(accuracies), images))


def ends(estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


def test_seeds_have_students_distribution_images_a_normal_one_and_their_sum_the_convolution():
    for df in (1, 2, 4, 29):
        student = MeanDistribution(0.3, ((0.02, float(df)),), 0.0)
        assert ends(student.interval(bounds=WIDE)) == pytest.approx(stats.t.interval(0.95, df, 0.3, 0.02), abs=1e-7)
        assert student.p_value == pytest.approx(2 * stats.t.sf(15, df), abs=1e-9)
    normal = MeanDistribution(0.03, (), 0.02)
    for confidence in (0.95, 0.99):
        assert ends(normal.interval(confidence)) == pytest.approx(stats.norm.interval(confidence, 0.03, 0.02))
    assert normal.p_value == pytest.approx(2 * stats.norm.sf(1.5))
    scale, df, sigma = 0.02, 2.0, 0.015
    expected, _ = integrate.quad(lambda z: stats.norm.pdf(z) * 2 * stats.t.sf((0.03 + sigma * z) / scale, df), -9, 9)
    assert MeanDistribution(0.03, ((scale, df),), sigma).p_value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("parts", [(), ((0.02, 2.0),), ((0.01, 2.0), (0.02, 11.5))])
def test_interval_excludes_zero_exactly_where_the_p_value_is_below_the_error_rate(parts):
    found = MeanDistribution(0.05, parts, 0.01)
    p = found.p_value
    assert 1e-7 < p < 0.5
    assert found.interval(1 - 0.99 * p).low <= 0 <= found.interval(1 - 0.99 * p).high
    assert not found.interval(1 - 1.01 * p).low <= 0 <= found.interval(1 - 1.01 * p).high


@pytest.mark.parametrize(("seeds", "level"), [(3, 0.05), (5, 0.01), (10, 0.05)])
def test_minimum_detectable_difference_equals_statsmodels(seeds, level):
    """``TTestPower`` expects it in standard deviations of a single seed."""
    effect = TTestPower().solve_power(nobs=seeds, alpha=level, power=0.8)
    found = MeanDistribution(0.0, ((0.02 / math.sqrt(seeds), seeds - 1.0),), 0.0)
    assert found.minimum_detectable(level) == pytest.approx(0.02 * effect, rel=1e-4)


@pytest.mark.parametrize(("parts", "sigma"), [(((0.02, 4.0), (0.02, 4.0)), 0.0), (((0.02, 2.0),), 0.03), ((), 0.01)])
def test_minimum_detectable_difference_has_satterthwaites_degrees_of_freedom(parts, sigma):
    found = MeanDistribution(0.0, parts, sigma)
    variance = sigma**2 + sum(a**2 for a, _ in parts)
    df = variance**2 / max(1e-20, sum(a**4 / df for a, df in parts))
    threshold = found.interval(bounds=WIDE).high / math.sqrt(variance)
    shift = found.minimum_detectable() / math.sqrt(variance)
    of_mean = stats.nct(df, shift) if parts else stats.norm(shift)
    assert of_mean.sf(threshold) + of_mean.cdf(-threshold) == pytest.approx(0.8, abs=1e-4)


def test_the_smallest_sufficient_numbers_of_seeds_and_images_are_found():
    found = MeanDistribution(0.01, ((0.01, 2.0),), 0.002)
    counts = [numbers_needed(found, 3, 99, difference, level=0.05)[0] for difference in (0.05, 0.02, 0.012)]
    assert None not in counts and counts == sorted(counts) and counts[0] < counts[-1]

    def detectable(seeds):
        return MeanDistribution(0.0, ((0.01 * math.sqrt(3 / seeds), seeds - 1.0),), 0.002).minimum_detectable()

    assert detectable(counts[-1]) <= 0.012 < detectable(counts[-1] - 1)
    assert numbers_needed(found, 3, 99, 0.001, level=0.05)[0] is None
    assert numbers_needed(MeanDistribution(0.0, (), 0.01), 3, 99, 0.01, level=0.05)[0] is None  # images alone decide
    assert detectable(MAX_SEEDS) > 0.001
    found = MeanDistribution(0.01, ((0.002, 2.0),), 0.01)
    counts = [numbers_needed(found, 3, 200, difference, level=0.05)[1] for difference in (0.03, 0.02)]
    assert None not in counts and 200 < counts[0] < counts[1]
    assert numbers_needed(found, 3, 200, 0.004, level=0.05)[1] is None


def test_with_unlimited_test_images_the_interval_equals_the_t_test():
    values = np.array([0.61, 0.63, 0.66, 0.60, 0.64])
    found = mean_over_seeds(without_predictions(values, MANY_IMAGES)).interval()
    assert ends(found) == pytest.approx(tuple(stats.ttest_1samp(values, 0.0).confidence_interval(0.95)), abs=1e-7)


def test_paired_difference_has_the_seed_part_of_the_t_test_and_the_covariance_of_images():
    first, second = simulated(0.62, 4), simulated(0.55, 4, seed=1)
    found = difference_over_seeds(SeedScores.from_correct(first), SeedScores.from_correct(second))
    changes = first.astype(float) - second
    ((scale, df),) = found.seed_parts
    assert (scale, df) == (pytest.approx(stats.sem(changes.mean(1))), 3)
    covariances = np.cov(changes, ddof=0)[~np.eye(4, dtype=bool)]
    assert image_variance(changes) == pytest.approx(covariances.mean())
    assert image_variance(changes[:1]) == pytest.approx(changes[0].var())
    assert found.image_error**2 == pytest.approx(covariances.mean() / 1009 + 1 / 1009**2)
    assert found.accuracies == (pytest.approx(first.mean()), pytest.approx(second.mean()))
    pooled = difference_over_seeds(scores(0.6), scores(0.5, seed=1), seed_variance=SeedVariance(0.0003, 8.0))
    assert pooled.seed_parts == ((pytest.approx(0.01), 8),)
    for unknown in ((True, False), (False, True)):  # the predictions of one model: binomial variances
        sides = [scores(0.6, 4) if known else without_predictions([0.6] * 4, 1009) for known in unknown]
        variance = sum(binomial_variance(side.accuracy, 1009) for side in sides)
        assert difference_over_seeds(*sides).image_error ** 2 == pytest.approx(variance)


def test_unpaired_difference_has_a_seed_part_of_each_model():
    first, second = scores(0.6, 2), scores(0.55, 5, seed=1)
    found = difference_over_seeds(first, second, paired=False)
    assert [df for _, df in found.seed_parts] == [1, 4]
    errors = [stats.sem(side.accuracies) for side in (first, second)]
    assert [scale for scale, _ in found.seed_parts] == pytest.approx(errors)
    rows = simulated(0.6, 2), simulated(0.55, 5, seed=1)[:, ::-1]  # other images are difficult for each
    found = difference_over_seeds(*map(SeedScores.from_correct, rows), paired=False)
    covariances = np.cov(np.vstack(rows), ddof=0)
    blocks = covariances[0, 1], covariances[2:, 2:][~np.eye(5, dtype=bool)].mean(), covariances[:2, 2:].mean()
    expected = (blocks[0] + blocks[1] - 2 * blocks[2]) / 1009 + 1 / 1009**2
    assert blocks[2] != pytest.approx(0, abs=1e-4)
    assert found.image_error**2 == pytest.approx(expected)
    assert [df for _, df in difference_over_seeds(scores(0.6, 1), second, paired=False).seed_parts] == [4]
    other_images = difference_over_seeds(*map(SeedScores.from_correct, (rows[0][:, :500], rows[1])), paired=False)
    own = np.cov(rows[0][:, :500], ddof=0)[0, 1]
    assert other_images.image_error**2 == pytest.approx((own + blocks[1]) / 500 + 1 / 500**2)
    with pytest.raises(ValueError, match="paired scores need the same seeds, but there are 2 and 5"):
        difference_over_seeds(first, second)


def test_unpaired_seeds_with_unlimited_images_have_the_behrens_fisher_distribution():
    """Welch's t-test approximates it. Both agree unless there are few degrees of freedom."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.6, 0.02, 40), rng.normal(0.59, 0.01, 50)
    sides = (without_predictions(values, MANY_IMAGES) for values in (first, second))
    found = difference_over_seeds(*sides, paired=False)
    assert found.p_value == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue, rel=0.05)


def test_a_single_network_has_wilsons_interval_and_perfect_scores_about_that():
    one = scores(0.4, seeds=1, images=101)
    expected = wilson_interval(round(one.accuracy * 101), 101)
    assert accuracy_interval(one) == accuracy_interval(without_predictions(one.accuracies, 101)) == expected
    perfect = SeedScores.from_correct(np.ones((3, 59)))
    estimate = accuracy_interval(perfect)
    assert estimate.low == pytest.approx(wilson_interval(59, 59).low, abs=0.005)
    assert estimate.high == 1.0
    assert difference_over_seeds(perfect, perfect).p_value == 1.0


def test_folds_have_nadeau_and_bengios_variance():
    values, images = [0.71, 0.66, 0.74, 0.69], 10**9
    found = mean_over_seeds(without_predictions(values, images), fold_train_size=4 * images)
    variance = np.var(values, ddof=1)
    assert found.seed_parts == ((pytest.approx(math.sqrt(variance * (1 / 4 + 0.25))), 3),)
    assert found.image_error == 1 / (4 * images)  # each seed has other images, and their noise is in the seed part
    rows = [np.arange(1000) < 1000 * value for value in values]
    found = mean_over_seeds(SeedScores(np.array(values), np.full(4, 1000), rows), fold_train_size=4000)
    noise = np.mean([value * (1 - value) / 1000 for value in values])
    expected = variance / 4 + 0.25 * (variance - noise)  # image noise of different folds is independent
    assert found.seed_parts[0][0] == pytest.approx(math.sqrt(expected))


def test_impossible_ends_of_a_difference_are_not_determined():
    """From accuracies of 0.9 and 0.3 the difference can be 0.9 at most while one of them stays as measured."""
    found = MeanDistribution(0.6, ((0.1, 2.0),), 0.05, accuracies=(0.9, 0.3))
    assert found.interval().high == 1.0
    assert found.interval().low == pytest.approx(found.interval(bounds=WIDE).low)
    assert MeanDistribution(0.6, ((0.04, 2.0),), 0.0, accuracies=(0.9, 0.3)).interval().high < 0.9


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
