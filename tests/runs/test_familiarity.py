"""How far an image lies from what was trained on: the k-th neighbour, a threshold that 5 % exceed, plain files."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestNeighbors

from vit_vs_cnn.runs.familiarity import NEIGHBOURS, Familiarity
from vit_vs_cnn.runs.held_out import read_held_out


def _features(count, seed, width=11):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) + 1


def test_the_distance_is_that_of_sklearns_neighbours_over_the_threshold():
    training, validation, asked = (_features(count, seed) for seed, count in enumerate((57, 40, 13)))
    found = Familiarity.of(training, validation)
    neighbours = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(F.normalize(training, dim=1).numpy())
    far, held = (neighbours.kneighbors(F.normalize(one, dim=1).numpy())[0][:, -1] for one in (asked, validation))
    assert found.threshold == pytest.approx(np.sort(held)[38], rel=1e-3)  # the 39th of 40: ceil(41 x 0.95)
    np.testing.assert_allclose(found.distances(asked), far / np.sort(held)[38], rtol=2e-3)
    np.testing.assert_allclose(found.distances(3 * asked), found.distances(asked), rtol=1e-5)  # directions count


def test_at_most_one_in_twenty_of_such_images_is_unfamiliar_on_average():
    """Whatever the validation images: over many draws of 30 of them, 5 % and the Monte Carlo error."""
    shares = []
    for seed in range(60):
        found = Familiarity.of(_features(80, 1000 + seed), _features(30, 2000 + seed))
        shares.append(np.mean(found.distances(_features(200, 3000 + seed)) > 1))
    assert 0.02 < np.mean(shares) < 0.05 + 3 * np.std(shares) / 60**0.5


def test_what_points_elsewhere_is_unfamiliar():
    found = Familiarity.of(_features(80, 1), _features(40, 2))
    assert (found.distances(-5 * torch.ones(7, 11)) > 1).all()


def test_too_few_images_and_features_that_are_no_numbers_tell_nothing():
    with pytest.raises(ValueError, match="needs 19 images, got 18"):
        Familiarity.of(_features(30, 1), _features(18, 2))
    assert Familiarity.of(_features(30, 1), _features(19, 2)) is not None
    assert Familiarity.of(_features(30, 1) / 0, _features(19, 2)) is None
    assert Familiarity.of(torch.ones(30, 5), torch.ones(30, 5)) is None  # all are alike: no distance is usual


def test_it_is_read_as_it_was_written_for_the_same_weights_alone(tmp_path):
    made = Familiarity.of(_features(30, 1), _features(30, 2))
    path = tmp_path / "familiarity.npz"
    made.save(path, of="a")
    before = path.read_bytes()
    made.save(path, of="a")
    assert path.read_bytes() == before
    read = Familiarity.load_of(path, "a")
    np.testing.assert_array_equal(read.distances(_features(5, 3)), made.distances(_features(5, 3)))
    assert Familiarity.load_of(path, "b") is None
    assert Familiarity.load_of(tmp_path / "gone.npz", "a") is None


@pytest.mark.parametrize(
    "change",
    [
        {"bank": np.zeros(3, np.float16)},
        {"bank": np.zeros((3, 2))},
        {"bank": np.full((3, 2), np.nan, np.float16)},
        {"threshold": np.array(np.nan)},
        {"threshold": np.array({"a": 1}, dtype=object)},
        {"of": np.array(1)},
    ],
)
def test_a_file_that_is_none_of_ours_tells_nothing(tmp_path, change):
    good = {"bank": np.ones((3, 2), np.float16), "threshold": np.array(0.5), "of": np.array("a")}
    np.savez(tmp_path / "good.npz", **good)
    assert Familiarity.load_of(tmp_path / "good.npz", "a") is not None
    np.savez(tmp_path / "bad.npz", **good | change)
    assert Familiarity.load_of(tmp_path / "bad.npz", "a") is None


@pytest.mark.parametrize("text", ["null", "[]", '{"vit_vs_cnn": null}', '{"vit_vs_cnn": {"temperature": []}}', "{"])
def test_a_description_of_another_kind_beside_weights_counts_as_none(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    found = read_held_out(tmp_path / "model.safetensors", torch.nn.Linear(2, 3))
    assert (found.images, found.temperature, found.familiarity) == (0, None, None)
