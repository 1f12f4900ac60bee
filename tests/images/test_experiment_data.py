"""A run gets the images of its size and seed, and no test image."""

import numpy as np
import pytest
from PIL import Image

from vit_vs_cnn.config.experiment import Data
from vit_vs_cnn.data.options import FolderOptions, SyntheticOptions
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData


def test_test_images_change_the_fingerprint_and_a_class_without_a_training_image_is_refused():
    options = (SyntheticOptions(train_images=210, test_images=count) for count in (30, 31))
    one, other = (ExperimentData(Data(synthetic=each, validation_fraction=0.2)) for each in options)
    assert other.images.fingerprint() == one.images.fingerprint()
    assert other.fingerprint != one.fingerprint
    with pytest.raises(InputError, match="has none to train on"):
        one.draw(8, seed=0)


def test_a_validation_folder_gives_the_validation_share_and_bounds_the_size(tmp_path):
    rng = np.random.default_rng(1)
    for name, count in {"train/a": 17, "train/b": 23, "val/a": 9, "val/b": 8, "test/a": 2, "test/b": 2}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(count):
            image = Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))
            image.save(tmp_path / "photos" / name / f"{i}.png")
    options = FolderOptions(image_size=8, cache=tmp_path / "cache")
    pool = ExperimentData(Data(source="folder", root=str(tmp_path / "photos"), folder=options, validation_fraction=0.2))
    assert pool.resolve("all") == 50
    images = pool.draw(50, seed=0)
    assert (len(images.training), len(images.validation)) == (40, 10)
    assert all(name.startswith("val") for name in images.validation.sample_ids)
    with pytest.raises(InputError, match="51 is not in 1 to 50; the images allow at most 50"):
        pool.resolve(51)
