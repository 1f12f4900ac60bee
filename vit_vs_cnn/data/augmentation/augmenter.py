"""Random augmentation of training images, for a whole batch at once, on the device of the images.

Every decision is a pure function of one matrix of uniform random numbers, which the caller generates on the CPU. The
same numbers give the same batch, on every device and after every interruption. From these numbers, the parameters of
all images (offsets, boxes, operations) are computed on the CPU and sent to the device in one transfer. The CPU does not
wait for the device. Each image has its own parameters.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from vit_vs_cnn.data.augmentation.geometry import (
    box_mask,
    crop_and_flip,
    crop_and_resize,
    erasing_boxes,
    mix_images,
    mix_labels,
    mixing_plan,
    resized_crop_boxes,
)
from vit_vs_cnn.data.augmentation.policy import OPERATIONS, PolicyTable, apply_operations, make_policy_table
from vit_vs_cnn.data.images import ImageBytes
from vit_vs_cnn.data.options import NUM_BINS, Augmentation
from vit_vs_cnn.errors import InputError, one_line

NUM_UNIFORM_DRAWS = {
    "crop": 2,  # row, column
    "flip": 1,
    "erasing": 5,  # decision, area, aspect ratio, row, column
    "unused": 2,
    "mixing": 5,  # unused, mixup or CutMix, share, row, column
    "policy": 3,  # operation, strength, sign; again for each round
    "resized_crop": 4,  # area, aspect ratio, row, column
    "unused too": 5,
    "transform": 2,  # the upper and the lower 24 bits of a seed
}
"""Columns of the matrix of uniform numbers. The columns of all changes are sampled, used or not, so that a change that
is switched on leaves the others as they were. More rounds of the policy change the columns after them.
Unused columns keep the numbers of recorded experiments."""

Floats = Float32[Tensor, "batch channels rows cols"]
#: Images and labels. Labels are class indices, or probabilities if images are mixed.
Augmented = tuple[Floats, Int64[Tensor, "batch"] | Float32[Tensor, "batch classes"]]


@dataclass(frozen=True, eq=False)
class CustomTransform:
    """Calls ``transform(image)``, from and to ``uint8 (channels, rows, cols)``, such as torchvision's transforms.

    The global generators of PyTorch, numpy and Python are seeded for each image, and their states are restored.
    """

    transform: Callable[[Tensor], Any]
    name: str

    def __call__(self, images: ImageBytes, seeds: Sequence[int]) -> ImageBytes:
        """The transformed images, each with its seed. Raises InputError: it fails, or returns no such image."""
        python_state, numpy_state = random.getstate(), np.random.get_state()
        try:
            with torch.random.fork_rng(devices=[]):
                return torch.stack([self._transform(image, seed) for image, seed in zip(images, seeds, strict=True)])
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)

    def _transform(self, image: Tensor, seed: int) -> Tensor:
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            result = self.transform(image)
        except Exception as error:  # code of the user
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


class Augmenter:
    """Applies an ``Augmentation`` to batches of bytes. Returns normalized floats and targets.

    Order: crop and flip, policy, custom transform, ``(x / 255 - mean) / std``, erasing, mixing.

    Arguments:
        mean, std: mean and standard deviation of each channel, in [0, 1].

    Raises:
        InputError: mean and std do not fit each other, or the policy is not defined for that number of channels.
    """

    def __init__(
        self,
        config: Augmentation,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        num_classes: int,
        transform: CustomTransform | None = None,
    ) -> None:
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise InputError(f"mean = {list(mean)}, std = {list(std)}: one number per channel, every std above 0")
        if config.policy != "none" and len(mean) not in (1, 3):
            raise InputError(f"augmentation.policy = {config.policy!r}: needs 1 or 3 channels, not {len(mean)}")
        self.transform = transform
        self.config = config
        self.num_classes = num_classes
        self._mean = torch.tensor(mean, dtype=torch.float32)[:, None, None]
        self._std = torch.tensor(std, dtype=torch.float32)[:, None, None]
        self._bins = [config.magnitude] if config.policy == "randaugment" else [float(k) for k in range(NUM_BINS)]
        self._tables: dict[tuple[torch.device, int, int], PolicyTable] = {}
        self._columns = dict(NUM_UNIFORM_DRAWS, policy=NUM_UNIFORM_DRAWS["policy"] * config.num_policy_ops)

    def draw(self, batch_size: int, generator: torch.Generator) -> Float32[Tensor, "batch draws"]:
        """Uniform numbers in [0, 1) for one batch, on the CPU, from a generator on the CPU."""
        # Column after column, so that more rounds of the policy leave the columns before them as they were.
        return torch.rand(sum(self._columns.values()), batch_size, generator=generator).T

    def __call__(
        self, images: ImageBytes, labels: Int64[Tensor, "batch"], draws: Float32[Tensor, "batch draws"]
    ) -> Augmented:
        """The augmented batch and its targets: labels as given, or soft labels if images are mixed."""
        rows, cols = images.shape[-2:]
        plan, counts = self._plan(draws, (rows, cols))
        plan = _to_device(plan, images.device)
        if "parts" in plan:
            images = crop_and_resize(images, plan["parts"])
        if "offsets" in plan:
            images = crop_and_flip(images, plan["offsets"].long(), plan["flips"][0] > 0)
        if counts:
            images = self._apply_policy(images, plan, counts)
        if self.transform is not None:
            # A seed of 48 bits for each image; a float32 in [0, 1) holds 24.
            upper, lower = (draws[:, -NUM_UNIFORM_DRAWS["transform"] :].double() * 2**24).long().unbind(1)
            images = self.transform(images, (upper * 2**24 + lower).tolist())
        values = self.normalize(images)
        if "erasing" in plan:  # zero is the mean colour
            values = values.mul_(1 - box_mask(plan["erasing"], (rows, cols)))
        if "mixing" not in plan:
            return values, labels
        return mix_images(values, plan["mixing"]), mix_labels(labels, plan["mixing"], self.num_classes)

    def normalize(self, images: ImageBytes) -> Floats:
        """``(x / 255 - mean) / std``, for evaluation, and in training after all changes of bytes."""
        if self._mean.device != images.device:
            self._mean, self._std = self._mean.to(images.device), self._std.to(images.device)
        return images.float().div_(255).sub_(self._mean).div_(self._std)

    def _plan(self, draws: Tensor, grid_size: tuple[int, int]) -> tuple[dict[str, Tensor], list[list[int]]]:
        """Parameters of the changes, by name, and for each round of the policy the number of images of each operation.

        Parameters have the shape ``(number of parameters, batch)``.
        """
        # float64: a float32 just below 1 times a count may round up to the count.
        columns = draws.T.double().split(list(self._columns.values()))
        config, plan, uniform = self.config, {}, dict(zip(self._columns, columns, strict=True))
        if config.resized_crop is not None:
            plan["parts"] = resized_crop_boxes(uniform["resized_crop"], config.resized_crop, grid_size)
        padding = config.crop_padding if config.resized_crop is None else 0
        if padding or config.flip:
            plan["offsets"] = (uniform["crop"] * (2 * padding + 1)).floor_() - padding
            plan["flips"] = (uniform["flip"] < 0.5) & config.flip
        if config.erasing:
            plan["erasing"] = erasing_boxes(uniform["erasing"], config.erasing, grid_size)
        if config.mixup > 0 or config.cutmix > 0:
            plan["mixing"] = mixing_plan(uniform["mixing"], config.mixup, config.cutmix, grid_size)
        if not config.num_policy_ops:
            return plan, []
        operation, strength, sign = uniform["policy"].unflatten(0, (-1, 3)).unbind(1)
        operations, bins = (operation * len(OPERATIONS)).long(), (strength * len(self._bins)).long()
        entries = (operations * len(self._bins) + bins) * 2 + (sign < 0.5)
        order = torch.argsort(operations, dim=1, stable=True)
        plan |= {"orders": order, "entries": entries.gather(1, order)}
        return plan, [torch.bincount(used, minlength=len(OPERATIONS)).tolist() for used in operations]

    def _apply_policy(self, images: Tensor, plan: dict[str, Tensor], counts: list[list[int]]) -> Tensor:
        rows, cols = images.shape[-2:]
        if (images.device, rows, cols) not in self._tables:
            table = make_policy_table(self.config.policy, self._bins, (rows, cols))
            self._tables[images.device, rows, cols] = PolicyTable(*(values.to(images.device) for values in table))
        for order, entries, count in zip(plan["orders"].long(), plan["entries"].long(), counts, strict=True):
            part = images.index_select(0, order)
            apply_operations(part, entries, count, self._tables[images.device, rows, cols])
            images = torch.empty_like(images).index_copy_(0, order, part)
        return images


def _to_device(plan: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The plan on the device, in one transfer; float32 holds its whole numbers exactly."""
    if not plan:
        return plan
    packed = torch.cat([part.float() for part in plan.values()])
    packed = (packed.pin_memory() if device.type == "cuda" else packed).to(device, non_blocking=True)
    return dict(zip(plan, packed.split([len(part) for part in plan.values()]), strict=True))
