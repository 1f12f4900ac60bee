"""The out-of-distribution score: two distances against sklearn, a threshold that 5 % exceed, plain files."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.covariance import EmpiricalCovariance
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.networks.held_out import (
    NEIGHBOURS,
    OutOfDistributionScore,
    auroc,
    log_contrast,
    read_held_out,
    unlike_images,
)


def sampled(count, seed, width=11):
    """Smooth images of 8 x 12 pixels, and features."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 4, 4, generator=generator)
    images = F.interpolate(coarse, size=(8, 12), mode="bilinear").mul(255).byte()
    return images, torch.randn(count, width, generator=generator) + 1


def fitted(training=80, validation=40, seed=1):
    return OutOfDistributionScore.fit(sampled(training, seed), sampled(validation, seed + 1000))


def test_distances_equal_sklearn():
    training, asked = sampled(57, 0), sampled(13, 2)
    found = OutOfDistributionScore.fit(training, sampled(40, 1)).distances(*asked)
    neighbours = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(F.normalize(training[1], dim=1).numpy())
    nearest = neighbours.kneighbors(F.normalize(asked[1], dim=1).numpy())[0][:, -1]
    np.testing.assert_allclose(found[:, 0], nearest, rtol=2e-3)
    covariance = EmpiricalCovariance().fit(log_contrast(training[0]).numpy())
    np.testing.assert_allclose(found[:, 1] ** 2, covariance.mahalanobis(log_contrast(asked[0]).numpy()), rtol=5e-3)


def test_threshold_is_the_conformal_quantile_of_the_larger_distance():
    """The 39th of 40 scores of validation images: ceil(41 x 0.95)."""
    validation = sampled(40, 2)
    scores = OutOfDistributionScore.fit(sampled(57, 1), validation).scores(*validation)
    assert np.sort(scores)[38] == pytest.approx(1)


def test_at_most_5_percent_of_in_distribution_images_are_flagged_on_average():
    """Over 60 samples of 30 validation images: 5 % and the Monte Carlo error."""
    shares = [np.mean(fitted(validation=30, seed=seed).scores(*sampled(200, 3000 + seed)) > 1) for seed in range(60)]
    assert 0.01 < np.mean(shares) < 0.05 + 3 * np.std(shares) / 60**0.5


@pytest.mark.parametrize("side", [8, 16, 64])
@pytest.mark.parametrize("kind", ["noise", "blank"])
def test_noise_and_blank_images_have_higher_scores_whatever_the_features(kind, side):
    """Features of all images have the same distribution, as with an untrained network."""
    images = render_objects(200, image_size=side, seed=3).images.images
    features = sampled(200, 0)[1]
    score = OutOfDistributionScore.fit((images[:100], features[:100]), (images[100:150], features[100:150]))
    unlike = unlike_images((3, side, side))[kind]
    scores = score.scores(unlike, features[: len(unlike)])
    assert auroc(score.scores(images[150:], features[150:]), scores) > 0.95


def test_auroc_equals_sklearn():
    rng = np.random.default_rng(0)
    lower, higher = rng.integers(0, 5, 30) * 1.0, rng.integers(2, 8, 20) * 1.0
    truth = np.repeat([0, 1], [30, 20])
    assert auroc(lower, higher) == pytest.approx(roc_auc_score(truth, [*lower, *higher]))


def test_too_few_or_unusable_images_have_no_score():
    with pytest.raises(ValueError, match="expected at least 19 images, got 18"):
        fitted(validation=18)
    assert fitted(validation=19) is not None
    images, features = sampled(30, 1)
    assert OutOfDistributionScore.fit((images, features / 0), sampled(30, 2)) is None
    constant = (torch.zeros_like(images), torch.ones(30, 5))
    assert OutOfDistributionScore.fit(constant, constant) is None


def test_a_stored_score_is_loaded_only_for_the_weights_it_was_saved_with(tmp_path):
    made, asked = fitted(), sampled(5, 3)
    path = tmp_path / "out_of_distribution.npz"
    made.save(path, of="a")
    before = path.read_bytes()
    made.save(path, of="a")
    assert path.read_bytes() == before
    np.testing.assert_array_equal(OutOfDistributionScore.load_matching(path, "a").scores(*asked), made.scores(*asked))
    assert OutOfDistributionScore.load_matching(path, "b") is None
    assert OutOfDistributionScore.load_matching(tmp_path / "gone.npz", "a") is None


@pytest.mark.parametrize(
    "change",
    [
        {"features": np.zeros(3, np.float16)},
        {"features": np.zeros((3, 2))},
        {"features": np.full((3, 2), np.nan, np.float16)},
        {"mean": np.zeros(3)},
        {"precision": np.full((2, 2), np.inf)},
        {"thresholds": np.array([0.5, np.nan])},
        {"thresholds": np.array([0.5])},
        {"thresholds": np.array({"a": 1}, dtype=object)},
        {"of": np.array(1)},
    ],
)
def test_a_damaged_score_file_is_ignored(tmp_path, change):
    good = {
        "features": np.ones((3, 2), np.float16),
        "mean": np.zeros(2),
        "precision": np.eye(2),
        "thresholds": np.array([0.5, 2.0]),
        "of": np.array("a"),
    }
    np.savez(tmp_path / "good.npz", **good)
    assert OutOfDistributionScore.load_matching(tmp_path / "good.npz", "a") is not None
    np.savez(tmp_path / "bad.npz", **good | change)
    assert OutOfDistributionScore.load_matching(tmp_path / "bad.npz", "a") is None


@pytest.mark.parametrize("text", ["null", "[]", '{"vit_vs_cnn": null}', '{"vit_vs_cnn": {"temperature": []}}', "{"])
def test_a_config_json_of_another_form_is_ignored(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    found = read_held_out(tmp_path / "model.safetensors", torch.nn.Linear(2, 3))
    assert (found.images, found.temperature, found.out_of_distribution) == (0, None, None)
