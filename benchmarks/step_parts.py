"""Parts of a training step of ``vit_nano`` and ``resnet8``: next batch, forward and backward pass, optimizer.

    python -m benchmarks.step_parts

Batches are cropped and flipped. A training has either AdamW or Muon.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import count, product

import numpy as np
import torch
from torch import Tensor

from benchmarks.input_pipeline import OurLoader
from benchmarks.timing import Row, parser, report_rows
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
    loader = OurLoader(pixels, torch.randint(0, 10, (len(pixels),)), Augmentation(), args.batch_size)
    batches, losses = (batch for _ in count() for batch in loader), list[Tensor]()
    muon = StackedMuon(step.network.parameters(), lr=0.0)
    parts = {
        "next batch": partial(next, batches),
        "forward pass": lambda: losses.append(step.loss()),
        "backward pass": lambda: losses.pop().backward(),
        "AdamW": step.optimizer.step,
        "Muon": muon.step,
        "gradients to none": step.optimizer.zero_grad,
    }
    case = f"{name}, {precision}"
    return [Row(f"{case}, {part}", value, unit="ms") for part, value in timed_parts(parts, args.repeats + 2).items()]


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(batch_size=64, device="cpu")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    cases = product(("vit_nano", "resnet8"), ("fp32", "bf16"))
    report_rows([row for case in cases for row in of_network(*case, args)], args.json)


if __name__ == "__main__":
    main()
