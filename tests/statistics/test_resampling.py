"""Resamples against closed forms."""

import numpy as np
import pytest
from scipy import stats

from tests.regimes.tables import draws_of, seeded
from tests.results import make_result
from vit_vs_cnn.regimes.measurements import in_order, measurements_of
from vit_vs_cnn.statistics.resampling import Resamples, estimate_from

IMAGES = 1009


def grid_of(hits):
    """Results and predictions from whether ``hits[contender, size, seed, image]``."""
    results, correct = [], {}
    for c, i, s in np.ndindex(hits.shape[:3]):
        place = {"contender": "ab"[c], "train_size": 7 + i, "seed": s}
        result = make_result(**place, accuracy=float(hits[c, i, s].mean()), scored_images=hits.shape[-1])
        results.append(result)
        correct[result.run] = hits[c, i, s]
    return results, correct


def half_width(values):
    estimate = estimate_from(0.0, values)
    return (estimate.high - estimate.low) / 2


def test_one_seeds_interval_is_the_binomial_one():
    hits = np.random.default_rng(0).random((1, 1, 1, IMAGES)) < 0.3
    results, correct = grid_of(hits)
    p = hits.mean()
    expected = 1.959964 * np.sqrt(p * (1 - p) / IMAGES)
    for predictions in (correct, None):
        draws = draws_of(results, count=10_000, correct=predictions)
        assert half_width(draws.values[:, 0, 0]) == pytest.approx(expected, rel=0.04)


def test_one_seeds_difference_has_the_paired_interval():
    ease = np.random.default_rng(0).standard_normal((1, 1, 1, IMAGES))
    noise = np.random.default_rng(1).standard_normal((2, 1, 1, IMAGES))
    hits = ease + 0.5 * noise > np.array([0.0, 0.4]).reshape(2, 1, 1, 1)
    results, correct = grid_of(hits)
    draws = draws_of(results, count=10_000, correct=correct)
    difference = hits[0, 0, 0].astype(float) - hits[1, 0, 0]
    paired = 1.959964 * difference.std() / np.sqrt(IMAGES)
    assert half_width(draws.values[:, 0, 0] - draws.values[:, 1, 0]) == pytest.approx(paired, rel=0.04)
    unpaired = 1.959964 * np.sqrt(sum(p * (1 - p) for p in hits.mean(-1).ravel()) / IMAGES)
    assert paired < 0.75 * unpaired  # or the test says nothing


@pytest.mark.parametrize("seeds", [2, 3, 7])
def test_with_endless_images_the_interval_of_every_contrast_is_students(seeds):
    table = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.4, 11: 0.65}}
    results = seeded(table, seeds=seeds, images=10**15, spread=0.02)
    draws = draws_of(results, count=40_000)
    contrast = np.array([[1.0, -0.3], [-2.0, 0.7]])
    accuracy = measurements_of(in_order(results)).accuracy
    by_seed = (contrast[:, :, None] * accuracy).sum((0, 1))
    low, high = stats.ttest_1samp(by_seed, 0.0).confidence_interval(0.95)
    drawn = half_width((contrast * draws.values).sum((1, 2)))
    assert drawn == pytest.approx((high - low) / 2, rel=0.06)


def test_what_a_network_does_by_itself_counts_once():
    """Coins in place of networks: images share nothing between seeds, so the seeds' spread is all there is."""
    hits = np.random.default_rng(3).random((2, 1, 5, IMAGES)) < 0.5
    results, correct = grid_of(hits)
    draws = draws_of(results, count=10_000, correct=correct)
    by_seed = hits[0, 0].mean(-1) - hits[1, 0].mean(-1)
    low, high = stats.ttest_1samp(by_seed, 0.0).confidence_interval(0.95)
    drawn = half_width(draws.values[:, 0, 0] - draws.values[:, 1, 0])
    assert drawn == pytest.approx((high - low) / 2, rel=0.08)


def test_what_all_seeds_share_counts_in_full():
    hits = np.broadcast_to(np.random.default_rng(3).random((1, 2, 1, IMAGES)) < 0.5, (1, 2, 5, IMAGES))
    results, correct = grid_of(hits)
    draws = draws_of(results, count=10_000, correct=correct)
    p = hits[0, 0, 0].mean()
    assert half_width(draws.values[:, 0, 0]) == pytest.approx(1.96 * np.sqrt(p * (1 - p) / IMAGES), rel=0.04)
    # Images are resampled together: the two sizes' draws are as correlated as their images.
    expected = np.corrcoef(hits[0, 0, 0], hits[0, 1, 0])[0, 1]
    assert np.corrcoef(draws.values[:, 0].T)[0, 1] == pytest.approx(expected, abs=0.03)


def test_weights_equal_images_gathered_by_index():
    hits = np.random.default_rng(0).random((2, 3, 1, 101)) < 0.5
    results, correct = grid_of(hits)
    measured = measurements_of(results, correct)
    resamples = Resamples(measured, count=5, seed=0)
    deviations = resamples._image_deviations
    rng = np.random.default_rng()
    rng.bit_generator.state = _state_before_images(resamples)
    images = rng.integers(101, size=(5, 101))
    assert deviations is not None
    for r in range(5):
        gathered = hits[..., images[r]].mean(-1) - hits.mean(-1)
        np.testing.assert_allclose(deviations[r], gathered, atol=1e-12)


def _state_before_images(resamples):
    from vit_vs_cnn.seeds import derive_seed

    rng = np.random.default_rng(derive_seed("regimes", 0))
    rng.standard_normal((2, resamples.count, len(resamples.measured.seeds)))
    rng.standard_normal((resamples.count, *resamples.measured.accuracy.shape[:2]))
    return rng.bit_generator.state


def test_a_perfect_score_is_not_certain_and_none_is_beyond_it():
    results, correct = grid_of(np.ones((1, 1, 3, 59), dtype=bool))
    draws = draws_of(results, correct=correct)
    estimate = estimate_from(1.0, draws.values[:, 0, 0])
    assert 0.95 < estimate.low < 0.98
    assert draws.values.max() == 1.0


def test_only_seeds_that_contenders_share_are_compared():
    results = seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.4}}, seeds=3)
    shared = [r for r in results if (r.contender, r.seed) != ("b", 2)]
    draws = draws_of(shared, "a", "b")
    assert (draws.sizes, draws.seeds) == ((7,), (2,))
    of_a = [r.accuracy for r in shared if (r.contender, r.train_size) == ("a", 7)]
    assert draws.observed[0, 0] == pytest.approx(np.mean(of_a[:2]))
    assert draws_of(shared, "a").seeds == (3, 3)


def test_the_variance_is_that_of_seeds_and_images():
    results = seeded({"a": {7: 0.5}}, seeds=3, images=IMAGES, spread=0.02)
    values = [r.accuracy for r in results]
    expected = np.var(values, ddof=1) / 3 + np.mean(values) * (1 - np.mean(values)) / IMAGES
    assert draws_of(results).variance[0, 0] == pytest.approx(expected, rel=0.01)


def test_the_same_seed_gives_the_same_draws_and_another_gives_others():
    hits = np.random.default_rng(0).random((2, 3, 2, 101)) < 0.5
    measured = measurements_of(*grid_of(hits))
    one, again, other = (Resamples(measured, count=7, seed=s).of(["a", "b"]).values for s in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.isclose(one, other).any(axis=0).all()
