"""Time of linear attention compared with torch's fused dense attention as the sequence grows.

    python -m benchmarks.linear_attention

Timed in turns in one process: dense ``F.scaled_dot_product_attention``, ``linear_attention`` with elu+1 features, with
FAVOR+ random features, and causal (dense and elu+1). Forward pass, batch 1, float32.
"""

import argparse
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.timing import Row, in_turns, parser, ratio, run_benchmark
from vit_vs_cnn.attention import RandomFeatures, linear_attention

TOKENS, HEADS, HEAD_DIM, RANDOM_FEATURES = (1024, 2048, 4096, 8192, 16384), 4, 32, 64


def compare(args: argparse.Namespace) -> list[Row]:
    """Speedups over dense attention by number of tokens."""
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
        for name in ("linear, elu+1", "linear, FAVOR+", "linear causal, elu+1"):
            dense = "dense causal, fused" if "causal" in name else "dense, fused"
            rows.append(ratio(f"{name}, {tokens:,} tokens, vs {dense}", times[dense], times[name], goal=goal))
    return rows


if __name__ == "__main__":
    run_benchmark(parser(__doc__, repeats=7), compare)
