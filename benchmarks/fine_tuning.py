"""Fine-tuning timm's networks at 224 pixels: training of this package compared with a loop as in timm's ``train.py``.

    python -m benchmarks.fine_tuning --threads 2

Both train one network with AdamW on JPEG files of noise, 640 x 480 pixels, with random resized crops and flips. Weights
are random, as they do not change the speed. timm's loop has the faster precision, and the faster of two settings of
attention or of the layout. It has as many workers as threads, which this package does not have. Neither compiles.

* "two epochs": from the files to the trained network. timm's workers decode in each epoch and crop the photograph. This
  package decodes once and keeps 224 pixels, from which it crops.
* "decoded images": four steps with augmentation of images in memory, with the start of the loop or the Trainer.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.data.dataset_factory import create_dataset
from timm.data.loader import create_loader
from torch import nn

from benchmarks.timing import Row, fastest, in_turns, parser, ratio, run_benchmark
from benchmarks.training_step import Step, attending
from vit_vs_cnn.data.batches import TrainingData
from vit_vs_cnn.data.image_cache import open_files
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import Augmentation, FolderOptions
from vit_vs_cnn.devices import bfloat16_units
from vit_vs_cnn.models import create_model
from vit_vs_cnn.training.classifier import Classifier
from vit_vs_cnn.workers.trainer import make_trainer

NETWORKS = ("deit_tiny_patch16_224", "convnext_pico", "vit_small_patch14_dinov2")
SIZE, CLASSES, PHOTOGRAPHS, EPOCHS, STEPS = 224, 10, 160, 2, 4


def write_photographs(root: Path, count: int, size: tuple[int, int] = (640, 480), kind: str = "jpg") -> None:
    """Files of noise in folders of classes, about as large as photographs."""
    generator = np.random.default_rng(0)
    for number in range(count):
        path = root / str(number % CLASSES) / f"{number}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        cols, rows = map(min, size, (640, 480))
        coarse = Image.fromarray(generator.integers(0, 256, (30, 40, 3), dtype=np.uint8)).resize((cols, rows))
        pixels = np.asarray(coarse) + generator.normal(scale=8, size=(rows, cols, 1))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).resize(size).save(path, quality=90)


class DecodedImages(list):
    """Images in memory as a data set, whose transform ``create_loader`` sets."""

    transform: Any

    def __getitem__(self, number: Any) -> Any:
        image, label = super().__getitem__(number)
        return self.transform(image), label


def make_loader(dataset: Any, args: argparse.Namespace) -> Any:
    options: dict[str, Any] = {"num_workers": args.threads, "device": torch.device("cpu"), "color_jitter": None}
    return create_loader(dataset, SIZE, args.batch_size, is_training=True, interpolation="random", **options)


def train_by_timm(step: Step, loader: Any, epochs: int = 1) -> None:
    for _ in range(epochs):
        for images, step.labels in loader:
            step.images = images.contiguous(memory_format=step.layout)
            step()


def decode(root: str) -> LabelledImages:
    with tempfile.TemporaryDirectory() as cache:
        return open_files(root, FolderOptions(image_size=SIZE, cache=Path(cache))).train()


def train_ours(network: nn.Module, images: LabelledImages, args: argparse.Namespace, steps: int) -> None:
    """Training in the precision, and with the attention, that a run chooses."""
    network = attending(network, fused=not bfloat16_units())
    options: dict[str, Any] = {"batch_size": args.batch_size, "steps": steps, "channels_last": not bfloat16_units()}
    data = TrainingData(images, None, augmentation=Augmentation(resized_crop=(0.08, 1.0)), **options)
    if data.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    arguments: dict[str, Any] = {"max_steps": steps, "max_epochs": 1, "accelerator": "cpu"}
    arguments |= dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = make_trainer(arguments | {"precision": "bf16-mixed" if bfloat16_units() else "32-true"})
    trainer.fit(Classifier(network, num_classes=CLASSES, steps=steps), data)


def compare(name: str, args: argparse.Namespace, root: str) -> list[Row]:
    build = partial(create_model, f"timm/{name}", num_classes=CLASSES, image_size=SIZE)

    def make_step(mode: str) -> Step:
        step = Step(attending(build(), fused="written out" not in mode), args, *mode.split(", "))
        step.images = torch.randn(args.batch_size, 3, SIZE, SIZE).contiguous(memory_format=step.layout)
        return step

    option = "channels last" if "convnext" in name else "written out"
    times = in_turns({mode: make_step(mode) for mode in ("fp32", f"fp32, {option}", "bf16", f"bf16, {option}")}, 2)
    mode = fastest(times)
    case, versus = f"{name} at {SIZE} pixels", f"vs timm's loop ({mode})"
    photographs, images = create_dataset("", root), decode(root)
    decoded = DecodedImages(photographs[number] for number in range(STEPS * args.batch_size))
    steps = EPOCHS * len(images) // args.batch_size
    ways = {
        "timm": lambda: train_by_timm(make_step(mode), make_loader(photographs, args), EPOCHS),
        "ours": lambda: train_ours(build(), decode(root), args, steps),
    }
    times = in_turns(ways, args.repeats, warm_up=0)
    rows = [ratio(f"{case}, two epochs, {versus}", times["timm"], times["ours"], goal=1.1)]
    ways = {
        "timm": partial(train_by_timm, make_step(mode), make_loader(decoded, args)),
        "ours": partial(train_ours, build(), images, args, STEPS),
    }
    times = in_turns(ways, 2 * args.repeats, warm_up=1)
    rows.append(Row(f"{case}, ours", len(decoded) / float(np.median(times["ours"])), unit="images/s"))
    return [*rows, ratio(f"{case}, decoded images, {versus}", times["timm"], times["ours"], goal=1.1)]


def compare_networks(args: argparse.Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory() as root:
        write_photographs(Path(root), PHOTOGRAPHS)
        return [row for name in NETWORKS for row in compare(name, args, root)]


if __name__ == "__main__":
    arguments = parser(__doc__, threads=2, repeats=2)
    arguments.set_defaults(batch_size=16, device="cpu")
    run_benchmark(arguments, compare_networks)
