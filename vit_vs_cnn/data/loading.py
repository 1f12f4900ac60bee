"""Batches cut from images in memory or in a mapped file, on the device that trains."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vit_vs_cnn.data.augmentation.augmenter import Augmenter
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.seeds import derive_seed

Batch = tuple[Float[Tensor, "batch channels rows cols"], Tensor]


class TrainingBatches:
    """A shuffled stream of images, cut into ``length`` batches; resumable at any of them.

    The stream is one random permutation of the images after another. A batch is a window on it and may reach over the
    end of a permutation, so that every batch is full and every image is seen equally often, even where there are fewer
    images than a batch holds. Batch ``i`` is a pure function of ``(seed, i)``: the position is all the state there is.

    With several processes each takes its slice of the same global batch, so the images of a step do not depend on how
    many devices share them.

    An epoch of it is ``length`` batches; the next one goes on behind them.

    Arguments:
        data: what to draw from; moved to ``device`` once, if they fit there, and batch by batch otherwise.
        batch_size: images of one step over all processes together.
        seed: of the order and of the augmentation.
        rank: this process, of ``world_size``.
        channels_last: lay the pixels of the batches out with the channels innermost.
    """

    def __init__(
        self,
        data: LabelledImages,
        augmenter: Augmenter,
        *,
        batch_size: int,
        length: int,
        seed: int,
        device: torch.device | str = "cpu",
        rank: int = 0,
        world_size: int = 1,
        channels_last: bool = False,
    ) -> None:
        if batch_size % world_size:
            raise ValueError(f"batch_size {batch_size} must be a multiple of the {world_size} processes that share it")
        self.data = _moved(data, torch.device(device))
        self.labels = data.labels.to(device)
        self.augmenter = augmenter
        self.length = length
        self.seed = seed
        self.position = 0
        self._global_size = batch_size
        self._local_size = batch_size // world_size
        self._rank = rank
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._epoch_order: tuple[int, Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        end = (self.position // self.length + 1) * self.length
        while self.position < end:
            self.position += 1
            yield self.batch(self.position - 1)

    def state_dict(self) -> dict[str, int]:
        """The number of batches handed out."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on behind the batches that were handed out."""
        self.position = state["position"]

    def indices(self, position: int) -> Int64[Tensor, "batch"]:
        """Which images make this process's share of the batch at ``position``."""
        start = position * self._global_size + self._rank * self._local_size
        wanted = torch.arange(start, start + self._local_size)
        epochs = wanted // len(self.labels)
        chosen = torch.empty_like(wanted)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            here = epochs == epoch
            chosen[here] = self._order(epoch)[wanted[here] % len(self.labels)]
        return chosen

    def batch(self, position: int) -> Batch:
        """Images (normalised floats) and targets of the batch at ``position``."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "augment", position, self._rank))
        draws = self.augmenter.draw(self._local_size, generator)
        places = self.indices(position)
        here = places.to(self.labels.device, non_blocking=True)
        images = self.data.take(here if self.data.labels.device == here.device else places).to(here.device)
        images, targets = self.augmenter(images, self.labels.index_select(0, here), draws)
        return images.contiguous(memory_format=self._layout), targets

    def _order(self, epoch: int) -> Int64[Tensor, "images"]:
        if self._epoch_order[0] != epoch:
            generator = torch.Generator().manual_seed(derive_seed(self.seed, "order", epoch))
            self._epoch_order = (epoch, torch.randperm(len(self.labels), generator=generator))
        return self._epoch_order[1]


class EvaluationBatches:
    """Every image once, in order, normalised and otherwise untouched; each process takes every n-th image."""

    def __init__(
        self,
        data: LabelledImages,
        augmenter: Augmenter,
        *,
        batch_size: int,
        device: torch.device | str = "cpu",
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        mine = data if world_size == 1 else data.subset(torch.arange(rank, len(data), world_size))
        self.data = _moved(mine, torch.device(device))
        self.labels = mine.labels.to(device)
        self.augmenter = augmenter
        self.batch_size = batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.labels) / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for images, labels in zip(self.data.batches(self.batch_size), self.labels.split(self.batch_size), strict=True):
            yield self.augmenter.normalise(images.to(labels.device)), labels


def _moved(data: LabelledImages, device: torch.device) -> LabelledImages:
    """The images on the device; as they are where that is the CPU, or where they would fill more than half of what is
    free of it."""
    if device.type == "cpu":
        return data
    if device.type == "cuda" and len(data) * math.prod(data.image_shape) > torch.cuda.mem_get_info(device)[0] // 2:
        return data
    images = torch.empty((len(data), *data.image_shape), dtype=torch.uint8, device=device)
    first = 0
    for batch in data.batches():
        images[first : first + len(batch)] = batch
        first += len(batch)
    return LabelledImages(images, data.labels.to(device), data.class_names, data.sample_ids)
