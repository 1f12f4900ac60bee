"""Noisy linear imputation: what stands in a hole is what its surroundings say, and its shape tells little."""

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float
from scipy.linalg import solveh_banded
from torch import Tensor

from vit_vs_cnn.inspection.layout import Images
from vit_vs_cnn.inspection.saliency import noise_of

#: Weights of the neighbours, by the step in rows and columns; of each pair of opposite steps one.
FORWARD = {(0, 1): 1 / 6, (1, 0): 1 / 6, (1, 1): 1 / 12, (1, -1): 1 / 12}
#: Standard deviation of the noise, in units of the normalised images.
NOISE = 0.01


def imputed(
    images: Images,
    missing: Bool[Tensor, "batch rows cols"],
    *,
    noise: float = NOISE,
    drawn: Images | None = None,
) -> Images:
    """Images whose missing pixels are the weighted mean of their neighbours, all at once, and noise.

    ``x_i = sum_j w_ij x_j / sum_j w_ij + noise`` over the up to eight neighbours j of a missing pixel i, ``w`` being
    1/6 beside it and 1/12 across a corner: one linear system for each image, whose matrix depends on the mask alone.
    With the known pixels on the right side it is symmetric and positive definite, and banded in the order of the
    missing pixels: it is solved directly by Cholesky. Of an image of which nothing is known the mean colour is left.

    Reference: Rong et al. 2022, section 4.2.

    Arguments:
        noise: standard deviation, in units of the images; a function of the image's pixels.
        drawn: that noise with a standard deviation of one, for those who ask for the same images more than once.
    """
    wide = images.shape[-1] > images.shape[-2]
    across = "b c y x -> b x y c" if wide else "b c y x -> b y x c"  # the band is as wide as the shorter side
    pixels = rearrange(images.detach(), across).double().cpu().numpy()
    holes = (missing.mT if wide else missing).cpu().numpy()
    solved = _solved(pixels, holes)
    back = "b x y c -> b c y x" if wide else "b y x c -> b c y x"
    drawn = imputation_noise(images) if drawn is None else drawn
    filled = rearrange(torch.from_numpy(solved), back).to(images) + noise * drawn
    return torch.where(missing.unsqueeze(1), filled, images)


def imputation_noise(images: Images) -> Images:
    return noise_of(images, "imputation")


def _solved(
    pixels: Float[np.ndarray, "batch rows cols channels"], holes: Bool[np.ndarray, "batch rows cols"]
) -> Float[np.ndarray, "batch rows cols channels"]:
    """The pixels with every hole filled."""
    known = np.where(holes[..., None], 0.0, pixels)
    degree, right = np.zeros(holes.shape[1:]), np.zeros_like(pixels)
    for step, weight in FORWARD.items():
        places = _neighbours(*step)
        for here, there in (places, places[::-1]):
            degree[here] += weight
            right[:, *here] += weight * known[:, *there]
    filled = pixels.copy()
    for image, hole in enumerate(holes):
        if hole.all():
            filled[image] = pixels[image].mean(axis=(0, 1))
        elif hole.any():
            bands = _bands(hole, degree)
            filled[image, hole] = solveh_banded(
                bands, right[image, hole], lower=True, overwrite_ab=True, overwrite_b=True, check_finite=False
            )
    return filled


def _bands(
    hole: Bool[np.ndarray, "rows cols"], degree: Float[np.ndarray, "rows cols"]
) -> Float[np.ndarray, "bands missing"]:
    """``bands[k, i] = A[i + k, i]`` between the missing pixels, in their order."""
    number = hole.cumsum().reshape(hole.shape) - 1
    entries = []
    for step, weight in FORWARD.items():
        first, second = _neighbours(*step)
        both = hole[first] & hole[second]
        column = number[first][both]
        entries.append((number[second][both] - column, column, weight))
    bands = np.zeros((1 + max((rows.max(initial=0) for rows, _, _ in entries)), int(number[-1, -1]) + 1))
    bands[0] = degree[hole]
    for rows, columns, weight in entries:
        bands[rows, columns] -= weight
    return bands


def _neighbours(down: int, along: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Where the pixels are that have a neighbour at that step, and where those neighbours are."""
    here, there = (
        (slice(None, -along or None), slice(along, None)) if along >= 0 else (slice(-along, None), slice(None, along))
    )
    return (slice(None, -down or None), here), (slice(down, None), there)
