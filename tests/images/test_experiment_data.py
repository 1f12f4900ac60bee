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


def test_training_and_validation_images_do_not_overlap_and_larger_sets_contain_the_smaller_ones(sampled):
    parts = [sampled.draw(size, seed=1) for size in (70, 130, 190)]
    training, validation = ([set(getattr(p, name).sample_ids) for p in parts] for name in ("training", "validation"))
    assert training[0] < training[1] < training[2] and validation[0] < validation[1] < validation[2]
    assert len(training[1] | validation[1]) == 130 and not training[1] & validation[1]
    assert len(validation[1]) == 20  # two of the thirteen of each class


def test_test_images_change_the_fingerprint_and_a_class_without_a_training_image_is_refused(sampled):
    other = ExperimentData(Data(synthetic=SyntheticOptions(train_images=210, test_images=31), validation_fraction=0.2))
    assert other.images.fingerprint() == sampled.images.fingerprint()
    assert other.fingerprint != sampled.fingerprint
    with pytest.raises(InputError, match="has none to train on"):
        sampled.draw(8, seed=0)


def _photos(root, counts):
    rng = np.random.default_rng(1)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8)).save(root / name / f"{i}.png")


def test_a_validation_folder_gives_the_validation_share_and_bounds_the_size(tmp_path):
    counts = {"train/a": 17, "train/b": 23, "val/a": 9, "val/b": 8, "test/a": 2, "test/b": 2}
    _photos(tmp_path / "photos", counts)
    options = FolderOptions(image_size=8, cache=tmp_path / "cache")
    pool = ExperimentData(Data(source="folder", root=str(tmp_path / "photos"), folder=options, validation_fraction=0.2))
    assert pool.resolve("all") == 50
    images = pool.draw(50, seed=0)
    assert (len(images.training), len(images.validation)) == (40, 10)
    assert all(name.startswith("val") for name in images.validation.sample_ids)
    with pytest.raises(InputError, match="51 is not in 1 to 50; the images allow at most 50"):
        pool.resolve(51)
