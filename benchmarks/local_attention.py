"""Time and memory of window attention beside dense attention under the mask of the same windows.

    python -m benchmarks.local_attention --batch-size 1 --threads 2

Both ways to the same outputs and gradients are timed in turns, in one process, so that a busy machine slows both:
``F.scaled_dot_product_attention`` with a boolean mask that is at hand, and ``local_attention``. Timed are the forward
pass without gradients, and the forward with the backward pass, on grids of 64, 1,024 and 4,096 tokens. On up to 65,536
tokens the time of local attention is compared with that at 4,096 times the ratio of tokens.

Peak memory is what torch's allocator hands out above the inputs during a forward and backward pass, outputs and
gradients included, as torch's profiler records every allocation; not the mask.

Where other programs use the same cores, set ``OMP_WAIT_POLICY=passive``: torch's threads else wait for each other by
turning idle rounds, in turns with those programs, at every one of the many small products of a window.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import Row, in_turns, parser, peak_megabytes, ratio, report_rows
from vit_vs_cnn.attention import local_attention

SIDES, LONG_SIDES = (8, 32, 64), (64, 128, 256)
DENSE, LOCAL = "dense, masked", "local"
FORWARD, BOTH = "forward", "forward + backward"
#: By the number of tokens, how many times as fast as dense it is to be, and what share of its memory it may take.
GOALS = {64**2: {FORWARD: 10.0, BOTH: 7.0, "memory": 6.0}}


def near(side: int, window: int) -> Tensor:
    """Mask of the pairs of tokens of a square grid that attend to each other in a window."""
    away = torch.arange(side)[:, None] - torch.arange(side)
    axis = away.abs() <= window // 2
    return (axis[:, None, :, None] & axis[None, :, None, :]).flatten(2).flatten(0, 1)


class Case:
    """Queries, keys and values on a square grid, and the passes of each way to attend."""

    def __init__(self, side: int, batch_size: int, heads: int, head_dim: int, window: int) -> None:
        self.side, self.window = side, window
        shape = (batch_size, heads, side * side, head_dim)
        self.inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        self.direction = torch.randn(shape)

    def passes(self, way: str) -> dict[str, Callable[[], object]]:
        """The forward pass, and the forward with the backward pass."""
        grid_size = (self.side, self.side)
        attend = partial(local_attention, *self.inputs, grid_size=grid_size, window_size=self.window)
        if way == DENSE:
            mask = near(self.side, self.window)
            attend = partial(F.scaled_dot_product_attention, *self.inputs, attn_mask=mask)
        return {
            f"{FORWARD}, {way}": torch.no_grad()(attend),
            f"{BOTH}, {way}": lambda: torch.autograd.grad(attend(), self.inputs, self.direction),
        }

    def peak_megabytes(self, way: str) -> float:
        """The most that is allocated at once during a forward and backward pass, above what was before."""
        both = self.passes(way)[f"{BOTH}, {way}"]
        both()
        return peak_megabytes(both)


def beside_dense(case: Case, repeats: int) -> list[Row]:
    """Times and memory of one grid."""
    name, goals = f"window {case.window}, {case.side**2:,} tokens", GOALS.get(case.side**2, {FORWARD: 1.0, BOTH: 1.0})
    times = in_turns(case.passes(DENSE) | case.passes(LOCAL), repeats)
    rows = [
        ratio(f"{name}, {step}, beside dense", times[f"{step}, {DENSE}"], times[f"{step}, {LOCAL}"], goal=goals[step])
        for step in (FORWARD, BOTH)
    ]
    memory = case.peak_megabytes(DENSE) / case.peak_megabytes(LOCAL)
    return [*rows, Row(f"{name}, memory of dense", memory, goal=goals.get("memory"))]


def as_it_grows(heads: int, head_dim: int, window: int, repeats: int) -> list[Row]:
    """Time and memory as the grid grows, all sizes in turns."""
    cases = {side: Case(side, 1, heads, head_dim, window) for side in LONG_SIDES}
    times = in_turns(
        {f"{side}, {name}": run for side, case in cases.items() for name, run in case.passes(LOCAL).items()}, repeats
    )
    rows, first = [], LONG_SIDES[0]
    for side in LONG_SIDES[1:]:
        grown, name = (side // first) ** 2, f"window {window}, {side**2:,} tokens"
        for step in (FORWARD, BOTH):
            here, before = times[f"{side}, {step}, {LOCAL}"], times[f"{first}, {step}, {LOCAL}"]
            rows.append(ratio(f"{name}, {step}, over {grown} times the time at 4,096", here, grown * before))
        rows.append(Row(f"{name}, memory", cases[side].peak_megabytes(LOCAL), unit="MB"))
    return rows


def main() -> None:
    options = parser(__doc__, threads=2)
    options.add_argument("--batch-size", type=int, default=1, help="beside dense attention")
    options.add_argument("--heads", type=int, default=4)
    options.add_argument("--head-dim", type=int, default=32)
    options.add_argument("--window", type=int, default=7, help="rows and cols of the window, odd")
    arguments = options.parse_args()
    heads, head_dim, repeats = arguments.heads, arguments.head_dim, arguments.repeats
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows = []
    for side in SIDES:
        rows += beside_dense(Case(side, arguments.batch_size, heads, head_dim, arguments.window), repeats)
    rows += as_it_grows(heads, head_dim, arguments.window, max(repeats // 3, 2))
    report_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
