"""Labelled images as bytes, in memory or in a memory-mapped file, and the interface of image sources."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int64, UInt8, UInt64
from torch import Tensor

from vit_vs_cnn.errors import InputError

#: Label of an image of unknown class.
UNKNOWN = -1
#: Larger subsets are not copied but gathered batch by batch.
MAX_COPIED_BYTES = 2**26
_BATCH_IMAGES = 1000
#: Pixels that are decoded or predicted together, so that batches of large images do not need more memory.
MAX_BATCH_PIXELS = 2**20
ImageBytes = UInt8[Tensor, "batch channels rows cols"]


def hash_pixels(pixels: np.ndarray) -> bytes:
    """BLAKE2b (8 bytes) of the pixels of one image."""
    return hashlib.blake2b(pixels.data, digest_size=8).digest()


def as_rgb(image: UInt8[Tensor, "channels rows cols"]) -> UInt8[np.ndarray, "rows cols 3"]:
    """First three channels of an image, or its first channel as gray if it has fewer, for a reader."""
    colors = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    return colors.permute(1, 2, 0).contiguous().numpy()


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and their classes.

    Arguments:
        images: pixel values, 0 to 255, ``(count, channels, rows, cols)``.
        labels: class index of each image, ``(count,)``.
        sample_ids: name of each image, equal in all runs (a path, or a number in the source). Default: its index.
        masks: pixels of the object, ``(count, rows, cols)``, where the source knows them.
        groups: group of each image (a patient, a camera) that must not be split.
        stored: the same images at the ``image_size`` of the experiment, for hashes and fingerprints; None if these
            have that size.

    Raises:
        InputError: other types or shapes, a label without a class, or values for another number of images.

    Example:
        >>> images = LabelledImages(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1]), ("cat", "dog"))
        >>> len(images), images.num_classes, images.image_shape
        (3, 2, (1, 8, 8))
    """

    images: UInt8[Tensor, "count channels rows cols"]
    labels: Int64[Tensor, "count"]
    class_names: tuple[str, ...]
    sample_ids: Sequence[str] = ()
    masks: Bool[Tensor, "count rows cols"] | None = None
    groups: Sequence[str] | None = None
    stored: "LabelledImages | None" = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != torch.uint8:
            shape = f"{tuple(self.images.shape)} of {self.images.dtype}"
            raise InputError(f"images: {shape}; expected (count, channels, rows, cols) of torch.uint8, from 0 to 255")
        if self.labels.ndim != 1 or self.labels.dtype != torch.int64:
            shape = f"{tuple(self.labels.shape)} of {self.labels.dtype}"
            raise InputError(f"labels: {shape}; expected (count,) of torch.int64, the number of each image's class")
        count, classes = len(self.images), len(self.class_names)
        if count and not UNKNOWN <= int(self.labels.min()) <= int(self.labels.max()) < classes:
            lowest, highest = self.labels.aminmax()
            raise InputError(f"labels: from {lowest} to {highest}, but there are {classes} classes")
        if not len(self.sample_ids):
            vars(self)["sample_ids"] = [str(number) for number in range(count)]  # the dataclass is frozen
        lengths = {"labels": self.labels, "sample_ids": self.sample_ids, "masks": self.masks, "groups": self.groups}
        lengths["stored"] = self.stored
        for name, values in lengths.items():
            if values is not None and len(values) != count:
                raise InputError(f"{name}: {len(values):,} for {count:,} images; each image needs one")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def counts(self) -> dict[str, int]:
        """Number of images of each class, by its name."""
        counts = torch.bincount(self.labels, minlength=self.num_classes).tolist()
        return dict(zip(self.class_names, counts, strict=True))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of an image."""
        channels, rows, cols = self.images.shape[1:]
        return channels, rows, cols

    @property
    def is_large(self) -> bool:
        """True if the pixels take more than ``MAX_COPIED_BYTES``."""
        return len(self) * math.prod(self.image_shape) > MAX_COPIED_BYTES

    def limit_batch(self, size: int) -> int:
        """The size of a batch, or as many images as have ``MAX_BATCH_PIXELS`` if those are fewer."""
        return max(1, min(size, MAX_BATCH_PIXELS // math.prod(self.image_shape[1:])))

    def take(self, indices: Int64[Tensor, "chosen"]) -> UInt8[Tensor, "chosen channels rows cols"]:
        """A copy of the pixels of some images."""
        return self.images.index_select(0, indices)

    def batches(self, size: int = _BATCH_IMAGES) -> Iterator[ImageBytes]:
        """The pixels of all images, ``size`` images at a time."""
        yield from self.images.split(size)

    def subset(self, indices: Int64[Tensor, "chosen"] | Sequence[int]) -> "LabelledImages":
        """The images at ``indices``, in that order. Pixels are copied up to ``MAX_COPIED_BYTES``."""
        indices = torch.as_tensor(indices, dtype=None if len(indices) else torch.int64)
        positions: list[int] = indices.tolist()
        masks = None if self.masks is None else self.masks[indices]
        groups = None if self.groups is None else [self.groups[i] for i in positions]
        names = [str(self.sample_ids[i]) for i in positions]
        stored = None if self.stored is None else self.stored.subset(indices)
        subset = LazySubset((self,), indices, self.labels[indices], self.class_names, names, masks, groups, stored)
        if subset.is_large:
            return subset
        return LabelledImages(subset.images, subset.labels, self.class_names, names, masks, groups, stored)

    def fingerprint(self) -> str:
        """SHA-256 (first 16 hex digits) of shape, pixels, labels and class names, of ``stored`` if that is given."""
        if self.stored is not None:
            return self.stored.fingerprint()
        shape = (len(self), *self.image_shape)
        digest = hashlib.sha256(repr((shape, self.class_names)).encode())
        for pixels in self.batches():
            digest.update(pixels.contiguous().numpy().data)
        digest.update(self.labels.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def hashes(self) -> UInt64[np.ndarray, "count"]:
        """BLAKE2b (8 bytes) of the pixels of each image, of ``stored`` if that is given."""
        if self.stored is not None:
            return self.stored.hashes()
        batches = (batch.contiguous().numpy() for batch in self.batches())
        digests = b"".join(hash_pixels(image) for batch in batches for image in batch)
        return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


class LazySubset(LabelledImages):
    """Images of larger sets, whose pixels are copied batch by batch. ``images`` copies all of them."""

    parents: tuple[LabelledImages, ...]
    indices: Int64[Tensor, "count"]

    def __init__(self, parents: tuple[LabelledImages, ...], indices: Int64[Tensor, "count"], *fields: Any) -> None:
        names = ("labels", "class_names", "sample_ids", "masks", "groups", "stored")
        vars(self).update(zip(names, fields, strict=True), parents=parents, indices=indices)  # the base is frozen

    @property
    def images(self) -> UInt8[Tensor, "count channels rows cols"]:  # type: ignore[override]
        return self.take(torch.arange(len(self)))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.parents[0].image_shape

    def take(self, indices: Int64[Tensor, "chosen"]) -> UInt8[Tensor, "chosen channels rows cols"]:
        positions, first = self.indices[indices], 0
        if len(self.parents) == 1:
            return self.parents[0].take(positions)
        pixels = torch.empty((len(positions), *self.image_shape), dtype=torch.uint8)
        for parent in self.parents:
            is_here = (positions >= first) & (positions < first + len(parent))
            pixels[is_here] = parent.take(positions[is_here] - first)
            first += len(parent)
        return pixels

    def batches(self, size: int = _BATCH_IMAGES) -> Iterator[ImageBytes]:
        yield from (self.take(indices) for indices in torch.arange(len(self)).split(size))


def concatenate(first: LabelledImages, second: LabelledImages) -> LabelledImages:
    """One set after the other, large ones without a copy. Masks and groups are kept if both sets have them."""
    masks = None if first.masks is None or second.masks is None else torch.cat([first.masks, second.masks])
    groups = None if first.groups is None or second.groups is None else [*first.groups, *second.groups]
    labels, names = torch.cat([first.labels, second.labels]), [*first.sample_ids, *second.sample_ids]
    stored = None if first.stored is None or second.stored is None else concatenate(first.stored, second.stored)
    fields = labels, first.class_names, names, masks, groups, stored
    if first.is_large or second.is_large:
        return LazySubset((first, second), torch.arange(len(labels)), *fields)
    return LabelledImages(torch.cat([first.images, second.images]), *fields)


def fingerprint_with_groups(images: LabelledImages, folds: Sequence[int] | None = None) -> str:
    """Hash of images from which subsets are sampled, with their groups and test folds where there are any."""
    fingerprint = images.fingerprint()
    for values in (images.groups, folds):
        if values is not None:
            fingerprint = hashlib.sha256(f"{fingerprint} {list(values)}".encode()).hexdigest()[:16]
    return fingerprint


@runtime_checkable
class Source(Protocol):
    """A source of images. Nothing is read before one of the methods is called.

    Only evaluation calls ``test``. Training code receives ``train`` and ``validation`` alone.
    """

    def train(self) -> LabelledImages:
        """The images to train on, from which validation images may be held out."""
        ...

    def validation(self) -> LabelledImages | None:
        """The validation images, or None if these are held out of ``train``."""

    def test(self) -> LabelledImages | None:
        """The images for evaluation only, or None if each seed holds out a fold of ``train``."""

    def provenance(self) -> dict[str, Any]:
        """Name of the source, and the settings and files that determine its images, as plain values."""
        ...
