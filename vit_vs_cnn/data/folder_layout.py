"""Which file of a folder is of which class and split."""

import hashlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vit_vs_cnn.data.decoding import SUFFIXES, Resize
from vit_vs_cnn.errors import InputError

CACHE_FORMAT = 1
VALIDATION_FOLDERS = ("val", "valid", "validation")
LAYOUTS = "<class>/<images>, or train/<class>/<images> beside optional val/ and test/"
SPLIT_LIKE = {"train", "training", "test", "testing", *VALIDATION_FOLDERS}
ENDINGS = " ".join(sorted(SUFFIXES))


@dataclass(frozen=True)
class FolderOptions:
    """How a folder of images is read.

    Args:
        image_size: rows and columns that every image is brought to, in pixels.
        resize: crop keeps proportions and the middle square, squash keeps the whole but not the proportions, pad keeps
            both and adds black bars.
        test_fraction: part of each class that is set apart for the test where the folder has no test/.
        split_seed: which images these are.
        skip_unreadable: leave out files that cannot be decoded, with a warning, instead of stopping.
        cache: folder for decoded images (default: vit_vs_cnn in $XDG_CACHE_HOME or ~/.cache).
    """

    image_size: int = 64
    resize: Resize = "crop"
    test_fraction: float = 0.2
    split_seed: int = 0
    skip_unreadable: bool = False
    cache: Path | None = None

    def __post_init__(self) -> None:
        if self.image_size < 1:
            raise InputError(f"data.folder.image_size: {self.image_size} pixels; it must be at least 1")
        if self.resize not in ("crop", "squash", "pad"):
            raise InputError(f"data.folder.resize: {self.resize!r} is not known; it must be one of crop, squash, pad")
        if not 0 < self.test_fraction < 1:
            raise InputError(f"data.folder.test_fraction: {self.test_fraction}; it must lie between 0 and 1")


class ImageFile(NamedTuple):
    """One file: its path relative to the root (with slashes), and its class."""

    name: str
    label: int


class Layout(NamedTuple):
    """The classes of a folder, and the files of each split (``validation`` only where the user set it apart)."""

    kind: str
    class_names: tuple[str, ...]
    splits: dict[str, list[ImageFile]]

    def counts(self) -> dict[str, dict[str, int]]:
        """Files of each class in each split."""
        return {split: count_by_class(files, self.class_names) for split, files in self.splits.items()}

    def needed(self, split: str) -> int:
        """The fewest images of a class that the split can do with."""
        held_out = split == "train" and "validation" not in self.splits
        return 0 if split == "validation" else 1 + held_out


def count_by_class(files: list[ImageFile], class_names: tuple[str, ...]) -> dict[str, int]:
    labels = np.array([file.label for file in files], np.int64)
    counted = np.bincount(labels, minlength=len(class_names))
    return dict(zip(class_names, counted.tolist(), strict=True))


class ClassFolder(NamedTuple):
    """The image files under the folder of one class, and the names of other files there; hidden ones in neither."""

    images: list[str]
    others: list[str]


def find_layout(root: Path, options: FolderOptions) -> Layout:
    """The classes and splits of a folder, found from names alone.

    Each class gives ``test_fraction`` of its images to the test (at least one), if there is no ``test/``: those whose
    paths come first in the order of SHA-256(seed, path), so that a file added later moves at most few others.

    Arguments:
        root: the folder.
        options: its ``test_fraction`` and ``split_seed`` matter here.

    Raises:
        InputError: if there is no such folder, or it has fewer than two classes, a class with too few images, one that
            only validation or test has, or one that the test lacks.
    """
    folders = _split_folders(root)
    found = {split: _classes(root, folder) for split, folder in folders.items()}
    class_names = tuple(found["train"])
    if len(class_names) < 2:
        there = f"only the class folder {class_names[0]!r}" if class_names else "no class folder"
        raise InputError(f"{folders['train']}: {there}, and at least 2 are needed; allowed layouts: {LAYOUTS}")
    _check_counts(folders, found["train"])
    for split in [split for split in found if split != "train"]:
        _check_classes(folders[split], split, found[split], class_names)
    splits = {
        split: [ImageFile(name, label) for label, own in enumerate(class_names) for name in _images(classes, own)]
        for split, classes in found.items()
    }
    if "test" not in splits:
        splits |= _stratified_split(splits["train"], len(class_names), options, spare=1 + ("validation" not in splits))
    return Layout("class folders" if folders["train"] == root else "split folders", class_names, splits)


def _images(classes: dict[str, ClassFolder], class_name: str) -> list[str]:
    return classes[class_name].images if class_name in classes else []


def _split_folders(root: Path) -> dict[str, Path]:
    """The folder of each split; ``{"train": root}`` where the classes lie in the root itself."""
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; data.root must be a folder of images: {LAYOUTS}")
    inside = _visible_folders(root)
    splits = {path.name: path for path in inside if path.name.lower() in SPLIT_LIKE and _visible_folders(path)}
    if "train" not in splits:
        if splits:
            raise InputError(f"{root}: has {min(splits)}/ with sub-folders but no train/; allowed layouts: {LAYOUTS}")
        return {"train": root}
    validations = [name for name in VALIDATION_FOLDERS if name in splits]
    if len(validations) > 1:
        raise InputError(f"{root}: has {' and '.join(validations)}; only one folder may hold the validation images")
    names = {"train": "train", "validation": "".join(validations), "test": "test"}
    folders = {split: splits[name] for split, name in names.items() if name in splits}
    ignored = [path.name for path in inside if path not in folders.values()]
    if ignored:
        warnings.warn(
            f"{root}: it has train/, so these folders are ignored: {', '.join(ignored)}; allowed layouts: {LAYOUTS}",
            stacklevel=2,
        )
    return folders


def _visible_folders(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed ({error.strerror})") from None
    return [path for path in inside if path.is_dir() and not path.name.startswith(".")]


def _classes(root: Path, folder: Path) -> dict[str, ClassFolder]:
    return {path.name: _class_folder(root, path) for path in _visible_folders(folder)}


def _class_folder(root: Path, folder: Path) -> ClassFolder:
    names = sorted(path.relative_to(root).as_posix() for path in _visible_files(folder))
    is_image = [os.path.splitext(name)[1].lower() in SUFFIXES for name in names]
    images = [name for name, chosen in zip(names, is_image, strict=True) if chosen]
    return ClassFolder(images, [name for name, chosen in zip(names, is_image, strict=True) if not chosen])


def _visible_files(folder: Path) -> Iterator[Path]:
    """All files under ``folder`` that are not hidden; links are followed, but into no folder twice."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: cannot be listed ({error.strerror})") from None

    seen = set()
    for place, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in files if not name.startswith("."))


def _check_counts(folders: dict[str, Path], classes: dict[str, ClassFolder]) -> None:
    held_out = {"validation": "to validate", "test": "to test"}
    verbs = ["to train on", *(verb for split, verb in held_out.items() if split not in folders)]
    for name, (images, others) in classes.items():
        if len(images) < len(verbs):
            aside = f" ({len(others)} other files, such as {others[0]}; images end in {ENDINGS})" if others else ""
            raise InputError(
                f"{folders['train']}: class {name!r} has {len(images)} images{aside}, and needs at least {len(verbs)}, "
                f"one each {', '.join(verbs)}; add images or remove the class"
            )


def _check_classes(folder: Path, split: str, classes: dict[str, ClassFolder], class_names: tuple[str, ...]) -> None:
    filled = [name for name, (images, _) in classes.items() if images]
    unknown = [name for name in filled if name not in class_names]
    missing = [name for name in class_names if name not in filled]
    if unknown:
        raise InputError(f"{folder}: class {unknown[0]!r} is not in train/, which has {', '.join(class_names)}")
    if missing and split == "test":
        raise InputError(f"{folder}: class {missing[0]!r} of train/ has no images here; every class must be tested")
    if not filled:
        raise InputError(f"{folder}: holds no images (files that end in {ENDINGS}); fill it or remove it")


def _stratified_split(
    files: list[ImageFile], num_classes: int, options: FolderOptions, spare: int
) -> dict[str, list[ImageFile]]:
    """``files`` parted in train and test; each class keeps at least ``spare`` images to train on."""
    by_class: list[list[ImageFile]] = [[] for _ in range(num_classes)]
    for file in files:
        by_class[file.label].append(file)
    test: set[ImageFile] = set()
    for own in by_class:
        own.sort(key=lambda file: hashlib.sha256(os.fsencode(f"{options.split_seed}/{file.name}")).digest())
        test.update(own[: min(max(1, round(options.test_fraction * len(own))), len(own) - spare)])
    return {"train": [file for file in files if file not in test], "test": [file for file in files if file in test]}
