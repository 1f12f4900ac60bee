"""Results of commands, and atomic writes: a file is written next to its place, then moved there, in UTF-8."""

import csv
import html
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class CommandResult:
    """Result of a command: lines of text, a table, and the files that were written.

    Its repr is the lines; a notebook also shows the table.
    """

    written: tuple[Path, ...]

    @property
    def lines(self) -> list[str]:
        """The text."""
        return []

    @property
    def page(self) -> Path | None:
        """The page to open in a browser; None if none was written."""
        return next((path for path in self.written if path.name == "index.html"), None)

    def frame(self) -> Any:
        """The table, a ``pandas.DataFrame``."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.lines)
        return lines + self.frame().round(3).to_html(index=False, na_rep="")


def partial_path(path: Path) -> Path:
    """Temporary file for the content of ``path``."""
    return path.with_name(f"{path.name}.partial")


def file_state(path: Path) -> tuple[int, int, int, int]:
    """Size, modification time, change time and inode of a file, as a key that changes with each edit.

    The modification time alone can be set back, as ``cp -p``, ``tar`` and ``rsync`` do.
    """
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def publish_file(partial: Path, path: Path) -> None:
    """Rename a complete file. After a power cut, the new name never has incomplete content."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Temporary file for the content of ``path``, renamed when the block ends, and removed if the block fails.

    Missing folders are created. Several processes may write the file at a time.
    """
    with add_file_name(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_path(path.with_name(f"{path.name}.{uuid.uuid4().hex}"))
        try:
            yield partial
            publish_file(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def add_file_name(path: Path) -> Iterator[None]:
    """Name ``path`` in OSErrors that name its temporary file, or no file at all, as when the disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(".partial"):
            error.filename = str(path)
        raise


def remove_partials(folder: Path) -> None:
    """Remove the temporary files of killed writers from a folder without other writers."""
    for partial in folder.rglob("*.partial"):
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def escape_name(file: str | os.PathLike[str]) -> str:
    """The name of a file as text, with bytes that are invalid in UTF-8 as ``\\xe4``."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty if the file is missing or cannot be read as a mapping."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def read_rows(path: Path, columns: int = 3) -> list[list[str]]:
    """The complete rows of a CSV file whose first column is a number; none if the file is missing."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    except OSError:
        return []
    rows: list[list[str]] = []
    for line in text.splitlines():
        with suppress(csv.Error):  # a line that is longer than the limit of the reader
            rows += csv.reader([line])
    return [row for row in rows if len(row) == columns and row[0].isascii() and row[0].isdigit()]
