"""Batches per second of the in-memory pipeline beside torchvision transforms in a DataLoader.

    python -m benchmarks.input_pipeline --batches 40 --batch-size 128

Three ways to the same augmented batches of 32x32 images are timed in turns, in one process, so that a busy machine
slows all three: ours (one thread), PIL images with ``ToTensor`` (the common way), and ``transforms.v2`` on uint8
tensors. The torchvision ways run in a DataLoader with two persistent workers. Timed is one pass over ``--batches``
batches, workers already running; nothing is trained meanwhile.
"""

import argparse
import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import v2

from benchmarks.timing import Row, in_turns, processor, quartiles, report_rows
from vit_vs_cnn.data.augmentation.augmenter import Augmentation, Augmenter

MEAN, STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
RECIPES = {
    "crop + flip": Augmentation(),
    "crop + flip + RandAugment(2, 9) + erasing(0.25)": Augmentation(policy="randaugment", erasing=0.25),
}
OURS, PIL, TENSOR = "ours, 1 thread", "torchvision, PIL", "torchvision, tensor"


class TransformedImages(Dataset):
    """Images in memory, changed one at a time as they are asked for."""

    def __init__(self, images: Tensor, labels: Tensor, transform: Callable, *, pil: bool) -> None:
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy() if pil else images
        self.labels = labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        if isinstance(image, np.ndarray):
            image = Image.fromarray(image)
        return self.transform(image), int(self.labels[index])


def pil_transform(config: Augmentation) -> Callable:
    policy = [transforms.RandAugment(config.num_ops, int(config.magnitude))] if config.policy == "randaugment" else []
    erasing = [transforms.RandomErasing(config.erasing)] if config.erasing else []
    first = [transforms.RandomCrop(32, padding=config.crop_padding), transforms.RandomHorizontalFlip()]
    return transforms.Compose([*first, *policy, transforms.ToTensor(), transforms.Normalize(MEAN, STD), *erasing])


def tensor_transform(config: Augmentation) -> Callable:
    policy = [v2.RandAugment(config.num_ops, int(config.magnitude))] if config.policy == "randaugment" else []
    erasing = [v2.RandomErasing(config.erasing)] if config.erasing else []
    first = [v2.RandomCrop(32, padding=config.crop_padding), v2.RandomHorizontalFlip()]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return v2.Compose([*first, *policy, *last, *erasing])


class OurLoader:
    """One pass in random order over images in memory."""

    def __init__(self, images: Tensor, labels: Tensor, config: Augmentation, batch_size: int) -> None:
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self.augmenter = Augmenter(config, mean=MEAN, std=STD, num_classes=10)
        self.generator = torch.Generator().manual_seed(0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.images), generator=self.generator)
        for indices in order.split(self.batch_size):
            draws = self.augmenter.draw(len(indices), self.generator)
            yield self.augmenter(self.images[indices], self.labels[indices], draws)


class Timing(NamedTuple):
    """Milliseconds per batch: quartiles over the repeats."""

    low: float
    median: float
    high: float


def interleaved(loaders: dict[str, Iterable], repeats: int, batches: int) -> dict[str, Timing]:
    """Every way in turn, ``repeats`` times; the first turn starts the workers and is not counted."""
    passes = {way: partial(deque, loader, maxlen=0) for way, loader in loaders.items()}
    times = in_turns(passes, repeats, warm_up=1)
    return {way: Timing(*quartiles(seconds, batches)) for way, seconds in times.items()}


def loaders_of(config: Augmentation, batches: int, batch_size: int, workers: int = 2) -> dict[str, Iterable]:
    count = batches * batch_size
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(0, 10, (count,))
    settings = {"batch_size": batch_size, "shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}
    pil = TransformedImages(images, labels, pil_transform(config), pil=True)
    tensor = TransformedImages(images, labels, tensor_transform(config), pil=False)
    ours = OurLoader(images, labels, config, batch_size)
    return {OURS: ours, PIL: DataLoader(pil, **settings), TENSOR: DataLoader(tensor, **settings)}


def print_table(recipe: str, timings: dict[str, Timing]) -> None:
    ours = timings[OURS].median
    print(f"\n{recipe}\n{'':32s}{'ms per batch':>14s}{'quartiles':>18s}{'ours is faster by':>20s}")
    for way, timing in timings.items():
        ratio = "" if way == OURS else f"{timing.median / ours:.1f} x"
        print(f"{way:32s}{timing.median:14.2f}{f'{timing.low:.2f} to {timing.high:.2f}':>18s}{ratio:>20s}")


def rows_of(recipe: str, timings: dict[str, Timing]) -> list[Row]:
    """Speedup of our pipeline over each of the others."""
    ours = timings[OURS]
    return [
        Row(
            f"pipeline, {recipe}, beside {way}",
            timing.median / ours.median,
            timing.low / ours.high,
            timing.high / ours.low,
            goal=5,
        )
        for way, timing in timings.items()
        if way != OURS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40, help="batches in one timed pass")
    parser.add_argument("--batch-size", type=int, default=128, help="images in a batch")
    parser.add_argument("--repeats", type=int, default=7, help="timed passes of each way")
    parser.add_argument("--json", type=Path, help="write the ratios there, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}, Python {platform.python_version()}"
    print(f"{processor()}, {torch.get_num_threads()} thread for ours; {versions}")
    print(f"random 3x32x32 images, batches of {arguments.batch_size}, normalised floats out; median and quartiles of")
    print(f"{arguments.repeats} interleaved passes over {arguments.batches} batches")
    rows = []
    for recipe, config in RECIPES.items():
        loaders = loaders_of(config, arguments.batches, arguments.batch_size)
        timings = interleaved(loaders, arguments.repeats, arguments.batches)
        print_table(recipe, timings)
        rows += rows_of(recipe, timings)
    report_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
