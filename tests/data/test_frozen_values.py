"""Pixels, fingerprints, folds, subsets and augmented batches of given files are the same in every version.

Other values would give recorded runs other images under the same names: a changed value needs another
``IDENTITY_VERSION``. The tests of each module check that the values are right.
"""

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from vit_vs_cnn.config.experiment import Data
from vit_vs_cnn.data.augmentation.augmenter import Augmenter
from vit_vs_cnn.data.options import ArraysOptions, Augmentation, CifarOptions, FolderOptions, TableOptions
from vit_vs_cnn.images.experiment_data import ExperimentData, set_images

STORED = json.loads(Path(__file__).with_name("frozen_values.json").read_text(encoding="utf-8"))
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
CIFAR_FILES = {"cifar10": ("cifar-10-batches-py", BATCHES, "batches.meta")}
CIFAR_FILES["cifar100"] = ("cifar-100-python", ["train", "test"], "meta")


def pixels(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def short_hash(values):
    return hashlib.sha256(np.ascontiguousarray(values)).hexdigest()[:12]


def frozen_values(pool, size):
    """Hashes of everything that a run depends on: files, test images, subset, training images, and pixels."""
    run = pool.draw(size, 3)
    pixel_hash = short_hash(pool.images.images.numpy())
    return [pool.fingerprint, pool.test_set(7), run.subset_hash, run.training.fingerprint(), pixel_hash]


@pytest.fixture
def photos(tmp_path):
    """Three classes of PNG files: RGB, 16-bit grey and transparent, of several shapes."""
    for label, name in enumerate(("ant", "bee", "cat")):
        for number in range(13):
            seed, shape = 100 * label + number, (17 + number, 23 - label)
            arrays = pixels(seed, *shape, 3), pixels(seed, *shape).astype(np.uint16) * 257, pixels(seed, *shape, 4)
            path = tmp_path / "photos" / name / f"p{number // 3}_{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(arrays[number % 3]).save(path)
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("folds", 20, {"image_size": (11, 7)}),
        ("splits", 10, {"image_size": 13, "resize": "pad"}),
        ("groups", 17, {"image_size": 5, "resize": "squash", "group": "^(p[0-9]+)_"}),
    ],
)
def test_a_folder_keeps_its_values(photos, tmp_path, name, size, options):
    root = tmp_path / "split" if name == "splits" else photos
    for number, split in enumerate(("train", "val", "test") if name == "splits" else ()):
        for path in sorted(photos.glob("*/*.png"))[number::3]:
            target = root / split / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    folder = FolderOptions(**options, cache=tmp_path / "cache")
    assert frozen_values(ExperimentData(Data(source="folder", root=str(root), folder=folder)), size) == STORED[name]


def test_a_table_keeps_its_values(photos, tmp_path):
    paths = sorted(photos.glob("*/*.png"))
    rows = [{"image": f"photos/{p.parent.name}/{p.name}", "label": 9 - "abc".index(p.parent.name[0])} for p in paths]
    pandas.DataFrame(rows).sample(frac=1, random_state=1).to_csv(tmp_path / "table.csv", index=False)
    options = TableOptions(image_size=9, split_seed=4, test_fraction=0.3, cache=tmp_path / "cache")
    values = frozen_values(ExperimentData(Data(source="table", root=str(tmp_path / "table.csv"), table=options)), 20)
    assert values == STORED["table"]


def test_arrays_with_groups_and_given_splits_keep_their_values(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arrays = {"images": pixels(0, 60, 7, 5, 3), "labels": np.arange(60) % 3, "groups": np.arange(60) // 4}
    given = {"train": (pixels(1, 40, 8, 8), np.arange(40) % 4), "test": (pixels(2, 20, 8, 8), np.arange(20) % 4)}
    by_split = frozen_values(ExperimentData(set_images(Data(own=ArraysOptions(image_size=(5, 6))), given)), 30)
    assert [frozen_values(ExperimentData(set_images(Data(), arrays)), 30), by_split] == STORED["arrays"]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_files_in_the_layout_of_cifar_keep_their_values(tmp_path, name):
    folder, files, meta = CIFAR_FILES[name]
    classes, key = int(name[5:]), "labels" if name == "cifar10" else "fine_labels"
    (tmp_path / folder).mkdir()
    for seed, file in enumerate(files):
        labels = np.random.default_rng(seed).permutation(np.arange(200) % classes).tolist()
        (tmp_path / folder / file).write_bytes(pickle.dumps({key: labels, "data": pixels(seed, 200, 3072)}, 2))
    names = {"label_names" if name == "cifar10" else "fine_label_names": [f"class {i}" for i in range(classes)]}
    (tmp_path / folder / meta).write_bytes(pickle.dumps(names, 2))
    options = CifarOptions(download=False, verify_checksum=False)
    assert frozen_values(ExperimentData(Data(source=name, root=str(tmp_path), cifar=options)), 150) == STORED[name]


CHANGES = {"crop": {"crop_padding": 3}, "flip": {"crop_padding": 0}}
CHANGES |= {"erasing": {"erasing": 0.6}, "cutmix": {"cutmix": 1.0}}


@pytest.mark.parametrize("name", CHANGES)
def test_augmented_batches_keep_their_values(name):
    """Only operations that copy or clear whole pixels, which give equal values on every processor."""
    images = torch.from_numpy(pixels(0, 29, 3, 11, 13))
    augmenter = Augmenter(Augmentation(**CHANGES[name]), mean=[0.0] * 3, std=[1.0] * 3, num_classes=5)
    changed, targets = augmenter(images, torch.arange(29) % 5, augmenter.draw(29, torch.Generator().manual_seed(1)))
    values = [short_hash((changed * 255).round().byte()), short_hash((targets * 1000).round().long())]
    assert values == STORED["augmentation"][name]
