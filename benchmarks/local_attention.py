"""Time and memory of window attention beside dense attention under the mask of the same windows.

    python -m benchmarks.local_attention --batch-size 1 --threads 2

Both ways to the same outputs and gradients are timed in turns, in one process, so that a busy machine slows both:
``F.scaled_dot_product_attention`` with a boolean mask that is at hand, and ``local_attention``. Timed are the forward
pass without gradients, and the forward with the backward pass.

Peak memory is what torch's allocator hands out above the inputs during a forward and backward pass, outputs and
gradients included, as torch's profiler records every allocation. It is given twice: "at hand" with the mask (or what
``local_attention`` keeps between calls) made before, and "afresh" with its making counted.

Where other programs use the same cores, set ``OMP_WAIT_POLICY=passive``: torch's threads else wait for each other by
turning idle rounds, in turns with those programs, at every one of the many small products of a window.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.input_pipeline import processor
from vit_vs_cnn.attention import local_attention
from vit_vs_cnn.attention.windows.neighbourhood import slot_matrix, window_places
from vit_vs_cnn.attention.windows.sliding import plain_bias
from vit_vs_cnn.attention.windows.tiles import rectangles

GRIDS = ((8, 8), (32, 32), (64, 64))
DENSE, LOCAL = "dense, masked", "local"
FORWARD, BOTH = "forward", "forward + backward"


class Timing(NamedTuple):
    """Milliseconds: quartiles over the repeats."""

    low: float
    median: float
    high: float


class Case:
    """Queries, keys and values on a grid, and the two ways to attend."""

    def __init__(self, grid_size: tuple[int, int], batch_size: int, heads: int, head_dim: int, window: int) -> None:
        self.grid_size, self.window = grid_size, window
        shape = (batch_size, heads, grid_size[0] * grid_size[1], head_dim)
        self.inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        self.direction = torch.randn(shape)
        self.mask = self.make_mask()

    def make_mask(self) -> Tensor:
        rows, cols = (torch.arange(size) for size in self.grid_size)
        near_rows = (rows[:, None] - rows).abs() <= self.window // 2
        near_cols = (cols[:, None] - cols).abs() <= self.window // 2
        return (near_rows[:, None, :, None] & near_cols[None, :, None, :]).flatten(2).flatten(0, 1)

    def dense(self) -> Tensor:
        return F.scaled_dot_product_attention(*self.inputs, attn_mask=self.mask)

    def dense_afresh(self) -> Tensor:
        return F.scaled_dot_product_attention(*self.inputs, attn_mask=self.make_mask())

    def local(self) -> Tensor:
        return local_attention(*self.inputs, grid_size=self.grid_size, window_size=self.window)

    def local_afresh(self) -> Tensor:
        for cached in (rectangles, slot_matrix, window_places, plain_bias):
            cached.cache_clear()
        return self.local()

    def forward(self, attend: Callable[[], Tensor]) -> None:
        with torch.no_grad():
            attend()

    def both(self, attend: Callable[[], Tensor]) -> None:
        torch.autograd.grad(attend(), self.inputs, self.direction)

    def timings(self, repeats: int) -> dict[tuple[str, str], Timing]:
        """Every pass of every way in turn; the first turn warms up and is not counted."""
        passes = {FORWARD: self.forward, BOTH: self.both}
        ways = {DENSE: self.dense, LOCAL: self.local}
        seconds: dict[tuple[str, str], list[float]] = {(step, way): [] for step in passes for way in ways}
        for turn in range(repeats + 1):
            for (step, way), values in seconds.items():
                start = time.perf_counter()
                passes[step](ways[way])
                if turn:
                    values.append(1000 * (time.perf_counter() - start))
        return {key: Timing(*statistics.quantiles(values, n=4)) for key, values in seconds.items()}

    def peak_megabytes(self, attend: Callable[[], Tensor]) -> float:
        """The most that is allocated at once during a forward and backward pass, above what was before."""
        self.both(attend)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            self.both(attend)
        assert profiled.profiler is not None
        assert profiled.profiler.kineto_results is not None
        records: list[Any] = profiled.profiler.kineto_results.events()  # torch declares only some of their methods
        events = [event for event in records if event.name() == "[memory]"]
        held = peak = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            held += event.nbytes()
            peak = max(peak, held)
        return peak / 1e6


def print_case(case: Case, repeats: int) -> dict[str, float]:
    """A table of one grid; returns the median milliseconds of the local passes."""
    rows, cols = case.grid_size
    print(f"\n{rows * cols} tokens ({rows} x {cols})\n{'':24s}{DENSE:>31s}{LOCAL:>31s}{'dense / local':>16s}")
    timings = case.timings(repeats)
    for step in (FORWARD, BOTH):
        dense, local = timings[step, DENSE], timings[step, LOCAL]
        columns = [f"{timing.median:.2f} ms ({timing.low:.2f}, {timing.high:.2f})" for timing in (dense, local)]
        print(f"{step:24s}{columns[0]:>31s}{columns[1]:>31s}{dense.median / local.median:>16.2f}")
    for name, ways in {
        "peak memory, at hand": (case.dense, case.local),
        "peak memory, afresh": (case.dense_afresh, case.local_afresh),
    }.items():
        dense, local = (case.peak_megabytes(way) for way in ways)
        print(f"{name:24s}{f'{dense:.2f} MB':>31s}{f'{local:.2f} MB':>31s}{dense / local:>16.2f}")
    return {step: timings[step, LOCAL].median for step in (FORWARD, BOTH)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--window", type=int, default=7, help="rows and cols of the window, odd")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15, help="timed passes of each kind")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"{processor()}, {arguments.threads} threads; torch {torch.__version__}, Python {platform.python_version()}")
    print(f"batch {arguments.batch_size}, {arguments.heads} heads of {arguments.head_dim}, window {arguments.window},")
    print(f"float32; median (quartiles) of {arguments.repeats} interleaved passes")
    medians = {}
    for grid in GRIDS:
        case = Case(grid, arguments.batch_size, arguments.heads, arguments.head_dim, arguments.window)
        medians[grid] = print_case(case, arguments.repeats)
    print("\nlocal, time at 4096 tokens over time at 1024:")
    for step in (FORWARD, BOTH):
        print(f"{step:24s}{medians[64, 64][step] / medians[32, 32][step]:.2f}")


if __name__ == "__main__":
    main()
