"""Arrays, columns, PyTorch and Hugging Face datasets, and custom sources, stored in the cache of decoded images."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler

from vit_vs_cnn.data.decoding import to_pixels
from vit_vs_cnn.data.image_cache import (
    CachedImages,
    create_image_file,
    default_cache_folder,
    open_image_file,
    open_stored,
    track_writing,
    unwritable_cache,
    write_listing,
)
from vit_vs_cnn.data.images import LabelledImages, Source, hash_pixels
from vit_vs_cnn.data.listing import SPLIT_NAMES, SPLITS, ImageListing, check_disjoint_groups
from vit_vs_cnn.data.options import ArraysOptions, Decoding
from vit_vs_cnn.errors import InputError, one_line

DATASET_FORMS = (
    "a Dataset of (image, label) pairs, a DataLoader, a Hugging Face dataset, (images, labels) as arrays or tensors, "
    "{images, labels, groups, class_names}, (train, test) or {train, validation, test} of these, or an object with the "
    "methods train, validation, test and provenance"
)
#: Usual names of the columns of images and of labels.
IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img", "images", "pixel_values"), ("label", "labels", "fine_label", "target")
#: Images of each split that are read twice, to find random transforms. 16 images miss a random flip (p = 0.5) with
#: probability 2^-16.
IMAGES_READ_TWICE = 16


class DatasetSplit(NamedTuple):
    count: int
    read_pair: Callable[[int], tuple[Any, Any]]
    class_names: tuple[str, ...] | None
    groups: Sequence[str] | None
    description: str


def open_dataset(value: Any, options: ArraysOptions) -> CachedImages:
    """Write the images of a data set into the cache, under their fingerprint, and open them there.

    Without test images, there are test folds, as for a folder. Raises InputError: images or labels that cannot be used,
    or a cache folder that cannot be written.
    """
    folder, parts = default_cache_folder(options.cache), _find_parts(value)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".own-") as temporary:
            stem = Path(temporary, "own")
            labels = _write_pixels(parts, options, stem.with_suffix(".npy"))
            pixels = open_image_file(stem.with_suffix(".npy"))
            write_listing(stem, _list_parts(parts, labels, options, [hash_pixels(image) for image in pixels]), pixels)
            target = folder / f"own-{open_stored(stem).fingerprint}"
            for suffix in (".npy", ".json"):
                os.replace(stem.with_suffix(suffix), target.with_suffix(suffix))
    except OSError as error:
        raise unwritable_cache(folder, error, "own") from error
    return open_stored(target)


def read_pairs(value: Any) -> tuple[list[np.ndarray], list[int | str]]:
    """Pixels and labels of one set of images. A label is the name of its class if the set names its classes.

    Raises:
        InputError: images or labels that cannot be used, or several splits.
    """
    parts = _find_parts(value)
    if len(parts) > 1:
        raise InputError(f"data: splits {', '.join(parts)}; give one of them")
    part = parts["train"]
    items = [_read_item("its", part, index, ArraysOptions()) for index in range(part.count)]
    names = dict(enumerate(part.class_names or ()))  # by label, if that is a number
    return [pixels for pixels, _ in items], [names.get(label, label) for _, label in items]  # type: ignore[arg-type]


def _find_parts(value: Any) -> dict[str, DatasetSplit]:
    """The splits of a data set: ``train`` alone, or with ``validation`` and ``test``."""
    splits: Mapping[Any, Any] = {"train": value}
    if isinstance(value, Source) and not isinstance(value, torch.nn.Module):
        splits = {split: getattr(value, split)() for split in SPLITS}
    elif isinstance(value, list | tuple) and len(value) in (2, 3) and all(map(_is_dataset, value)):
        splits = dict(zip(SPLITS if len(value) == 3 else ("train", "test"), value, strict=True))
    elif isinstance(value, Mapping) and value and all(str(name).lower() in SPLIT_NAMES for name in value):
        splits = value
    by_split = {SPLIT_NAMES[str(name).lower()]: part for name, part in splits.items()}
    if by_split.get("train") is None or len(by_split) < len(splits):
        names = ", ".join(str(name) for name, part in splits.items() if part is not None) or "none"
        raise InputError(f"data: splits {names}; expected train, and maybe validation and test")
    parts = {split: _part(by_split[split]) for split in SPLITS if by_split.get(split) is not None}
    if empty := [split for split, part in parts.items() if not part.count]:
        raise InputError(f"data: {empty[0]} holds no images")
    return parts


def _is_dataset(value: Any) -> bool:
    return isinstance(value, Dataset | DataLoader | LabelledImages) or hasattr(value, "column_names")


def _part(value: Any) -> DatasetSplit:
    if isinstance(value, DataLoader):
        if not isinstance(value.sampler, RandomSampler | SequentialSampler):
            raise InputError("data: a sampler chooses images of the DataLoader; give a torch.utils.data.Subset instead")
        value = value.dataset
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, LabelledImages):  # one image at a time, as large sets are not in memory
        return DatasetSplit(
            len(value),
            lambda index: (value.take(torch.tensor([index]))[0], int(value.labels[index])),
            value.class_names,
            None if value.groups is None else _as_texts(value.groups, len(value)),
            name,
        )
    if isinstance(value, Mapping):
        return _part_of_columns(value, name)
    if name.startswith("pandas."):
        raise InputError(f"data: got {name}; save it as a .csv of paths and labels, and give the path of the file")
    is_pairs = isinstance(value, tuple | list) and all(
        isinstance(item, tuple | list) and len(item) == 2 for item in value
    )
    if isinstance(value, tuple | list) and len(value) in (2, 3) and not is_pairs:
        return _part_of_columns(dict(zip(("images", "labels", "groups"), value, strict=False)), name)
    is_sequence = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    if not is_sequence or isinstance(value, str | Tensor | np.ndarray):
        raise InputError(f"data: expected {DATASET_FORMS}; got {name}")
    columns, class_names, inner = None, None, value
    while inner is not None and (columns is None or class_names is None):  # also of a dataset inside of a Subset
        if columns is None and hasattr(inner, "features") and hasattr(inner, "column_names"):
            columns, names = _find_columns(inner)
            class_names = names if class_names is None else class_names
        class_names = _class_names(inner) if class_names is None else class_names
        inner = getattr(inner, "dataset", None)
    groups = getattr(value, "groups", None)
    groups = None if callable(groups) else _as_texts(groups, len(value))
    return DatasetSplit(len(value), lambda index: _pair_of(value[index], columns), class_names, groups, name)


def _part_of_columns(values: Mapping[str, Any], name: str) -> DatasetSplit:
    surplus = [key for key in values if key not in ("images", "labels", "groups", "class_names")]
    if surplus or values.get("images") is None or values.get("labels") is None:
        raise InputError(f"data: expected {DATASET_FORMS}; got names {', '.join(map(str, values))}")
    images, labels = values["images"], values["labels"]
    if isinstance(images, np.ndarray | Tensor) and images.ndim not in (1, 3, 4):
        shape = tuple(images.shape)
        raise InputError(f"data: images of shape {shape}; expected (count, rows, cols) with channels or not")
    count = _length("images", images)
    if count != _length("labels", labels):
        raise InputError(f"data: {count:,} images and {len(labels):,} labels; each image needs one")
    names = values.get("class_names")
    if not isinstance(names, Sequence | np.ndarray | None) or isinstance(names, str | bytes):
        kind = type(names).__name__
        raise InputError(f"data: class_names is a {kind}; expected a list of names in the order of the labels")
    class_names = None if names is None else tuple(str(name) for name in names)
    groups = _as_texts(values.get("groups"), count)
    description = f"{name} of images and labels"
    return DatasetSplit(count, lambda index: (images[index], labels[index]), class_names, groups, description)


def _length(name: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError as error:
        raise InputError(f"data: {name} is a {type(values).__name__}; expected one value for each image") from error


def _as_texts(values: Any, count: int) -> list[str] | None:
    if values is not None and _length("groups", values) != count:
        raise InputError(f"data: {len(values):,} groups and {count:,} images; each image needs one")
    return None if values is None else [str(_plain(value)) for value in values]


def _find_columns(value: Any) -> tuple[tuple[str, str], tuple[str, ...] | None]:
    """The columns of images and of labels of a Hugging Face dataset, and the names of the classes."""
    features, columns = dict(value.features or {}), [*value.column_names]

    def of_type(kind: str) -> list[str]:
        return [name for name in columns if type(features.get(name)).__name__ == kind]

    image = _choose_column("images", IMAGE_COLUMNS, columns, of_type("Image"))
    label = _choose_column("labels", LABEL_COLUMNS, columns, of_type("ClassLabel"))
    names = getattr(features.get(label), "names", None)
    return (image, label), None if names is None else tuple(names)


def _choose_column(content: str, usual: Sequence[str], columns: Sequence[str], typed: Sequence[str] = ()) -> str:
    """The one column of the right type and with a usual name or, if there is none, with either of these."""
    names = [name for name in columns if name in usual]
    fitting = [name for name in names if name in typed] or list(dict.fromkeys([*typed, *names]))
    if len(fitting) != 1:
        reason = f"each of {', '.join(fitting)} may be it" if fitting else f"there are {', '.join(map(str, columns))}"
        raise InputError(
            f"data: no single column of {content}: {reason}; keep one named {' or '.join(usual)}, with "
            "dataset.select_columns and dataset.rename_column"
        )
    return fitting[0]


def _pair_of(item: Any, columns: tuple[str, str] | None) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        usual = (("images", IMAGE_COLUMNS), ("labels", LABEL_COLUMNS))
        if columns is None or not {*columns} <= item.keys():  # a dataset around that of the columns has its own names
            columns = _choose_column(*usual[0], [*item]), _choose_column(*usual[1], [*item])
        image, label = columns
        return item[image], item[label]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise InputError(f"data: a dataset has to give (image, label) pairs; got {type(item).__name__}")


def _class_names(value: Any) -> tuple[str, ...] | None:
    """Class names from ``class_to_idx`` or ``classes`` of a dataset."""
    names = getattr(value, "classes", None)
    names = names if isinstance(names, Sequence) and not isinstance(names, str) else None
    if isinstance(numbers := getattr(value, "class_to_idx", None), Mapping):
        if sorted(numbers.values()) == list(range(len(numbers))):
            return tuple(map(str, sorted(numbers, key=numbers.__getitem__)))
        if names is None:
            raise InputError("data: class_to_idx of the dataset must number its classes 0, 1, ... without gaps")
    if names is None:
        return None
    return tuple(", ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in names)


def _parse_label(value: Any) -> int | str:
    """A label as a number or a name. Raises InputError: another type, a negative number or an empty text."""
    plain = _plain(value)
    if not isinstance(plain, bool | int | str):
        raise InputError(f"data: a label is {str(plain)[:40]!r}; expected a whole number or a text")
    if plain == "" or (isinstance(plain, int) and plain < 0):
        raise InputError(f"data: the label is {plain!r}; numbers below 0 and empty texts are none: leave these out")
    return int(plain) if isinstance(plain, bool) else plain


def _plain(value: Any) -> Any:
    """A number of numpy or torch as a Python number."""
    if not isinstance(value, np.generic | np.ndarray | Tensor) or np.prod(value.shape) != 1:
        return value
    return value if isinstance(value, Tensor) and value.is_meta else value.item()


def _write_pixels(parts: Mapping[str, DatasetSplit], options: ArraysOptions, path: Path) -> list[int | str]:
    """Write the pixels of all parts into one file. Returns their labels."""
    first, labels = _read_item("train", parts["train"], 0, options)[0], []
    items = (_read_item(split, part, i, options) for split, part in parts.items() for i in range(part.count))
    with create_image_file(path, (sum(part.count for part in parts.values()), *first.shape)) as stored:
        for index, (pixels, label) in enumerate(track_writing(stored, items, "Reading images")):
            if pixels.shape != first.shape:
                shapes = " and ".join(" x ".join(map(str, shape)) for shape in (first.shape, pixels.shape))
                raise InputError(
                    f"data: image 0 and image {index} have channels, rows and columns {shapes}; data.own.image_size "
                    "brings images of several sizes to one"
                )
            stored[index] = pixels
            labels.append(label)
    return labels


def _read_item(split: str, part: DatasetSplit, index: int, options: ArraysOptions) -> tuple[np.ndarray, int | str]:
    """The pixels and the label at an index. Raises InputError: the user's code fails, or gives something else."""
    pairs = []
    for _ in range(2 if index < IMAGES_READ_TWICE else 1):
        try:
            image, label = part.read_pair(index)
            pairs.append((to_pixels(image, options.image_size, Decoding(options.resize)), _parse_label(label)))
        except Exception as error:  # code of the user
            reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {one_line(error)}"
            raise InputError(f"{part.description}, {split} image {index}: {reason}") from error
    if pairs[0][1] != pairs[-1][1] or not np.array_equal(pairs[0][0], pairs[-1][0]):
        raise InputError(
            f"{part.description}, {split} image {index} differs when it is read again; give the dataset "
            "deterministic transforms (Resize, CenterCrop) and set random ones by data.augmentation"
        )
    return pairs[0]


def _list_parts(
    parts: Mapping[str, DatasetSplit], labels: list[int | str], options: ArraysOptions, hashes: list[bytes]
) -> ImageListing:
    names_of_parts = {part.class_names for part in parts.values() if part.class_names is not None}
    if len(names_of_parts) > 1:
        raise InputError("data: the splits name different classes; they need the same, in the same order")
    class_names, numbers = _number_labels(labels, names_of_parts.pop() if names_of_parts else None)
    splits = [split for split, part in parts.items() for _ in range(part.count)]
    by_part = [part.groups for part in parts.values() if part.groups is not None]
    if 0 < len(by_part) < len(parts):
        raise InputError("data: some splits have groups, and others have none; give all of them or none")
    groups = [group for of_part in by_part for group in of_part] if by_part else None
    if groups is not None:
        check_disjoint_groups("data", groups, splits)
    names = [str(index) for index in range(len(labels))]
    kinds = ", ".join(dict.fromkeys(part.description for part in parts.values()))
    description = f"{kinds} ({len(labels):,} images)"
    listing = ImageListing("splits of the source", class_names, names, splits, numbers, groups, description=description)
    listing = listing.add_folds(options, hashes)
    if listing.problems:
        raise InputError(f"data: {listing.problems[0].reason}")
    if listing.folds is not None and len(set(listing.folds)) < 2:
        raise InputError("data: there are too few images for test folds")
    return listing


def _number_labels(labels: list[int | str], names: tuple[str, ...] | None) -> tuple[tuple[str, ...], list[int]]:
    """Class names, and the index of each label: a number if there are names, else the place among sorted labels."""
    values = set(labels)
    if len({type(label) for label in values}) > 1:
        raise InputError("data: some labels are numbers, and others texts")
    classes: list[Any] = sorted(values) if names is None else list(names)  # type: ignore[type-var]
    name, count = Counter(classes).most_common(1)[0] if classes else ("", 0)
    if count > 1:
        raise InputError(f"data: two classes have the name {name!r}")
    if len(classes) < 2:
        raise InputError(f"data: the classes are {classes}; at least 2 are needed")
    has_indices = names is not None and not isinstance(labels[0], str)
    numbers = {index if has_indices else label: index for index, label in enumerate(classes)}
    if wrong := [label for label in values if label not in numbers]:
        some = ", ".join(map(str, classes[:10]))
        raise InputError(f"data: label {wrong[0]!r} is not one of the {len(classes)} classes ({some})")
    return tuple(map(str, classes)), [numbers[label] for label in labels]
