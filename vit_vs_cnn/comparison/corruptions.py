"""Corruptions of images: sixteen, each at five levels.

Reference: Hendrycks & Dietterich, "Benchmarking neural network robustness to common corruptions and perturbations",
2019.
Differs: torchvision's operations where it has them; normal instead of Poisson noise; other strengths; lengths in units
of 1/32 of the shorter side (at least one pixel); no snow and frost. Accuracies are not comparable with CIFAR-10-C.
"""

import io
from collections.abc import Callable, Mapping

import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.augmentation.policy import apply_torchvision

Bytes = UInt8[Tensor, "images channels rows cols"]
LEVELS = (1, 2, 3, 4, 5)
CHUNK = 50  # images whose random numbers have one seed


def corrupt(images: Bytes, name: str, level: int, *, seed: int = 0) -> Bytes:
    """Images with a corruption. All levels have the same random numbers, which do not depend on later images."""
    if images.shape[1] not in (1, 3):  # as for torchvision's operations
        return torch.cat([corrupt(channel, name, level, seed=seed) for channel in images.split(1, dim=1)], dim=1)
    function, strengths = CORRUPTIONS[name]
    chunks = []
    for number, part in enumerate(images.split(CHUNK)):
        padded = torch.cat([part, part[-1:].expand(CHUNK - len(part), -1, -1, -1)])  # with copies of its last image
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(seed, "corruption", name, number))
            chunks.append(function(padded.float() / 255, strengths[level - 1]).clamp(0, 1).mul(255).round().byte())
    return torch.cat(chunks)[: len(images)]


def impulse_noise(images: Tensor, share: float) -> Tensor:
    """Salt and pepper: a share of the values becomes black or white."""
    uniform = torch.rand(images.shape)
    return torch.where(uniform < share / 2, 1.0, torch.where(uniform > 1 - share / 2, 0.0, images))


def gaussian_blur(images: Tensor, units: float) -> Tensor:
    """Blur along rows, then along columns, which is faster than both at once."""
    sigma = units * _unit(images)
    size = 2 * min(int(3 * sigma + 1), min(images.shape[-2:]) - 1) + 1
    return apply_torchvision(
        "gaussian_blur", apply_torchvision("gaussian_blur", images, [size, 1], sigma), [1, size], sigma
    )


def defocus_blur(images: Tensor, units: float) -> Tensor:
    """Mean over a disc with a soft edge, as of a lens out of focus."""
    edge = units * _unit(images) + 0.5
    offset = torch.arange(-int(edge), int(edge) + 1).float()
    disc = (edge - torch.hypot(offset[:, None], offset)).clamp(0, 1)
    padded = F.pad(images, [int(edge)] * 4, mode="replicate").flatten(0, 1)
    return F.conv2d(padded, (disc / disc.sum()).expand(len(padded), 1, -1, -1), groups=len(padded)).view(images.shape)


def glass_blur(images: Tensor, units: float) -> Tensor:
    """Each pixel is replaced by a nearby one, as through frosted glass, then slightly blurred."""
    offsets = units * _unit(images) * (2 * torch.rand(len(images), *images.shape[-2:], 2) - 1)
    return gaussian_blur(_displaced(images, offsets, "nearest"), 0.35)


def motion_blur(images: Tensor, units: float) -> Tensor:
    """Mean along a line in a random direction for each image."""
    length, angles = units * _unit(images), torch.pi * torch.rand(len(images), 1, 1)
    line, steps = length * torch.stack([angles.cos(), angles.sin()], dim=-1), min(2 * int(length) + 3, 33)
    return sum((_displaced(images, p * line) for p in torch.linspace(-0.5, 0.5, steps)), torch.zeros(())) / steps


def zoom_blur(images: Tensor, max_zoom: float) -> Tensor:
    """Mean over zooms from 1 to the strength."""
    return sum((_displaced(images, zoom=zoom) for zoom in torch.linspace(1, max_zoom, 9)), torch.zeros(())) / 9


def fog(images: Tensor, thickness: float) -> Tensor:
    """Mix with clouds c, ``x (1 - t) + t c``: random noise at several scales, stronger at coarse scales."""
    size, clouds = images.shape[-2:], torch.zeros(len(images), 1, *images.shape[-2:])
    for octave in range(1, max(size).bit_length()):
        noise = torch.rand(len(images), 1, 2**octave, 2**octave)
        clouds += F.interpolate(noise, size=size, mode="bilinear", align_corners=True) / 2 ** (octave - 1)
    low, high = clouds.amin((2, 3), keepdim=True), clouds.amax((2, 3), keepdim=True)
    return images * (1 - thickness) + thickness * (0.6 + 0.4 * (clouds - low) / (high - low))


def elastic(images: Tensor, units: float) -> Tensor:
    """Smooth random displacements of each image; torchvision's are equal for all images and show a black border."""
    offsets = gaussian_blur(torch.randn(len(images), 2, *images.shape[-2:]), 2.5).movedim(1, -1)
    return _displaced(images, offsets / offsets.std((1, 2, 3), keepdim=True) * units * _unit(images))


def pixelate(images: Tensor, share: float) -> Tensor:
    """Replace blocks by their mean color; ``share`` is the number of blocks along a side divided by the pixels."""
    blocks = [torch.arange(size) * round(size * share) // size for size in images.shape[-2:]]
    rows, cols = (F.normalize((block[:, None] == block).float(), p=1, dim=1) for block in blocks)
    return rows @ images @ cols.T


def jpeg(images: Tensor, quality: float) -> Tensor:
    """JPEG compression by Pillow, equal to torchvision's ``jpeg``, which calls a deprecated function."""
    decoded = []
    for image in images.mul(255).round().byte():
        apply_torchvision("to_pil_image", image).save(file := io.BytesIO(), "JPEG", quality=int(quality))
        decoded.append(apply_torchvision("pil_to_tensor", Image.open(file)))
    return torch.stack(decoded) / 255


def _unit(images: Tensor) -> float:
    """Pixels of one unit of length: 1 up to 32 x 32."""
    return max(1.0, min(images.shape[-2:]) / 32)


def _displaced(images: Tensor, offsets: Tensor | float = 0, mode: str = "bilinear", zoom: Tensor | float = 1) -> Tensor:
    """Each pixel replaced by the value at its offset in pixels, ``(cols, rows)``; the border is repeated."""
    rows, cols = images.shape[-2:]
    grid = F.affine_grid(torch.eye(2, 3)[None] / zoom, [1, 1, rows, cols], align_corners=False)
    grid = (grid + offsets * torch.tensor([2 / cols, 2 / rows])).expand(len(images), -1, -1, -1)
    return F.grid_sample(images, grid, mode=mode, padding_mode="border", align_corners=False)


#: A function of images in [0, 1] and a strength, and its strengths at five levels.
CORRUPTIONS: Mapping[str, tuple[Callable[[Tensor, float], Tensor], tuple[float, ...]]] = {
    "gaussian_noise": (
        lambda x, sigma: apply_torchvision("gaussian_noise", x, 0.0, sigma),
        (0.04, 0.06, 0.08, 0.10, 0.14),
    ),
    "shot_noise": (lambda x, photons: x + (x / photons).sqrt() * torch.randn_like(x), (250.0, 120.0, 70.0, 45.0, 28.0)),
    "impulse_noise": (impulse_noise, (0.01, 0.02, 0.04, 0.07, 0.11)),
    "speckle_noise": (lambda x, sigma: x + x * sigma * torch.randn_like(x), (0.08, 0.12, 0.17, 0.23, 0.30)),
    "gaussian_blur": (gaussian_blur, (0.45, 0.6, 0.8, 1.1, 1.5)),
    "defocus_blur": (defocus_blur, (0.7, 0.95, 1.3, 1.7, 2.2)),
    "glass_blur": (glass_blur, (0.7, 0.9, 1.2, 1.6, 2.1)),
    "motion_blur": (motion_blur, (1.5, 2.5, 3.5, 5.0, 7.0)),
    "zoom_blur": (zoom_blur, (1.08, 1.14, 1.20, 1.28, 1.40)),
    "fog": (fog, (0.2, 0.3, 0.4, 0.5, 0.62)),
    "brightness": (lambda x, factor: apply_torchvision("adjust_brightness", x, factor), (1.12, 1.25, 1.4, 1.6, 1.9)),
    "contrast": (lambda x, factor: apply_torchvision("adjust_contrast", x, factor), (0.75, 0.5, 0.4, 0.3, 0.15)),
    "saturate": (lambda x, factor: apply_torchvision("adjust_saturation", x, factor), (0.7, 0.5, 0.3, 0.15, 0.0)),
    "elastic": (elastic, (0.4, 0.6, 0.85, 1.2, 1.6)),
    "pixelate": (pixelate, (0.75, 0.6, 0.5, 0.4, 0.3)),
    "jpeg": (jpeg, (75.0, 50.0, 30.0, 18.0, 10.0)),
}
