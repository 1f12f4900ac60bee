"""Helpers of the speed benchmarks: timing in turns, ratios with quartiles, rows of a table."""

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import command_line, markdown_table
from vit_vs_cnn.devices import bfloat16_units
from vit_vs_cnn.models.cost import time_in_turns
from vit_vs_cnn.runs.result import describe_hardware

#: Titles of ``Row.cells``.
COLUMNS = ("what", "figure", "quartiles", "goal")


@dataclass(frozen=True)
class Row:
    """One figure.

    Arguments:
        name: what was measured.
        value: a median; None if it could not be measured.
        low, high: quartiles over repeats; None for a single measurement.
        unit: ``x`` for a ratio (how many times as fast, so above 1 is better), else s, MB, images/s.
        goal: limit for the value; None for no goal.
        at_most: True if the goal is an upper limit.
        note: reason for a missing value.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = "x"
    goal: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def cells(self) -> list[str]:
        """Cells of a table with ``COLUMNS``."""
        value = f"failed: {self.note}" if self.value is None else f"{self.value:.3g} {self.unit}"
        spread = "" if self.low is None or self.high is None else f"{self.low:.3g} to {self.high:.3g}"
        if self.goal is None:
            return [self.name, value, spread, ""]
        sign, goal = (-1, f"at most {self.goal:g}") if self.at_most else (1, f"at least {self.goal:g}")
        is_met = self.value is not None and sign * self.value >= sign * self.goal
        return [self.name, value, spread, goal if is_met else f"{goal}, **missed**"]


def in_turns(ways: Mapping[str, Callable[[], object]], repeats: int, *, warm_up: int = 2) -> dict[str, np.ndarray]:
    """Seconds of each way, called one after the other again and again, so that a busy machine slows all of them."""
    return {name: np.array(times) for name, times in time_in_turns(ways, rounds=repeats, warmup=warm_up).items()}


def peak_megabytes(work: Callable[[], object]) -> float:
    """Peak memory that torch allocates on the CPU during some work, in MB."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    assert profiled.profiler is not None
    assert profiled.profiler.kineto_results is not None
    records: list[Any] = profiled.profiler.kineto_results.events()  # torch declares only some of their methods
    events = [event for event in records if event.name() == "[memory]"]
    allocated = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        allocated += event.nbytes()
        peak = max(peak, allocated)
    return peak / 1e6


def fastest(times: Mapping[str, np.ndarray]) -> str:
    """Name of the way with the smallest median time."""
    return min(times, key=lambda name: float(np.median(times[name])))


def ratio(name: str, slow: np.ndarray, fast: np.ndarray, **about: float | bool | None) -> Row:
    """Speedup of ``fast`` over ``slow``, by pairs of neighbouring calls."""
    low, middle, high = np.percentile(slow / fast, [25, 50, 75])
    return Row(name, float(middle), float(low), float(high), **about)  # type: ignore[arg-type]


def kind_of_machine() -> str:
    """Name of the GPU, or of the processor with its bfloat16 units and number of cores."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    units = ", ".join(bfloat16_units()) or "none"
    return f"{describe_hardware()['cpu']} (bfloat16 units: {units}), {os.cpu_count()} cores"


def environment(*libraries: str) -> str:
    """Kind of machine, number of PyTorch threads, and versions."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in libraries)
    return f"{kind_of_machine()}, {torch.get_num_threads()} threads; {versions}, Python {platform.python_version()}"


def parser(about: str | None, *, threads: int = 1, repeats: int = 15) -> argparse.ArgumentParser:
    """Arguments that the benchmarks of speed share."""
    arguments = command_line(about)
    arguments.add_argument("--threads", type=int, default=threads)
    arguments.add_argument("--repeats", type=int, default=repeats, help="timed passes of each way")
    arguments.add_argument("--json", type=Path, help="write the rows there, too")
    return arguments


def run_benchmark(arguments: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Sequence[Row]]) -> None:
    """Measure with the arguments of the command line, in ``--threads``, and report the rows."""
    args = arguments.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    report_rows(measure(args), args.json)


def report_rows(rows: Sequence[Row], path: Path | None) -> None:
    """Print the machine and the rows, and write them to ``path`` unless it is None."""
    machine = environment("torch", "torchvision", "timm")
    print(f"{machine}\n\n{markdown_table(COLUMNS, [row.cells for row in rows])}")
    if path is not None:
        path.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
