"""Predictions as a table for a terminal, as a file, and the page of ``predict --explain``."""

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.reporting.document import Document, Gallery, Picture, Table, Text
from vit_vs_cnn.runs.prediction import SHOWN, Predicted, columns_of

#: Formats of files of predictions: CSV and JSON lines.
SUFFIXES = (".csv", ".jsonl")


def predictions_document(found: Predicted) -> Document:
    """The first rows, without empty columns and without the common folder of the images."""
    folder = _common_folder(found.names)
    rows = [row | {"image": str(row["image"]).removeprefix(folder)} for row in islice(found.rows(), SHOWN)]
    columns = [name for name in columns_of(found.top) if any(row.get(name) is not None for row in rows)]
    title = f"{len(rows)} of {len(found):,} images" if len(found) > len(rows) else "Images"
    document = Document("Predictions")
    heads = [_HEADS.get(name, name.replace("_", " ")) for name in columns]
    document.add(
        Table(
            f"{title} in {folder}" if folder else title,
            heads,
            [[_cell(name, row.get(name)) for name in columns] for row in rows],
            note="All rows: --output FILE.csv" if len(found) > len(rows) else "",
        )
    )
    return document


#: Names of columns on the terminal that differ from those in files.
_HEADS = {"ood_score": "OOD score", "is_out_of_distribution": "out of distribution"}


def _common_folder(names: Sequence[str]) -> str:
    """The common folder of all files, with a slash at its end; empty without one."""
    folders = {os.path.dirname(name) for name in names}
    common = os.path.commonpath(folders) if len({os.path.isabs(folder) for folder in folders}) == 1 else ""
    return os.path.join(common, "") if common else ""


def _cell(column: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.1%}" if "probability" in column else f"{value:.2f}"
    return str(value)


def check_suffix(path: Path) -> None:
    """Raise InputError for another format than CSV or JSON lines."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"output {path}: it must end in {' or '.join(SUFFIXES)}")


@contextmanager
def prediction_file(path: Path, *, top: int) -> Iterator[Callable[[Sequence[Mapping[str, Any]]], None]]:
    """Function that writes rows into a file, which exists when the block ends, and not if the block fails.

    Arguments:
        path: its suffix is one of ``SUFFIXES``.
        top: number of classes in a row.
    """
    with atomic_write(path, contested=True) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            yield lambda rows: file.writelines(json.dumps(row) + "\n" for row in rows)
            return
        writer = csv.DictWriter(file, columns_of(top), lineterminator="\n")
        writer.writeheader()
        yield lambda rows: writer.writerows({name: _csv_value(value) for name, value in row.items()} for row in rows)


def _csv_value(value: Any) -> Any:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
    return value


def write_explained(path: Path, pictures: Sequence[tuple[str, bytes]], *, lines: Sequence[str], method: str) -> Path:
    """Write a page of the first images with their maps.

    Arguments:
        pictures: name of each image, and a PNG of it with its map.
        lines: summary of all images.
    """
    from vit_vs_cnn.reporting.page import write_document  # loads matplotlib

    document = Document("Predictions", lines)
    drawn = [Picture(content, name, f"{name} with a map of {method} over it") for name, content in pictures]
    document.section(
        "Where the network looks",
        Text(
            f"The first {len(drawn)} pictures that could be read; the map is that of {method}, for the class that is "
            "named over it. How far such maps can be trusted is measured by inspect --score."
        ),
        Gallery(drawn, width=420),
    )
    return write_document(document, path.parent, page=path.name)[-1]
