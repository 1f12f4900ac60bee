"""Parts of a training step of the nano pair: the next batch, the passes, and the optimizer.

    python -m benchmarks.step_parts

Batches are cropped and flipped. AdamW and Muon both make a step, of which a training makes one. The last row is the
share of a step with AdamW that torch's profiler finds in operators of torch; the rest is Python and waiting.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.input_pipeline import OurLoader
from benchmarks.timing import Row, parser, report_rows
from benchmarks.training_step import Step
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
    layout = ["channels last"] * (precision == "fp32" and name == "resnet8")
    step = Step(create_model(name, image_size=32, num_classes=10), args, precision, *layout)
    pixels = torch.randint(0, 256, (20 * args.batch_size, 3, 32, 32), dtype=torch.uint8)
    loader = OurLoader(pixels, torch.randint(0, 10, (len(pixels),)), Augmentation(), args.batch_size)
    batches, losses = cycle(loader), list[Tensor]()
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
    rows = [Row(f"{case}, {part}", value, unit="ms") for part, value in timed_parts(parts, args.repeats + 2).items()]
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    microseconds = 1e6 * (time.perf_counter() - start)
    inside = sum(event.self_cpu_time_total for event in profiled.key_averages())
    return [*rows, Row(f"{case}, share in operators of torch", 100 * inside / microseconds, unit="%")]


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(batch_size=64, device="cpu")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rows = [
        row
        for name in ("vit_nano", "resnet8")
        for precision in ("fp32", "bf16")
        for row in of_network(name, precision, args)
    ]
    report_rows(rows, args.json)


if __name__ == "__main__":
    main()
