"""Measurements that tests and documents quote, and what their commands share."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from vit_vs_cnn.errors import EXIT_BAD_INPUT, InputError
from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.statistics.intervals import Estimate


def command_line(about: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the module."""
    return argparse.ArgumentParser(program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [columns, ["---"] * len(columns), *rows])


def print_text(make_text: Callable[[], str]) -> None:
    """Print the result of a command, or one line and exit if its input is bad."""
    try:
        print(make_text())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


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
    print_text(lambda: table_of(models))


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a compressed ``.npz`` file."""
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def interval_text(estimate: Estimate, unit: str = "") -> str:
    """Percentage with its interval: ``25.0 (10.0 to 40.0)``."""
    return f"{100 * estimate.value:.1f}{unit} ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def range_text(values: Sequence[float], digits: int = 2, unit: str = "") -> str:
    """Mean, smallest and largest value: ``0.25 (0.10 to 0.40)``."""
    return f"{fmean(values):.{digits}f}{unit} ({min(values):.{digits}f} to {max(values):.{digits}f})"
