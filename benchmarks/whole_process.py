"""Whole processes, one run and six runs: compared with a script of Lightning, a DataLoader and timm's ViT.

    python -m benchmarks.whole_process --data data

Both train a ViT of the nano size on CIFAR-10 in 210 steps of 128 images, cropped and flipped, validate it five times on
5,000 images, and score the 10,000 test images. The script has all images in memory, torchvision's transforms in as many
workers as cores, AdamW, and Lightning's defaults. Ours is the ViT of ``configs/cifar10_cpu.yaml``, with the default
threads and ``precision: auto``. Its time includes the report. Six runs are one command with six seeds. Six scripts, one
after the other, are taken to need six times the time of one.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
import torchmetrics
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset
from torchvision import transforms

from benchmarks.input_pipeline import MEAN, STD, TransformedImages, torchvision_transform
from benchmarks.start import seconds
from benchmarks.timing import Row, in_turns, parser, ratio, run_benchmark
from benchmarks.training_step import timm_vit
from vit_vs_cnn.data.augmentation.augmenter import Augmentation
from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.options import CifarOptions

STEPS, RUNS = 210, 6


class Script(lightning.LightningModule):
    """Training and test as a user would write them."""

    def __init__(self) -> None:
        super().__init__()
        self.network = timm_vit("nano")
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=10)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(self.network(batch[0]), batch[1])

    def test_step(self, batch: list[torch.Tensor]) -> None:
        self.accuracy(self.network(batch[0]), batch[1])
        self.log("accuracy", self.accuracy)

    validation_step = test_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def run_script(root: str) -> None:
    source = CifarSource("cifar10", root, CifarOptions(verify_checksum=False))
    augmented = torchvision_transform(Augmentation(), transforms, transforms.ToTensor())
    plain = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    training, validation, test = (
        TransformedImages(images.images, images.labels, transform, pil=True)
        for images, transform in ((source.train(), augmented), (source.train(), plain), (source.test(), plain))
    )
    options: dict[str, Any] = {"num_workers": os.cpu_count(), "persistent_workers": True}
    without: dict[str, Any] = {"logger": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(max_steps=STEPS, val_check_interval=STEPS // 5, accelerator="cpu", **without)
    module = Script()
    batches = DataLoader(Subset(training, range(45000)), 128, shuffle=True, **options)
    trainer.fit(module, batches, DataLoader(Subset(validation, range(45000, 50000)), 256, **options))
    trainer.test(module, DataLoader(test, 256, **options))


def train(data: str, runs: int) -> float:
    """Seconds of a command that trains the ViT alone, with the default settings of threads and compilation."""
    with tempfile.TemporaryDirectory() as output:
        settings = {
            "output": output,
            "models.resnet": "null",
            "data.root": data,
            "data.cifar.verify_checksum": "false",
            "protocol.train_sizes": "[50000]",
            "protocol.seeds": str([*range(runs)]),
            "protocol.budget.steps": str(STEPS),
            "protocol.threads": "auto",
            "protocol.compile": "auto",
            "trainer.precision": "auto",
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return seconds(["train.py", "--config", "configs/cifar10_cpu.yaml", *options])


def compare(args: argparse.Namespace) -> list[Row]:
    data = str(args.data.resolve())
    script = ["-c", f"from benchmarks import whole_process; whole_process.run_script({data!r})"]
    ways = {"script": partial(seconds, script), "one": partial(train, data, 1), "six": partial(train, data, RUNS)}
    ways["script"]()  # the files are in memory for all
    times = in_turns(ways, args.repeats, warm_up=0)
    return [
        ratio("one run, the whole process, vs a script", times["script"], times["one"], goal=1.2),
        ratio(f"{RUNS} runs, the whole process, vs {RUNS} scripts", RUNS * times["script"], times["six"], goal=1.8),
    ]


if __name__ == "__main__":
    arguments = parser(__doc__, repeats=2)
    arguments.add_argument("--data", type=Path, default=Path("data"), help="folder with CIFAR-10")
    run_benchmark(arguments, compare)
