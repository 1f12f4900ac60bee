"""Names, classes and splits of images in a folder or a table. Without PyTorch, to report a wrong folder quickly."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from vit_vs_cnn.console import format_count, join_names
from vit_vs_cnn.data.options import FolderOptions, ImageOptions, TableOptions
from vit_vs_cnn.errors import InputError, MissingImages, one_line
from vit_vs_cnn.files import escape_name

SPLITS = ("train", "validation", "test")
VALIDATION_FOLDERS = ("val", "valid", "validation")
#: Split by the words that a column or a mapping may use, in lower case. Folders may have them as names, too.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(VALIDATION_FOLDERS, "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
#: Remedy of problems of a whole class.
CLASS_REMEDY = "add what is missing, or remove these classes"
LAYOUTS = "<class>/<images>, or train/<class>/<images> beside optional val/ and test/"
#: Folders that systems and programs create, in lower case. Names that begin with a dot are ignored as well.
IGNORED_FOLDERS = {"__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found", "__pycache__"}
#: Endings of the image formats that can be read.
ENDINGS = ".bmp .gif .jfif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp"
#: Endings of image files, those in formats that cannot be read included: they are reported as unusable.
SUFFIXES = frozenset({*ENDINGS.split(), ".avif", ".heic", ".heif", ".jp2", ".jxl"})
#: Kind of the problem of videos and DICOM files, by the ending of the name.
KIND_OF_ENDING = {
    **dict.fromkeys((".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm", ".wmv"), "video"),
    **dict.fromkeys((".dcm", ".dicom"), "DICOM"),
}
#: Reason and remedy of files in other formats, by the kind of the problem.
FORMAT_REASONS = {
    "video": "a video; extract its frames, for example with ffmpeg -i FILE -vf fps=1 FOLDER/NAME_%04d.png, and keep "
    "the frames of a video together by --data.folder.group '(.+)_'",
    "DICOM": "a DICOM file; convert it to PNG, for example with DCMTK: dcm2pnm +on2 FILE FILE.png",
    "HEIC": 'a HEIC file, which needs pillow-heif: pip install -e ".[heic]"',
}
#: Problems of a whole class, which remain when files are left out.
CLASS_PROBLEMS = frozenset(
    {"class with too few images", "class that is not in train/", "class name that is not UTF-8", "split without images"}
)
_SHOWN_PROBLEMS = 3
#: Images of each class and split that a sample has first, so that rare classes can be trained on and tested.
MIN_SAMPLED = 3
#: Numeric labels are measurements if at least so many differ, and each has fewer images than this on average.
MIN_DISTINCT_NUMBERS, MIN_IMAGES_PER_NUMBER = 10, 3


class FileProblem(NamedTuple):
    """A file or a class that cannot be used: kind of problem, path under the root, and reason."""

    kind: str
    name: str
    reason: str

    @property
    def is_fatal(self) -> bool:
        """True if the problem remains when files are left out."""
        return self.kind in CLASS_PROBLEMS


def count_by_kind(problems: Sequence[FileProblem]) -> dict[str, int]:
    """Number of problems of each kind, the most frequent first."""
    return dict(Counter(problem.kind for problem in problems).most_common())


def format_counts(counts: Mapping[str, int]) -> str:
    """``damaged: 20, empty file: 3``."""
    return ", ".join(f"{kind}: {count:,}" for kind, count in counts.items())


def summarize_problems(problems: Sequence[FileProblem]) -> str:
    """The number of problems of each kind, and a few problems: the first of each kind, whole classes first."""
    firsts = {problem.kind: problem for problem in reversed(problems)}
    named = [problem for problem in problems if firsts[problem.kind] is problem or problem.kind not in FORMAT_REASONS]
    named.sort(key=lambda problem: (firsts[problem.kind] is not problem, not problem.is_fatal))
    shown = [f"{problem.name}: {problem.reason}" for problem in named[:_SHOWN_PROBLEMS]]
    more = f"; and {len(problems) - len(shown):,} more" if len(shown) < len(problems) else ""
    return f"{format_counts(count_by_kind(problems))} ({'; '.join(shown)}{more})"


@dataclass(frozen=True, eq=False)
class ImageListing:
    """Names, classes and splits of images.

    Arguments:
        layout: "class folders", "split folders", "table" or "splits of the source".
        names: name of each image: a path, or a number in the source.
        folds: test fold of each training image. None if there are test images.
        description: description of the Python object that contains the images, if they have no paths.
        gray_bits: bits of the values in gray files of 16 bits (``find_gray_bits``).
        dropped: numbers of images that ``duplicates: drop`` leaves out: copies in one class, and in several classes.
    """

    layout: str
    class_names: tuple[str, ...]
    names: list[str]
    splits: list[str]
    labels: list[int]
    groups: list[str] | None = None
    folds: list[int] | None = None
    problems: list[FileProblem] = field(default_factory=list)
    description: str = ""
    gray_bits: int = 16
    dropped: tuple[int, int] = (0, 0)

    def select(self, rows: Sequence[int]) -> "ImageListing":
        """The listing of some images, in ascending order."""
        columns = {name: getattr(self, name) for name in ("names", "splits", "labels", "groups", "folds")}
        # Training images come first, and only these have folds.
        parts = {name: [values[row] for row in rows if row < len(values)] for name, values in columns.items() if values}
        return replace(self, **parts)

    def sample(self, count: int | None, seed: int) -> "ImageListing":
        """The listing of ``count`` images, stratified by class and split; all with None.

        A larger sample contains a smaller one, which has ``MIN_SAMPLED`` images of each class and split, if there are.
        """
        if count is None or count >= len(self.names):
            return self
        import torch

        from vit_vs_cnn.data.subsets import nested_order

        pairs = [
            SPLITS.index(split) * len(self.class_names) + label
            for split, label in zip(self.splits, self.labels, strict=True)
        ]
        first, others, taken = list[int](), list[int](), Counter[int]()
        for row in nested_order(torch.tensor(pairs), seed).tolist():
            taken[pairs[row]] += 1
            (first if taken[pairs[row]] <= MIN_SAMPLED else others).append(row)
        sampled = self.select(sorted([*first, *others][:count]))
        known = {problem.name for problem in self.problems}
        small = sampled.small_classes("sampled ", splits={*self.splits})
        return replace(sampled, problems=[*self.problems, *(problem for problem in small if problem.name not in known)])

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of images of each class in each split."""
        pairs = Counter(zip(self.splits, self.labels, strict=True))
        there = [split for split in SPLITS if split in self.splits]
        return {split: {name: pairs[split, label] for label, name in enumerate(self.class_names)} for split in there}

    def small_classes(self, adjective: str = "", splits: Collection[str] | None = None) -> list[FileProblem]:
        """Problems of classes with too few images for training, validation or test, in the given or existing splits."""
        splits = {*self.splits} if splits is None else splits
        needed = {"train": 1 + ("validation" not in splits) + (self.folds is None and "test" not in splits)}
        needed |= {"test": 1} if "test" in splits else {}
        pairs = Counter(zip(self.splits, self.labels, strict=True))
        problems = []
        for split, minimum in needed.items():
            for label, name in enumerate(self.class_names):
                if (count := pairs[split, label]) < minimum:
                    hint = f" (files that end in {ENDINGS})" if not count and not adjective else ""
                    reason = f"class {name!r} has {count} {adjective}{split} images{hint}, and needs at least {minimum}"
                    problems.append(FileProblem("class with too few images", name, reason))
        return problems

    def add_folds(self, options: ImageOptions, hashes: Sequence[bytes | None] | None = None) -> "ImageListing":
        """The listing in the order of the splits, with test folds for the training images if there are no test images.

        A group is in one fold. With ``hashes``, copies are one group, and groups with a common image are merged. A
        class whose groups are all in one fold becomes one of the ``problems``.

        Arguments:
            hashes: hash of the pixels of each image, in the order of the splits; None for images that were not read.
        """
        import torch

        from vit_vs_cnn.data.subsets import assign_folds, merge_copies

        listing = self.select(sorted(range(len(self.names)), key=lambda row: SPLITS.index(self.splits[row])))
        count = listing.splits.count("train")
        if "test" in listing.splits or not count:
            return listing
        reason = "has its images in one group or in linked groups, and needs at least 2 groups, to train on and to test"
        if hashes is not None:
            units = listing.names if listing.groups is None else listing.groups
            merged = merge_copies(units, hashes)
            if merged != units:
                listing = replace(listing, groups=merged)
                reason = "has only copies of one image or group, and needs at least 2, to train on and to test"
        labels = torch.tensor(listing.labels[:count], dtype=torch.int64)
        groups = None if listing.groups is None else listing.groups[:count]
        folds = assign_folds(
            listing.names[:count], labels, fraction=options.test_fraction, seed=options.split_seed, groups=groups
        )
        problems = [
            FileProblem("class with too few images", name, f"class {name!r} {reason}")
            for label, name in enumerate(self.class_names)
            if groups is not None and len(folds[labels == label].unique()) == 1
        ]
        known = {problem.name for problem in self.problems}
        problems = [problem for problem in problems if problem.name not in known]
        return replace(listing, folds=folds.tolist(), problems=[*self.problems, *problems])


def check_disjoint_groups(location: Path | str, groups: Sequence[str], splits: Sequence[str]) -> None:
    """Raise InputError if a group has images in two splits."""
    pairs = {*zip(groups, splits, strict=True)}
    if shared := sorted(group for group, count in Counter(group for group, _ in pairs).items() if count > 1):
        first, second, *_ = (split for split in SPLITS if (shared[0], split) in pairs)
        raise InputError(
            f"{location}: {format_count(len(shared), 'group')} with images in several splits, such as {shared[0]!r} in "
            f"{first} and in {second}; a group must be in one split"
        )


def check_folder(root: Path, options: FolderOptions) -> None:
    """Check the classes of a folder by the names of its files, before any library is imported.

    Raises:
        InputError: as ``list_folder``, or a class that has too few images or is not in all splits.
    """
    with warnings.catch_warnings(action="ignore"):  # reading the images repeats them
        problems = list_folder(root, options).problems
    if any(problem.is_fatal for problem in problems):
        raise problems_error(root, problems, CLASS_REMEDY)


def problems_error(root: Path | None, problems: Sequence[FileProblem], remedy: str) -> InputError:
    return InputError(f"{root}: not everything can be used: {summarize_problems(problems)}; {remedy}")


def list_folder(root: Path, options: FolderOptions) -> ImageListing:
    """The classes and splits of a folder, without test folds, from the names of folders and files alone.

    The layout is ``<class>/...``, or ``train/<class>/...`` with optional ``val/`` and ``test/``. Classes are sorted by
    name. Folders inside of a class folder belong to the class. The ``problems`` are links that would mix classes,
    folders that cannot be listed, classes with too few images, and classes that are not in all splits. Raises
    InputError: no such folder, fewer than two classes, a file without a group, or a group in two splits.
    """
    folders, linked, problems = split_folders(root), set[Path](), list[FileProblem]()
    by_split = {
        split: {
            path.name: sorted(names)
            for path in _visible_folders(folder)
            if (names := _image_names(path, root, linked, problems)) is not None
        }
        for split, folder in folders.items()
    }
    class_names = tuple(by_split["train"])
    files = [file for folder in {root, *folders.values()} for file in folder.iterdir() if file.is_file()]
    outside = sorted(file.name for file in files if file.suffix.lower() in SUFFIXES and not is_ignored(file.name))
    if len(class_names) < 2:
        there = f"only the class folder {class_names[0]!r}" if class_names else "no class folder"
        remedy = "; add a folder for each other class" * len(class_names)
        if class_names and _visible_folders(folders["train"] / class_names[0]):
            remedy = f"; if its sub-folders are the classes, use --data.root {folders['train'] / class_names[0]}"
        if outside:
            remedy = (
                f"; put the {format_count(len(outside), 'image')} into folders of classes, or name the class of each "
            )
            remedy += "in a table (--data.source table)"
        raise InputError(f"{folders['train']}: {there}, and at least 2 are needed{remedy}; allowed layouts: {LAYOUTS}")
    if outside:
        text = f"images outside of the class folders are ignored: {len(outside):,}, such as {outside[0]}"
        warnings.warn(f"{root}: {text}", stacklevel=2)
    problems += [
        FileProblem("class name that is not UTF-8", name, f"class '{escape_name(name)}' needs another name")
        for name in class_names
        if escape_name(name) != name
    ]
    images = []
    for split, files in by_split.items():
        images += [(name, split, label) for label, of in enumerate(class_names) for name in files.get(of, [])]
        folder, filled = folders[split].name, [name for name in files if files[name]]
        if split != "train" and not filled:
            reason = f"it holds no images (files that end in {ENDINGS})"
            problems.append(FileProblem("split without images", folder, reason))
        train = f"train/, which has {', '.join(class_names[:20])}" + ", ..." * (len(class_names) > 20)
        problems += [
            FileProblem("class that is not in train/", f"{folder}/{name}", f"class {name!r} is not in {train}")
            for name in filled
            if name not in class_names
        ]
    names, splits, labels = ([image[column] for image in images] for column in range(3))
    groups = None
    if options.group is not None:
        matches = [re.search(options.group, os.path.basename(name)) for name in names]
        groups = [next(filter(None, (*match.groups(), match[0])), "") if match else "" for match in matches]
        if "" in groups:
            name = names[groups.index("")]
            raise InputError(f"{root / name}: data.folder.group {options.group!r} finds no group in its name")
        check_disjoint_groups(root, groups, splits)
    layout = "class folders" if folders["train"] == root else "split folders"
    _warn_of_subfolders(root, layout, [(name, class_names[label]) for name, _, label in images])
    listing = ImageListing(layout, class_names, names, splits, labels, groups)
    return replace(listing, problems=problems + listing.small_classes())


def _warn_of_subfolders(root: Path, layout: str, images: Sequence[tuple[str, str]]) -> None:
    """Print one line if images (path under the root, class) are in sub-folders of the folder of a class."""
    depth = 1 if layout == "class folders" else 2
    inside: dict[str, Counter[str]] = {}
    for name, class_name in images:
        if len(parts := name.split("/")) > depth + 1:
            inside.setdefault(class_name, Counter())[parts[depth]] += 1
    if not inside:
        return
    class_name, counts = next(iter(inside.items()))
    names = [*counts][:_SHOWN_PROBLEMS] + [f"{len(counts) - _SHOWN_PROBLEMS:,} more"] * (len(counts) > _SHOWN_PROBLEMS)
    count, folders = format_count(counts.total(), "image"), f"sub-folder{'s' * (len(counts) > 1)} {join_names(names)}"
    others = f" (other classes with sub-folders: {len(inside) - 1:,})" if len(inside) > 1 else ""
    place = f"--data.root {root / class_name} or " if depth == 1 else ""
    warnings.warn(
        f"{root}: class {class_name} has {count} in its {folders}{others}. These count as {class_name}. If the "
        f"sub-folders are the classes, use {place}a table (--data.source table)",
        stacklevel=3,
    )


def split_folders(root: Path) -> dict[str, Path]:
    """The folder of each split. ``{"train": root}`` if the class folders are in the root itself."""
    if root.is_file():
        raise InputError(f"data.root {root}: it is a file; a table of images and labels is --data.source table")
    if not root.is_dir():
        hint = f"--data.root PATH names yours, a folder of images: {LAYOUTS}"
        raise MissingImages(f"data.root {root}: no such folder", hint)
    inside = _visible_folders(root)
    splits = {path.name: path for path in inside if path.name.lower() in SPLIT_NAMES and _visible_folders(path)}
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


def _visible_folders(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed ({error.strerror})") from None
    return [path for path in inside if path.is_dir() and not is_ignored(path.name)]


def is_ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in IGNORED_FOLDERS


def _image_names(folder: Path, root: Path, linked: set[Path], problems: list[FileProblem]) -> list[str] | None:
    """Paths under the root of the images in a folder and below; None for a link to a folder that is not followed.

    A link that leads outside of the root is followed once. Others would mix classes or lead in a circle, and become
    ``problems``.
    """
    name = folder.relative_to(root).as_posix()
    if folder.is_symlink():
        target, inside, parent = (Path(os.path.realpath(path)) for path in (folder, root, folder.parent))
        leads_inside = target.is_relative_to(inside)
        if target in linked or leads_inside or any(place.is_relative_to(target) for place in (inside, parent)):
            reason = f"leads to {target}, which another link leads to, or which holds or belongs to the folder itself"
            problems.append(FileProblem("link that mixes classes", name, reason))
            return None
        linked.add(target)
    try:
        paths = sorted(path for path in folder.iterdir() if not is_ignored(path.name))
    except OSError as error:
        problems.append(FileProblem("folder that cannot be listed", name, str(error.strerror)))
        return []
    folders = dict.fromkeys(path for path in paths if os.path.isdir(path))  # False for a link to itself
    names = [f"{name}/{path.name}" for path in paths if path.suffix.lower() in SUFFIXES and path not in folders]
    others = [(path.name, KIND_OF_ENDING.get(path.suffix.lower())) for path in paths if path not in folders]
    problems += [FileProblem(kind, f"{name}/{file}", FORMAT_REASONS[kind]) for file, kind in others if kind]
    return names + [file for path in folders for file in _image_names(path, root, linked, problems) or ()]


def list_table(path: Path, options: TableOptions) -> ImageListing:
    """The images that a table names, without test folds. Paths start in the folder of the table.

    Classes are sorted by name, or as numbers if all are numbers. Raises InputError: a table that cannot be read, a
    missing column or value, an image in two rows, fewer than two classes, or a group in two splits.
    """
    import pandas

    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: a table of images is a file that ends in .csv")
    try:
        if b"\0" in path.read_bytes():  # pandas may drop what follows
            raise ValueError("it contains a null byte")
        rows = pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except Exception as error:  # the reader fails in many ways on damaged bytes
        raise InputError(f"{path}: cannot be read as a table: {one_line(error)}") from error
    if not len(rows):
        raise InputError(f"{path}: it has no rows")
    if not isinstance(rows.index, pandas.RangeIndex):  # pandas takes the first values as names of the rows
        raise InputError(f"{path}: its rows have more values than its first row has names")

    def column(option: str, name: str) -> list[str]:
        if name not in rows.columns:
            columns = ", ".join(map(str, rows.columns))
            raise InputError(f"{path}: there is no column {name!r} (data.table.{option}); there are {columns}")
        texts = rows[name].tolist()
        if "" in texts:
            raise InputError(f"{path}: row {texts.index('') + 1} has nothing in column {name!r}")
        return texts

    names, classes = column("image", options.image), column("label", options.label)
    image, count = Counter(os.path.realpath(path.parent / name) for name in names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{path}: the image {image} is in {count} rows")
    are_numbers = all(re.fullmatch("-?[0-9]{1,4000}", name) for name in classes)
    class_names = tuple(sorted(set(classes), key=lambda name: (int(name) if are_numbers else 0, name)))
    if are_numbers and int(class_names[0]) < 0:
        raise InputError(
            f"{path}: row {classes.index(class_names[0]) + 1} has the label {class_names[0]} in column "
            f"{options.label!r}; numbers below 0 mark unlabelled images: leave these out"
        )
    _check_labels(path, options.label, classes)
    if len(class_names) < 2:
        raise InputError(f"{path}: column {options.label!r} has {len(class_names)} class; it needs at least 2")
    numbers = {name: label for label, name in enumerate(class_names)}
    splits = ["train"] * len(names)
    if options.split is not None:
        words = column("split", options.split)
        if unknown_words := [word.lower() for word in words if word.lower() not in SPLIT_NAMES]:
            raise InputError(
                f"{path}: {unknown_words[0]!r} in column {options.split!r}; allowed: train, validation, test"
            )
        splits = [SPLIT_NAMES[word.lower()] for word in words]
        if "train" not in splits:
            raise InputError(f"{path}: no row has train in column {options.split!r}")
    groups = None if options.group is None else column("group", options.group)
    if groups is not None:
        check_disjoint_groups(path, groups, splits)
    listing = ImageListing("table", class_names, names, splits, [numbers[name] for name in classes], groups)
    return replace(listing, problems=listing.small_classes())


def _check_labels(path: Path, column: str, labels: Sequence[str]) -> None:
    """Raise InputError if a column contains several labels of one image, or measurements."""
    classes = {*labels}
    for separator in ";|,":
        lists = [label for label in labels if len([part for part in label.split(separator) if part.strip()]) > 1]
        parts = Counter(part.strip() for label in {*lists} for part in label.split(separator))
        # Commas are common in names, such as Paris, France and Lyon, France.
        if any(part in classes or (count > 1 and separator != ",") for part, count in parts.items()):
            raise InputError(
                f"{path}: row {labels.index(lists[0]) + 1} has several labels, {lists[0]!r}, in column {column!r}; "
                f"this is not supported: give each image one label, without {separator!r}"
            )
    count = len(classes)
    if count >= MIN_DISTINCT_NUMBERS and len(labels) < MIN_IMAGES_PER_NUMBER * count and all(map(_is_number, classes)):
        raise InputError(
            f"{path}: column {column!r} has {count:,} different numbers for {len(labels):,} images, and regression is "
            "not supported; replace numbers by a few classes such as low and high, or by names if these are classes"
        )


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?", text.strip(), re.IGNORECASE) is not None
