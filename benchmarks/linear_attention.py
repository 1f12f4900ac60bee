"""Linear attention beside torch's fused dense attention as the sequence grows.

    python -m benchmarks.linear_attention --tokens 1024 2048 4096 8192 16384

Timed in turns, in one process, so that a busy machine slows all ways alike: dense ``F.scaled_dot_product_attention``,
``linear_attention`` with elu+1 features, with FAVOR+ random features, and causal (dense and elu+1); forward, or forward
and backward with ``--backward``. One warm-up turn is not counted. Batch 1, float32.
"""

import argparse
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import Row, in_turns, processor, quartiles, report_rows
from vit_vs_cnn.attention import RandomFeatures, linear_attention

DENSE, DENSE_CAUSAL = "dense, fused", "dense causal, fused"
ELU, FAVOR, ELU_CAUSAL = "linear, elu+1", "linear, FAVOR+", "linear causal, elu+1"
REFERENCE = {ELU: DENSE, FAVOR: DENSE, ELU_CAUSAL: DENSE_CAUSAL}


def ways_to_attend(head_dim: int, num_features: int) -> dict[str, Callable[..., Tensor]]:
    return {
        DENSE: F.scaled_dot_product_attention,
        ELU: linear_attention,
        FAVOR: partial(linear_attention, feature_map=RandomFeatures(head_dim, num_features)),
        DENSE_CAUSAL: partial(F.scaled_dot_product_attention, is_causal=True),
        ELU_CAUSAL: partial(linear_attention, causal=True),
    }


def run_attention(attend: Callable[..., Tensor], inputs: list[Tensor], backward: bool) -> None:
    output = attend(*inputs)
    if backward:
        torch.autograd.grad(output, inputs, torch.ones_like(output))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--features", type=int, default=64, help="random features of FAVOR+")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the ratios there, too")
    parser.add_argument("--backward", action="store_true", help="time forward and backward")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(
        f"{processor()}, {arguments.threads} thread(s); torch {torch.__version__}, Python {platform.python_version()}"
    )
    print(f"batch 1, {arguments.heads} heads of {arguments.head_dim}, float32, {arguments.features} random features;")
    kind = "forward and backward" if arguments.backward else "forward"
    print(f"{kind}; median and quartiles of {arguments.repeats} interleaved calls")
    ways = ways_to_attend(arguments.head_dim, arguments.features)
    first: dict[str, float] = {}
    rows = []
    for tokens in arguments.tokens:
        shape = (3, 1, arguments.heads, tokens, arguments.head_dim)
        inputs = [tensor.requires_grad_(arguments.backward) for tensor in torch.randn(shape).unbind()]
        calls = {way: partial(run_attention, attend, inputs, arguments.backward) for way, attend in ways.items()}
        times = in_turns(calls, arguments.repeats, warm_up=1)
        results = {way: quartiles(seconds) for way, seconds in times.items()}
        print(f"\n{tokens} tokens{'ms':>17s}{'quartiles':>20s}{'dense / this':>14s}{'x of first':>12s}")
        for way, (low, median, high) in results.items():
            ratio = f"{results[REFERENCE[way]][1] / median:.2f}" if way in REFERENCE else ""
            growth = f"{median / first.setdefault(way, median):.1f}"
            print(f"{way:22s}{median:9.2f}{f'{low:.2f} to {high:.2f}':>20s}{ratio:>14s}{growth:>12s}")
            if way in REFERENCE and tokens >= 4096:
                name = f"{way}, {tokens:,} tokens, beside {REFERENCE[way]}"
                rows.append(Row(name, results[REFERENCE[way]][1] / median, goal=1.0))
    report_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
