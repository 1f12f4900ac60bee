"""Measurements that tests and documents quote, and what their commands share."""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import atomic_write


def command_line(about: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the module."""
    return argparse.ArgumentParser(program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [columns, ["---"] * len(columns), *rows])


def run_model_table(
    about: str | None, table_of: Callable[[Sequence[str]], str], *, numbers: Sequence[int] = ()
) -> None:
    """Command that prints a table of models, each given as RECORD:MODEL.

    Arguments:
        numbers: allowed numbers of models; empty for every even one.
    """
    parser = command_line(about)
    parser.add_argument("models", metavar="RECORD:MODEL", nargs="+")
    models = parser.parse_args().models
    if len(models) not in numbers if numbers else len(models) % 2:
        parser.error(f"give {' or '.join(map(str, numbers)) or 'an even number of'} models")
    try:
        print(table_of(models))
    except InputError as error:
        sys.exit(f"error: {error}")


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a compressed ``.npz`` file."""
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def range_text(values: Sequence[float], digits: int = 2, unit: str = "") -> str:
    """Mean, smallest and largest value: ``0.25 (0.10 to 0.40)``."""
    return f"{fmean(values):.{digits}f}{unit} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def environment(*libraries: str) -> str:
    """Processor, number of cores, and versions."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in libraries)
    machine = platform.processor() or platform.machine()
    return f"{machine}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}"
