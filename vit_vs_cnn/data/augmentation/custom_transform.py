"""A user-defined transform, applied to each training image with a seed for each image."""

import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.data.images import ImageBytes
from vit_vs_cnn.errors import InputError, one_line


class CustomTransform:
    """Calls ``transform(image, generator=generator)``, or ``transform(image)`` where it takes no generator.

    The image and the result are ``uint8 (channels, rows, cols)``. The generator, on the CPU, is seeded for each image.
    A transform without the argument, as those of torchvision, uses the global generators of PyTorch, numpy and Python:
    these are seeded for each image, and their states are restored.

    Arguments:
        name: name of the transform in error messages.
    """

    def __init__(self, transform: Callable[..., Any], name: str) -> None:
        self.transform = transform
        self.name = name
        called = transform.forward if isinstance(transform, torch.nn.Module) else transform
        try:
            self._takes_generator = "generator" in inspect.signature(called).parameters
        except (TypeError, ValueError):  # of C
            self._takes_generator = False

    def __call__(self, images: ImageBytes, seeds: Sequence[int]) -> ImageBytes:
        """The transformed images, each with its seed.

        Raises:
            InputError: the transform fails, or returns another shape or no bytes.
        """
        with _preserved_random_state():
            return torch.stack([self._one(image, seed) for image, seed in zip(images, seeds, strict=True)])

    def _one(self, image: Tensor, seed: int) -> Tensor:
        try:
            if self._takes_generator:
                result = self.transform(image, generator=torch.Generator().manual_seed(seed))
            else:
                torch.default_generator.manual_seed(seed)
                random.seed(seed)
                np.random.seed(seed % 2**32)
                result = self.transform(image)
        except Exception as error:  # whatever the code of a user raises
            raise InputError(
                f"augmentation.transform: {self.name}: {type(error).__name__}: {one_line(error)}"
            ) from error
        if not isinstance(result, Tensor) or result.dtype != torch.uint8 or result.shape != image.shape:
            got = f"{result.dtype} {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
            raise InputError(
                f"augmentation.transform: {self.name} gives {got} for an image of torch.uint8 {tuple(image.shape)}; "
                "it has to give bytes of the same shape"
            )
        return result


@contextmanager
def _preserved_random_state() -> Iterator[None]:
    states = torch.default_generator.get_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
