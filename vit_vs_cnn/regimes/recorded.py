"""Results that were recorded as a table: what is left of cells whose predictions were not kept."""

import csv
from pathlib import Path
from typing import Any

from vit_vs_cnn.errors import InputError

#: Columns of numbers in results.csv; the others are words.
WHOLE = ("train_size", "seed", "scored_images", "trials", "test_evaluations", "parameters", "macs", "steps", "images")
REAL = ("accuracy", "loss", "calibration_error", "epochs", "flops", "train_seconds", "images_per_second")
NEEDED = ("contender", "scored_on", *WHOLE[:3], "parameters", "macs", "steps", "accuracy", *REAL[-2:])


def recorded_results(path: Path) -> list[dict[str, Any]]:
    """Read a results.csv as ``report`` writes it: one result for each line.

    Raises:
        InputError: no such table, a column that is missing, or a cell that is no number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from error
    if not lines:
        raise InputError(f"{path} has no line of results")
    if missing := [column for column in NEEDED if lines[0].get(column) is None]:
        raise InputError(f"{path} has no column {missing[0]}; expected a results.csv as report writes it")
    return [_result(line, f"{path} line {number}") for number, line in enumerate(lines, start=2)]


def _result(line: dict[str, str], where: str) -> dict[str, Any]:
    kinds = dict.fromkeys(WHOLE, int) | dict.fromkeys(REAL, float)
    result: dict[str, Any] = dict(line)
    for column, kind in kinds.items():
        if column in line:
            try:
                result[column] = kind(line[column])
            except (TypeError, ValueError) as error:
                raise InputError(f"{where}: {column} {line[column]!r} is no {kind.__name__}") from error
    return result
