"""Time of linear attention compared with torch's fused dense attention as the sequence grows.

    python -m benchmarks.linear_attention --tokens 1024 2048 4096 8192 16384

Timed in turns in one process: dense ``F.scaled_dot_product_attention``, ``linear_attention`` with elu+1 features, with
FAVOR+ random features, and causal (dense and elu+1); forward, or forward and backward with ``--backward``. Batch 1,
float32.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import in_turns, parser, ratio, report_rows
from vit_vs_cnn.attention import RandomFeatures, linear_attention

#: Each linear method, with the dense one that it is compared with.
REFERENCES = {
    "linear, elu+1": "dense, fused",
    "linear, FAVOR+": "dense, fused",
    "linear causal, elu+1": "dense causal, fused",
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
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    methods = {
        "dense, fused": F.scaled_dot_product_attention,
        "linear, elu+1": linear_attention,
        "linear, FAVOR+": partial(linear_attention, feature_map=RandomFeatures(args.head_dim, args.features)),
        "dense causal, fused": partial(F.scaled_dot_product_attention, is_causal=True),
        "linear causal, elu+1": partial(linear_attention, causal=True),
    }
    rows = []
    for tokens in args.tokens:
        shape = (3, 1, args.heads, tokens, args.head_dim)
        inputs = [tensor.requires_grad_(args.backward) for tensor in torch.randn(shape).unbind()]
        calls = {name: partial(run_attention, attend, inputs, args.backward) for name, attend in methods.items()}
        times = in_turns(calls, args.repeats, warm_up=1)
        goal = 1.0 if tokens >= 4096 else None
        rows += [
            ratio(f"{name}, {tokens:,} tokens, vs {dense}", times[dense], times[name], goal=goal)
            for name, dense in REFERENCES.items()
        ]
    report_rows(rows, args.json)


if __name__ == "__main__":
    main()
