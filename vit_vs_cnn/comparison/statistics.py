"""Intervals for accuracies, and how far confidence is from accuracy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy import stats
from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """A value with a 95 % interval."""

    value: float
    low: float
    high: float


def wilson_interval(correct: int, count: int, confidence: float = 0.95) -> Estimate:
    """The accuracy of one network on ``count`` test images, for images like these (Wilson's score interval).

    Reference: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    interval = stats.binomtest(correct, count).proportion_ci(confidence, method="wilson")
    return Estimate(correct / count, float(interval.low), float(interval.high))


def accuracy_over_seeds(accuracies: Sequence[float], count: int, confidence: float = 0.95) -> Estimate:
    """The mean accuracy over ``k`` seeds, for a fresh seed mean and fresh test images.

    Half-width sqrt((t s)^2 / k + z^2 p (1 - p) / count): t is Student's quantile with k - 1 degrees of freedom, s the
    standard deviation over the seeds, and the second term is the test set's own error, which all seeds share.
    One seed says nothing of other seeds: then the interval is Wilson's, for this one network.

    Arguments:
        accuracies: one for each seed, from 0 to 1.
        count: test images.
    """
    k = len(accuracies)
    if k == 1:
        return wilson_interval(round(accuracies[0] * count), count, confidence)
    mean = float(np.mean(accuracies))
    seeds = stats.t.ppf((1 + confidence) / 2, k - 1) * float(np.std(accuracies, ddof=1)) / math.sqrt(k)
    images = stats.norm.ppf((1 + confidence) / 2) * math.sqrt(mean * (1 - mean) / count)
    half = math.hypot(seeds, images)
    return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half))


def paired_difference(
    first: Sequence[Sequence[bool]], second: Sequence[Sequence[bool]], confidence: float = 0.95
) -> Estimate:
    """Mean accuracy of ``first`` minus ``second``, both on the same test images with the same seeds.

    Half-width sqrt((t s)^2 / k + z^2 v / count): s is the standard deviation over seeds of the difference, v the
    variance over images of the difference averaged over seeds. What both find hard cancels. With one seed only the
    second term is there: it speaks of these two networks, not of their kinds.

    Arguments:
        first: whether each image is classified rightly, (seeds, images).
        second: the same for the other.
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    k, count = differences.shape
    by_seed = differences.mean(1)
    seeds = 0.0
    if k > 1:
        seeds = stats.t.ppf((1 + confidence) / 2, k - 1) * float(by_seed.std(ddof=1)) / math.sqrt(k)
    images = stats.norm.ppf((1 + confidence) / 2) * float(differences.mean(0).std(ddof=1)) / math.sqrt(count)
    mean, half = float(by_seed.mean()), math.hypot(seeds, images)
    return Estimate(mean, mean - half, mean + half)


def expected_calibration_error(
    probabilities: Float[Tensor, "count classes"], labels: Int64[Tensor, "count"], bins: int = 15
) -> float:
    """Mean distance of confidence from accuracy: sum_b |B_b| / N |accuracy(B_b) - confidence(B_b)|.

    The bins hold equally many images each (sorted by confidence), so that no bin is too empty to be judged.

    Reference: Guo et al., "On calibration of modern neural networks", 2017, equation 5.
    Differs: bins of equal mass instead of equal width.
    """
    confidence, predicted = probabilities.max(1)
    order = confidence.argsort(stable=True)
    gaps = (predicted.eq(labels).double() - confidence.double())[order]
    return sum(float(part.sum().abs()) for part in gaps.tensor_split(bins)) / len(labels)
