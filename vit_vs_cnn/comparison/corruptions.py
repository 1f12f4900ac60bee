"""Accuracy on corrupted test images: sixteen corruptions, each at five levels.

Every corruption takes ``(images, strength, generator)`` and works on any number of channels and any size. The same
random numbers are used at every level, so that a higher level is the same damage, only stronger.

Reference: Hendrycks & Dietterich, "Benchmarking neural network robustness to common corruptions and perturbations",
2019.
Differs: other strengths, so that no accuracy can be compared with CIFAR-10-C. Lengths are in units of 1/32 of the
image's shorter side, at least one pixel, as shorter blurs change nothing. Snow and frost, which need pictures, are left
out.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Generator, Tensor
from torch.nn import functional as F

from vit_vs_cnn.comparison.entries import ComparisonEntry
from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.networks.evaluation import predict
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.mean_distribution import SeedScores, mean_over_seeds

Bytes = UInt8[Tensor, "count channels rows cols"]
LEVELS = (1, 2, 3, 4, 5)
#: Number of images that share a random generator.
CHUNK = 50


#: A function of images, strength and generator, and its strengths at five levels.
Corruption = tuple[Callable[[Tensor, float, Generator], Tensor], tuple[float, ...]]


def gaussian_noise(images: Tensor, sigma: float, generator: Generator) -> Tensor:
    """``x + s n``, n standard normal."""
    return images + sigma * _normal_noise(images, generator)


def shot_noise(images: Tensor, photons: float, generator: Generator) -> Tensor:
    """Photon noise: ``x + sqrt(x / photons) n``, n standard normal.

    Mean and variance are those of a Poisson distribution in which white (x = 1) is ``photons`` photons.

    Differs: a normal instead of a Poisson distribution, so that all levels use the same random numbers.
    """
    return images + (images / photons).sqrt() * _normal_noise(images, generator)


def impulse_noise(images: Tensor, share: float, generator: Generator) -> Tensor:
    """Salt and pepper: a share of the values becomes black or white."""
    uniform = torch.rand(images.shape, generator=generator)
    salted = torch.where(uniform < share / 2, 1.0, images)
    return torch.where(uniform > 1 - share / 2, 0.0, salted)


def speckle_noise(images: Tensor, sigma: float, generator: Generator) -> Tensor:
    """``x + x s n``, n standard normal."""
    return images + images * sigma * _normal_noise(images, generator)


def gaussian_blur(images: Tensor, sigma: float, generator: Generator) -> Tensor:
    """Gaussian blur with a standard deviation in units of 1/32 of the shorter side."""
    return _blur(images, sigma * _unit_length(images))


def defocus_blur(images: Tensor, units: float, generator: Generator) -> Tensor:
    """Mean over a disc with a soft edge, as of a lens out of focus."""
    edge = units * _unit_length(images) + 0.5
    offset = torch.arange(-int(edge), int(edge) + 1).float()
    distance = torch.hypot(offset[:, None], offset)
    return _filter(images, (edge - distance).clamp(0, 1))


def glass_blur(images: Tensor, units: float, generator: Generator) -> Tensor:
    """Each pixel is replaced by a nearby one, as through frosted glass, then slightly blurred."""
    reach = units * _unit_length(images)
    field = 2 * torch.rand(len(images), *images.shape[-2:], 2, generator=generator) - 1
    return _blur(_displace(images, field * reach, mode="nearest"), 0.35 * _unit_length(images))


def motion_blur(images: Tensor, units: float, generator: Generator) -> Tensor:
    """Mean along a line in a random direction for each image."""
    length = units * _unit_length(images)
    angle = torch.pi * torch.rand(len(images), generator=generator)
    along = torch.linspace(-0.5, 0.5, 2 * int(length) + 3) * length
    half = math.ceil(length / 2)
    offset = torch.arange(-half, half + 1)
    ends = torch.stack([angle.sin(), angle.cos()])[..., None, None] * along[:, None]
    rows, cols = (1 - (offset - ends).abs()).clamp(min=0)
    kernels = torch.einsum("nsr,nsc->nrc", rows, cols)  # each point of the line, shared among its four pixels
    return _filter(images, kernels)


def zoom_blur(images: Tensor, max_zoom: float, generator: Generator) -> Tensor:
    """Mean over zooms from 1 to the strength."""
    grid = _pixel_centres(images).expand(len(images), -1, -1, -1)
    return torch.stack([_sample(images, grid / zoom) for zoom in torch.linspace(1, max_zoom, 9).tolist()]).mean(0)


def fog(images: Tensor, thickness: float, generator: Generator) -> Tensor:
    """Clouds c, ``x (1 - t) + t c``: noise of all scales, with amplitudes proportional to the scale."""
    size, clouds = images.shape[-2:], torch.zeros(len(images), 1, *images.shape[-2:])
    side, amplitude = 2, 1.0
    while side <= max(size):
        noise = torch.rand(len(images), 1, side, side, generator=generator)
        clouds = clouds + amplitude * F.interpolate(noise, size=size, mode="bilinear", align_corners=True)
        side, amplitude = 2 * side, amplitude / 2
    low, high = clouds.amin((2, 3), keepdim=True), clouds.amax((2, 3), keepdim=True)
    light = 0.6 + 0.4 * (clouds - low) / (high - low)
    return images * (1 - thickness) + thickness * light


def brightness(images: Tensor, shift: float, generator: Generator) -> Tensor:
    """``x + b``."""
    return images + shift


def contrast(images: Tensor, factor: float, generator: Generator) -> Tensor:
    """``(x - m) c + m`` with m the mean of each channel of the image."""
    mean = images.mean((2, 3), keepdim=True)
    return (images - mean) * factor + mean


def saturate(images: Tensor, share: float, generator: Generator) -> Tensor:
    """A blend with the grey image; an image of one channel gets darker."""
    if images.shape[1] == 1:
        return images * (0.4 + 0.6 * share)
    return share * images + (1 - share) * images.mean(1, keepdim=True)


def elastic(images: Tensor, units: float, generator: Generator) -> Tensor:
    """Smooth random displacements of each image, with the strength as standard deviation in units."""
    noise = torch.randn(len(images), 2, *images.shape[-2:], generator=generator)
    smooth = _blur(noise, 2.5 * _unit_length(images))
    smooth = smooth / smooth.std((1, 2, 3), keepdim=True)
    reach = units * _unit_length(images)
    return _displace(images, smooth.movedim(1, -1) * reach)


def pixelate(images: Tensor, share: float, generator: Generator) -> Tensor:
    """Replace blocks by their mean colour; ``share`` is the number of blocks along a side divided by the pixels."""
    means = []
    for size in images.shape[-2:]:  # the matrix that replaces each value by the mean of its block
        block = torch.arange(size) * round(size * share) // size
        same = (block[:, None] == block).float()
        means.append(same / same.sum(1, keepdim=True))
    return means[0] @ images @ means[1]


def jpeg(images: Tensor, quality: float, generator: Generator) -> Tensor:
    """JPEG compression by Pillow; each channel separately unless there are one or three."""
    pixels = _to_bytes(images)
    parts = pixels if images.shape[1] in (1, 3) else pixels.flatten(0, 1)[:, None]
    decoded = []
    for part in parts.movedim(1, 3):
        file = io.BytesIO()
        Image.fromarray(part.squeeze(2).numpy()).save(file, "JPEG", quality=int(quality))
        decoded.append(torch.from_numpy(np.array(Image.open(file))).view(part.shape))
    return torch.stack(decoded).movedim(3, 1).reshape(images.shape).float() / 255


CORRUPTIONS: Mapping[str, Corruption] = {
    "gaussian_noise": (gaussian_noise, (0.04, 0.06, 0.08, 0.10, 0.14)),
    "shot_noise": (shot_noise, (250.0, 120.0, 70.0, 45.0, 28.0)),
    "impulse_noise": (impulse_noise, (0.01, 0.02, 0.04, 0.07, 0.11)),
    "speckle_noise": (speckle_noise, (0.08, 0.12, 0.17, 0.23, 0.30)),
    "gaussian_blur": (gaussian_blur, (0.45, 0.6, 0.8, 1.1, 1.5)),
    "defocus_blur": (defocus_blur, (0.7, 0.95, 1.3, 1.7, 2.2)),
    "glass_blur": (glass_blur, (0.7, 0.9, 1.2, 1.6, 2.1)),
    "motion_blur": (motion_blur, (1.5, 2.5, 3.5, 5.0, 7.0)),
    "zoom_blur": (zoom_blur, (1.08, 1.14, 1.20, 1.28, 1.40)),
    "fog": (fog, (0.2, 0.3, 0.4, 0.5, 0.62)),
    "brightness": (brightness, (0.06, 0.12, 0.18, 0.25, 0.35)),
    "contrast": (contrast, (0.75, 0.55, 0.4, 0.28, 0.18)),
    "saturate": (saturate, (0.7, 0.5, 0.3, 0.15, 0.0)),
    "elastic": (elastic, (0.4, 0.6, 0.85, 1.2, 1.6)),
    "pixelate": (pixelate, (0.75, 0.6, 0.5, 0.4, 0.3)),
    "jpeg": (jpeg, (75.0, 50.0, 30.0, 18.0, 10.0)),
}


@dataclass(frozen=True)
class CorruptionAccuracy:
    """Accuracy on corrupted images; groups are means over their networks.

    Arguments:
        accuracy: by group and corruption, one for each level.
        mean: of each group over all corruptions and levels, with an interval that covers other test images.
        by_network: mean of each network over all corruptions and levels.
    """

    images: int
    clean: dict[str, float]
    accuracy: dict[str, dict[str, list[float]]]
    mean: dict[str, Estimate]
    by_network: dict[str, float]


def compare_corruptions(
    groups: Mapping[str, Sequence[ComparisonEntry]],
    test: LabelledImages,
    *,
    seed: int = 0,
    report_progress: Callable[[str], None] = lambda _: None,
) -> CorruptionAccuracy:
    """Test every network on corrupted copies of the test images. The caller logs it."""
    report_progress("clean images")
    clean = {name: float(correct.mean()) for name, correct in _correct_answers(groups, test).items()}
    accuracy: dict[str, dict[str, list[float]]] = {name: {} for name in groups}
    by_image = {name: np.zeros((len(members), len(test))) for name, members in groups.items()}
    for number, corruption in enumerate(CORRUPTIONS, start=1):
        report_progress(f"{corruption} ({number}/{len(CORRUPTIONS)})")
        for level in LEVELS:
            corrupted = LabelledImages(
                corrupt(test.images, corruption, level, seed=seed), test.labels, test.class_names
            )
            for name, correct in _correct_answers(groups, corrupted).items():
                accuracy[name].setdefault(corruption, []).append(float(correct.mean()))
                by_image[name] += correct / (len(CORRUPTIONS) * len(LEVELS))
    mean = {
        name: mean_over_seeds(SeedScores.from_correct(values)).interval(bounds=(0.0, 1.0))
        for name, values in by_image.items()
    }
    pairs = [pair for name in groups for pair in zip(groups[name], by_image[name].mean(1).tolist(), strict=True)]
    return CorruptionAccuracy(len(test), clean, accuracy, mean, {member.name: share for member, share in pairs})


def spread_subset(test: LabelledImages, count: int) -> LabelledImages:
    """``count`` images spread evenly over the set, or all images of a smaller set."""
    if len(test) <= count:
        return test
    return test.subset(torch.linspace(0, len(test) - 1, count).round().long())


def _correct_answers(groups: Mapping[str, Sequence[ComparisonEntry]], images: LabelledImages) -> dict[str, np.ndarray]:
    """Correctness of the prediction for each image, ``(networks, images)`` of each group."""
    results = {}
    for name, members in groups.items():
        trained = [member.trained for member in members]
        tested = [predict(one.network, images, one.normalize, what=one.name) for one in trained]
        results[name] = np.stack([predictions.correct.numpy() for predictions in tested])
    return results


def corrupt(images: Bytes, name: str, level: int, *, seed: int = 0) -> Bytes:
    """Images with a corruption. The same seed gives the same bytes, however many images follow."""
    function, strengths = CORRUPTIONS[name]
    chunks = []
    for number, part in enumerate(images.split(CHUNK)):
        padded = torch.cat([part, part[-1:].expand(CHUNK - len(part), -1, -1, -1)])  # with its last image
        generator = torch.Generator().manual_seed(derive_seed(seed, "corruption", name, number))
        chunks.append(_to_bytes(function(padded.float() / 255, strengths[level - 1], generator)))
    return torch.cat(chunks)[: len(images)]


def _to_bytes(images: Float[Tensor, "count channels rows cols"]) -> Bytes:
    return images.clamp(0, 1).mul(255).round().byte()


def _unit_length(images: Tensor) -> float:
    """Pixels of one unit of length: 1 up to 32 x 32."""
    return max(1.0, min(images.shape[-2:]) / 32)


def _normal_noise(images: Tensor, generator: Generator) -> Tensor:
    return torch.randn(images.shape, generator=generator)


def _blur(images: Tensor, sigma: float) -> Tensor:
    offset = torch.arange(-int(3 * sigma + 1), int(3 * sigma + 1) + 1).float()
    line = torch.exp(-0.5 * (offset / sigma) ** 2)
    return _filter(_filter(images, line[None]), line[:, None])


def _filter(images: Tensor, kernels: Tensor) -> Tensor:
    """Images filtered with a normalized kernel, or each with its own; the border is replicated."""
    channels, (rows, cols) = images.shape[1], (size // 2 for size in kernels.shape[-2:])
    kernels = (kernels / kernels.sum((-2, -1), keepdim=True)).expand(len(images), -1, -1)
    padded = F.pad(images, (cols, cols, rows, rows), mode="replicate").flatten(0, 1)[None]
    kernels = kernels.repeat_interleave(channels, dim=0)[:, None]
    return F.conv2d(padded, kernels, groups=len(kernels)).view(images.shape)


def _pixel_centres(images: Tensor) -> Float[Tensor, "rows cols 2"]:
    """Centre (col, row) of every pixel; -1 and 1 are the edges of the image."""
    rows, cols = ((2 * torch.arange(size) + 1) / size - 1 for size in images.shape[-2:])
    return torch.stack([cols.expand(len(rows), -1), rows[:, None].expand(-1, len(cols))], dim=-1)


def _displace(images: Tensor, field: Tensor, mode: str = "bilinear") -> Tensor:
    """Each pixel replaced by the value at an offset of ``field`` pixels (cols, rows), ``(count, rows, cols, 2)``."""
    scale = torch.tensor([2 / images.shape[-1], 2 / images.shape[-2]])
    return _sample(images, _pixel_centres(images) + field * scale, mode)


def _sample(images: Tensor, grid: Tensor, mode: str = "bilinear") -> Tensor:
    return F.grid_sample(images, grid, mode=mode, padding_mode="border", align_corners=False)
