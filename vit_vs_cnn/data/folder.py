"""A folder of images: its classes, its splits, and the files that belong to no class."""

import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vit_vs_cnn.console import format_count
from vit_vs_cnn.data.listing import SUFFIXES, FileProblem, ImageListing, check_disjoint_groups, summarize_problems
from vit_vs_cnn.data.options import FolderOptions
from vit_vs_cnn.errors import InputError, MissingImages
from vit_vs_cnn.files import spelled

if TYPE_CHECKING:
    from vit_vs_cnn.data.image_cache import CachedImages

VALIDATION_FOLDERS = ("val", "valid", "validation")
LAYOUTS = "<class>/<images>, or train/<class>/<images> beside optional val/ and test/"
SPLIT_FOLDER_NAMES = {"train", "training", "test", "testing", *VALIDATION_FOLDERS}
#: Folders that systems and programs create, in lower case. Names that begin with a dot are ignored as well.
IGNORED_FOLDERS = {"__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found", "__pycache__"}
ENDINGS = " ".join(sorted(SUFFIXES))


def open_folder(root: Path | str, options: FolderOptions | None = None) -> "CachedImages":
    """A folder of images as a source: ``list_folder`` and ``open_files``."""
    from vit_vs_cnn.data.image_cache import open_files

    path, options = Path(root), options or FolderOptions()
    return open_files("folder", path, lambda: list_folder(path, options).completed(options), options)


def check_folder(root: Path, options: FolderOptions) -> None:
    """Check the classes of a folder by the names of its files, before any library is imported.

    Raises:
        InputError: as ``list_folder``, or a class that has too few images or is not in all splits.
    """
    with warnings.catch_warnings(action="ignore"):  # reading the images repeats them
        problems = [problem for problem in list_folder(root, options).problems if problem.is_fatal]
    if problems:
        raise InputError(
            f"{root}: not everything can be used: {summarize_problems(problems)}; add images to these, or remove them"
        )


def list_folder(root: Path, options: FolderOptions) -> ImageListing:
    """The classes and splits of a folder, without test folds, from the names of folders and files alone.

    The layout is ``<class>/...``, or ``train/<class>/...`` with optional ``val/`` and ``test/``. Classes are sorted by
    name. Folders inside of a class folder belong to the class. The ``problems`` are links that would mix classes,
    folders that cannot be listed, classes with too few images, and classes that are not in all splits.

    Raises:
        InputError: no such folder, fewer than two classes, a file without a group, or a group in two splits.
    """
    folders = split_folders(root)
    search = _Search(root)
    results = {split: search.class_files(folder) for split, folder in folders.items()}
    other_files = [
        name for classes in results.values() for files in classes.values() for name in files if not _is_image(name)
    ]
    other_files += [name for folder in folders.values() for name in search.loose_files(folder)]
    class_names = tuple(results["train"])
    if len(class_names) < 2:
        there = f"only the class folder {class_names[0]!r}" if class_names else "no class folder"
        if loose := len(search.loose_files(folders["train"])):
            there += f" beside {format_count(loose, 'file')} that no class holds"
        raise InputError(f"{folders['train']}: {there}, and at least 2 are needed; allowed layouts: {LAYOUTS}")
    problems = search.problems + [
        FileProblem("class name that is not UTF-8", name, f"class '{spelled(name)}' needs another name")
        for name in class_names
        if spelled(name) != name
    ]
    for split in folders.keys() - {"train"}:
        problems += _problems_of_classes(folders[split].name, results[split], class_names)
    files = [
        (name, split, label)
        for split, classes in results.items()
        for label, class_name in enumerate(class_names)
        for name in classes.get(class_name, [])
        if _is_image(name)
    ]
    names, splits = [name for name, _, _ in files], [split for _, split, _ in files]
    groups = None
    if options.group is not None:
        groups = [_group_of(root, name, options.group) for name in names]
        check_disjoint_groups(root, groups, splits)
    layout = "class folders" if folders["train"] == root else "split folders"
    labels = [label for _, _, label in files]
    listing = ImageListing(layout, class_names, names, splits, labels, groups, None, problems, sorted(other_files))
    problems += listing.small_classes()
    return listing


def split_folders(root: Path) -> dict[str, Path]:
    """The folder of each split. ``{"train": root}`` if the class folders are in the root itself."""
    if root.is_file():
        raise InputError(f"data.root {root}: it is a file; a table of images and labels is --data.source table")
    if not root.is_dir():
        hint = f"--data.root PATH names yours, a folder of images: {LAYOUTS}"
        raise MissingImages(f"data.root {root}: no such folder", hint)
    inside = _visible_folders(root)
    splits = {path.name: path for path in inside if path.name.lower() in SPLIT_FOLDER_NAMES and _visible_folders(path)}
    if "train" not in splits:
        if splits:
            raise InputError(f"{root}: has {min(splits)}/ with sub-folders but no train/; allowed layouts: {LAYOUTS}")
        return {"train": root}
    validations = [name for name in VALIDATION_FOLDERS if name in splits]
    if len(validations) > 1:
        raise InputError(f"{root}: has {' and '.join(validations)}; only one folder may hold the validation images")
    names = {"train": "train", "validation": "".join(validations), "test": "test"}
    folders = {split: splits[name] for split, name in names.items() if name in splits}
    if ignored := [path.name for path in inside if path not in folders.values()]:
        message = f"{root}: it has train/, so these folders are ignored: {', '.join(ignored)}"
        warnings.warn(f"{message}; allowed layouts: {LAYOUTS}", stacklevel=2)
    return folders


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def _group_of(root: Path, name: str, pattern: str) -> str:
    match = re.search(pattern, os.path.basename(name))
    if match is None:
        raise InputError(f"{root / name}: data.folder.group {pattern!r} finds no group in its name")
    return match[1] if match.re.groups and match[1] is not None else match[0]


def _visible_folders(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed ({error.strerror})") from None
    return [path for path in inside if path.is_dir() and not _is_ignored(path.name)]


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in IGNORED_FOLDERS


class _Search:
    """The files of every class. A link to a folder is followed if it leads outside of the root, and once.

    A link to a folder of the root, or above it, would put the images of one class into another or lead in a circle. It
    becomes one of the ``problems``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[FileProblem] = []
        self._real_root = os.path.realpath(root)
        self._linked: set[str] = set()

    def class_files(self, folder: Path) -> dict[str, list[str]]:
        """Paths under the root of the files of each class of a split."""
        inside = [path for path in _visible_folders(folder) if not path.is_symlink() or self._may_follow(path)]
        return {path.name: self._files_below(path) for path in inside}

    def loose_files(self, folder: Path) -> list[str]:
        """Paths of the files that are directly in a folder."""
        return [self._name(entry.path) for entry in self._entries(folder) if not _is_folder(entry)]

    def _files_below(self, folder: Path) -> list[str]:
        files, folders = [], [folder]
        while folders:
            for entry in self._entries(folders.pop()):
                if not _is_folder(entry):
                    files.append(self._name(entry.path))
                elif not entry.is_symlink() or self._may_follow(Path(entry.path)):
                    folders.append(Path(entry.path))
        return sorted(files)

    def _name(self, path: Path | str) -> str:
        return Path(path).relative_to(self.root).as_posix()

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return [entry for entry in entries if not _is_ignored(entry.name)]
        except OSError as error:
            self.problems.append(FileProblem("folder that cannot be listed", self._name(folder), str(error.strerror)))
            return []

    def _may_follow(self, link: Path) -> bool:
        target = os.path.realpath(link)
        around = (self._real_root, os.path.realpath(link.parent))
        if _is_within(target, self._real_root) or any(_is_within(folder, target) for folder in around):
            reason = f"leads to {target}, which holds or belongs to the folder itself"
        elif target in self._linked:
            reason = f"leads to {target}, as another link does"
        else:
            self._linked.add(target)
            return True
        self.problems.append(FileProblem("link that mixes classes", self._name(link), reason))
        return False


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


def _problems_of_classes(
    folder: str, classes: Mapping[str, list[str]], class_names: tuple[str, ...]
) -> list[FileProblem]:
    filled = [name for name, files in classes.items() if any(map(_is_image, files))]
    if not filled:
        return [FileProblem("split without images", folder, f"it holds no images (files that end in {ENDINGS})")]
    train = f"train/, which has {', '.join(class_names[:20])}" + ", ..." * (len(class_names) > 20)
    return [
        FileProblem("class that is not in train/", f"{folder}/{name}", f"class {name!r} is not in {train}")
        for name in filled
        if name not in class_names
    ]
