"""Variance of accuracies: over test images and over seeds."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

#: Share of the other sizes' degrees of freedom that is added if one training-set size has a larger variance than the
#: others. A small share limits false claims; ``python -m benchmarks.calibration`` prints their rate for several shares.
POOLED_FREEDOM_SHARE = 0.15


class SeedVariance(NamedTuple):
    """Variance over seeds of the difference of two accuracies, for a single seed."""

    variance: float
    degrees_of_freedom: float


def image_variance(scores: Float[np.ndarray, "seeds images"]) -> float:
    """Covariance over images of the scores of different seeds, averaged over all pairs of seeds.

    With k seeds: (k^2 var(mean over seeds) - sum_s var(scores of s)) / (k (k - 1)), at least 0. With one seed: the
    variance of its scores.
    """
    seeds = len(scores)
    if seeds == 1:
        return float(scores[0].var())
    return max(0.0, float(seeds**2 * scores.mean(0).var() - scores.var(1).sum()) / (seeds * (seeds - 1)))


def binomial_variance(accuracy: float, images: int) -> float:
    """Variance p (1 - p) / N of an accuracy, with two right and two wrong predictions added, so that it is above zero.

    Reference: Agresti & Coull, "Approximate is better than exact for interval estimation", American Statistician 1998.
    """
    p = (accuracy * images + 2) / (images + 4)
    return p * (1 - p) / (images + 4)


def pool_seed_variance(
    differences: Mapping[int, Float[np.ndarray, "seeds"]], size: int, *, freedom_share: float = POOLED_FREEDOM_SHARE
) -> SeedVariance | None:
    """Seed variance of a difference at one training-set size, pooled with that at the other sizes.

    The result is the larger of the variance at ``size`` and the variance pooled over all sizes, ``size`` included. The
    pooled variance has the degrees of freedom of all sizes. The variance at ``size`` has those of ``size``, plus
    ``freedom_share`` of the others. None if ``size`` has fewer than two seeds. ``differences`` are of paired seeds.
    """
    own, own_freedom = _sum_of_squares(differences.get(size, np.empty(0)))
    if not own_freedom:
        return None
    sums = [_sum_of_squares(values) for n, values in differences.items() if n != size]
    freedom = sum(count for _, count in sums)
    pooled = (own + sum(squares for squares, _ in sums)) / (own_freedom + freedom)
    if own / own_freedom <= pooled:
        return SeedVariance(pooled, own_freedom + freedom)
    return SeedVariance(own / own_freedom, own_freedom + freedom_share * freedom)


def _sum_of_squares(values: Float[np.ndarray, "seeds"]) -> tuple[float, int]:
    """Sum of squared deviations from the mean, and its degrees of freedom."""
    if len(values) < 2:
        return 0.0, 0
    return float(((values - values.mean()) ** 2).sum()), len(values) - 1
