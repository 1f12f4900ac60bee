"""Files that are whole at any moment: written beside their place, then moved there. Texts are in UTF-8."""

import csv
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Written:
    """Files that a command wrote."""

    written: tuple[Path, ...]

    @property
    def page(self) -> Path | None:
        """The page to open in a browser; None if none was written."""
        return next((path for path in self.written if path.name == "index.html"), None)


def partial_of(path: Path, *, contested: bool = False) -> Path:
    """Where the content of ``path`` is written until it is whole.

    Arguments:
        path: the file's own place.
        contested: whether several writers may meet; then each gets a place of its own.
    """
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial" if contested else f"{path.name}.partial")


def file_state(path: Path) -> tuple[int, int, int, int]:
    """Size, modification time, change time and inode of a file: any replacement or edit changes at least one.

    The modification time alone can be set back, as ``cp -p``, ``tar`` and ``rsync`` do.
    """
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def publish_file(partial: Path, path: Path) -> None:
    """Give a file that is whole its name; a power cut does not find the new name before the new content."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


@contextmanager
def atomic_write(path: Path, *, contested: bool = False) -> Iterator[Path]:
    """A place to write the content of ``path`` to; it gets its name when the block ends, and none if the block fails.

    Arguments:
        path: the file's own place; folders that are missing are made.
        contested: whether several processes may write it at a time.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_of(path, contested=contested)
        try:
            yield partial
            publish_file(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What cannot be written in this block names the file: a full disk or a limit on sizes raises without a name."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def remove_partials(folder: Path) -> None:
    """Remove what writers left that were killed. For a folder that nobody else writes to."""
    for partial in folder.rglob("*.partial"):
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, also where several processes write it at a time."""
    with atomic_write(path, contested=True) as partial:
        partial.write_text(text, encoding="utf-8")


def spelled(file: str | os.PathLike[str]) -> str:
    """The name of a file as text that can be written: bytes that are no UTF-8 as ``\\xe4``."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a JSON file holds; an empty one where there is no such file, or it cannot be read as one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_rows(path: Path, columns: int = 3) -> list[list[str]]:
    """The whole rows of a CSV file whose first column counts, without its header; none where there is no file.

    Whatever befell the file, what can be read of it is given: a run does not depend on what it logged.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    except OSError:
        return []
    rows = (_row(line) for line in text.splitlines())
    return [row for row in rows if len(row) == columns and row[0].isascii() and row[0].isdigit()]


def _row(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # longer than any that was written
        return []
