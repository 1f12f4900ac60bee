"""A set of labelled images, held in memory as bytes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int64, UInt8, UInt64
from torch import Tensor

Bytes = UInt8[Tensor, "batch channels rows cols"]


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and their classes.

    Arguments:
        images: pixel values 0 to 255, ``(count, channels, rows, cols)``.
        labels: class index of each image, ``(count,)``.
        class_names: the name of each class, in the order of the indices.
        sample_ids: a name for each image that stays the same from run to run (a path, or a number in the source).
        masks: where the object is, ``(count, rows, cols)``, for sources that know it.
    """

    images: UInt8[Tensor, "count channels rows cols"]
    labels: Int64[Tensor, "count"]
    class_names: tuple[str, ...]
    sample_ids: Sequence[str]
    masks: Bool[Tensor, "count rows cols"] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of an image."""
        channels, rows, cols = self.images.shape[1:]
        return channels, rows, cols

    def subset(self, indices: Int64[Tensor, "chosen"]) -> "LabelledImages":
        """The images at ``indices``, in that order."""
        ids = [str(self.sample_ids[i]) for i in indices.tolist()]
        masks = None if self.masks is None else self.masks[indices]
        return LabelledImages(self.images[indices], self.labels[indices], self.class_names, ids, masks)

    def fingerprint(self) -> str:
        """SHA-256 (first 16 hex digits) of shape, pixels, labels and class names: two sets that differ, differ here."""
        digest = hashlib.sha256(repr((tuple(self.images.shape), self.class_names)).encode())
        digest.update(self.images.contiguous().numpy().data)
        digest.update(self.labels.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def hashes(self) -> UInt64[np.ndarray, "count"]:
        """8 bytes for each image: BLAKE2b of its pixels, whatever its name. 100,000 of CIFAR take a second."""
        pixels = self.images.contiguous().numpy()
        digests = b"".join(hashlib.blake2b(image.data, digest_size=8).digest() for image in pixels)
        return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def concatenate(first: LabelledImages, second: LabelledImages) -> LabelledImages:
    """One set after the other; masks are kept where both have them."""
    masks = None
    if first.masks is not None and second.masks is not None:
        masks = torch.cat([first.masks, second.masks])
    images, labels = torch.cat([first.images, second.images]), torch.cat([first.labels, second.labels])
    return LabelledImages(images, labels, first.class_names, [*first.sample_ids, *second.sample_ids], masks)


@runtime_checkable
class Source(Protocol):
    """Where images come from. Nothing is read before one of the methods is called.

    Only evaluation calls ``test``; training code is handed ``train`` and ``validation`` alone.
    """

    def train(self) -> LabelledImages:
        """The images that may be trained on (and from which validation images are held out)."""
        ...

    def validation(self) -> LabelledImages | None:
        """Validation images that the user set apart, or None where they are held out of ``train``."""
        ...

    def test(self) -> LabelledImages:
        """The images that only evaluation may see."""
        ...

    def provenance(self) -> dict[str, Any]:
        """Which source, and what a reader of the results should know of it, as plain values."""
        ...
