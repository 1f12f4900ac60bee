"""Measurements that tests and documents quote, and what their commands share."""

import argparse
import os
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata
from statistics import fmean


def command_line(about: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the module."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def range_text(values: Sequence[float], digits: int = 2, unit: str = "") -> str:
    """Mean, smallest and largest value: ``0.25 (0.10 to 0.40)``."""
    return f"{fmean(values):.{digits}f}{unit} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def environment(*libraries: str) -> str:
    """Processor, number of cores, and versions."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in libraries)
    machine = platform.processor() or platform.machine()
    return f"{machine}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}"
