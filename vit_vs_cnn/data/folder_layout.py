"""Which file of a folder is of which class and split."""

import csv
import hashlib
import itertools
import os
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from vit_vs_cnn.data.decoding import SUFFIXES
from vit_vs_cnn.data.options import FolderOptions, OwnOptions, TableOptions
from vit_vs_cnn.data.subsets import grouped_folds, stratified_folds
from vit_vs_cnn.errors import InputError, MissingImages
from vit_vs_cnn.files import spelled, written_whole
from vit_vs_cnn.told import counted

VALIDATION_FOLDERS = ("val", "valid", "validation")
LAYOUTS = "<class>/<images>, or train/<class>/<images> beside optional val/ and test/"
SPLIT_LIKE = {"train", "training", "test", "testing", *VALIDATION_FOLDERS}
#: Folders that systems and programs leave behind, in lower case; whatever begins with a dot is passed over, too.
LEFT_BEHIND = {"__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found", "__pycache__"}
ENDINGS = " ".join(sorted(SUFFIXES))


#: Kinds of fault that concern a whole class; leaving files out does not mend these.
OF_CLASSES = frozenset(
    (
        "class with too few images",
        "class that is not in train/",
        "class whose name is no UTF-8",
        "split without images",
    )
)
_SHOWN = 3


class Fault(NamedTuple):
    """Something that cannot be used: what kind of thing, where under the root, and why."""

    kind: str
    name: str
    reason: str

    @property
    def is_fatal(self) -> bool:
        """Whether it remains when files are left out."""
        return self.kind in OF_CLASSES


def count_by_kind(faults: Sequence[Fault]) -> dict[str, int]:
    """How many faults there are of each kind, the most frequent first."""
    return dict(Counter(fault.kind for fault in faults).most_common())


def in_words(counts: dict[str, int]) -> str:
    """``damaged: 20, empty file: 3``."""
    return ", ".join(f"{kind}: {count:,}" for kind, count in counts.items())


def describe(faults: Sequence[Fault]) -> str:
    """The number of each kind, and the first few; those of whole classes first."""
    ordered = sorted(faults, key=lambda fault: not fault.is_fatal)
    shown = "; ".join(f"{fault.name}: {fault.reason}" for fault in ordered[:_SHOWN])
    more = f"; and {len(faults) - _SHOWN:,} more" if len(faults) > _SHOWN else ""
    return f"{in_words(count_by_kind(faults))} ({shown}{more})"


def write_faults(faults: Sequence[Fault], path: Path) -> None:
    """Every fault as a line of a CSV file, with kind, file and reason."""
    with (
        written_whole(path, contested=True) as partial,
        partial.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(Fault._fields)
        writer.writerows(faults)


class ImageFile(NamedTuple):
    """One file: its path relative to the root (with slashes), and its class."""

    name: str
    label: int


class Layout(NamedTuple):
    """The classes of a folder, and the files of each split (``validation`` only where the user set it apart).

    ``others`` are the files that are passed over: no images by their names, or in the folder of no class. ``groups``
    has the group of each file by its name, where there are groups. ``folds`` has the test fold of each file of
    ``train`` by its name, where there are no test images.
    """

    kind: str
    class_names: tuple[str, ...]
    splits: dict[str, list[ImageFile]]
    faults: list[Fault]
    others: list[str]
    groups: dict[str, str] | None = None
    folds: dict[str, int] | None = None

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


@dataclass
class ClassFolder:
    """The image files under the folder of one class, and the names of other files there; hidden ones in neither."""

    images: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def find_layout(root: Path, options: FolderOptions) -> Layout:
    """The classes and splits of a folder, found from names alone.

    If there is no ``test/``, the files are divided into test folds (``assign_folds``).

    Returns:
        The layout. Its ``faults`` are links that would mix classes, folders that cannot be listed, classes with too few
        images, those that only validation or test has, and those that the test lacks.

    Raises:
        InputError: if there is no such folder, it has fewer than two classes, a file has no group, or one has files in
            two splits.
    """
    folders = split_folders(root)
    search = Search(root)
    found = {split: search.classes(folder) for split, folder in folders.items()}
    others = [name for classes in found.values() for own in classes.values() for name in own.others]
    others += [name for folder in folders.values() for name in search.files(folder)]
    class_names = tuple(found["train"])
    if len(class_names) < 2:
        there = f"only the class folder {class_names[0]!r}" if class_names else "no class folder"
        if loose := len(search.files(folders["train"])):
            there += f" beside {counted(loose, 'file')} that no class holds"
        raise InputError(f"{folders['train']}: {there}, and at least 2 are needed; allowed layouts: {LAYOUTS}")
    faults = [*search.faults, *_faults_of_counts(root, folders, found["train"])]
    for split in [split for split in found if split != "train"]:
        faults += _faults_of_classes(folders[split].name, split, found[split], class_names)
    splits = {
        split: [
            ImageFile(name, label)
            for label, own in enumerate(class_names)
            for name in classes.get(own, ClassFolder()).images
        ]
        for split, classes in found.items()
    }
    groups = None if options.group is None else _groups_by_name(root, splits, options.group)
    folds, more = assign_folds(splits, class_names, options, groups)
    kind = "class folders" if folders["train"] == root else "split folders"
    return Layout(kind, class_names, splits, [*faults, *more], sorted(others), groups, folds)


def _groups_by_name(root: Path, splits: dict[str, list[ImageFile]], pattern: str) -> dict[str, str]:
    groups = {}
    for file in (file for files in splits.values() for file in files):
        found = re.search(pattern, Path(file.name).name)
        if found is None:
            raise InputError(f"{root / file.name}: data.folder.group {pattern!r} finds no group in its name")
        groups[file.name] = found[1] if found.re.groups and found[1] is not None else found[0]
    check_groups(root, {split: {groups[file.name] for file in files} for split, files in splits.items()})
    return groups


def check_groups(where: Path | str, groups: Mapping[str, Set[str]]) -> None:
    """See that no group stands on two sides. Raises InputError: one does, the first by name."""
    for (one, mine), (other, theirs) in itertools.combinations(groups.items(), 2):
        if both := mine & theirs:
            raise InputError(
                f"{where}: the group {min(both)!r} has images in {one} and in {other}"
                f"{f', as {len(both) - 1:,} others have' if len(both) > 1 else ''}; a group must stand on one side"
            )


def assign_folds(
    splits: dict[str, list[ImageFile]],
    class_names: tuple[str, ...],
    options: FolderOptions | TableOptions | OwnOptions,
    groups: Mapping[str, str] | None,
) -> tuple[dict[str, int] | None, list[Fault]]:
    """Divide the training files into test folds, if there are no test images.

    There are ``1 / test_fraction`` folds, rounded: at least two, and at most one for each file or group. They are
    stratified by class. Files are ordered by SHA-256(seed, path), groups by SHA-256(seed, group), so a file that is
    added later moves few others.

    Returns:
        The fold of each file by its name, None if there are test images; and the classes whose groups are all in one.
    """
    files = splits["train"]
    if "test" in splits or not files:
        return None, []
    labels = torch.tensor([file.label for file in files], dtype=torch.int64)
    names = [file.name for file in files] if groups is None else sorted({groups[file.name] for file in files})
    count = max(2, min(round(1 / options.test_fraction), len(names)))
    order = sorted(range(len(names)), key=lambda place: _rank(options.split_seed, names[place]))
    if groups is None:
        found = stratified_folds(labels, torch.tensor(order), count)
    else:
        numbers = {name: number for number, name in enumerate(names)}
        found = grouped_folds(labels, torch.tensor([numbers[groups[file.name]] for file in files]), order, count)
    reason = "has no two groups that can be parted, and needs at least 2, to train on and to test"
    faults = [
        Fault("class with too few images", class_names[label], f"class {class_names[label]!r} {reason}")
        for label in labels.unique().tolist()
        if groups is not None and len(found[labels == label].unique()) == 1
    ]
    return dict(zip((file.name for file in files), found.tolist(), strict=True)), faults


def _rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(os.fsencode(f"{seed}/{name}")).digest()


def split_folders(root: Path) -> dict[str, Path]:
    """The folder of each split; ``{"train": root}`` where the classes lie in the root itself."""
    if root.is_file():
        raise InputError(f"data.root {root}: it is a file; a table of images and labels is --data.source table")
    if not root.is_dir():
        hint = f"--data.root PATH names yours, a folder of images: {LAYOUTS}"
        raise MissingImages(f"data.root {root}: no such folder", hint)
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
    return [path for path in inside if path.is_dir() and not _is_left_behind(path.name)]


def _is_left_behind(name: str) -> bool:
    return name.startswith(".") or name.lower() in LEFT_BEHIND


class Search:
    """The image files of every class; links to folders are followed where they lead outside of the root, and once.

    A link that leads to a folder of the root or above it would put the images of one class into another, or go in a
    circle; it becomes one of the ``faults``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.faults: list[Fault] = []
        self._real_root = os.path.realpath(root)
        self._linked: set[str] = set()

    def classes(self, folder: Path) -> dict[str, ClassFolder]:
        """The classes of a split."""
        inside = [path for path in _visible_folders(folder) if not path.is_symlink() or self._may_follow(path)]
        return {path.name: self._class_folder(path) for path in inside}

    def files(self, folder: Path) -> list[str]:
        """The files that lie in a folder itself, beside those of its classes."""
        return [
            Path(entry.path).relative_to(self.root).as_posix()
            for entry in self._entries(folder)
            if not _is_folder(entry)
        ]

    def _class_folder(self, folder: Path) -> ClassFolder:
        found, places = ClassFolder(), [folder]
        while places:
            for entry in self._entries(places.pop()):
                path = Path(entry.path)
                if _is_folder(entry):
                    places += [path] if not entry.is_symlink() or self._may_follow(path) else []
                elif path.suffix.lower() in SUFFIXES:
                    found.images.append(path.relative_to(self.root).as_posix())
                else:
                    found.others.append(path.relative_to(self.root).as_posix())
        return ClassFolder(sorted(found.images), sorted(found.others))

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return [entry for entry in entries if not _is_left_behind(entry.name)]
        except OSError as error:
            self._add("folder that cannot be listed", folder, str(error.strerror))
            return []

    def _may_follow(self, link: Path) -> bool:
        target = os.path.realpath(link)
        around = (self._real_root, os.path.realpath(link.parent))
        if _is_within(target, self._real_root) or any(_is_within(place, target) for place in around):
            self._add(
                "link that mixes classes", link, f"leads to {target}, which holds or belongs to the folder itself"
            )
        elif target in self._linked:
            self._add("link that mixes classes", link, f"leads to {target}, as another link does")
        else:
            self._linked.add(target)
            return True
        return False

    def _add(self, kind: str, path: Path, reason: str) -> None:
        self.faults.append(Fault(kind, path.relative_to(self.root).as_posix(), reason))


def _is_within(path: str, folder: str) -> bool:
    try:
        return os.path.commonpath([path, folder]) == folder
    except ValueError:  # on different drives
        return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _faults_of_counts(root: Path, folders: dict[str, Path], classes: dict[str, ClassFolder]) -> list[Fault]:
    held_out = {"validation": "to validate", "test": "to test"}
    verbs = ["to train on", *(verb for split, verb in held_out.items() if split not in folders)]
    found = []
    for name, folder in classes.items():
        place = (folders["train"] / name).relative_to(root).as_posix()
        if spelled(name) != name:
            found.append(Fault("class whose name is no UTF-8", place, f"class '{spelled(name)}' needs another name"))
        others = folder.others
        if len(folder.images) < len(verbs):
            aside = f" ({len(others)} other files, such as {others[0]}; images end in {ENDINGS})" if others else ""
            count = f"{len(folder.images)} image{'s' * (len(folder.images) != 1)}{aside}"
            reason = f"class {name!r} has {count}, and needs at least {len(verbs)}, one each "
            found.append(Fault("class with too few images", place, reason + ", ".join(verbs)))
    return found


def _faults_of_classes(
    folder: str, split: str, classes: dict[str, ClassFolder], class_names: tuple[str, ...]
) -> list[Fault]:
    filled = [name for name, own in classes.items() if own.images]
    if not filled:
        return [Fault("split without images", folder, f"it holds no images (files that end in {ENDINGS})")]
    train = f"train/, which has {', '.join(class_names[:20])}" + ", ..." * (len(class_names) > 20)
    unknown = [name for name in filled if name not in class_names]
    missing = [name for name in class_names if name not in filled] if split == "test" else []
    kind, reason = "class that is not in train/", f"is not in {train}"
    faults = [Fault(kind, f"{folder}/{name}", f"class {name!r} {reason}") for name in unknown]
    kind, reason = "class with too few images", "of train/ has no images here"
    return faults + [Fault(kind, f"{folder}/{name}", f"class {name!r} {reason}") for name in missing]
