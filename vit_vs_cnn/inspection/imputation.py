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


def imputed(images: Images, missing: Bool[Tensor, "batch rows cols"], *, noise: float = NOISE) -> Images:
    """Images whose missing pixels are the weighted mean of their neighbours, all at once, and noise.

    ``x_i = sum_j w_ij x_j / sum_j w_ij + noise`` over the up to eight neighbours j of a missing pixel i, ``w`` being
    1/6 beside it and 1/12 across a corner: one linear system for each image, whose matrix depends on the mask alone.
    It is symmetric and positive definite with the known pixels on the right side, and banded in the order of the
    pixels: it is solved directly by Cholesky. Of an image of which nothing is known the mean colour is left.

    Reference: Rong et al. 2022, section 4.2.

    Arguments:
        noise: standard deviation, in units of the images; a function of the image's pixels.
    """
    wide = images.shape[-1] > images.shape[-2]
    across = "b c y x -> b x y c" if wide else "b c y x -> b y x c"  # the band is as wide as the shorter side
    pixels = rearrange(images.detach(), across).double().cpu().numpy()
    holes = (missing.mT if wide else missing).cpu().numpy()
    solved = np.stack([_solved(*one) for one in zip(pixels, holes, strict=True)])
    back = "b x y c -> b c y x" if wide else "b y x c -> b c y x"
    filled = rearrange(torch.from_numpy(solved), back).to(images) + noise * noise_of(images, "imputation")
    return torch.where(missing.unsqueeze(1), filled, images)


def _solved(
    pixels: Float[np.ndarray, "rows cols channels"], hole: Bool[np.ndarray, "rows cols"]
) -> Float[np.ndarray, "rows cols channels"]:
    if hole.all():
        return np.broadcast_to(pixels.mean(axis=(0, 1)), pixels.shape)
    cols = hole.shape[1]
    known = np.where(hole[..., None], 0.0, pixels)
    degree, right = np.zeros(hole.shape), np.zeros_like(pixels)
    bands = np.zeros((cols + 2, *hole.shape))  # bands[k, i] = A[i + k, i] in the order of the pixels
    for (down, along), weight in FORWARD.items():
        first, second = _neighbours(down, along)
        degree[first] += weight
        degree[second] += weight
        right[first] += weight * known[second]
        right[second] += weight * known[first]
        bands[down * cols + along][first] -= weight * (hole[first] & hole[second])
    bands[0] += np.where(hole, degree, 1.0)
    right = np.where(hole[..., None], right, pixels)
    flat = right.reshape(hole.size, -1)
    return solveh_banded(bands.reshape(cols + 2, -1), flat, lower=True, check_finite=False).reshape(pixels.shape)


def _neighbours(down: int, along: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Where the pixels are that have a neighbour at that step, and where those neighbours are."""
    here, there = (
        (slice(None, -along or None), slice(along, None)) if along >= 0 else (slice(-along, None), slice(None, along))
    )
    return (slice(None, -down or None), here), (slice(down, None), there)
