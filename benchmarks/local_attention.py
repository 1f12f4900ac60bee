"""Time and memory of window attention beside dense attention under the mask of the same windows.

    python -m benchmarks.local_attention --batch-size 1 --threads 2

Both ways to the same outputs and gradients are timed in turns, in one process, so that a busy machine slows both:
``F.scaled_dot_product_attention`` with a boolean mask that is at hand, and ``local_attention``. Timed are the forward
pass without gradients, and the forward with the backward pass. Two tables:

1. grids of 64, 1,024 and 4,096 tokens, with peak memory;
2. local attention on up to 65,536 tokens: time over that at 4,096, to be compared with the ratio of tokens.

Peak memory is what torch's allocator hands out above the inputs during a forward and backward pass, outputs and
gradients included, as torch's profiler records every allocation; not the mask.

Where other programs use the same cores, set ``OMP_WAIT_POLICY=passive``: torch's threads else wait for each other by
turning idle rounds, in turns with those programs, at every one of the many small products of a window.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import Row, peak_megabytes, processor, report_rows
from vit_vs_cnn.attention import local_attention

SIDES = (8, 32, 64)
DENSE, LOCAL = "dense, masked", "local"
LONG_SIDES = (64, 128, 256)
FORWARD, BOTH = "forward", "forward + backward"


class Timing(NamedTuple):
    """Milliseconds: quartiles over the repeats."""

    low: float
    median: float
    high: float


def near(side: int, window: int) -> Tensor:
    """Mask of the pairs of tokens of a square grid that attend to each other in a window."""
    away = torch.arange(side)[:, None] - torch.arange(side)
    axis = away.abs() <= window // 2
    return (axis[:, None, :, None] & axis[None, :, None, :]).flatten(2).flatten(0, 1)


class Case:
    """Queries, keys and values on a square grid, and ways to attend."""

    def __init__(self, side: int, batch_size: int, heads: int, head_dim: int, window: int) -> None:
        self.side, self.window = side, window
        shape = (batch_size, heads, side * side, head_dim)
        self.inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        self.direction = torch.randn(shape)

    def dense(self, mask: Tensor) -> Callable[[], Tensor]:
        return lambda: F.scaled_dot_product_attention(*self.inputs, attn_mask=mask)

    def local(self) -> Tensor:
        return local_attention(*self.inputs, grid_size=(self.side, self.side), window_size=self.window)

    def forward(self, attend: Callable[[], Tensor]) -> None:
        with torch.no_grad():
            attend()

    def both(self, attend: Callable[[], Tensor]) -> None:
        torch.autograd.grad(attend(), self.inputs, self.direction)

    def timings(self, ways: dict[str, Callable[[], Tensor]], repeats: int) -> dict[tuple[str, str], Timing]:
        """Every pass of every way in turn; the first two turns warm up and are not counted."""
        passes = {FORWARD: self.forward, BOTH: self.both}
        seconds: dict[tuple[str, str], list[float]] = {(step, way): [] for step in passes for way in ways}
        for turn in range(repeats + 2):
            for (step, way), values in seconds.items():
                start = time.perf_counter()
                passes[step](ways[way])
                if turn > 1:
                    values.append(1000 * (time.perf_counter() - start))
        return {key: Timing(*statistics.quantiles(values, n=4)) for key, values in seconds.items()}

    def peak_megabytes(self, attend: Callable[[], Tensor]) -> float:
        """The most that is allocated at once during a forward and backward pass, above what was before."""
        self.both(attend)
        return peak_megabytes(lambda: self.both(attend))


#: How many times as fast as dense it is to be, forward and with backward, and what share of its memory it may take.
GOALS = {64**2: (10.0, 7.0, 6.0)}


def print_case(case: Case, repeats: int) -> list[Row]:
    """Times and memory of one grid."""
    rows, goals = [], GOALS.get(case.side**2, (1.0, 1.0, None))
    print(
        f"\n{case.side**2} tokens ({case.side} x {case.side})\n{'':24s}{DENSE:>31s}{LOCAL:>31s}{'dense / local':>16s}"
    )
    ways = {DENSE: case.dense(near(case.side, case.window)), LOCAL: case.local}
    timings = case.timings(ways, repeats)
    for step in (FORWARD, BOTH):
        dense, local = timings[step, DENSE], timings[step, LOCAL]
        ratios = dense.median / local.median, dense.low / local.high, dense.high / local.low
        goal = goals[step == BOTH]
        rows.append(Row(f"window {case.window}, {case.side**2:,} tokens, {step}, beside dense", *ratios, goal=goal))
        columns = [f"{timing.median:.2f} ms ({timing.low:.2f}, {timing.high:.2f})" for timing in (dense, local)]
        print(f"{step:24s}{columns[0]:>31s}{columns[1]:>31s}{dense.median / local.median:>16.2f}")
    dense, local = (case.peak_megabytes(ways[way]) for way in (DENSE, LOCAL))
    rows.append(Row(f"window {case.window}, {case.side**2:,} tokens, memory of dense", dense / local, goal=goals[2]))
    print(f"{'peak memory':24s}{f'{dense:.2f} MB':>31s}{f'{local:.2f} MB':>31s}{dense / local:>16.2f}")
    return rows


def print_long(heads: int, head_dim: int, window: int, repeats: int) -> list[Row]:
    """Time as the grid grows, all sizes in turns."""
    rows = []
    cases = {side: Case(side, 1, heads, head_dim, window) for side in LONG_SIDES}
    results: dict[int, list[dict[tuple[str, str], Timing]]] = {side: [] for side in LONG_SIDES}
    for _ in range(repeats):
        for side, case in cases.items():
            results[side].append(case.timings({LOCAL: case.local}, 2))
    print(f"\nlocal, time over that at {LONG_SIDES[0] ** 2} tokens, and peak memory")
    for side in LONG_SIDES[1:]:
        ratios = {
            step: statistics.median(result[step, LOCAL].median for result in results[side])
            / statistics.median(result[step, LOCAL].median for result in results[LONG_SIDES[0]])
            for step in (FORWARD, BOTH)
        }
        grown = (side // LONG_SIDES[0]) ** 2
        rows += [
            Row(f"window {window}, {side**2:,} tokens, {step}, over {grown} times the time at 4,096", ratio / grown)
            for step, ratio in ratios.items()
        ]
        times = ", ".join(f"{step} {ratio:.1f}" for step, ratio in ratios.items())
        peak = cases[side].peak_megabytes(cases[side].local)
        print(f"{side**2:>8d} tokens ({grown} times as many): {times}; {peak:.1f} MB")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=1, help="of the first table")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--window", type=int, default=7, help="rows and cols of the window, odd")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15, help="timed passes of each kind")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    arguments = parser.parse_args()
    heads, head_dim, repeats = arguments.heads, arguments.head_dim, arguments.repeats
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"{processor()}, {arguments.threads} threads; torch {torch.__version__}, Python {platform.python_version()}")
    print(f"batch {arguments.batch_size}, {heads} heads of {head_dim}, window {arguments.window},")
    print(f"float32; median (quartiles) of {repeats} interleaved passes")
    rows = []
    for side in SIDES:
        rows += print_case(Case(side, arguments.batch_size, heads, head_dim, arguments.window), repeats)
    rows += print_long(heads, head_dim, arguments.window, max(repeats // 3, 2))
    report_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
