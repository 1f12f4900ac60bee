"""Time and memory of window attention compared with dense attention and with flex_attention in the same windows.

    python -m benchmarks.local_attention --threads 2

``local_attention``, ``F.scaled_dot_product_attention`` with a ready mask and torch's compiled ``flex_attention`` give
the same outputs. They are timed in turns in one process: the forward pass without gradients, and the forward and
backward pass, which ``flex_attention`` lacks on a CPU. The square grids have 64 to 4,096 tokens, and a batch has 4,096
tokens. Up to 65,536 tokens, the time of local attention is compared with its time at 4,096 tokens, multiplied by the
ratio of tokens.

With a bias, ``local_attention`` gets a learned number for each head and offset. Dense attention gets the ready bias
between all tokens, and the gradient is that of this ready bias.

Peak memory is that of a forward and backward pass, outputs and gradients included, inputs and mask excluded.

On a busy machine set ``OMP_WAIT_POLICY=passive``. Otherwise waiting threads take time from the other programs.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.timing import Row, in_turns, parser, peak_megabytes, ratio, run_benchmark
from vit_vs_cnn.attention import local_attention
from vit_vs_cnn.attention.windows.neighbourhood import Neighbourhood, bias_index_matrix
from vit_vs_cnn.errors import one_line

SIDES, LONG_SIDES = (8, 16, 32, 64), (64, 128, 256)
HEADS, HEAD_DIM, WINDOW, TOKENS = 4, 32, 7, 4096
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
FORWARD, BOTH = "forward", "forward + backward"
#: Goals with 4,096 tokens in fp32 without bias: speedup over dense attention, and ratio of their memory.
GOALS = {FORWARD: 10.0, BOTH: 7.0, "memory": 6.0}


def make_passes(way: str, side: int, batch: int, precision: str, *, is_biased: bool = False) -> dict[str, Callable]:
    """The forward pass, and the forward and backward pass, of a way: local, dense or flex_attention."""

    def is_near(_: Any, __: Any, query: Any, key: Any) -> Any:
        rows, cols = query // side - key // side, query % side - key % side
        return (rows.abs() <= WINDOW // 2) & (cols.abs() <= WINDOW // 2)

    torch.manual_seed(0)
    sizes = [(batch, HEADS, side**2, HEAD_DIM)] * 3 + [(HEADS, WINDOW, WINDOW)] * is_biased
    inputs = [torch.randn(size).to(PRECISIONS[precision]) for size in sizes]
    attend: Callable[..., Any]
    if way == "local":
        attend = lambda q, k, v, bias=None: local_attention(  # noqa: E731
            q, k, v, grid_size=side, window_size=WINDOW, bias=bias
        )
    elif way == "dense":
        index = bias_index_matrix(Neighbourhood((side, side), (WINDOW, WINDOW), "mask"), torch.device("cpu"))

        def attend_densely(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
            mask = index < WINDOW**2 if bias is None else F.pad(bias.flatten(1), (0, 1), value=-torch.inf)[:, index]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        attend = attend_densely

    else:
        torch.compiler.reset()  # torch compiles a limited number of shapes
        mask = create_block_mask(is_near, None, None, side**2, side**2, device="cpu")
        compiled: Any = torch.compile(flex_attention, dynamic=False)
        attend = partial(compiled, block_mask=mask)
    leaves = [values.detach().requires_grad_() for values in inputs]
    return {
        FORWARD: torch.no_grad()(lambda: attend(*inputs)),
        BOTH: lambda: torch.autograd.grad(attend(*leaves), leaves, inputs[0]),
    }


def compare(side: int, precision: str, repeats: int, *, is_biased: bool) -> list[Row]:
    """Speedups and ratios of memory on one grid."""
    case = f"window {WINDOW}, {side**2:,} tokens, {precision}{', with bias' * is_biased}"
    goals = GOALS if (side, precision, is_biased) == (64, "fp32", False) else {FORWARD: 1.0, BOTH: 1.0}
    make = partial(make_passes, side=side, batch=TOKENS // side**2, precision=precision, is_biased=is_biased)
    (local, dense), rows = (make("local"), make("dense")), []
    for step in (FORWARD, BOTH):
        times = in_turns({"dense": dense[step], "local": local[step]}, repeats)
        rows.append(ratio(f"{case}, {step}, vs dense", times["dense"], times["local"], goal=goals[step]))
    memory = peak_megabytes(dense[BOTH]) / peak_megabytes(local[BOTH])
    rows.append(Row(f"{case}, memory of dense", memory, goal=goals.get("memory")))
    if is_biased:
        return rows
    name = f"{case}, {FORWARD}, vs flex_attention"
    try:
        times = in_turns({"flex": make("flex_attention")[FORWARD], "local": local[FORWARD]}, repeats)
    except Exception as error:  # compilers fail in many ways
        return [*rows, Row(name, None, note=one_line(error))]
    return [*rows, ratio(name, times["flex"], times["local"], goal=1.0)]


def compare_sizes(repeats: int) -> list[Row]:
    """Time and memory on growing grids."""
    passes, rows = {str(side): make_passes("local", side, 1, "fp32") for side in LONG_SIDES}, []
    times = {step: in_turns({side: passes[side][step] for side in passes}, repeats) for step in (FORWARD, BOTH)}
    for side in LONG_SIDES[1:]:
        factor, name = side**2 // TOKENS, f"window {WINDOW}, {side**2:,} tokens"
        for step, seconds in times.items():
            text = f"{name}, {step}, over {factor} times the time at {TOKENS:,}"
            rows.append(ratio(text, seconds[str(side)], factor * seconds[str(LONG_SIDES[0])]))
        rows.append(Row(f"{name}, memory", peak_megabytes(passes[str(side)][BOTH]), unit="MB"))
    return rows


def compare_all(args: argparse.Namespace) -> list[Row]:
    rows = []
    for precision, side, is_biased in product(PRECISIONS, SIDES, (False, True)):
        rows += compare(side, precision, args.repeats, is_biased=is_biased)
    return [*rows, *compare_sizes(max(args.repeats // 3, 2))]


if __name__ == "__main__":
    run_benchmark(parser(__doc__, threads=2), compare_all)
