"""Images and labels in every accepted form."""

import contextlib
import random
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset, TensorDataset
from torchvision.datasets import VisionDataset
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.functional import pil_to_tensor, to_tensor

from tests.refused import refused
from vit_vs_cnn.data.datasets import open_dataset
from vit_vs_cnn.data.decoding import to_pixels
from vit_vs_cnn.data.image_cache import find_images
from vit_vs_cnn.data.options import ArraysOptions, Decoding
from vit_vs_cnn.errors import InputError

ROWS, COLS, COUNT = 11, 7, 37
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, ROWS, COLS, 3), dtype=np.uint8)
LABELS = np.arange(COUNT) % 3
NAMES = ("ant", "bee", "cat")


class Pictures(VisionDataset):
    """Like a dataset of torchvision: Pillow images, ``classes`` and a transform."""

    classes = NAMES

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        image = Image.fromarray(PIXELS[index])
        return (image if self.transform is None else self.transform(image)), int(LABELS[index])


def table_of(**types) -> Any:
    """A stand-in for a dataset of Hugging Face with columns of the types Image, ClassLabel or another.

    ``img`` or ``picture`` and ``label`` or ``kind`` contain the images and labels, the others something else.
    """

    class Table:
        features = MappingProxyType({name: kind() if isinstance(kind, type) else kind for name, kind in types.items()})
        column_names = tuple(types)

        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            values = dict.fromkeys(("img", "picture"), Image.fromarray(PIXELS[index]))
            values |= dict.fromkeys(("label", "kind"), int(LABELS[index]))
            others = {name: Image.new("L", (COLS, ROWS)) if kind is ImageType else 0 for name, kind in types.items()}
            return others | {name: value for name, value in values.items() if name in types}

    return Table()


ClassLabel, Camera = (type("ClassLabel", (), {"names": names}) for names in (NAMES, ("left", "right")))
ImageType = type("Image", (), {})
FIRST = PIXELS.transpose(0, 3, 1, 2)


def _numbered(class_to_idx):
    dataset = TensorDataset(torch.from_numpy(FIRST), torch.from_numpy(LABELS))
    vars(dataset)["class_to_idx"] = class_to_idx
    return dataset


FORMS = {
    "arrays": lambda: {"images": PIXELS, "labels": LABELS, "class_names": NAMES},
    "channels first": lambda: {"images": torch.tensor(FIRST), "labels": torch.tensor(LABELS), "class_names": NAMES},
    "names as labels": lambda: (PIXELS, np.array(NAMES)[LABELS]),
    "pictures": Pictures,
    "bytes of a transform": lambda: Pictures(transform=pil_to_tensor),
    "exact floats": lambda: Pictures(transform=to_tensor),
    "subset": lambda: Subset(Pictures(), range(COUNT)),
    "pairs": lambda: [(Image.fromarray(image), NAMES[label]) for image, label in zip(PIXELS, LABELS, strict=True)],
    "hugging face": lambda: table_of(picture=ImageType, kind=ClassLabel),
    "columns without types": lambda: table_of(img=object, label=ClassLabel),
    "several typed columns": lambda: table_of(mask=ImageType, img=ImageType, camera=Camera, label=ClassLabel),
    "subset of columns": lambda: Subset(table_of(img=ImageType, camera=Camera, label=ClassLabel), range(COUNT)),
}  # fmt: skip


@pytest.fixture
def options(tmp_path):
    return lambda **changes: ArraysOptions(cache=tmp_path / "cache", **changes)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_images(options, form):
    given = open_dataset(FORMS[form](), options())
    assert given.fingerprint == open_dataset(FORMS["arrays"](), options()).fingerprint
    train = given.train()
    assert (train.class_names, train.image_shape) == (NAMES, (3, ROWS, COLS))
    places = [int(name) for name in train.sample_ids]
    assert torch.equal(train.images, torch.from_numpy(FIRST[places]))
    assert train.labels.tolist() == LABELS[places].tolist()


def test_given_splits_are_kept(options):
    thirds = zip(("train", "val", "test"), np.split(np.arange(36), 3), strict=True)
    given = open_dataset({name: (PIXELS[part], LABELS[part]) for name, part in thirds}, options())
    for source, place in ((given.train(), 0), (given.validation(), 12), (given.test(), 24)):
        assert torch.equal(source.images, torch.from_numpy(FIRST[place : place + 12]))


def test_images_of_several_sizes_need_the_option_image_size(options):
    images = [Image.fromarray(PIXELS[0]), *(Image.new("L", (5 + k, 9), k) for k in range(10))]
    given = (images, [0, 1] * 5 + [0])
    with pytest.raises(InputError, match=r"image 0 and image 1 .* 3 x 11 x 7 and 3 x 9 x 5; data\.own\.image_size"):
        open_dataset(given, options())
    assert open_dataset(given, options(image_size=(13, 17))).train().image_shape == (3, 13, 17)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((PIXELS / 127.5 - 1, LABELS), "float64 values from -1 to 1; expected bytes"),
        ((PIXELS.astype(np.int32), LABELS), "int32 values"),
        ((np.full((COUNT, 4, 4), np.nan), LABELS), "float64 values, of which 16 are NaN"),
        ((np.full((COUNT, 4, 4), None), LABELS), "object values; expected bytes"),
        ((torch.tensor(PIXELS).bfloat16(), LABELS), "a tensor of torch.bfloat16 (strided); expected a dense"),
        ((torch.tensor(PIXELS).to_sparse(), LABELS), "a tensor of torch.uint8 (sparse_coo); expected a dense"),
        ((PIXELS, torch.tensor(LABELS).bfloat16()), "a label is '0.0'; expected a whole number"),
        ((PIXELS, torch.tensor(LABELS, device="meta")), "a label is \"tensor(..., device='meta'"),
        (([Image.new("RGB", (0, 0))] * 4, LABELS[:4]), "train image 0: it has 0 x 0 pixels"),
        ((PIXELS[:5], LABELS), "5 images and 37 labels"),
        (pandas.DataFrame({"image": ["a.png"], "label": ["a"]}), "save it as a .csv of paths and labels"),
        ((PIXELS, LABELS * 0), "the classes are [0]; at least 2"),
        ({"images": PIXELS, "labels": LABELS, "class_names": ["one", "two"]}, "label 2 is not one of the 2 classes"),
        ({"images": PIXELS, "labels": LABELS * 0, "class_names": ["one"]}, "the classes are ['one']; at least 2"),
        ({"images": PIXELS, "labels": LABELS, "class_names": ["a", "b", "a"]}, "two classes have the name 'a'"),
        ({"train": (PIXELS, LABELS), "validation": (PIXELS[:0], [])}, "validation holds no images"),
        *(
            ({"images": PIXELS, "labels": LABELS, "class_names": names}, f"class_names is a {kind}; expected a list")
            for kind, names in {"dict": dict(enumerate(NAMES)), "str": "abc", "set": {*NAMES}}.items()
        ),
        ((PIXELS, LABELS - 1), "image 0: data: the label is -1; numbers below 0"),
        ((PIXELS, ["", "a"] * 18 + ["a"]), "image 0: data: the label is ''; numbers below 0"),
        (table_of(img=ImageType, camera=Camera, kind=ClassLabel), "labels: each of camera, kind may be it"),
        (table_of(img=ImageType, camera=Camera, label=int), "labels: each of camera, label may be it"),
        (table_of(left=ImageType, right=ImageType, label=ClassLabel), "images: each of left, right may be it"),
        (table_of(img=ImageType, kind=int), "no single column of labels: there are img, kind"),
        (_numbered({"a": 1, "b": 2, "c": 3}), "class_to_idx of the dataset must number its classes 0, 1, ..."),
        ({"images": PIXELS, "labels": LABELS, "groups": [1]}, "1 groups and 37 images"),
        ({"images": PIXELS, "labels": LABELS, "groups": 1}, "groups is a int; expected one value for each image"),
        ({"images": map(np.asarray, PIXELS), "labels": LABELS}, "images is a map; expected one value for each image"),
        ((PIXELS, np.array(1)), "labels is a ndarray; expected one value for each image"),
        (None, "splits none; expected train"),
        ({"train": (PIXELS, LABELS), "holdout": (PIXELS, LABELS)}, "got names train, holdout"),
        (iter([]), "expected a Dataset"),
        (PIXELS, "expected a Dataset"),
        ((PIXELS, [0.5] * COUNT), "a label is '0.5'"),
        (Pictures(transform=lambda image: 1 // 0), "image 0: ZeroDivisionError"),
        ((np.zeros((4, 5, 6, 2), np.uint8), LABELS[:4]), "expected (rows, cols), or with 1 or 3 channels"),
    ],
)
def test_unusable_data_are_refused_in_one_line(options, tmp_path, given, message):
    with refused(message):
        open_dataset(given, options())
    assert [path.name for path in (tmp_path / "cache").glob("*")] == []


@pytest.mark.parametrize("every", [2, 5])
def test_images_of_a_group_are_in_one_fold(options, every):
    groups = [f"patient {place // every}" for place in range(COUNT)]
    folds = open_dataset({"images": PIXELS, "labels": LABELS, "groups": groups}, options()).folds
    assert len({*zip(groups, folds, strict=True)}) == len({*groups})
    assert all(0.05 <= count / COUNT <= 0.35 for count in np.bincount(folds, minlength=5))


def test_a_group_in_two_given_splits_is_refused(options):
    part = {"images": PIXELS, "labels": LABELS}
    splits = {"train": {**part, "groups": np.arange(37)}, "test": {**part, "groups": np.arange(36, 73)}}
    with pytest.raises(InputError, match="such as '36' in train and in test"):
        open_dataset(splits, options())


def test_stored_images_are_found_by_fingerprint_unless_damaged(options, tmp_path):
    given = open_dataset(FORMS["arrays"](), options())
    cache = tmp_path / "cache"
    found = find_images(given.fingerprint, [tmp_path / "nowhere", cache])
    assert found is not None and found.fingerprint == given.fingerprint
    assert find_images(given.fingerprint.partition("-")[0], [cache]) is not None
    (path,) = cache.glob("*.npy")
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    assert find_images(given.fingerprint, [cache]) is None


def test_an_image_of_one_row_keeps_its_colors():
    red = torch.tensor([200, 10, 20], dtype=torch.uint8).view(3, 1, 1).expand(3, 1, 4)
    assert to_pixels(red, (1, 2), Decoding("squash"))[:, 0, 0].tolist() == [200, 10, 20]


@pytest.mark.parametrize("damage", ["truncated and open", "truncated", "broken chunk"])
def test_a_damaged_image_is_named_with_its_index(options, tmp_path, damage):
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for number, path in enumerate(paths):
        Image.fromarray(PIXELS[number]).save(path)
    content = paths[2].read_bytes()
    paths[2].write_bytes(content.replace(b"IDAT", b"\xff\0AT", 1) if damage == "broken chunk" else content[:-60])
    with contextlib.ExitStack() as opened:
        given = [opened.enter_context(Image.open(path)) for path in paths] if "open" in damage else paths
        with pytest.raises(InputError, match=r"train image 2: .*(cannot be read|no image|damaged)"):
            open_dataset([(one, place % 2) for place, one in enumerate(given)], options())


class RandomLabels(Pictures):
    def __getitem__(self, index):
        return super().__getitem__(index)[0], int(torch.randint(3, ()))


TRANSFORMS = (
    RandomResizedCrop((ROWS, COLS), scale=(0.2, 0.6)),
    lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image,
    lambda image: Image.fromarray(np.roll(np.asarray(image), np.random.randint(1000), axis=1)),
)


@pytest.mark.parametrize("dataset", [*(Pictures(transform=transform) for transform in TRANSFORMS), RandomLabels()])
def test_a_dataset_with_a_random_transform_or_random_labels_is_refused(options, dataset):
    torch.manual_seed(0)
    with pytest.raises(InputError, match=r"test image \d+ differs when it is read again; give .* deterministic"):
        open_dataset({"train": Pictures(), "test": dataset}, options())


class Around:
    """A wrapper of a dataset of Hugging Face, whose items have other names."""

    dataset, classes = FORMS["hugging face"](), NAMES

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return {"image": Image.fromarray(PIXELS[index]), "label": int(LABELS[index])}


def test_columns_of_nested_datasets_are_found(tmp_path):
    inner = Subset(FORMS["hugging face"](), range(COUNT))
    inner.classes = NAMES
    for value in (Around(), inner):
        images = open_dataset(value, ArraysOptions(cache=tmp_path, test_fraction=0.5)).train()
        assert images.class_names == NAMES and len(images) > 0
