"""RandAugment and TrivialAugmentWide, with different operations for each image of a batch.

Reference: Cubuk et al., RandAugment (2020); Müller and Hutter, TrivialAugment (2021), the wide space. Operations,
ranges and bins are those of ``torchvision.transforms.v2``. Each operation has the same result as in ``v2.functional``.

The operations of a policy on images of one size are a table with an entry for each operation, strength and sign. A
batch has a list of entry numbers. Before each round the batch is sorted by operation, so that an operation works on a
slice. The slices are known on the CPU, so the CPU never waits for a GPU.
"""

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float32, Int32, Int64
from torch import Tensor

from vit_vs_cnn.data.augmentation.geometry import affine, affine_coefficients
from vit_vs_cnn.data.images import ImageBytes
from vit_vs_cnn.data.options import NUM_BINS

LUMA = (0.2989, 0.587, 0.114)
"""ITU-R 601 weights of red, green and blue in a grey level."""
Levels = Float32[Tensor, "batch"]


def brightness(images: ImageBytes, levels: Levels) -> ImageBytes:
    """Blend with black: ``level * x``; 1 leaves the image."""
    return images.mul(levels[:, None, None, None]).clamp_(0, 255).byte()


def saturation(images: ImageBytes, levels: Levels) -> ImageBytes:
    """Blend with the image's own grey version; 1 leaves the image, 0 is grey. Grey images stay as they are."""
    if images.shape[1] == 1:
        return images.clone()
    return _blended(images, _grey(images), levels)


def contrast(images: ImageBytes, levels: Levels) -> ImageBytes:
    """Blend with the mean grey level of the image; 1 leaves the image, 0 is flat."""
    return _blended(images, _grey(images).mean(dim=(1, 2, 3), keepdim=True), levels)


def sharpness(images: ImageBytes, levels: Levels) -> ImageBytes:
    """Blend with a version smoothed by ``[[1, 1, 1], [1, 5, 1], [1, 1, 1]] / 13``; the border row stays."""
    if min(images.shape[-2:]) <= 2:
        return images.clone()
    values = images.float()
    inner = values[..., 1:-1, 1:-1]
    # Sum of the 3x3 neighbours as two sums of three: an eighth of the cost of a grouped convolution on the CPU.
    smooth = values[..., :-2, :] + values[..., 1:-1, :] + values[..., 2:, :]
    smooth = smooth[..., :-2] + smooth[..., 1:-1] + smooth[..., 2:]
    smooth = smooth.add_(inner, alpha=4).div_(13).round_()
    inner.add_(smooth.sub_(inner).mul_(1 - levels[:, None, None, None]))
    return values.clamp_(0, 255).byte()


def posterize(images: ImageBytes, levels: Levels) -> ImageBytes:
    """Keep the ``level`` highest bits of each value (0 to 8)."""
    step = torch.exp2(8 - levels).to(torch.int32)
    return images & (256 - step).clamp_(max=255).byte()[:, None, None, None]


def solarize(images: ImageBytes, levels: Levels) -> ImageBytes:
    """Invert the values that reach ``level`` (0 to 255)."""
    # Whole numbers reach a threshold exactly when they reach its ceiling; 256 is never reached.
    threshold = levels.ceil().to(torch.int16)[:, None, None, None]
    return images ^ (images >= threshold).byte().mul_(255)


def autocontrast(images: ImageBytes, levels: Levels) -> ImageBytes:
    """Stretch every channel to 0 to 255; a flat channel stays. No level."""
    values = images.float()
    lowest, highest = values.amin(dim=(-2, -1), keepdim=True), values.amax(dim=(-2, -1), keepdim=True)
    flat = lowest == highest
    lowest = lowest.masked_fill_(flat, 0)
    scale = ((highest - lowest) * (1.0 / 255)).masked_fill_(flat, 1)
    return values.sub_(lowest).div_(scale).clamp_(0, 255).byte()


def equalize(images: ImageBytes, levels: Levels) -> ImageBytes:
    """Spread every channel's histogram evenly, by PIL's rule. No level.

    With cumulative counts ``H`` and ``s = (pixels - count of the brightest value) // 255``, the value ``v`` becomes
    ``(H(v - 1) + s // 2) // s``; a channel with ``s = 0`` stays.
    """
    pixels = images.flatten(2).long()
    counts = pixels.new_zeros(*pixels.shape[:2], 256, dtype=torch.int32)
    counts.scatter_add_(2, pixels, torch.ones((), dtype=torch.int32, device=images.device).expand_as(pixels))
    brightest = counts.gather(2, pixels.amax(dim=2, keepdim=True))
    step = (pixels.shape[2] - brightest).div_(255, rounding_mode="floor")
    below = counts.cumsum(2, dtype=torch.int32).sub_(counts)
    table = below.add_(step // 2).div_(step.clamp(min=1), rounding_mode="floor").clamp_(0, 255)
    identity = torch.arange(256, dtype=torch.int32, device=images.device)
    table = torch.where(step > 0, table, identity).byte()
    return table.gather(2, pixels).view(images.shape)


def _grey(images: Tensor) -> Tensor:
    """Whole grey levels as floats, ``(batch, 1, rows, cols)``."""
    if images.shape[1] == 1:
        return images.float()
    red, green, blue = images.split(1, dim=1)
    return red.mul(LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2]).floor_()


def _blended(images: Tensor, references: Tensor, levels: Tensor) -> Tensor:
    """``level * image + (1 - level) * reference``."""
    levels = levels[:, None, None, None]
    return images.mul(levels).add_(references * (1 - levels)).clamp_(0, 255).byte()


GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
PHOTOMETRIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Brightness": brightness,
    "Color": saturation,
    "Contrast": contrast,
    "Sharpness": sharpness,
    "Posterize": posterize,
    "Solarize": solarize,
    "AutoContrast": autocontrast,
    "Equalize": equalize,
}
OPERATIONS = ("Identity", *GEOMETRIC, *PHOTOMETRIC)
"""In the order of a sorted batch: geometric operations are neighbours, so one look-up does them all."""


class MagnitudeRanges(NamedTuple):
    """Strength at the last bin.

    Arguments:
        shear: pixels per pixel.
        translate: pixels along rows and columns, as functions of the image's side.
        rotate: degrees.
        blend: distance of the factor of brightness, colour, contrast and sharpness from 1.
        posterize: bits taken away.
    """

    shear: float
    translate: Callable[[int], float]
    rotate: float
    blend: float
    posterize: int


MAGNITUDE_RANGES = {
    "randaugment": MagnitudeRanges(
        shear=0.3, translate=lambda side: 150 / 331 * side, rotate=30.0, blend=0.9, posterize=4
    ),
    "trivialaugment": MagnitudeRanges(shear=0.99, translate=lambda side: 32.0, rotate=135.0, blend=0.99, posterize=6),
}


class PolicyTable(NamedTuple):
    """Parameters of each entry ``(operation * bins + bin) * 2 + sign``."""

    coefficients: Int32[Tensor, "entries 6"]
    levels: Float32[Tensor, "entries"]

    def to(self, device: torch.device) -> "PolicyTable":
        return PolicyTable(self.coefficients.to(device), self.levels.to(device))


def make_policy_table(policy: str, bins: list[float], grid_size: tuple[int, int]) -> PolicyTable:
    """The table of a policy for images of one size."""
    entries = [
        (affine_coefficients(name, sign * magnitude, grid_size), _level(name, sign * magnitude))
        for name in OPERATIONS
        for magnitude in (_magnitude(name, MAGNITUDE_RANGES[policy], position, grid_size) for position in bins)
        for sign in (1, -1)
    ]
    coefficients, levels = zip(*entries, strict=True)
    return PolicyTable(torch.tensor(coefficients, dtype=torch.int32), torch.tensor(levels, dtype=torch.float32))


def _magnitude(name: str, ranges: MagnitudeRanges, position: float, grid_size: tuple[int, int]) -> float:
    if name == "Posterize":
        return float(round(8 - position * ranges.posterize / (NUM_BINS - 1)))
    if name in ("Identity", "AutoContrast", "Equalize"):
        return 0.0
    first, last = {
        "ShearX": (0.0, ranges.shear),
        "ShearY": (0.0, ranges.shear),
        "TranslateX": (0.0, ranges.translate(grid_size[1])),
        "TranslateY": (0.0, ranges.translate(grid_size[0])),
        "Rotate": (0.0, ranges.rotate),
        "Solarize": (1.0, 0.0),
    }.get(name, (0.0, ranges.blend))
    # torchvision's own steps, in float32: a product in float64 may fall on the other side of a whole pixel.
    steps = torch.linspace(first, last, NUM_BINS)
    below = min(int(position), NUM_BINS - 2)
    return float(torch.lerp(steps[below], steps[below + 1], position - below))


def _level(name: str, magnitude: float) -> float:
    """Argument of the photometric function. Bits and thresholds have no sign."""
    if name == "Posterize":
        return abs(magnitude)
    if name == "Solarize":
        return 255 * abs(magnitude)
    return 1 + magnitude


def sorting_permutations(operations: Int64[Tensor, "rounds batch"]) -> Int64[Tensor, "rounds_and_one batch"]:
    """Rearrangements that sort the batch by operation before each round, and the one that restores it at the end."""
    orders = torch.argsort(operations, dim=1, stable=True)
    places = torch.argsort(orders, dim=1)
    moves = [orders[0], *(place[order] for place, order in zip(places[:-1], orders[1:], strict=True)), places[-1]]
    return torch.stack(moves)


def apply_operations(
    images: ImageBytes, entries: Int64[Tensor, "batch"], counts: list[int], table: PolicyTable
) -> None:
    """One operation for each image, in place. The images are sorted by operation."""
    bounds = dict(zip(OPERATIONS, pairwise(accumulate(counts, initial=0)), strict=True))
    first, last = bounds[GEOMETRIC[0]][0], bounds[GEOMETRIC[-1]][1]
    if first < last:
        images[first:last] = affine(images[first:last], table.coefficients[entries[first:last]])
    levels = table.levels[entries]
    for name, function in PHOTOMETRIC.items():
        first, last = bounds[name]
        if first < last:
            images[first:last] = function(images[first:last], levels[first:last])
