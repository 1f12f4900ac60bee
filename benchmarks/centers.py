"""Where attention heads learn to attend: their centers over training, from random starts.

    python -m benchmarks.centers --data data --output results/locality_cpu/figures

ResNet-8 with attention in place of its convolutions is trained on CIFAR-10: nine heads in a window of 3 x 3, with the
scores ``-alpha_h |s - c_h|^2`` for position s. Centers start from a normal distribution, each alpha_h at 1. A head
with at least 90 % of its weight at one position is a shift. Writes ``centers.png``, and its numbers in
``centers.npz``; uses no test images. On a processor without bfloat16 units this takes hours.
"""

from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import LambdaCallback
from matplotlib.figure import Figure

from benchmarks import command_line, markdown_table, range_text, run_command, save_arrays
from benchmarks.figure_words import recorded_png
from vit_vs_cnn.attention.convolution import ConvolutionalAttention
from vit_vs_cnn.data.batches import TrainingData
from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.options import CifarOptions
from vit_vs_cnn.models import create_model
from vit_vs_cnn.training.classifier import Classifier
from vit_vs_cnn.training.optimization import Optimizer, Schedule

BATCH_SIZE, SHIFT_WEIGHT, SHOWN_STEPS = 64, 0.9, (0, 400, 1600)


def train(images: CifarSource, seed: int) -> dict[int, list[np.ndarray]]:
    """Row, column and largest weight of each head of each layer, ``(heads, 3)``, at each of ``SHOWN_STEPS``."""
    lightning.seed_everything(seed, verbose=False)
    network = create_model("attention/resnet8", num_classes=10, image_size=32, num_heads=9, zero_init_residual=False)
    layers, states = [module for module in network.modules() if isinstance(module, ConvolutionalAttention)], {}
    for layer in layers:
        layer.init_weights()
        torch.nn.init.normal_(layer.centers)
    layers = [layer for layer in layers if layer.geometry.positions > 1]

    def record(trainer: lightning.Trainer, *_: object) -> None:
        if trainer.global_step in SHOWN_STEPS:
            weights = [layer.fixed_position_scores().softmax(-1).amax(-1, keepdim=True) for layer in layers]
            states[trainer.global_step] = [
                torch.cat([layer.centers, top], dim=1).detach().numpy().copy()
                for layer, top in zip(layers, weights, strict=True)
            ]

    optimizer, schedule, steps = Optimizer("adamw", lr=3e-3, weight_decay=0.05), Schedule(warmup=0.1), SHOWN_STEPS[-1]
    callback = LambdaCallback(on_train_start=record, on_train_batch_end=record)
    options: dict[str, Any] = {"callbacks": [callback], "logger": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(max_steps=steps, precision="bf16-mixed", **options)
    data = TrainingData(images.train(), None, batch_size=BATCH_SIZE, steps=steps, seed=seed)
    trainer.fit(Classifier(network, num_classes=10, optimizer=optimizer, schedule=schedule), datamodule=data)
    return states


def draw(states: dict[int, list[np.ndarray]]) -> Figure:
    """A row for each step and a column for each layer: the window, and a dot for each head, larger with its weight."""
    figure = Figure(figsize=(1.5 * len(states[0]), 1.6 * len(states)), layout="constrained")
    axes = figure.subplots(len(states), len(states[0]), sharex=True, sharey=True, squeeze=False)
    for row, (step, layers) in zip(axes, states.items(), strict=True):
        row[0].set_ylabel(f"step {step:,}")
        for number, (axis, heads) in enumerate(zip(row, layers, strict=True), start=1):
            axis.scatter(heads[:, 1], heads[:, 0], s=80 * heads[:, 2] ** 2, c=heads[:, 2], vmin=0, vmax=1, alpha=0.8)
            axis.set(xlim=(-3, 3), ylim=(3, -3), xticks=(-1, 0, 1), yticks=(-1, 0, 1), aspect="equal")
            axis.grid(alpha=0.4)
            axis.set_title(f"layer {number}" if step == min(states) else "", fontsize=9)
    return figure


def train_and_draw(data: str, output: Path) -> str:
    """Write the figure and its numbers. Returns a Markdown table of the weights of both seeds."""
    images = CifarSource("cifar10", data, CifarOptions(download=False))
    by_seed = [train(images, seed) for seed in (0, 1)]
    save_arrays(output / "centers.npz", {str(step): layers for step, layers in by_seed[0].items()})
    (output / "centers.png").write_bytes(recorded_png(draw(by_seed[0])))
    rows = []
    for step in SHOWN_STEPS:
        weights = [np.concatenate(states[step])[:, 2] for states in by_seed]
        shifts = [100 * float((top >= SHIFT_WEIGHT).mean()) for top in weights]
        rows.append([f"{step:,}", range_text(shifts, digits=0), range_text([float(np.median(top)) for top in weights])])
    return markdown_table(["step", "heads that are a shift, %", "median of the largest weight"], rows)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("--data", default="data", help="folder of CIFAR-10 (default: data)")
    parser.add_argument("--output", type=Path, default=Path("runs"), help="folder of the figure")
    run_command(parser, train_and_draw)
