"""A set of labelled images as bytes: in memory, or in a file that is mapped into it."""

import copy
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

#: The label of an image whose class is not known.
UNKNOWN = -1
Bytes = UInt8[Tensor, "batch channels rows cols"]
#: Bytes of pixels from which on a part of a set is not copied, but gathered from the whole batch by batch.
LARGE = 2**28
#: Images that are looked at together where all of them are.
_CHUNK = 1000


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and their classes.

    Arguments:
        images: pixel values 0 to 255, ``(count, channels, rows, cols)``.
        labels: class index of each image, ``(count,)``.
        class_names: the name of each class, in the order of the indices.
        sample_ids: a name for each image that stays the same from run to run (a path, or a number in the source); its
            number if none is given.
        masks: where the object is, ``(count, rows, cols)``, for sources that know it.
        groups: the name of what each image is of (a patient, a camera), where that must not be split; None if nothing.

    Raises:
        InputError: other types or shapes, a label without a class, not one of each for each image.
    """

    images: UInt8[Tensor, "count channels rows cols"]
    labels: Int64[Tensor, "count"]
    class_names: tuple[str, ...]
    sample_ids: Sequence[str] = ()
    masks: Bool[Tensor, "count rows cols"] | None = None
    groups: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != torch.uint8:
            said = f"{tuple(self.images.shape)} of {self.images.dtype}"
            raise InputError(f"images: {said}; expected (count, channels, rows, cols) of torch.uint8, from 0 to 255")
        if self.labels.ndim != 1 or self.labels.dtype != torch.int64:
            said = f"{tuple(self.labels.shape)} of {self.labels.dtype}"
            raise InputError(f"labels: {said}; expected (count,) of torch.int64, the number of each image's class")
        count, classes = len(self.images), len(self.class_names)
        if count and not UNKNOWN <= int(self.labels.min()) <= int(self.labels.max()) < classes:
            raise InputError(
                f"labels: from {self.labels.min()} to {self.labels.max()}, but there are {classes} classes"
            )
        if not len(self.sample_ids):
            vars(self)["sample_ids"] = [str(number) for number in range(count)]  # it is frozen
        lengths = {"labels": self.labels, "sample_ids": self.sample_ids, "masks": self.masks, "groups": self.groups}
        for name, values in lengths.items():
            if values is not None and len(values) != count:
                raise InputError(f"{name}: {len(values):,} for {count:,} images; each image needs one")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def counts(self) -> dict[str, int]:
        """How many images there are of each class, by its name."""
        counted = torch.bincount(self.labels, minlength=self.num_classes).tolist()
        return dict(zip(self.class_names, counted, strict=True))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of an image."""
        channels, rows, cols = self.images.shape[1:]
        return channels, rows, cols

    @property
    def is_large(self) -> bool:
        """Whether its pixels take more than ``LARGE`` bytes."""
        return len(self) * math.prod(self.image_shape) > LARGE

    def take(self, indices: Int64[Tensor, "chosen"]) -> UInt8[Tensor, "chosen channels rows cols"]:
        """The pixels of some images, copied."""
        return self.images.index_select(0, indices)

    def batches(self, size: int = _CHUNK) -> Iterator[Bytes]:
        """The pixels of all images, some at a time."""
        yield from self.images.split(size)

    def subset(self, indices: Int64[Tensor, "chosen"]) -> "LabelledImages":
        """The images at ``indices``, in that order. Pixels are copied, unless there are many (``LARGE``)."""
        places = indices.tolist()
        parts = {
            "labels": self.labels[indices],
            "class_names": self.class_names,
            "sample_ids": [str(self.sample_ids[i]) for i in places],
            "masks": None if self.masks is None else self.masks[indices],
            "groups": None if self.groups is None else [self.groups[i] for i in places],
        }
        if len(indices) * math.prod(self.image_shape) > LARGE:
            return Gathered((self,), indices, **parts)
        return LabelledImages(self.take(indices), **parts)

    def relabelled(self, labels: Int64[Tensor, "count"]) -> "LabelledImages":
        """The same images with other labels."""
        other = copy.copy(self)
        vars(other)["labels"] = labels  # it is frozen
        return other

    def with_pixels(self, images: Bytes) -> "LabelledImages":
        """Other pixels under the same labels and names, in memory, wherever these lie."""
        return LabelledImages(images, self.labels, self.class_names, self.sample_ids, self.masks, self.groups)

    def fingerprint(self) -> str:
        """SHA-256 (first 16 hex digits) of shape, pixels, labels and class names: two sets that differ, differ here."""
        shape = (len(self), *self.image_shape)
        digest = hashlib.sha256(repr((shape, self.class_names)).encode())
        for pixels in self.batches():
            digest.update(pixels.contiguous().numpy().data)
        digest.update(self.labels.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    def hashes(self) -> UInt64[np.ndarray, "count"]:
        """8 bytes for each image: BLAKE2b of its pixels, whatever its name. 100,000 of CIFAR take a second."""
        parts = (part.contiguous().numpy() for part in self.batches())
        digests = b"".join(hashlib.blake2b(image.data, digest_size=8).digest() for part in parts for image in part)
        return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


class Gathered(LabelledImages):
    """Images of larger sets, whose pixels stay where they are until they are asked for.

    ``images`` copies all of them; ``take`` and ``batches`` do not.

    Arguments:
        wholes: the sets, of images of one shape.
        places: where the images are, counted through the sets one after the other.
    """

    def __init__(  # noqa: PLR0917
        self,
        wholes: tuple[LabelledImages, ...],
        places: Int64[Tensor, "count"],
        labels: Int64[Tensor, "count"],
        class_names: tuple[str, ...],
        sample_ids: Sequence[str],
        masks: Bool[Tensor, "count rows cols"] | None = None,
        groups: Sequence[str] | None = None,
    ) -> None:
        given = {"labels": labels, "class_names": class_names, "sample_ids": sample_ids, "masks": masks}
        vars(self).update(given, groups=groups, wholes=wholes, places=places)  # its base is frozen

    wholes: tuple[LabelledImages, ...]
    places: Int64[Tensor, "count"]

    @property
    def images(self) -> UInt8[Tensor, "count channels rows cols"]:  # type: ignore[override]
        return self.take(torch.arange(len(self)))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.wholes[0].image_shape

    def take(self, indices: Int64[Tensor, "chosen"]) -> UInt8[Tensor, "chosen channels rows cols"]:
        places = self.places[indices]
        if len(self.wholes) == 1:
            return self.wholes[0].take(places)
        taken = torch.empty((len(places), *self.image_shape), dtype=torch.uint8)
        first = 0
        for whole in self.wholes:
            here = (places >= first) & (places < first + len(whole))
            taken[here] = whole.take(places[here] - first)
            first += len(whole)
        return taken

    def batches(self, size: int = _CHUNK) -> Iterator[Bytes]:
        yield from (self.take(places) for places in torch.arange(len(self)).split(size))


def concatenate(first: LabelledImages, second: LabelledImages) -> LabelledImages:
    """One set after the other, large ones without a copy; masks and groups are kept where both have them."""
    masks, groups = None, None
    if first.masks is not None and second.masks is not None:
        masks = torch.cat([first.masks, second.masks])
    if first.groups is not None and second.groups is not None:
        groups = [*first.groups, *second.groups]
    rest = (torch.cat([first.labels, second.labels]), first.class_names, [*first.sample_ids, *second.sample_ids])
    if first.is_large or second.is_large:
        return Gathered((first, second), torch.arange(len(first) + len(second)), *rest, masks, groups)
    return LabelledImages(torch.cat([first.images, second.images]), *rest, masks, groups)


def pool_fingerprint(images: LabelledImages, folds: Sequence[int] | None = None) -> str:
    """Hash of images that subsets are drawn from, with their groups and test folds where there are any."""
    found = images.fingerprint()
    for values in (images.groups, folds):
        if values is not None:
            found = hashlib.sha256(f"{found} {list(values)}".encode()).hexdigest()[:16]
    return found


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

    def test(self) -> LabelledImages | None:
        """The images that only evaluation may see, or None where each seed holds out a fold of ``train``."""
        ...

    def provenance(self) -> dict[str, Any]:
        """Which source, and what a reader of the results should know of it, as plain values."""
        ...
