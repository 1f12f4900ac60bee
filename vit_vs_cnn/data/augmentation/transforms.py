"""A transform of the user's own, applied to each training image with random numbers of the image's own."""

import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.data.images import Bytes
from vit_vs_cnn.errors import InputError, one_line


class OwnTransform:
    """Calls ``transform(image, generator=generator)``, or ``transform(image)`` where it takes no generator.

    The image is ``uint8 (channels, rows, cols)``, and so must be what is given back. The generator, on the CPU, is
    seeded for each image. A transform without one (torchvision's, say) draws from the global generators of PyTorch,
    numpy and Python: these are seeded for each image, and left behind as they were found.

    Arguments:
        transform: the user's.
        name: for a line of an error.
    """

    def __init__(self, transform: Callable[..., Any], name: str) -> None:
        self.transform = transform
        self.name = name
        called = transform.forward if isinstance(transform, torch.nn.Module) else transform
        try:
            self._takes_generator = "generator" in inspect.signature(called).parameters
        except (TypeError, ValueError):  # of C
            self._takes_generator = False

    def __call__(self, images: Bytes, seeds: Sequence[int]) -> Bytes:
        """The images transformed, each with its seed.

        Raises:
            InputError: the transform fails, or gives back another shape or no bytes.
        """
        with _generators_kept():
            return torch.stack([self._one(image, seed) for image, seed in zip(images, seeds, strict=True)])

    def _one(self, image: Tensor, seed: int) -> Tensor:
        try:
            if self._takes_generator:
                given = self.transform(image, generator=torch.Generator().manual_seed(seed))
            else:
                torch.default_generator.manual_seed(seed)
                random.seed(seed)
                np.random.seed(seed % 2**32)
                given = self.transform(image)
        except Exception as error:  # whatever the code of somebody's own raises
            raise InputError(
                f"augmentation.transform: {self.name}: {type(error).__name__}: {one_line(error)}"
            ) from error
        if not isinstance(given, Tensor) or given.dtype != torch.uint8 or given.shape != image.shape:
            got = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
            raise InputError(
                f"augmentation.transform: {self.name} gives {got} for an image of torch.uint8 {tuple(image.shape)}; "
                "it has to give bytes of the same shape"
            )
        return given


@contextmanager
def _generators_kept() -> Iterator[None]:
    states = torch.default_generator.get_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
