"""A run gets the images of its size and seed, and no test image."""

import numpy as np
import pytest
from PIL import Image

from vit_vs_cnn.config.experiment import Data
from vit_vs_cnn.data.options import FolderOptions, SyntheticOptions
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData


@pytest.fixture(scope="module")
def sampled() -> ExperimentData:
    return ExperimentData(Data(synthetic=SyntheticOptions(train_images=210, test_images=30), validation_fraction=0.2))


def test_training_and_validation_images_add_up_and_do_not_overlap(sampled):
    images = sampled.draw(130, seed=1)
    training, validation = set(images.training.sample_ids), set(images.validation.sample_ids)
    assert len(training) + len(validation) == 130
    assert not training & validation
    assert len(validation) == 20  # two of the thirteen of each class


def test_larger_training_and_validation_sets_contain_the_smaller_ones(sampled):
    small, large = sampled.draw(70, seed=1), sampled.draw(190, seed=1)
    assert set(small.training.sample_ids) < set(large.training.sample_ids)
    assert set(small.validation.sample_ids) < set(large.validation.sample_ids)


def test_test_images_change_the_fingerprint_only_where_they_are_used(sampled):
    other = ExperimentData(Data(synthetic=SyntheticOptions(train_images=210, test_images=31), validation_fraction=0.2))
    assert other.images.fingerprint() == sampled.images.fingerprint()
    assert other.fingerprint != sampled.fingerprint


def _photos(root, counts):
    rng = np.random.default_rng(1)
    for (split, name), count in counts.items():
        (root / split / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8)).save(root / split / name / f"{i}.png")


def test_a_validation_folder_gives_the_validation_share_and_bounds_the_size(tmp_path):
    counts = {
        ("train", "a"): 17,
        ("train", "b"): 23,
        ("val", "a"): 9,
        ("val", "b"): 8,
        ("test", "a"): 2,
        ("test", "b"): 2,
    }
    _photos(tmp_path / "photos", counts)
    options = FolderOptions(image_size=8, cache=tmp_path / "cache")
    pool = ExperimentData(Data(source="folder", root=str(tmp_path / "photos"), folder=options, validation_fraction=0.2))
    assert pool.resolve("all") == 50
    images = pool.draw(50, seed=0)
    assert (len(images.training), len(images.validation)) == (40, 10)
    assert all(name.startswith("val") for name in images.validation.sample_ids)
    with pytest.raises(InputError, match="51 is not in 1 to 50; the images allow at most 50"):
        pool.resolve(51)


def test_a_class_without_a_training_image_is_named(sampled):
    with pytest.raises(InputError, match="has none to train on"):
        sampled.draw(8, seed=0)
