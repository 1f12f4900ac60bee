"""Random changes of training images, made for a whole batch at once on the device where the data lie.

Every decision is a pure function of one matrix of uniform numbers, drawn on the CPU from a generator that the caller
owns: the same numbers give the same batch, on every device and after every interruption. From the numbers a plan is
made on the CPU (offsets, boxes, entries of the policy's table: whole numbers, for the most part), sent to the device in
one transfer and carried out there without waiting for it. Each image has its own parameters.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from vit_vs_cnn.data.augmentation.boxes import cutout_boxes, erasing_boxes, inside, resized_crop_boxes
from vit_vs_cnn.data.augmentation.geometry import resized, shifted
from vit_vs_cnn.data.augmentation.mixing import mixed_images, mixed_labels, mixing_plan
from vit_vs_cnn.data.augmentation.photometry import JITTER, jitter_plan
from vit_vs_cnn.data.augmentation.policy import OPERATIONS, PolicyTable, apply_round, sorted_moves, tabulated
from vit_vs_cnn.data.augmentation.transforms import OwnTransform
from vit_vs_cnn.data.images import Bytes
from vit_vs_cnn.data.options import NUM_BINS, Augmentation
from vit_vs_cnn.errors import InputError

DRAWS = {
    "crop": 2,  # row, column
    "flip": 1,
    "erasing": 5,  # whether, area, aspect ratio, row, column
    "cutout": 2,  # row, column
    "mixing": 5,  # whether, mixup or CutMix, share, row, column
    "policy": 3,  # operation, strength, sign; again for each round
    "resized_crop": 4,  # area, aspect ratio, row, column
    "jitter": 5,  # brightness, contrast, saturation, hue, their order
    "transform": 2,  # the upper and the lower 24 bits of a seed
}
"""Columns of the matrix of uniform numbers. All but the policy's are drawn whether they are used or not, so that
switching one augmentation on leaves the others' decisions as they were; more rounds of the policy change those that
stand behind it."""

Floats = Float32[Tensor, "batch channels rows cols"]
#: Images, and labels as given, or soft ones where images are mixed.
Augmented = tuple[Floats, Int64[Tensor, "batch"] | Float32[Tensor, "batch classes"]]


class Augmenter:
    """Carries out an `Augmentation` on batches of bytes; gives normalised floats and targets.

    Order: crop and flip, policy, colour jitter, the user's own transform, ``(x / 255 - mean) / std``, erasing and
    cutout, mixing.

    Arguments:
        mean: of each channel, in units where white is 1.
        transform: what ``config.transform`` names.

    Raises:
        InputError: mean and std do not fit each other, or the policy is not defined for that many channels.
    """

    def __init__(
        self,
        config: Augmentation,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        num_classes: int,
        transform: OwnTransform | None = None,
    ) -> None:
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise InputError(f"mean = {list(mean)}, std = {list(std)}: one number per channel, every std above 0")
        if config.policy != "none" and len(mean) not in (1, 3):
            raise InputError(
                f"augmentation.policy = {config.policy!r}: needs 1 or 3 channels, the images have {len(mean)}"
            )
        if any(config.colour_jitter) and len(mean) not in (1, 3):
            raise InputError(f"augmentation.colour_jitter: needs 1 or 3 channels, the images have {len(mean)}")
        self.transform = transform
        self.config = config
        self.num_classes = num_classes
        self._mean = torch.tensor(mean, dtype=torch.float32)[:, None, None]
        self._std = torch.tensor(std, dtype=torch.float32)[:, None, None]
        self._bins = [config.magnitude] if config.policy == "randaugment" else [float(k) for k in range(NUM_BINS)]
        self._tables: dict[tuple[torch.device, tuple[int, int]], PolicyTable] = {}

    @property
    def num_draws(self) -> int:
        """Uniform numbers that one image needs."""
        return sum(DRAWS.values()) - DRAWS["policy"] + DRAWS["policy"] * self.config.rounds

    def draw(self, batch_size: int, generator: torch.Generator) -> Float32[Tensor, "batch draws"]:
        """Uniform numbers in [0, 1) for one batch, on the CPU, from a generator on the CPU."""
        # Column after column, so that more rounds of the policy leave the columns before them as they were.
        return torch.rand(self.num_draws, batch_size, generator=generator).T

    def __call__(
        self, images: Bytes, labels: Int64[Tensor, "batch"], draws: Float32[Tensor, "batch draws"]
    ) -> Augmented:
        """The augmented batch and its targets: labels as given, or soft labels where images are mixed.

        ``draws`` stay on the CPU, wherever the images are.
        """
        rows, cols = images.shape[-2:]
        plan, rounds = self._plan(draws, (rows, cols))
        plan = _sent(plan, images.device)
        if "parts" in plan:
            images = resized(images, plan["parts"])
        if "offsets" in plan:
            images = shifted(images, plan["offsets"].long(), plan["flips"][0] > 0)
        for name, counts in rounds.items():
            images = self._changed(images, name, plan, counts)
        if self.transform is not None:
            images = self.transform(images, _seeds(draws[:, -DRAWS["transform"] :]))
        values = self._covered(self.normalise(images), plan)
        if "mixing" not in plan:
            return values, labels
        return mixed_images(values, plan["mixing"]), mixed_labels(labels, plan["mixing"], self.num_classes)

    def normalise(self, images: Bytes) -> Floats:
        """``(x / 255 - mean) / std``, for evaluation and as the last step before covering and mixing."""
        if self._mean.device != images.device:
            self._mean, self._std = self._mean.to(images.device), self._std.to(images.device)
        return images.float().div_(255).sub_(self._mean).div_(self._std)

    def _plan(
        self, draws: Float[Tensor, "batch draws"], grid_size: tuple[int, int]
    ) -> tuple[dict[str, Tensor], dict[str, list[list[int]]]]:
        """Parameters of every image, ``(any, batch)`` each, and how often each operation of the policy and of the
        colour jitter comes in each round."""
        config, plan, uniform = self.config, {}, self._uniform(draws)
        if config.resized_crop is not None:
            ranges = (config.resized_crop, config.resized_crop_ratio)
            plan["parts"] = resized_crop_boxes(uniform["resized_crop"], *ranges, grid_size)
        padding = config.crop_padding if config.resized_crop is None else 0
        if padding or config.flip:
            plan["offsets"] = (uniform["crop"] * (2 * padding + 1)).floor_() - padding
            plan["flips"] = (uniform["flip"] < 0.5) & config.flip
        if config.erasing:
            plan["erasing"] = erasing_boxes(uniform["erasing"], config.erasing, grid_size)
        if config.cutout:
            plan["cutout"] = cutout_boxes(uniform["cutout"], config.cutout, grid_size)
        if config.mixes:
            mixing = (config.mixup, config.cutmix, config.mix_probability)
            plan["mixing"] = mixing_plan(uniform["mixing"], *mixing, grid_size)
        chosen = {"policy": self._entries(uniform["policy"])} if config.rounds else {}
        if any(config.colour_jitter):
            chosen["jitter"] = jitter_plan(uniform["jitter"], config.colour_jitter)
        rounds = {}
        for name, (operations, given) in chosen.items():
            order = torch.argsort(operations, dim=1, stable=True)
            plan |= {f"{name}_moves": sorted_moves(operations), name: given.gather(1, order)}
            kinds = {"policy": len(OPERATIONS), "jitter": len(JITTER)}[name]
            rounds[name] = [torch.bincount(one, minlength=kinds).tolist() for one in operations]
        return plan, rounds

    def _uniform(self, draws: Float[Tensor, "batch draws"]) -> dict[str, Tensor]:
        """The uniform numbers by what they are for."""
        # float64: a float32 just below 1 times a count may round up to the count.
        columns = [DRAWS[name] * (self.config.rounds if name == "policy" else 1) for name in DRAWS]
        return dict(zip(DRAWS, draws.T.double().split(columns), strict=True))

    def _entries(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """The operation of the policy for each image in each round, and its entry in the table."""
        operation, strength, sign = uniform.unflatten(0, (-1, 3)).unbind(1)
        operations = (operation * len(OPERATIONS)).long()
        bins = (strength * len(self._bins)).long()
        return operations, (operations * len(self._bins) + bins) * 2 + (sign < 0.5)

    def _changed(self, images: Tensor, name: str, plan: dict[str, Tensor], counts: list[list[int]]) -> Tensor:
        """The operations of the policy, or the changes of the colour jitter, each image in its own order."""
        moves = plan[f"{name}_moves"].long()
        for move, given, count in zip(moves[:-1], plan[name], counts, strict=True):
            images = images.index_select(0, move)
            if name == "policy":
                apply_round(images, given.long(), count, self._table(images.device, images.shape[-2:]))
            else:
                self._jitter(images, given, count)
        return images.index_select(0, moves[-1])

    def _jitter(self, images: Tensor, levels: Tensor, counts: list[int]) -> None:
        """A change of no strength does nothing."""
        bounds = pairwise(accumulate(counts, initial=0))
        for change, strength, (first, last) in zip(JITTER, self.config.colour_jitter, bounds, strict=True):
            if strength and first < last:
                images[first:last] = change(images[first:last], levels[first:last])

    def _table(self, device: torch.device, shape: Sequence[int]) -> PolicyTable:
        grid_size = (shape[0], shape[1])
        if (device, grid_size) not in self._tables:
            table = tabulated(self.config.policy, self._bins, grid_size)
            self._tables[device, grid_size] = table.to(device)
        return self._tables[device, grid_size]

    def _covered(self, values: Tensor, plan: dict[str, Tensor]) -> Tensor:
        """Zero, which is the mean colour, in the boxes of erasing and cutout."""
        for name in ("erasing", "cutout"):
            if name in plan:
                values = values.mul_(1 - inside(plan[name], (values.shape[-2], values.shape[-1])))
        return values


def _seeds(uniform: Float32[Tensor, "batch 2"]) -> list[int]:
    """A seed of 48 bits for each image; a float32 in [0, 1) holds 24."""
    upper, lower = (uniform.double() * 2**24).long().unbind(1)
    return (upper * 2**24 + lower).tolist()


def _sent(plan: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The plan on the device, in one transfer; float32 holds its whole numbers exactly."""
    if not plan:
        return plan
    packed = torch.cat([part.float() for part in plan.values()])
    if device.type == "cuda":
        packed = packed.pin_memory()
    packed = packed.to(device, non_blocking=True)
    return dict(zip(plan, packed.split([len(part) for part in plan.values()]), strict=True))
