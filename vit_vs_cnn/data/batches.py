"""Training and evaluation batches, cut from images in memory or in a mapped file, on the device that trains."""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence

import lightning
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.augmentation.augmenter import Augmentation, Augmenter, CustomTransform
from vit_vs_cnn.data.images import ImageBytes, LabelledImages
from vit_vs_cnn.errors import InputError

Batch = tuple[Float[Tensor, "batch channels rows cols"], Tensor]
#: Images of an evaluation batch, at least.
EVALUATION_BATCH = 256


def channel_statistics(batches: Iterable[ImageBytes]) -> tuple[Float[Tensor, "channels"], Float[Tensor, "channels"]]:
    """Mean and standard deviation of each channel over all pixels, in units of 0..1.

    The deviation is that of all pixels: (0.2470, 0.2435, 0.2616) for CIFAR-10. The often-copied (0.2023, 0.1994,
    0.2010) is the mean of the deviations within each image. Pixel values are counted, so the result is exact. A
    constant channel has deviation 1.
    """
    levels = torch.arange(256, dtype=torch.float64) / 255
    counts = [torch.stack([torch.bincount(c.flatten(), minlength=256) for c in batch.unbind(1)]) for batch in batches]
    histograms = torch.stack(counts).sum(0)
    shares = histograms.double() / histograms.sum(1, keepdim=True)
    mean = shares @ levels
    deviation = (shares * (levels - mean[:, None]) ** 2).sum(1).sqrt()
    return mean.float(), torch.where(deviation > 0, deviation, 1.0).float()


class TrainingBatches:
    """A shuffled stream of images, cut into batches, that can be resumed at any batch.

    The stream is one random permutation of the images after another, and a batch may cross the end of a permutation.
    Batch ``i`` is a pure function of ``(seed, i)``: the position is the whole state. Each of several processes takes
    its slice of the same global batch. One pass of ``iter`` has the batches of the steps, and the next pass continues.

    With images without labels (``TrainingData``), the second half of each batch is from a stream of these. There are as
    many targets as images with labels.
    """

    def __init__(
        self, data: "TrainingData", *, device: torch.device | str = "cpu", rank: int = 0, world_size: int = 1
    ) -> None:
        if data.batch_size % world_size:
            raise ValueError(f"batch_size {data.batch_size} must be a multiple of the {world_size} processes")
        self.images = _to_device_if_it_fits(data.training, torch.device(device))
        self.labels = data.training.labels.to(device)
        self.augmenter = data.augmenter
        self.length = data.batches
        self.seed = data.seed
        self.position = 0
        parts, self._unlabelled = 1, None
        if data.unlabelled is not None:
            parts, others = 2, copy.copy(data)
            others.training, others.unlabelled, others.batch_size = data.unlabelled, None, data.batch_size // 2
            others.seed = derive_seed(data.seed, "unlabelled")
            self._unlabelled = TrainingBatches(others, device=device, rank=rank, world_size=world_size)
        self._global_size, self._local_size = data.batch_size // parts, data.batch_size // world_size // parts
        self._rank = rank
        self._layout = torch.channels_last if data.channels_last else torch.contiguous_format
        self._epoch_order: tuple[int, Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        end = (self.position // self.length + 1) * self.length
        while self.position < end:
            self.position += 1
            yield self.batch(self.position - 1)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]

    def indices(self, position: int) -> Int64[Tensor, "batch"]:
        """Indices of the images in this process's share of the batch at ``position``."""
        start = position * self._global_size + self._rank * self._local_size
        offsets = torch.arange(start, start + self._local_size)
        epochs = offsets // len(self.labels)
        places = {epoch: offsets[epochs == epoch] % len(self.labels) for epoch in epochs.unique().tolist()}
        return torch.cat([self._order(epoch)[of_epoch] for epoch, of_epoch in places.items()])

    def batch(self, position: int) -> Batch:
        """Images (normalized floats) and targets of the batch at ``position``, those with labels first."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "augment", position, self._rank))
        uniform = self.augmenter.draw(self._local_size, generator)
        indices = self.indices(position)
        on_device = indices.to(self.labels.device, non_blocking=True)
        is_moved = self.images.labels.device == on_device.device
        images = self.images.take(on_device if is_moved else indices).to(on_device.device)
        images, targets = self.augmenter(images, self.labels.index_select(0, on_device), uniform)
        if self._unlabelled is not None:
            images = torch.cat([images, self._unlabelled.batch(position)[0]])
        return images.contiguous(memory_format=self._layout), targets

    def _order(self, epoch: int) -> Int64[Tensor, "images"]:
        if self._epoch_order[0] != epoch:
            generator = torch.Generator().manual_seed(derive_seed(self.seed, "order", epoch))
            self._epoch_order = (epoch, torch.randperm(len(self.labels), generator=generator))
        return self._epoch_order[1]


class EvaluationBatches:
    """Every image once, in order, normalized and otherwise untouched; each process takes every n-th image."""

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
        self.data = _to_device_if_it_fits(mine, torch.device(device))
        self.labels = mine.labels.to(device)
        self.augmenter = augmenter
        self.batch_size = batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.labels) / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for images, labels in zip(self.data.batches(self.batch_size), self.labels.split(self.batch_size), strict=True):
            yield self.augmenter.normalize(images.to(labels.device)), labels


def _to_device_if_it_fits(data: LabelledImages, device: torch.device) -> LabelledImages:
    """The images on the device. They stay on the CPU if they would fill more than half of the free memory."""
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


class TrainingData(lightning.LightningDataModule):
    """Training and validation batches of a run, for a Trainer with ``max_steps=steps``. More steps continue the stream.

    Arguments:
        training: images to train on. Channel statistics are measured on these images alone.
        validation: images to validate on; None for no validation.
        augmentation: augmentation of the training images; None for that of ``Augmentation()``.
        batch_size: images of one optimizer step, over all devices and accumulated batches.
        steps: optimizer steps of one pass.
        accumulate: batches of one step.
        seed: seed of the order of the images and of their augmentation.
        channels_last: whether images are in torch's ``channels_last`` memory format.
        normalization: mean and standard deviation of each channel, in [0, 1], in place of the measured ones.
        transform: custom transform of the bytes of the training images.
        unlabelled: images without labels, half of each batch; None for none.

    Raises:
        InputError: a number is below 1, or ``batch_size`` is not a multiple of ``accumulate``, or of twice that with
            ``unlabelled``.

    Example:
        >>> images = LabelledImages(torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.arange(6) % 2, ("cat", "dog"))
        >>> data = TrainingData(images, None, batch_size=4, steps=3)
        >>> data.batches, data.mean  # channel statistics of the training images
        (3, [0.0, 0.0, 0.0])
    """

    def __init__(
        self,
        training: LabelledImages,
        validation: LabelledImages | None,
        *,
        augmentation: Augmentation | None = None,
        batch_size: int,
        steps: int,
        accumulate: int = 1,
        seed: int = 0,
        channels_last: bool = False,
        normalization: tuple[Sequence[float], Sequence[float]] | None = None,
        transform: CustomTransform | None = None,
        unlabelled: LabelledImages | None = None,
    ) -> None:
        super().__init__()
        if min(batch_size, steps, accumulate) < 1:
            raise InputError(f"batch_size {batch_size}, steps {steps} and accumulate {accumulate} must be at least 1")
        if batch_size % accumulate:
            raise InputError(f"batch_size {batch_size} must be a multiple of accumulate {accumulate}")
        if unlabelled is not None and batch_size % (2 * accumulate):
            parts = "" if accumulate == 1 else f" in each of its {accumulate} parts"
            raise InputError(f"batch_size {batch_size}: half of a batch has no labels, so it must be even{parts}")
        self.training = training
        self.validation = validation
        self.unlabelled = unlabelled
        self.batch_size = batch_size // accumulate
        self.batches = steps * accumulate
        self.seed = seed
        self.channels_last = channels_last
        measured = channel_statistics(training.batches()) if normalization is None else ()
        self.mean, self.std = (list(values) for values in normalization or (values.tolist() for values in measured))
        self.augmenter = Augmenter(
            augmentation or Augmentation(),
            mean=self.mean,
            std=self.std,
            num_classes=training.num_classes,
            transform=transform,
        )

    def train_dataloader(self) -> TrainingBatches:
        device, share = self._device_and_share()
        return TrainingBatches(self, device=device, **share)

    def val_dataloader(self) -> EvaluationBatches | list[EvaluationBatches]:
        if self.validation is None or not len(self.validation):
            return []
        device, share = self._device_and_share()
        size = self.validation.limit_batch(max(self.batch_size, EVALUATION_BATCH))
        return EvaluationBatches(self.validation, self.augmenter, batch_size=size, device=device, **share)

    def _device_and_share(self) -> tuple[torch.device, dict[str, int]]:
        assert self.trainer is not None
        share = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        return self.trainer.strategy.root_device, share
