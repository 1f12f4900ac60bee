"""Linear attention beside torch's fused dense attention as the sequence grows.

    python -m benchmarks.linear_attention --tokens 1024 2048 4096 8192 16384

Timed in turns, in one process, so that a busy machine slows all ways alike: dense ``F.scaled_dot_product_attention``,
``linear_attention`` with elu+1 features, with FAVOR+ random features, and causal (dense and elu+1); forward, or forward
and backward with ``--backward``. Batch 1, float32.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import in_turns, parser, ratio, report_rows
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
    options = parser(__doc__, repeats=7)
    options.add_argument("--tokens", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384])
    options.add_argument("--heads", type=int, default=4)
    options.add_argument("--head-dim", type=int, default=32)
    options.add_argument("--features", type=int, default=64, help="random features of FAVOR+")
    options.add_argument("--backward", action="store_true", help="time forward and backward")
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    ways = ways_to_attend(arguments.head_dim, arguments.features)
    rows = []
    for tokens in arguments.tokens:
        shape = (3, 1, arguments.heads, tokens, arguments.head_dim)
        inputs = [tensor.requires_grad_(arguments.backward) for tensor in torch.randn(shape).unbind()]
        calls = {way: partial(run_attention, attend, inputs, arguments.backward) for way, attend in ways.items()}
        times = in_turns(calls, arguments.repeats, warm_up=1)
        goal = 1.0 if tokens >= 4096 else None
        rows += [
            ratio(f"{way}, {tokens:,} tokens, beside {reference}", times[reference], times[way], goal=goal)
            for way, reference in REFERENCE.items()
        ]
    report_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
