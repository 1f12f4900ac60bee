"""Time of linear attention compared with torch's fused dense attention as the sequence grows.

    python -m benchmarks.linear_attention

Timed in turns in one process: dense ``F.scaled_dot_product_attention``, ``linear_attention`` with elu+1 features, with
FAVOR+ random features, and causal (dense and elu+1). Forward pass, batch 1, float32.
"""

from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.timing import in_turns, parser, ratio, report_rows
from vit_vs_cnn.attention import RandomFeatures, linear_attention

TOKENS, HEADS, HEAD_DIM, RANDOM_FEATURES = (1024, 2048, 4096, 8192, 16384), 4, 32, 64
#: Each linear method, with the dense one that it is compared with.
REFERENCES = {
    "linear, elu+1": "dense, fused",
    "linear, FAVOR+": "dense, fused",
    "linear causal, elu+1": "dense causal, fused",
}


def main() -> None:
    args = parser(__doc__, repeats=7).parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    methods = {
        "dense, fused": F.scaled_dot_product_attention,
        "linear, elu+1": linear_attention,
        "linear, FAVOR+": partial(linear_attention, feature_map=RandomFeatures(HEAD_DIM, RANDOM_FEATURES)),
        "dense causal, fused": partial(F.scaled_dot_product_attention, is_causal=True),
        "linear causal, elu+1": partial(linear_attention, causal=True),
    }
    rows = []
    for tokens in TOKENS:
        inputs = torch.randn(3, 1, HEADS, tokens, HEAD_DIM).unbind()
        calls = {name: partial(attend, *inputs) for name, attend in methods.items()}
        times = in_turns(calls, args.repeats, warm_up=1)
        goal = 1.0 if tokens >= 4096 else None
        rows += [
            ratio(f"{name}, {tokens:,} tokens, vs {dense}", times[dense], times[name], goal=goal)
            for name, dense in REFERENCES.items()
        ]
    report_rows(rows, args.json)


if __name__ == "__main__":
    main()
