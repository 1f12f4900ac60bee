"""Calibration error in bins of equal mass, and temperature scaling."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy import optimize
from torch import Tensor

BINS = 15
#: Validation images for a temperature or a threshold: with few, all may be classified correctly.
MIN_VALIDATION_IMAGES = 30
#: Range of the inverse temperature, which has no optimum if all validation images are classified correctly.
MAX_INVERSE, MIN_INVERSE = 1e3, 1e-3


def equal_mass_bins(confidence: Float[Tensor, "count"], bins: int = BINS) -> Int64[Tensor, "count"]:
    """Bin of each image, with as equal numbers of images as possible, the least confident images in the first bin.

    Images with the same confidence share the bin of their middle one. So bins do not depend on the order of the images,
    and there are fewer bins if there are many ties.
    """
    _, ties, counts = confidence.unique(return_inverse=True, return_counts=True)
    middle = counts.cumsum(0) - counts + (counts - 1) // 2  # index of the middle image of each confidence, sorted
    number = torch.arange(len(confidence)).tensor_split(bins)
    bin_of_place = torch.cat([torch.full_like(part, index) for index, part in enumerate(number)])
    return bin_of_place[middle.cpu()].to(confidence.device)[ties]


def reliability(
    confidence: Float[Tensor, "count"], right: Bool[Tensor, "count"], bins: int = BINS
) -> tuple[list[float], list[float], list[int]]:
    """Mean confidence, accuracy and number of images in bins of equal mass, the least confident first.

    Arguments:
        confidence: probability of the predicted class.
        right: whether the predicted class is correct.
    """
    place = equal_mass_bins(confidence, bins)
    counts = torch.bincount(place, minlength=bins)
    sums = [torch.bincount(place, values.double(), minlength=bins) for values in (confidence, right)]
    there = counts > 0
    means = [(values[there] / counts[there]).tolist() for values in sums]
    return means[0], means[1], counts[there].tolist()


def calibration_error(confidence: Float[Tensor, "count"], right: Bool[Tensor, "count"], bins: int = BINS) -> float:
    """Mean distance of confidence from accuracy: sum_b |B_b| / N |accuracy(B_b) - confidence(B_b)|.

    Arguments are those of ``reliability``.

    Reference: Guo et al., "On calibration of modern neural networks", 2017, equation 5.
    Differs: bins of equal mass (``equal_mass_bins``) instead of equal width, so that no bin has few images.
    """
    parts = zip(*reliability(confidence, right, bins), strict=True)
    return sum(count * abs(share - mean) for mean, share, count in parts) / len(right)


def fit_temperature(logits: Float[Tensor, "count classes"], labels: Int64[Tensor, "count"]) -> float:
    """Temperature T that minimizes the cross entropy of ``softmax(logits / T)``.

    The loss is convex in ``b = 1 / T``. T is the root of its slope ``mean_i (sum_c p_ic z_ic - z_iy)``.

    Reference: Guo et al., "On calibration of modern neural networks", 2017, section 4.2.
    Differs: a root of the slope instead of a gradient descent; b stays within 0.001 to 1000.
    """
    scores = logits.double()
    scores = scores - scores.amax(1, keepdim=True)
    target = scores.gather(1, labels[:, None])[:, 0]

    def slope(log_b: float) -> float:
        probabilities = (float(np.exp(log_b)) * scores).softmax(1)
        return float(((probabilities * scores).sum(1) - target).mean())

    low, high = np.log(MIN_INVERSE), np.log(MAX_INVERSE)
    if slope(low) >= 0:
        return 1 / MIN_INVERSE
    if slope(high) <= 0:
        return 1 / MAX_INVERSE
    return float(np.exp(-optimize.root_scalar(slope, bracket=(low, high), method="brentq", xtol=1e-12).root))
