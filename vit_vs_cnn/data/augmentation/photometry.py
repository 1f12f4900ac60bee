"""Changes of grey levels, another strength for each image of a batch; bytes in, bytes out.

Each function gives for every image what ``torchvision.transforms.v2.functional`` gives for it with the same level.
All have one signature, ``(images, levels)``, so that a policy can pick them from a table.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from vit_vs_cnn.data.images import Bytes

LUMA = (0.2989, 0.587, 0.114)
"""ITU-R 601 weights of red, green and blue in a grey level."""
Levels = Float32[Tensor, "batch"]


def brightness(images: Bytes, levels: Levels) -> Bytes:
    """Blend with black: ``level * x``; 1 leaves the image."""
    return images.mul(levels[:, None, None, None]).clamp_(0, 255).byte()


def saturation(images: Bytes, levels: Levels) -> Bytes:
    """Blend with the image's own grey version; 1 leaves the image, 0 is grey. Grey images stay as they are."""
    if images.shape[1] == 1:
        return images.clone()
    return _blended(images, _grey(images), levels)


def contrast(images: Bytes, levels: Levels) -> Bytes:
    """Blend with the mean grey level of the image; 1 leaves the image, 0 is flat."""
    return _blended(images, _grey(images).mean(dim=(1, 2, 3), keepdim=True), levels)


def hue(images: Bytes, levels: Levels) -> Bytes:
    """Turn the hue by a part of the circle, -1/2 to 1/2; 0 leaves it. Grey images stay as they are.

    With the largest channel V, the smallest m and the hue H in turns, the turned channel of red (n = 5), green (3) and
    blue (1) is ``V - (V - m) max(0, min(k, 4 - k, 1))``, k = (n + 6 H) mod 6.
    """
    if images.shape[1] == 1:
        return images.clone()
    values = images.float().div_(255)
    largest, smallest = values.amax(1, keepdim=True), values.amin(1, keepdim=True)
    spread = largest - smallest
    red, green, blue = values.split(1, dim=1)
    safe = torch.where(spread > 0, spread, 1.0)
    sixths = torch.where(
        largest == red,
        (green - blue) / safe,
        torch.where(largest == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sixths = sixths + 6 * levels[:, None, None, None]
    places = torch.tensor([5.0, 3.0, 1.0], device=images.device)[:, None, None]
    k = (places + sixths).remainder(6)
    turned = largest - spread * torch.minimum(k, 4 - k).clamp(0, 1)
    return turned.mul_(255.999).clamp_(0, 255).byte()  # torchvision's way back to bytes


#: In the order in which `Augmentation.colour_jitter` has their strengths.
JITTER = (brightness, contrast, saturation, hue)


def jitter_plan(
    draws: Float64[Tensor, "5 batch"], strengths: Sequence[float]
) -> tuple[Int64[Tensor, "4 batch"], Float64[Tensor, "4 batch"]]:
    """Which of `JITTER` comes first to last, and the level of each in that order, image by image.

    Arguments:
        draws: levels of the four, and the order.
        strengths: s of the four. Levels are uniform from max(0, 1 - s) to 1 + s, those of the hue from -s to s.

    Reference: torchvision's ColorJitter.
    """
    orders = torch.tensor(list(itertools.permutations(range(4))))
    operations = orders[(draws[4] * len(orders)).long()].T
    spans = [(max(0.0, 1 - s), 1 + s) for s in strengths[:3]] + [(-strengths[3], strengths[3])]
    levels = torch.stack([low + (high - low) * draw for (low, high), draw in zip(spans, draws[:4], strict=True)])
    return operations, levels.gather(0, operations)


def sharpness(images: Bytes, levels: Levels) -> Bytes:
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


def posterize(images: Bytes, levels: Levels) -> Bytes:
    """Keep the ``level`` highest bits of each value (0 to 8)."""
    step = torch.exp2(8 - levels).to(torch.int32)
    return images & (256 - step).clamp_(max=255).byte()[:, None, None, None]


def solarize(images: Bytes, levels: Levels) -> Bytes:
    """Invert the values that reach ``level`` (0 to 255)."""
    # Whole numbers reach a threshold exactly when they reach its ceiling; 256 is never reached.
    threshold = levels.ceil().to(torch.int16)[:, None, None, None]
    return images ^ (images >= threshold).byte().mul_(255)


def autocontrast(images: Bytes, levels: Levels) -> Bytes:
    """Stretch every channel to 0 to 255; a flat channel stays. No level."""
    values = images.float()
    lowest, highest = values.amin(dim=(-2, -1), keepdim=True), values.amax(dim=(-2, -1), keepdim=True)
    flat = lowest == highest
    lowest = lowest.masked_fill_(flat, 0)
    scale = ((highest - lowest) * (1.0 / 255)).masked_fill_(flat, 1)
    return values.sub_(lowest).div_(scale).clamp_(0, 255).byte()


def equalize(images: Bytes, levels: Levels) -> Bytes:
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


def _blended(images: Tensor, other: Tensor, levels: Tensor) -> Tensor:
    """``level * image + (1 - level) * other``."""
    levels = levels[:, None, None, None]
    return images.mul(levels).add_(other * (1 - levels)).clamp_(0, 255).byte()
