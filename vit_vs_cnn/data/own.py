"""Whatever gives images and labels, taken as (image, label) pairs: datasets, arrays, columns, in splits or not."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset

from vit_vs_cnn.data.decoding import FORMATS, fit_image, whole_image
from vit_vs_cnn.data.images import LabelledImages, Source
from vit_vs_cnn.data.options import OwnOptions, sides
from vit_vs_cnn.data.pictures import as_bytes, to_array, value_range
from vit_vs_cnn.data.table import SPLITS
from vit_vs_cnn.errors import InputError, one_line

KINDS = (
    "a Dataset of (image, label) pairs, a Hugging Face dataset, (images, labels) as arrays or tensors, "
    "{images, labels, groups, class_names}, {train, validation, test} of these, or an object with the methods train, "
    "validation, test and provenance"
)
#: The usual names of columns of images and of labels.
IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img", "images"), ("label", "labels", "fine_label", "target")
#: The feature types of Hugging Face datasets for these.
COLUMN_TYPES = ("Image", "ClassLabel")


@dataclass(frozen=True, eq=False)
class Part:
    """Images of one split, in the order in which they are given.

    Arguments:
        pair: the image and the label at a place.
        class_names: in the order of the labels, where these are numbers and the names are known.
        groups: what each image is of, where that is known.
        what: for a reader.
    """

    count: int
    pair: Callable[[int], tuple[Any, Any]]
    class_names: tuple[str, ...] | None
    groups: Sequence[str] | None
    what: str

    def pair_at(self, place: int) -> tuple[Any, Any]:
        """The image and the label at a place. Raises InputError: the user's code fails."""
        try:
            return self.pair(place)
        except InputError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise InputError(f"{self.what}: image {place}: {type(error).__name__}: {one_line(error)}") from error


def parts_of(given: Any) -> dict[str, Part]:
    """What is given, by split: ``train`` alone, or with ``validation`` and ``test``.

    Raises:
        InputError: it is none of ``KINDS``.
    """
    if isinstance(given, Source) and not isinstance(given, torch.nn.Module):
        read = {"train": given.train(), "validation": given.validation(), "test": given.test()}
        return {split: _part(one) for split, one in read.items() if one is not None}
    if isinstance(given, Mapping) and given and all(str(name).lower() in SPLITS for name in given):
        parts = {SPLITS[str(name).lower()]: _part(one) for name, one in given.items() if one is not None}
        if "train" not in parts or len(parts) < len(given):
            raise InputError(
                f"data: splits {', '.join(map(str, given))}; expected train, and maybe validation and test"
            )
        return {split: parts[split] for split in ("train", "validation", "test") if split in parts}
    return {"train": _part(given)}


def _part(given: Any) -> Part:
    what = f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
    if isinstance(given, LabelledImages):
        pair = lambda place: (given.take(torch.tensor([place]))[0], int(given.labels[place]))  # noqa: E731
        return Part(len(given), pair, given.class_names, given.groups, what)
    if isinstance(given, Mapping):
        return _of_columns(given, what)
    if what.startswith("pandas."):
        raise InputError(f"data: got {what}; save it as a .csv of paths and labels, and give the path of that")
    if isinstance(given, tuple | list) and len(given) in (2, 3) and not _is_pair(given):
        return _of_columns(dict(zip(("images", "labels", "groups"), given, strict=False)), what)
    if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")) or isinstance(
        given, str | Tensor | np.ndarray
    ):
        raise InputError(f"data: expected {KINDS}; got {what}")
    columns = _find_columns(given)
    names = _class_names(given) if columns is None else columns.class_names
    groups = _texts(getattr(given, "groups", None), len(given))
    return Part(len(given), lambda place: _pair_of(given[place], columns), names, groups, what)


def _is_pair(given: Sequence[Any]) -> bool:
    """Whether it is a list of (image, label) pairs rather than two columns."""
    return all(isinstance(one, tuple | list) and len(one) == 2 for one in given)


def _of_columns(given: Mapping[str, Any], what: str) -> Part:
    unknown = [name for name in given if name not in ("images", "labels", "groups", "class_names")]
    if unknown or "images" not in given or "labels" not in given:
        raise InputError(f"data: expected {KINDS}; got names {', '.join(map(str, given))}")
    images, labels = given["images"], given["labels"]
    if images is None or labels is None:
        raise InputError(f"data: {'images' if images is None else 'labels'} are None; each image needs a label")
    if isinstance(images, np.ndarray | Tensor) and images.ndim not in (1, 3, 4):
        raise InputError(
            f"data: images of shape {tuple(images.shape)}; expected (count, rows, cols) with channels or not"
        )
    if len(images) != len(labels):
        raise InputError(f"data: {len(images):,} images and {len(labels):,} labels; each image needs one")
    names = given.get("class_names")
    if isinstance(names, str | bytes | Mapping | Set) or not (names is None or hasattr(names, "__getitem__")):
        raise InputError(
            f"data: class_names is a {type(names).__name__}; expected a list of names in the order of the labels"
        )
    own = None if names is None else tuple(str(name) for name in names)
    groups = _texts(given.get("groups"), len(images))
    return Part(len(images), lambda place: (images[place], labels[place]), own, groups, f"{what} of images and labels")


def _texts(values: Any, count: int) -> list[str] | None:
    if values is None or callable(values):
        return None
    if len(values) != count:
        raise InputError(f"data: {len(values):,} groups and {count:,} images; each image needs one")
    return [str(_plain(value)) for value in values]


@dataclass(frozen=True)
class _Columns:
    """The columns of a Hugging Face dataset that hold images and labels, and the names of its classes."""

    image: str
    label: str
    class_names: tuple[str, ...] | None


def _find_columns(given: Any) -> _Columns | None:
    """The columns of a Hugging Face dataset, or of one that a ``Subset`` wraps; None for other datasets.

    Raises:
        InputError: no column, or several, may hold the images or the labels.
    """
    if isinstance(given, Subset):
        return _find_columns(given.dataset)
    if not (hasattr(given, "features") and hasattr(given, "column_names")):
        return None
    features, columns = dict(given.features or {}), [*given.column_names]
    typed = {kind: [name for name in columns if type(features.get(name)).__name__ == kind] for kind in COLUMN_TYPES}
    image = _choose_column("images", IMAGE_COLUMNS, columns, typed["Image"])
    label = _choose_column("labels", LABEL_COLUMNS, columns, typed["ClassLabel"])
    names = getattr(features.get(label), "names", None)
    return _Columns(image, label, None if names is None else tuple(names))


def _choose_column(what: str, usual: Sequence[str], columns: Sequence[str], typed: Sequence[str] = ()) -> str:
    """Choose a column: first by type and usual name, then by either of these.

    Raises:
        InputError: there is none, or there are several.
    """
    named = [name for name in columns if name in usual]
    found = [name for name in named if name in typed] or list(dict.fromkeys([*typed, *named]))
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(
            f"data: no column of {what} among {', '.join(map(str, columns))}; name it {' or '.join(usual)}: "
            "dataset.rename_column(...)"
        )
    raise InputError(
        f"data: each of the columns {', '.join(found)} may hold the {what}; keep one of images and one of labels: "
        "dataset.select_columns([...])"
    )


def _pair_of(item: Any, columns: _Columns | None) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        image = _choose_column("images", IMAGE_COLUMNS, [*item]) if columns is None else columns.image
        label = _choose_column("labels", LABEL_COLUMNS, [*item]) if columns is None else columns.label
        return item[image], item[label]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise InputError(f"data: a dataset has to give (image, label) pairs; got {type(item).__name__}")


def _class_names(given: Any) -> tuple[str, ...] | None:
    """Class names from ``class_to_idx`` or ``classes`` of the dataset, or of the dataset that it wraps.

    Raises:
        InputError: ``class_to_idx`` does not number its classes from 0 without gaps, and there are no ``classes``.
    """
    names = getattr(given, "classes", None)
    names = names if isinstance(names, Sequence) and not isinstance(names, str) else None
    if isinstance(numbered := getattr(given, "class_to_idx", None), Mapping):
        if sorted(numbered.values()) == list(range(len(numbered))):
            return tuple(map(str, sorted(numbered, key=numbered.__getitem__)))
        if names is None:
            raise InputError(
                "data: class_to_idx of the dataset must number its classes 0, 1, ... without gaps or repeats"
            )
    if names is not None:
        return tuple(", ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in names)
    inner = getattr(given, "dataset", None)
    if inner is None:
        return None
    columns = _find_columns(inner)
    return _class_names(inner) if columns is None or columns.class_names is None else columns.class_names


def label_of(value: Any) -> int | str:
    """A label as a number or a name. Raises InputError: it is neither, negative or an empty text."""
    plain = _plain(value)
    if (isinstance(plain, str) and not plain) or (isinstance(plain, int) and plain < 0):
        raise InputError(
            f"data: the label is {plain!r}; numbers below 0 and empty texts mark unlabelled images: leave these out"
        )
    if isinstance(plain, bool | int | str):
        return int(plain) if isinstance(plain, bool) else plain
    raise InputError(f"data: a label is {str(plain)[:40]!r}; expected a whole number or a text")


def _plain(value: Any) -> Any:
    """A number of numpy or torch as Python's."""
    if not isinstance(value, np.generic | np.ndarray | Tensor) or np.prod(value.shape) != 1:
        return value
    return value if isinstance(value, Tensor) and value.is_meta else value.item()


def pixels_of(image: Any, options: OwnOptions) -> UInt8[np.ndarray, "channels rows cols"]:
    """An image as bytes, brought to ``options.image_size`` if it is named.

    Pictures of Pillow and files become RGB. Floats are taken where they are bytes divided by 255, and nothing else.

    Raises:
        InputError: no image, or values that are no bytes.
    """
    if isinstance(image, str | Path):
        try:
            with Image.open(image, formats=FORMATS) as file:
                return pixels_of(file, options)
        except OSError as error:
            raise InputError(f"{image}: {error.strerror or 'no image, or none in a supported format'}") from error
        except InputError as error:
            raise InputError(f"{image}: {error}") from error
    if isinstance(image, Image.Image):
        try:
            opened = image.copy()  # it is turned upright in place
            opened.format = image.format
            size = options.image_size
            return whole_image(opened) if size is None else fit_image(opened, size, options.resize)
        except InputError:
            raise
        except Exception as error:  # damaged files raise what they like, SyntaxError among it
            raise InputError(f"cannot be read: {one_line(error, 80)}") from error
    if not isinstance(image, np.ndarray | Tensor):
        raise InputError(f"an image is a {type(image).__name__}; expected a picture of Pillow, an array or a tensor")
    pixels = _bytes_of(image)
    if options.image_size is None or pixels.shape[1:] == sides(options.image_size):
        return pixels
    last = np.ascontiguousarray(pixels.transpose(1, 2, 0))
    picture = Image.fromarray(last[..., 0] if len(pixels) == 1 else last)
    return fit_image(picture, options.image_size, options.resize)[: len(pixels)]


def _bytes_of(image: np.ndarray | Tensor) -> UInt8[np.ndarray, "channels rows cols"]:
    """Channels first: where both ends could be these, an array has them last and a tensor first."""
    values = to_array(image)
    values = values[None] if values.ndim == 2 else values
    allowed = (1, 3)
    if values.ndim != 3 or not {values.shape[0], values.shape[2]} & {*allowed} or not values.size:
        raise InputError(f"an image has shape {tuple(image.shape)}; expected (rows, cols) with 1 or 3 channels or none")
    is_tensor = isinstance(image, Tensor) or image.ndim == 2
    is_first = values.shape[0] in allowed and (is_tensor or values.shape[2] not in allowed)
    values = values if is_first else values.transpose(2, 0, 1)
    if (found := as_bytes(values)) is not None:
        return found
    raise InputError(
        f"an image has {value_range(values)}; expected bytes (uint8), or floats that are bytes / 255, as ToTensor "
        "gives them: leave normalisation and augmentation to the package"
    )
