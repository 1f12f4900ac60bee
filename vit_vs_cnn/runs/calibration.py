"""How far confidence is from accuracy, in bins that hold equally many images, and the temperature that mends it."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy import optimize
from torch import Tensor

BINS = 15
#: Fewer validation images tell neither a temperature nor a threshold: of 4 that are all right it would be 0.
LEAST = 30
#: Inverse temperatures that are looked at: where validation images are all right, none is too cold.
COLDEST, HOTTEST = 1e3, 1e-3


def equal_mass_bins(confidence: Float[Tensor, "count"], bins: int = BINS) -> Int64[Tensor, "count"]:
    """The bin of each image: ``bins`` of them, as equal in number as can be, the least confident images in the first.

    Images of one confidence share a bin, the one that the middle of them falls into: so bins do not depend on the order
    of the images, and where many tie there are fewer bins.
    """
    _, ties, counts = confidence.unique(return_inverse=True, return_counts=True)
    middle = counts.cumsum(0) - counts + (counts - 1) // 2  # place of the middle one of each value, all sorted
    number = torch.arange(len(confidence)).tensor_split(bins)
    bin_of_place = torch.cat([torch.full_like(part, index) for index, part in enumerate(number)])
    return bin_of_place[middle.cpu()].to(confidence.device)[ties]


def reliability(
    probabilities: Float[Tensor, "count classes"], labels: Int64[Tensor, "count"], bins: int = BINS
) -> tuple[list[float], list[float], list[int]]:
    """Mean confidence, accuracy and number of images in bins of equal mass, the least confident first."""
    confidence, predicted = probabilities.max(1)
    return _binned(confidence, predicted.eq(labels), bins)


def _binned(
    confidence: Float[Tensor, "count"], right: Bool[Tensor, "count"], bins: int
) -> tuple[list[float], list[float], list[int]]:
    place = equal_mass_bins(confidence, bins)
    counts = torch.bincount(place, minlength=bins)
    sums = [torch.bincount(place, values.double(), minlength=bins) for values in (confidence, right)]
    there = counts > 0
    means = [(values[there] / counts[there]).tolist() for values in sums]
    return means[0], means[1], counts[there].tolist()


def expected_calibration_error(
    probabilities: Float[Tensor, "count classes"], labels: Int64[Tensor, "count"], bins: int = BINS
) -> float:
    """Mean distance of confidence from accuracy: sum_b |B_b| / N |accuracy(B_b) - confidence(B_b)|.

    Reference: Guo et al., "On calibration of modern neural networks", 2017, equation 5.
    Differs: bins of equal mass (``equal_mass_bins``) instead of equal width, so that none is too empty to be judged.
    """
    confidence, predicted = probabilities.max(1)
    return calibration_error(confidence, predicted.eq(labels), bins)


def calibration_error(confidence: Float[Tensor, "count"], right: Bool[Tensor, "count"], bins: int = BINS) -> float:
    """``expected_calibration_error`` out of the probability of what was said, and whether that is right."""
    parts = zip(*_binned(confidence, right, bins), strict=True)
    return sum(count * abs(share - mean) for mean, share, count in parts) / len(right)


def fit_temperature(logits: Float[Tensor, "count classes"], labels: Int64[Tensor, "count"]) -> float:
    """The temperature T with the least cross entropy of ``softmax(logits / T)``.

    The loss is convex in ``b = 1 / T``; its slope ``mean_i (sum_c p_ic z_ic - z_iy)`` is followed to its zero.

    Reference: Guo et al., "On calibration of modern neural networks", 2017, section 4.2.
    Differs: a root of the slope instead of a gradient descent; b stays within 0.001 to 1000.
    """
    scores = logits.double()
    scores = scores - scores.amax(1, keepdim=True)
    target = scores.gather(1, labels[:, None])[:, 0]

    def slope(log_b: float) -> float:
        probabilities = (float(np.exp(log_b)) * scores).softmax(1)
        return float(((probabilities * scores).sum(1) - target).mean())

    low, high = np.log(HOTTEST), np.log(COLDEST)
    if slope(low) >= 0:
        return 1 / HOTTEST
    if slope(high) <= 0:
        return 1 / COLDEST
    return float(np.exp(-optimize.root_scalar(slope, bracket=(low, high), method="brentq", xtol=1e-12).root))
