"""Table of predictions for a terminal, and file of predictions."""

import json
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.networks.trained_network import MAX_SHOWN_ROWS, ImagePredictions
from vit_vs_cnn.reporting.table import Table, print_tables

if TYPE_CHECKING:
    from vit_vs_cnn.comparison.evaluate import Evaluation

#: Formats of files of predictions: CSV and JSON lines.
SUFFIXES = (".csv", ".jsonl")
#: Largest number of classes whose confusion matrix is printed.
MAX_PRINTED_CLASSES = 12


def print_predictions(predictions: ImagePredictions) -> None:
    """Print the first rows in a terminal, unless all are in a file."""
    if not predictions.written:
        print_tables([predictions_table(predictions)])


def print_evaluation(evaluation: "Evaluation") -> None:
    """Print the tables of an evaluation in a terminal."""
    print_tables(evaluation_tables(evaluation))


def predictions_table(predictions: ImagePredictions) -> Table:
    """Table of the first rows, without empty columns and without the common folder of all images."""
    folder, count = _common_folder(predictions.names), len(predictions)
    first = islice(predictions.rows(), MAX_SHOWN_ROWS)
    rows = [row | {"image": str(row["image"]).removeprefix(folder)} for row in first]
    columns = [name for name in predictions.columns if any(row.get(name) is not None for row in rows)]
    title = f"{len(rows)} of {count:,} images" if count > len(rows) else "Images"
    return Table(
        f"{title} in {folder}" if folder else title,
        [name.replace("_", " ") for name in columns],
        [[_cell(row.get(name)) for name in columns] for row in rows],
        note="All rows: --output FILE.csv" if count > len(rows) else "",
    )


def evaluation_tables(evaluation: "Evaluation") -> list[Table]:
    """Recall of each class that has images, and the confusion matrix unless there are many classes."""
    rows = [row for row in evaluation.rows() if row["images"]]
    recalls = [
        [row["class"], row["images"], _cell(row["recall"]), f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"]
        for row in rows
    ]
    names, columns = [*evaluation.confusion], ["class", "images", "recall", "95 % CI"]
    if len(names) > MAX_PRINTED_CLASSES:
        return [Table("Recall of each class", columns, recalls, note="Predicted classes: --output FILE.csv")]
    counts = [[row["class"], *(row[f"predicted_{name}"] for name in names)] for row in rows]
    return [Table("Recall of each class", columns, recalls), Table("Predicted classes", ["class", *names], counts)]


def _common_folder(names: Sequence[str]) -> str:
    """Common folder of all files, with a slash at the end; empty if there is none."""
    folders = {os.path.dirname(name) for name in names}
    common = os.path.commonpath(folders) if len({os.path.isabs(folder) for folder in folders}) == 1 else ""
    return os.path.join(common, "") if common else ""


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{100 * value:.1f} %"
    return str(value)


def check_suffix(path: Path) -> None:
    """Raise InputError unless the suffix is .csv or .jsonl."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"output {path}: it must end in {' or '.join(SUFFIXES)}")


def write_predictions(predictions: "ImagePredictions | Evaluation", path: Path) -> None:
    """Write all rows as CSV or JSON lines, depending on the suffix."""
    with atomic_write(path) as partial:
        if path.suffix == ".jsonl":
            partial.write_text("".join(json.dumps(row) + "\n" for row in predictions.rows()), encoding="utf-8")
            return
        predictions.frame().to_csv(partial, index=False, float_format="%.6g", lineterminator="\n")
