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

#: Folder of the repository.
ROOT = Path(__file__).parents[1]


def command_line(about: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the module."""
    return argparse.ArgumentParser(program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [columns, ["---"] * len(columns), *rows])


def run_command(
    parser: argparse.ArgumentParser, function: Callable[..., str | None], words: Sequence[str] | None = None
) -> None:
    """Parse the command line, call a function with its options as keyword arguments, and print the returned text.

    An ``InputError`` is printed in one line, and the command exits.
    """
    try:
        text = function(**vars(parser.parse_args(words)))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    if text is not None:
        print(text)


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
