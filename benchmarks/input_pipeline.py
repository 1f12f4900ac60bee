"""Batches per second of the in-memory pipeline, compared with torchvision transforms in a DataLoader.

    python -m benchmarks.input_pipeline

Three ways to the same augmented batches of 32x32 images are timed in turns, in one process, so that a busy machine
slows all three: ours (one thread), PIL images with ``ToTensor`` (the common way), and ``transforms.v2`` on uint8
tensors. The torchvision ways run in a DataLoader with two persistent workers. Timed is one pass over 40
batches of 128 images, workers already running; nothing is trained meanwhile.
"""

import argparse
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import v2

from benchmarks.timing import Row, in_turns, parser, ratio, run_benchmark
from vit_vs_cnn.data.batches import TrainingBatches, TrainingData
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import Augmentation

#: Batches of a timed pass, and images of a batch.
BATCHES, BATCH_SIZE = 40, 128
MEAN, STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
RECIPES = {
    "crop + flip": Augmentation(),
    "crop + flip + RandAugment(2, 9) + erasing(0.25)": Augmentation(policy="randaugment", erasing=0.25),
}
OURS, PIL, TENSOR = "ours", "torchvision, PIL", "torchvision, tensor"


class TransformedImages(Dataset):
    """Images in memory, changed one at a time as they are asked for."""

    def __init__(self, images: Tensor, labels: Tensor, transform: Callable, *, pil: bool) -> None:
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy() if pil else images
        self.labels, self.transform = labels, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        if isinstance(image, np.ndarray):
            image = Image.fromarray(image)
        return self.transform(image), int(self.labels[index])


def torchvision_transform(config: Augmentation, module: Any, to_float: Callable) -> Callable:
    """Augmentation by the transforms of a module of torchvision."""
    policy = [module.RandAugment(config.num_ops, int(config.magnitude))] if config.policy == "randaugment" else []
    erasing = [module.RandomErasing(config.erasing)] if config.erasing else []
    first = [module.RandomCrop(32, padding=config.crop_padding), module.RandomHorizontalFlip()]
    return module.Compose([*first, *policy, to_float, module.Normalize(MEAN, STD), *erasing])


def training_batches(images: Tensor, labels: Tensor, config: Augmentation, batch_size: int) -> TrainingBatches:
    """Batches of a run; a pass has as many images as there are."""
    data, steps = LabelledImages(images, labels, tuple("0123456789")), len(images) // batch_size
    return TrainingBatches(TrainingData(data, None, augmentation=config, batch_size=batch_size, steps=steps))


def loaders_of(config: Augmentation) -> dict[str, Iterable]:
    images = torch.randint(0, 256, (BATCHES * BATCH_SIZE, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(0, 10, (len(images),))
    settings: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "num_workers": 2, "persistent_workers": True}
    pil = TransformedImages(images, labels, torchvision_transform(config, transforms, transforms.ToTensor()), pil=True)
    of_tensors = torchvision_transform(config, v2, v2.ToDtype(torch.float32, scale=True))
    tensor = TransformedImages(images, labels, of_tensors, pil=False)
    loaders = {PIL: DataLoader(pil, **settings), TENSOR: DataLoader(tensor, **settings)}
    return {OURS: training_batches(images, labels, config, BATCH_SIZE), **loaders}


def compare(args: argparse.Namespace) -> list[Row]:
    """Time of our pipeline, and speedups over the others."""
    rows = []
    for recipe, config in RECIPES.items():
        loaders = loaders_of(config)
        passes = {way: partial(deque, loader, maxlen=0) for way, loader in loaders.items()}
        times = in_turns(passes, args.repeats, warm_up=1)  # the first turn starts the workers
        milliseconds = 1000 * float(np.median(times[OURS])) / BATCHES
        rows.append(Row(f"pipeline, {recipe}, ours", milliseconds, unit="ms per batch"))
        rows += [ratio(f"pipeline, {recipe}, vs {way}", times[way], times[OURS], goal=5) for way in (PIL, TENSOR)]
    return rows


if __name__ == "__main__":
    run_benchmark(parser(__doc__, repeats=7), compare)
