"""Images in batches, read as often as they are needed."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from vit_vs_cnn.errors import InputError

#: All images as one tensor, or batches of them: tensors, or pairs of images and labels, as a loader gives.
Images: TypeAlias = Tensor | Iterable[Any]


class ImageBatches:
    """Batches of images with their labels, on the device and in the type of the network.

    Arguments:
        images: ``(images, channels, rows, cols)``; or something that can be iterated over again and again, in which
            batches are tensors or (images, labels).
        labels: of all images, in their order; those of the batches if None.
        batch_size: images at once, where ``images`` is a tensor.
        like: a tensor of the type and on the device wanted.

    Raises:
        InputError: if ``images`` can be read only once.
    """

    def __init__(self, images: Images, labels: Tensor | None, *, batch_size: int, like: Tensor) -> None:
        if not isinstance(images, Tensor) and iter(images) is images:
            raise InputError("images are read several times: give a tensor, a list or a loader, not an iterator")
        self.images, self.labels, self.batch_size, self.like = images, labels, batch_size, like

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        start = 0
        for batch in self.images.split(self.batch_size) if isinstance(self.images, Tensor) else self.images:
            images, labels = (batch[0], batch[1]) if isinstance(batch, tuple | list) else (batch, None)
            if self.labels is not None:
                labels = self.labels[start : start + len(images)]
            start += len(images)
            yield images.to(self.like), None if labels is None else labels.to(self.like.device)

    def first(self, count: int) -> Tensor:
        """The first images, as many as there are up to ``count``."""
        found: list[Tensor] = []
        for images, _ in self:
            found.append(images)
            if sum(map(len, found)) >= count:
                break
        if not sum(map(len, found)):
            raise InputError("there are no images to measure on")
        return torch.cat(found)[:count]
