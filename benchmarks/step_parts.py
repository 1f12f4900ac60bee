"""Parts of a training step of ``vit_nano`` and ``resnet8``: next batch, forward and backward pass, optimizer.

    python -m benchmarks.step_parts

Batches are cropped and flipped. A training has either AdamW or Muon.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import chain, product, repeat

import numpy as np
import torch
from torch import Tensor

from benchmarks.input_pipeline import training_batches
from benchmarks.timing import Row, parser, run_benchmark
from benchmarks.training_step import as_runs_train
from vit_vs_cnn.data.augmentation.augmenter import Augmentation
from vit_vs_cnn.models import create_model
from vit_vs_cnn.training.muon import StackedMuon


def timed_parts(parts: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median milliseconds of each part, in the order of a step."""
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(repeats):
        for name, part in parts.items():
            start = time.perf_counter()
            part()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: float(np.median(values[2:])) for name, values in times.items()}


def of_network(name: str, precision: str, args: argparse.Namespace) -> list[Row]:
    step = as_runs_train(create_model(name, image_size=32, num_classes=10), args, precision)
    pixels = torch.randint(0, 256, (20 * args.batch_size, 3, 32, 32), dtype=torch.uint8)
    loader = training_batches(pixels, torch.randint(0, 10, (len(pixels),)), Augmentation(), args.batch_size)
    batches, losses = chain.from_iterable(repeat(loader)), list[Tensor]()
    muon = StackedMuon(step.network.parameters(), lr=0.0)
    parts = {
        "next batch": partial(next, batches),
        "forward pass": lambda: losses.append(step.loss()),
        "backward pass": lambda: losses.pop().backward(),
        "AdamW": step.optimizer.step,
        "Muon": muon.step,
        "gradients to none": step.optimizer.zero_grad,
    }
    times = timed_parts(parts, args.repeats + 2)
    return [Row(f"{name}, {precision}, {part}", value, unit="ms") for part, value in times.items()]


def of_networks(args: argparse.Namespace) -> list[Row]:
    return [row for case in product(("vit_nano", "resnet8"), ("fp32", "bf16")) for row in of_network(*case, args)]


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.set_defaults(batch_size=64, device="cpu")
    run_benchmark(arguments, of_networks)
