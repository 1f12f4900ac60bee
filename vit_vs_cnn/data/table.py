"""A table of images as a source: a CSV or Parquet file with a row for each, its path, its class, its split."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.data.folder import FolderSource
from vit_vs_cnn.data.folder_layout import (
    VALIDATION_FOLDERS,
    Fault,
    ImageFile,
    Layout,
    assign_folds,
    check_groups,
    count_by_class,
)
from vit_vs_cnn.data.options import TableOptions
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.extras import library

if TYPE_CHECKING:
    import pandas

#: What a column of splits may say, in lower case.
SPLITS = {
    **{name: "train" for name in ("train", "training")},
    **{name: "validation" for name in VALIDATION_FOLDERS},
    **{name: "test" for name in ("test", "testing")},
}
SUFFIXES = (".csv", ".parquet")


class TableSource(FolderSource):
    """The images that a table names, as a source; read, decoded and kept as those of a folder are.

    Arguments:
        path: of the table. The paths in it start in its folder. Classes are sorted by name, or as numbers if all are.

    Raises:
        InputError: from the methods, for a table that cannot be read, a column that it lacks, a row without an image, a
            class or a split, an image that stands in two rows, fewer than two classes, a group in two splits, and
            whatever a folder refuses.
    """

    kind = "table"

    def __init__(self, path: Path | str, options: TableOptions | None = None) -> None:
        self.columns = options or TableOptions()
        super().__init__(Path(path).parent, self.columns)
        self.path = Path(path)

    @cached_property
    def layout(self) -> Layout:
        """Read once."""
        rows, columns = _read(self.path), self.columns
        if not len(rows):
            raise InputError(f"{self.path}: it has no rows")
        images, labels = self._column(rows, "image", columns.image), self._column(rows, "label", columns.label)
        self._check_each_once(images)
        class_names = _sorted(set(labels))
        if _are_numbers(class_names) and int(class_names[0]) < 0:
            raise InputError(
                f"{self.path}: row {labels.index(class_names[0]) + 1} has the label {class_names[0]} in column "
                f"{columns.label!r}; numbers below 0 mark unlabelled images: leave these out"
            )
        if len(class_names) < 2:
            raise InputError(f"{self.path}: column {columns.label!r} has {len(class_names)} class; it needs at least 2")
        groups = None
        if columns.group is not None:
            groups = dict(zip(images, self._column(rows, "group", columns.group), strict=True))
        number = {name: label for label, name in enumerate(class_names)}
        files = [ImageFile(name, number[label]) for name, label in zip(images, labels, strict=True)]
        splits, faults = self._splits(files, rows, class_names)
        if groups is not None:
            check_groups(self.path, {split: {groups[f.name] for f in own} for split, own in splits.items()})
        folds, more = assign_folds(splits, class_names, columns, groups)
        return Layout("table", class_names, splits, [*faults, *more], [], groups, folds)

    def _check_each_once(self, images: list[str]) -> None:
        """See that no file stands in two rows, however it is written. Raises InputError: one does."""
        written: dict[str, str] = {}
        for name in images:
            before = written.setdefault(os.path.realpath(self.root / name), name)
            if name != before:
                raise InputError(f"{self.path}: {before!r} and {name!r} are one image, which stands in two rows")
        name, count = Counter(images).most_common(1)[0]
        if count > 1:
            raise InputError(f"{self.path}: the image {name!r} stands in {count} rows")

    def provenance(self) -> dict[str, Any]:
        return {**super().provenance(), "root": str(self.path.resolve())}

    def _splits(
        self, files: list[ImageFile], rows: "pandas.DataFrame", class_names: tuple[str, ...]
    ) -> tuple[dict[str, list[ImageFile]], list[Fault]]:
        """The files of each split that the table names, and the classes that have too few."""
        if self.columns.split is None:
            splits = {"train": files}
        else:
            said = [word.lower() for word in self._column(rows, "split", self.columns.split)]
            if unknown := [word for word in said if word not in SPLITS]:
                column = f"column {self.columns.split!r}"
                raise InputError(f"{self.path}: {unknown[0]!r} in {column}; allowed: train, validation or test")
            splits = {
                split: own
                for split in ("train", "validation", "test")
                if (own := [file for file, word in zip(files, said, strict=True) if SPLITS[word] == split])
            }
            if "train" not in splits:
                raise InputError(f"{self.path}: no row of column {self.columns.split!r} says train")
        needed = {"train": 1 + ("validation" not in splits) + ("test" not in splits), "test": 1}
        faults = [
            Fault("class with too few images", name, f"class {name!r} has {count} {split} images, and needs {least}")
            for split, least in needed.items()
            for name, count in count_by_class(splits.get(split, []), class_names).items()
            if split in splits and count < least
        ]
        return splits, faults

    def _column(self, rows: "pandas.DataFrame", which: str, name: str) -> list[str]:
        """A column as texts. Raises InputError: there is none of that name, or a row has nothing there."""
        if name not in rows.columns:
            there = ", ".join(map(str, rows.columns))
            raise InputError(f"{self.path}: there is no column {name!r} (data.table.{which}); there are {there}")
        column = rows[name]
        texts = ["" if is_empty else str(value) for value, is_empty in zip(column, column.isna(), strict=True)]
        if "" in texts:
            raise InputError(f"{self.path}: row {texts.index('') + 1} has nothing in column {name!r}")
        return texts


def _are_numbers(names: Iterable[str]) -> bool:
    return all(re.fullmatch("-?[0-9]+", name) for name in names)


def _sorted(names: set[str]) -> tuple[str, ...]:
    """By name; whole numbers by their size."""
    return tuple(sorted(names, key=lambda name: (int(name), name)) if _are_numbers(names) else sorted(names))


def _read(path: Path) -> "pandas.DataFrame":
    import pandas

    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: a table of images is a file that ends in {' or '.join(SUFFIXES)}")
    is_parquet = path.suffix.lower() == ".parquet"
    if is_parquet:
        library("pyarrow", by=f"{path}: Parquet")
    try:
        if is_parquet:
            return pandas.read_parquet(path)
        return pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # damaged bytes make the readers fail in every way there is
        raise InputError(f"{path}: cannot be read as a table: {one_line(error)}") from error
