"""A table of images as a source."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from PIL import Image

from tests.refused import refused
from vit_vs_cnn.data.image_cache import open_files
from vit_vs_cnn.data.options import FolderOptions, TableOptions
from vit_vs_cnn.errors import InputError


@pytest.fixture
def rows(tmp_path):
    """Three classes of 13 images in folders, and a table of them."""
    generator, rows = np.random.default_rng(0), []
    for name in ("ant", "bee", "cat"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(13):
            path = f"photos/{name}/p{number // 3}_{number}.png"
            Image.fromarray(generator.integers(0, 256, (7, 9, 3), dtype=np.uint8)).save(tmp_path / path)
            rows.append({"image": path, "label": name, "patient": f"{name}{number // 3}"})
    return pandas.DataFrame(rows)


@pytest.fixture
def source(tmp_path):
    def make(rows, **options):
        rows.to_csv(tmp_path / "table.csv", index=False)
        return open_files(tmp_path / "table.csv", TableOptions(image_size=5, cache=tmp_path / "cache", **options))

    return make


def test_a_table_of_a_folder_gives_the_images_of_the_folder(rows, source, tmp_path):
    train = source(rows.sample(frac=1, random_state=3), split_seed=2).train()
    assert len(train) == 3 * 13
    folder = open_files(tmp_path / "photos", FolderOptions(image_size=5, cache=tmp_path / "cache"))
    known = dict(zip(folder.listing.class_names, range(3), strict=True))
    given = folder.train()
    images = {f"photos/{name}": pixels for name, pixels in zip(given.sample_ids, given.images, strict=True)}
    for name, label, pixels in zip(train.sample_ids, train.labels.tolist(), train.images, strict=True):
        assert (pixels == images[name]).all() and label == known[name.split("/")[1]]


def test_the_split_column_is_used(rows, source):
    rows["split"] = ["Train", "val", "TEST"] * 13
    given = source(rows, split="split")
    expected = rows.groupby("split")["image"].apply(list)
    held = given.validation()
    assert list(given.train().sample_ids) == expected["Train"]
    assert held is not None and list(held.sample_ids) == expected["val"]
    assert list(given.test().sample_ids) == expected["TEST"]


def test_groups_of_a_table_stay_together(rows, source):
    given = source(rows, group="patient")
    patients = rows.set_index("image")["patient"]
    folds = {(patients[name], fold) for name, fold in zip(given.train().sample_ids, given.folds, strict=True)}
    assert len(folds) == 15 and {fold for _, fold in folds} == {*range(5)}
    assert given.provenance()["groups"] == 15


def test_groups_of_a_folder_are_found_in_the_names_of_files(rows, tmp_path):
    options = FolderOptions(image_size=5, cache=tmp_path / "cache", group="^(p[0-9]+)_")
    source = open_files(tmp_path / "photos", options)
    folds = {*zip(source.train().groups, source.folds, strict=True)}
    assert {group for group, _ in folds} == {f"p{n}" for n in range(5)} and len(folds) == 5
    for pattern in ("^(camera)", "(camera)?"):
        with pytest.raises(InputError, match="finds no group in its name"):
            open_files(tmp_path / "photos", FolderOptions(group=pattern)).train()
    with pytest.raises(InputError, match="not a regular expression"):
        FolderOptions(group="(")


def test_names_with_commas_and_a_few_images_of_many_numbers_are_classes(rows, source):
    rows["label"] = ["Paris, France", "Lyon, France", "a|b"] * 13
    assert source(rows).listing.class_names == ("Lyon, France", "Paris, France", "a|b")
    rows["label"] = np.arange(39) % 13
    assert len(source(rows).listing.class_names) == 13


def test_numbers_as_labels_are_sorted_as_numbers(rows, source):
    rows["label"] = np.arange(39) % 3 * 9
    assert source(rows).listing.class_names == ("0", "9", "18")
    rows["label"] = ["01", "1", "0"] * 13  # one number twice
    assert source(rows).listing.class_names == ("0", "01", "1")
    rows["label"] = ["--5", "3", "4"] * 13
    assert source(rows).listing.class_names == ("--5", "3", "4")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda rows: rows.rename(columns={"image": "file"}), {}, "no column 'image' (data.table.image); there are f"),
        (lambda rows: rows.assign(label=[""] + ["a", "b"] * 19), {}, "row 1 has nothing in column 'label'"),
        (lambda rows: rows.assign(split="holdout"), {"split": "split"}, "'holdout' in column 'split'; allowed: train"),
        (lambda rows: rows.assign(split="test"), {"split": "split"}, "no row has train in column 'split'"),
        (lambda rows: pandas.concat([rows, rows[:1]]), {}, "p0_0.png is in 2 rows"),
        (lambda rows: pandas.concat([rows, rows[:1].assign(image="./" + rows["image"][0])]), {}, "is in 2 rows"),
        (lambda rows: rows.assign(label=["2", "-1", "0"] * 13), {}, "row 2 has the label -1"),
        (lambda rows: rows.assign(label="one"), {}, "has 1 class; it needs at least 2"),
        (lambda rows: rows.assign(split=["train", "test"] * 19 + ["train"]), {"split": "split", "group": "patient"},
         "12 groups with images in several splits, such as 'ant0' in train and in test"),
        (lambda rows: rows[:0], {}, "it has no rows"),
        (lambda rows: SimpleNamespace(to_csv=lambda path, index: path.write_text("image,label\na.png,ant,\n")), {},
         "its rows have more values than its first row has names"),
        (lambda rows: SimpleNamespace(to_csv=lambda path, index: path.write_bytes(b"image,label\na\0.png,ant\n")), {},
         "as a table: it contains a null byte"),
        (lambda rows: rows.assign(label=["cat", "dog;indoor", "cat;indoor"] * 13), {},
         "row 2 has several labels, 'dog;indoor', in column 'label'; this is not supported: give each image one label"),
        (lambda rows: rows.assign(label=["cat", "dog", "cat, dog"] * 13), {}, "row 3 has several labels, 'cat, dog'"),
        (lambda rows: rows.assign(label=np.arange(39) / 7), {},
         "column 'label' has 39 different numbers for 39 images, and regression is not supported; replace numbers by"),
        (lambda rows: rows.assign(patient="all"), {"group": "patient"}, "its images in one group or in linked groups"),
        (lambda rows: rows.assign(image=rows["image"].str.replace("p0", "q0")), {}, "missing: 9"),
    ],
)  # fmt: skip
def test_an_unusable_table_is_refused_in_one_line(rows, source, change, options, message):
    with refused(message):
        source(change(rows), **options).train()
