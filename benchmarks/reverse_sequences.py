"""Train a Transformer to reverse sequences, and print how many it then reverses without a mistake.

    python -m benchmarks.reverse_sequences --seeds 0 1 2

Sequences of 1 to ``--max-length`` random digits; drawn anew for every step, so that none is learned by heart. Exact
match counts the sequences of ``--test-sequences`` others that greedy decoding writes backwards without one wrong
symbol, the stop included. The claim: 99 % within a minute on two cores; one thread is enough (and, at this size, as
fast as two).
"""

import argparse
import platform
import statistics
import time

import torch

from benchmarks.timing import processor
from notebooks.reversal import SYMBOLS, VOCABULARY, exact_match, sequences_to_reverse, train_to_reverse
from vit_vs_cnn.models.transformer import Transformer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--max-length", type=int, default=12, help="digits of the longest sequence")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--depth", type=int, default=1, help="blocks of encoder and of decoder")
    parser.add_argument("--norm", choices=["pre", "post"], default="pre")
    parser.add_argument("--test-sequences", type=int, default=5000)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"{processor()}, {arguments.threads} thread(s); torch {torch.__version__}, Python {platform.python_version()}"
    )
    matches = []
    for seed in arguments.seeds:
        torch.manual_seed(seed)
        model = Transformer(
            SYMBOLS,
            VOCABULARY,
            embed_dim=64,
            num_heads=4,
            encoder_depth=arguments.depth,
            decoder_depth=arguments.depth,
            mlp_ratio=2.0,
            norm=arguments.norm,
        )
        start = time.perf_counter()
        losses = train_to_reverse(
            model,
            steps=arguments.steps,
            max_length=arguments.max_length,
            batch_size=arguments.batch_size,
            learning_rate=arguments.learning_rate,
            seed=seed,
        )
        seconds = time.perf_counter() - start
        test = sequences_to_reverse(
            arguments.test_sequences, arguments.max_length, torch.Generator().manual_seed(2**40 + seed)
        )
        matches.append(100 * exact_match(model.eval(), *test))
        print(f"seed {seed}: exact match {matches[-1]:.2f} %, last loss {losses[-1]:.4f}, trained in {seconds:.1f} s")
    spread = statistics.stdev(matches) if len(matches) > 1 else 0.0
    count = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{count} parameters; {arguments.steps} steps of {arguments.batch_size}; exact match of {len(matches)} seeds: "
        f"mean {statistics.mean(matches):.2f} %, std {spread:.2f}, least {min(matches):.2f} %"
    )


if __name__ == "__main__":
    main()
