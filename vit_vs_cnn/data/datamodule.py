"""What a training run is given: images to train on and to watch it by."""

from collections.abc import Iterable, Sequence
from typing import Any

import lightning
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from vit_vs_cnn.data.augmentation.augmenter import Augmentation, Augmenter
from vit_vs_cnn.data.augmentation.transforms import OwnTransform
from vit_vs_cnn.data.images import Bytes, LabelledImages
from vit_vs_cnn.data.loading import EvaluationBatches, TrainingBatches
from vit_vs_cnn.errors import InputError

#: Images that are counted together.
_CHUNK = 1000


def channel_statistics(
    images: UInt8[Tensor, "count channels rows cols"] | Iterable[Bytes],
) -> tuple[Float[Tensor, "channels"], Float[Tensor, "channels"]]:
    """Mean and standard deviation of each channel over all pixels, in units of 0..1.

    Taken over pixels, not averaged over per-image deviations: on CIFAR-10 that is (.2470, .2435, .2616), where the
    often-copied (.2023, .1994, .2010) is the mean of the images' own deviations. Exact: pixel values are counted, so
    nothing is summed in floating point. A constant channel gets deviation 1.

    Arguments:
        images: all at a time, or batch by batch.
    """
    levels = torch.arange(256, dtype=torch.float64) / 255
    batches = images.split(_CHUNK) if isinstance(images, Tensor) else images
    histograms = sum(_histograms(batch) for batch in batches)
    assert isinstance(histograms, Tensor), "there are images"
    shares = histograms.double() / histograms.sum(1, keepdim=True)
    mean = shares @ levels
    deviation = (shares * (levels - mean[:, None]) ** 2).sum(1).sqrt()
    return mean.float(), torch.where(deviation > 0, deviation, 1.0).float()


def _histograms(images: Bytes) -> Int64[Tensor, "channels 256"]:
    return torch.stack([torch.bincount(c.flatten(), minlength=256) for c in images.unbind(1)])


#: Images of a batch that is evaluated, at least.
EVALUATION_BATCH = 256


class TrainingData(lightning.LightningDataModule):
    """Training and validation batches of one run, for a Trainer with ``max_steps=steps``; one that asks for more gets
    more, of the same stream.

    A cell's holds no test image: only evaluation opens those, on the record.

    Arguments:
        training: what is trained on; the normalisation is measured on these images alone.
        validation: what is measured on the way, possibly nothing.
        augmentation: of the training images; the default one, crops and flips, if None.
        batch_size: images of one optimizer step, over all devices and accumulated batches together.
        steps: optimizer steps of the whole run.
        accumulate: batches that make one step.
        seed: of order and augmentation.
        channels_last: lay the pixels of training batches out with the channels innermost.
        test: for ``test`` and ``predict`` of a Trainer of one's own.
        normalisation: mean and standard deviation of each channel, in units where white is 1, instead of those of the
            training images: those that pretrained weights came with.
        transform: what ``augmentation.transform`` names.

    Raises:
        InputError: ``batch_size`` is no multiple of ``accumulate``.
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
        test: LabelledImages | None = None,
        normalisation: tuple[Sequence[float], Sequence[float]] | None = None,
        transform: OwnTransform | None = None,
    ) -> None:
        super().__init__()
        if accumulate < 1 or batch_size % accumulate:
            raise InputError(f"batch_size {batch_size} must be a multiple of accumulate {accumulate}")
        self.training = training
        self.validation = validation
        self.test = test
        self.batch_size = batch_size // accumulate
        self.batches = steps * accumulate
        self.seed = seed
        self.channels_last = channels_last
        measured = channel_statistics(training.batches()) if normalisation is None else ()
        self.mean, self.std = (list(values) for values in normalisation or (one.tolist() for one in measured))
        self.augmenter = Augmenter(
            augmentation or Augmentation(),
            mean=self.mean,
            std=self.std,
            num_classes=training.num_classes,
            transform=transform,
        )

    def _place(self) -> dict[str, Any]:
        assert self.trainer is not None
        trainer = self.trainer
        return {"device": trainer.strategy.root_device, "rank": trainer.global_rank, "world_size": trainer.world_size}

    def train_dataloader(self) -> TrainingBatches:
        return self.batches_on(**self._place())

    def batches_on(self, device: torch.device, **share: int) -> TrainingBatches:
        """The batches to train on; with ``rank`` and ``world_size`` those of one process of several."""
        options = {"seed": self.seed, "channels_last": self.channels_last, "device": device, **share}
        sizes = {"batch_size": self.batch_size, "length": self.batches}
        return TrainingBatches(self.training, self.augmenter, **sizes, **options)

    def val_dataloader(self) -> EvaluationBatches | list[EvaluationBatches]:
        return self._once_each(self.validation)

    def test_dataloader(self) -> EvaluationBatches | list[EvaluationBatches]:
        return self._once_each(self.test)

    predict_dataloader = test_dataloader

    def _once_each(self, images: LabelledImages | None) -> EvaluationBatches | list[EvaluationBatches]:
        if images is None or not len(images):
            return []
        return EvaluationBatches(
            images, self.augmenter, batch_size=max(self.batch_size, EVALUATION_BATCH), **self._place()
        )
