"""A table of images: a CSV file with one row an image."""

import os
import re
from collections import Counter
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vit_vs_cnn.data.folder import VALIDATION_FOLDERS
from vit_vs_cnn.data.image_cache import CachedImages, open_files
from vit_vs_cnn.data.listing import ImageListing, check_disjoint_groups
from vit_vs_cnn.data.options import TableOptions
from vit_vs_cnn.errors import InputError, one_line

if TYPE_CHECKING:
    import pandas

#: Split by the words that a column may hold, in lower case.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(VALIDATION_FOLDERS, "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def open_table(path: Path | str, options: TableOptions | None = None) -> CachedImages:
    """The images of a table as a source: ``list_table`` and ``open_files``."""
    options = options or TableOptions()
    return open_files("table", Path(path), partial(list_table, Path(path), options), options)


def list_table(path: Path, options: TableOptions) -> ImageListing:
    """The images that a table names. Paths start in the folder of the table.

    Classes are sorted by name, or as numbers if all are numbers.

    Raises:
        InputError: a table that cannot be read, a missing column or value, an image in two rows, fewer than two
            classes, or a group in two splits.
    """
    rows = _read_table(path)
    if not len(rows):
        raise InputError(f"{path}: it has no rows")

    def column(option: str, name: str) -> list[str]:
        if name not in rows.columns:
            columns = ", ".join(map(str, rows.columns))
            raise InputError(f"{path}: there is no column {name!r} (data.table.{option}); there are {columns}")
        texts = rows[name].tolist()
        if "" in texts:
            raise InputError(f"{path}: row {texts.index('') + 1} has nothing in column {name!r}")
        return texts

    names, classes = column("image", options.image), column("label", options.label)
    _check_unique(path, names)
    class_names = _sort_classes(set(classes))
    if _are_numbers(class_names) and int(class_names[0]) < 0:
        raise InputError(
            f"{path}: row {classes.index(class_names[0]) + 1} has the label {class_names[0]} in column "
            f"{options.label!r}; numbers below 0 mark unlabelled images: leave these out"
        )
    if len(class_names) < 2:
        raise InputError(f"{path}: column {options.label!r} has {len(class_names)} class; it needs at least 2")
    numbers = {name: label for label, name in enumerate(class_names)}
    splits = ["train"] * len(names)
    if options.split is not None:
        words = column("split", options.split)
        if unknown_splits := [word.lower() for word in words if word.lower() not in SPLIT_NAMES]:
            raise InputError(
                f"{path}: {unknown_splits[0]!r} in column {options.split!r}; allowed: train, validation or test"
            )
        splits = [SPLIT_NAMES[word.lower()] for word in words]
        if "train" not in splits:
            raise InputError(f"{path}: no row has train in column {options.split!r}")
    groups = None if options.group is None else column("group", options.group)
    if groups is not None:
        check_disjoint_groups(path, groups, splits)
    listing = ImageListing("table", class_names, names, splits, [numbers[name] for name in classes], groups)
    listing.problems.extend(listing.small_classes())
    return listing.completed(options)


def _check_unique(path: Path, names: list[str]) -> None:
    """Raise InputError if a file is in two rows, also under two names."""
    spellings: dict[str, str] = {}
    for name in names:
        first = spellings.setdefault(os.path.realpath(path.parent / name), name)
        if name != first:
            raise InputError(f"{path}: {first!r} and {name!r} are one image, which is in two rows")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{path}: the image {name!r} is in {count} rows")


def _are_numbers(names: Collection[str]) -> bool:
    return all(re.fullmatch("-?[0-9]+", name) for name in names)


def _sort_classes(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: (int(name), name)) if _are_numbers(names) else sorted(names))


def _read_table(path: Path) -> "pandas.DataFrame":
    import pandas

    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: a table of images is a file that ends in .csv")
    try:
        return pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # the reader fails in many ways on damaged bytes
        raise InputError(f"{path}: cannot be read as a table: {one_line(error)}") from error
