"""Time and memory of window attention compared with dense attention under a mask of the same windows.

    python -m benchmarks.local_attention --batch-size 1 --threads 2

``local_attention`` and ``F.scaled_dot_product_attention`` with a ready boolean mask give the same outputs and
gradients. They are timed in turns in one process: the forward pass without gradients, and the forward and backward
pass, on square grids of 64, 1,024 and 4,096 tokens. Up to 65,536 tokens, the time of local attention is compared with
its time at 4,096 tokens, multiplied by the ratio of tokens.

Peak memory is that of a forward and backward pass, outputs and gradients included, inputs and mask excluded.

On a busy machine set ``OMP_WAIT_POLICY=passive``. Otherwise waiting threads take time from the other programs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import Row, in_turns, parser, peak_megabytes, ratio, report_rows
from vit_vs_cnn.attention import local_attention

SIDES, LONG_SIDES = (8, 32, 64), (64, 128, 256)
FORWARD, BOTH = "forward", "forward + backward"
#: Goals with 4,096 tokens: speedup over dense attention, and ratio of their memory.
GOALS = {64: {FORWARD: 10.0, BOTH: 7.0, "memory": 6.0}}


def window_mask(side: int, window: int) -> Tensor:
    """Mask of the pairs of tokens of a square grid that are in one window."""
    is_near = (torch.arange(side)[:, None] - torch.arange(side)).abs() <= window // 2
    return (is_near[:, None, :, None] & is_near[None, :, None, :]).flatten(2).flatten(0, 1)


def make_passes(side: int, shape: tuple[int, int, int], window: int, *, dense: bool) -> dict[str, Callable[[], object]]:
    """The forward pass, and the forward and backward pass, for ``shape`` (batch, heads, head_dim)."""
    size = (*shape[:2], side * side, shape[2])
    inputs, direction = [torch.randn(size, requires_grad=True) for _ in range(3)], torch.randn(size)
    attend: Callable[[], Any] = partial(local_attention, *inputs, grid_size=(side, side), window_size=window)
    if dense:
        attend = partial(F.scaled_dot_product_attention, *inputs, attn_mask=window_mask(side, window))
    return {FORWARD: torch.no_grad()(attend), BOTH: lambda: torch.autograd.grad(attend(), inputs, direction)}


def compare_with_dense(side: int, shape: tuple[int, int, int], window: int, repeats: int) -> list[Row]:
    """Speedups and ratio of memory on one grid."""
    name, goals = f"window {window}, {side**2:,} tokens", GOALS.get(side, {FORWARD: 1.0, BOTH: 1.0})
    dense, local = (make_passes(side, shape, window, dense=is_dense) for is_dense in (True, False))
    rows = []
    for step in (FORWARD, BOTH):
        times = in_turns({"dense": dense[step], "local": local[step]}, repeats)
        rows.append(ratio(f"{name}, {step}, vs dense", times["dense"], times["local"], goal=goals[step]))
    memory = peak_megabytes(dense[BOTH]) / peak_megabytes(local[BOTH])
    return [*rows, Row(f"{name}, memory of dense", memory, goal=goals.get("memory"))]


def compare_sizes(heads: int, head_dim: int, window: int, repeats: int) -> list[Row]:
    """Time and memory on growing grids."""
    passes = {side: make_passes(side, (1, heads, head_dim), window, dense=False) for side in LONG_SIDES}
    rows, first = [], LONG_SIDES[0]
    times = {
        step: in_turns({str(side): passes[side][step] for side in LONG_SIDES}, repeats) for step in (FORWARD, BOTH)
    }
    for side in LONG_SIDES[1:]:
        factor, name = (side // first) ** 2, f"window {window}, {side**2:,} tokens"
        rows += [
            ratio(
                f"{name}, {step}, over {factor} times the time at 4,096",
                seconds[str(side)],
                factor * seconds[str(first)],
            )
            for step, seconds in times.items()
        ]
        rows.append(Row(f"{name}, memory", peak_megabytes(passes[side][BOTH]), unit="MB"))
    return rows


def main() -> None:
    options = parser(__doc__, threads=2)
    options.add_argument("--batch-size", type=int, default=1, help="in the comparison with dense attention")
    options.add_argument("--heads", type=int, default=4)
    options.add_argument("--head-dim", type=int, default=32)
    options.add_argument("--window", type=int, default=7, help="rows and columns of the window, odd")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    shape = (args.batch_size, args.heads, args.head_dim)
    rows = [row for side in SIDES for row in compare_with_dense(side, shape, args.window, args.repeats)]
    rows += compare_sizes(args.heads, args.head_dim, args.window, max(args.repeats // 3, 2))
    report_rows(rows, args.json)


if __name__ == "__main__":
    main()
