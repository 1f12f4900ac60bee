"""RandAugment and TrivialAugmentWide, with different operations for each image of a batch.

Reference: Cubuk et al., RandAugment (2020); Müller and Hutter, TrivialAugment (2021), the wide space. Operations,
ranges and bins are those of ``torchvision.transforms.v2``. Each operation has the same result as in ``v2.functional``.

The operations of a policy on images of one size are a table with an entry for each operation, strength and sign. A
batch has a list of entry numbers. Before each round the batch is sorted by operation, so that an operation works on a
slice. The slices are known on the CPU, so the CPU never waits for a GPU.
"""

from collections.abc import Callable
from itertools import accumulate, pairwise, product
from typing import Any, NamedTuple

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


def apply_torchvision(name: str, *arguments: Any) -> Any:
    """Apply an operation of torchvision, which is imported at its first use."""
    from torchvision.transforms.v2 import functional

    return getattr(functional, name)(*arguments)


GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
PHOTOMETRIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Brightness": brightness,
    "Color": saturation,
    "Contrast": contrast,
    "Sharpness": sharpness,
    "Posterize": posterize,
    "Solarize": solarize,
    "AutoContrast": lambda images, _: apply_torchvision("autocontrast", images),
    "Equalize": lambda images, _: apply_torchvision("equalize", images),
}
OPERATIONS = ("Identity", *GEOMETRIC, *PHOTOMETRIC)
"""In the order of a sorted batch: geometric operations are neighbours, so one look-up does them all."""


def _end_strengths(policy: str, grid_size: tuple[int, int]) -> dict[str, tuple[float, float]]:
    """Strengths of an operation at the first and at the last bin.

    Shears are in pixels per pixel, translations in pixels, rotations in degrees, solarize in shares of 255, and
    posterize in bits that stay. Blends have the distance of their factor from 1.
    """
    is_wide, (rows, cols) = policy == "trivialaugment", grid_size
    shear, blend = (0.0, 0.99 if is_wide else 0.3), (0.0, 0.99 if is_wide else 0.9)
    ends = {
        "ShearX": shear,
        "ShearY": shear,
        "TranslateX": (0.0, 32.0 if is_wide else 150 / 331 * cols),
        "TranslateY": (0.0, 32.0 if is_wide else 150 / 331 * rows),
        "Rotate": (0.0, 135.0 if is_wide else 30.0),
        "Posterize": (8.0, 2.0 if is_wide else 4.0),
        "Solarize": (1.0, 0.0),
    }
    return ends | dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), blend)


class PolicyTable(NamedTuple):
    """Parameters of each entry ``(operation * bins + bin) * 2 + sign``."""

    coefficients: Int32[Tensor, "entries 6"]
    levels: Float32[Tensor, "entries"]


def make_policy_table(policy: str, bins: list[float], grid_size: tuple[int, int]) -> PolicyTable:
    ends, coefficients, levels = _end_strengths(policy, grid_size), [], []
    for name, position, sign in product(OPERATIONS, bins, (1, -1)):
        first, last = ends.get(name, (0.0, 0.0))
        # torchvision's own steps, in float32: a product in float64 may fall on the other side of a whole pixel.
        steps = torch.linspace(first, last, NUM_BINS)
        below = min(int(position), NUM_BINS - 2)
        strength = float(torch.lerp(steps[below], steps[below + 1], position - below))
        coefficients.append(affine_coefficients(name, sign * strength, grid_size))
        bits = float(round(first - position * (first - last) / (NUM_BINS - 1)))
        # Bits and thresholds have no sign.
        levels.append({"Posterize": bits, "Solarize": 255 * strength}.get(name, 1 + sign * strength))
    return PolicyTable(torch.tensor(coefficients, dtype=torch.int32), torch.tensor(levels, dtype=torch.float32))


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
