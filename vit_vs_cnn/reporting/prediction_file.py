"""What a network says of pictures, in a file: rows are written as they come, and the file is there when it is whole."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.optional_deps import import_optional
from vit_vs_cnn.runs.prediction import columns_of

Row = dict[str, Any]
#: Takes rows, any number at a time.
Write = Callable[[Sequence[Row]], None]
#: Rows of a group of a Parquet file.
GROUP = 8192


def check_suffix(path: Path) -> None:
    """Raises InputError: no such kind of file, or what it needs is not installed."""
    if path.suffix not in WRITERS:
        raise InputError(f"output {path}: it must end in {', '.join(WRITERS)}")
    if path.suffix == ".parquet":
        _pyarrow()


@contextmanager
def prediction_file(path: Path, *, top: int) -> Iterator[Write]:
    """A file to write rows into; it gets its name when the block ends, and there is none if the block fails.

    Arguments:
        path: its suffix says which kind of file.
        top: how many classes a row has.
    """
    with atomic_write(path, contested=True) as partial, WRITERS[path.suffix](partial, columns_of(top)) as write:
        yield write


@contextmanager
def _csv(path: Path, columns: list[str]) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        yield lambda rows: writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
    return value


@contextmanager
def _json(path: Path, _: list[str]) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        separator = "[\n"

        def write(rows: Sequence[Row]) -> None:
            nonlocal separator
            for row in rows:
                file.write(separator + json.dumps(row))
                separator = ",\n"

        yield write
        file.write("\n]\n" if separator != "[\n" else "[]\n")


@contextmanager
def _json_lines(path: Path, _: list[str]) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(json.dumps(row) + "\n" for row in rows)


@contextmanager
def _parquet(path: Path, columns: list[str]) -> Iterator[Write]:
    arrow, parquet = _pyarrow()
    kinds = {"is_out_of_distribution": arrow.bool_(), "ood_score": arrow.float64()}
    schema = arrow.schema(
        [(name, kinds.get(name) or (arrow.float64() if "probability" in name else arrow.string())) for name in columns]
    )
    waiting: list[Row] = []
    with parquet.ParquetWriter(path, schema) as writer:

        def write(rows: Sequence[Row]) -> None:
            waiting.extend(rows)
            if len(waiting) >= GROUP:
                flush()

        def flush() -> None:
            writer.write_table(arrow.Table.from_pylist(waiting, schema=schema))
            waiting.clear()

        yield write
        flush()


def _pyarrow() -> tuple[Any, Any]:
    return import_optional("pyarrow", needed_by="a .parquet file"), import_optional(
        "pyarrow.parquet", needed_by="a .parquet file"
    )


WRITERS = {".csv": _csv, ".json": _json, ".jsonl": _json_lines, ".parquet": _parquet}
