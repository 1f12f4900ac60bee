"""Values with confidence intervals, and how intervals and p-values are printed."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from vit_vs_cnn.counter_random import derive_seed

#: 97.5 % quantile of the normal distribution.
Z_975 = float(ndtri(0.975))
BOOTSTRAP_SAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A value with a confidence interval, 95 % unless stated otherwise."""

    value: float
    low: float
    high: float

    def __neg__(self) -> "Estimate":
        """The difference in the opposite order."""
        return Estimate(-self.value, -self.high, -self.low)


def wilson_interval(correct: int, count: int) -> Estimate:
    """Wilson's score interval of a proportion, such as the accuracy of one network on ``count`` images.

    Its ends p solve (x - p)^2 = z^2 p (1 - p) / count, where x is the observed proportion.

    Reference: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    share, z = correct / count, Z_975
    centre = (2 * count * share + z**2) / (2 * (count + z**2))
    half = z / (2 * (count + z**2)) * math.sqrt(4 * count * share * (1 - share) + z**2)
    return Estimate(share, 0.0 if correct == 0 else centre - half, 1.0 if correct == count else centre + half)


def bootstrap_interval(
    values: Float[np.ndarray, "images quantities"],
    statistic: Callable[[Float[np.ndarray, "samples quantities"]], Float[np.ndarray, "samples"]],
    *,
    seed: int = 0,
) -> Estimate:
    """Function of means over images, with its percentile bootstrap interval.

    Images are sampled with replacement. All quantities of an image stay together, so that noise which they share
    cancels in differences.

    Reference: Efron & Tibshirani, "An introduction to the bootstrap", 1993, section 13.3.
    """
    count = len(values)
    generator = np.random.default_rng(derive_seed(seed, "bootstrap"))
    weights = generator.multinomial(count, np.full(count, 1 / count), size=BOOTSTRAP_SAMPLES)
    sampled = statistic(weights @ values / count)
    low, high = np.quantile(sampled, [0.025, 0.975])
    return Estimate(float(statistic(values.mean(axis=0, keepdims=True))[0]), float(low), float(high))


def format_interval(difference: Estimate, *, sign: bool = False) -> str:
    """The interval of a difference of accuracies in percentage points: ``-2.8 to 45.0``.

    An end of -1 or 1 is not determined by the data (``MeanDistribution.interval``) and is omitted.
    """
    low, high = (f"{100 * end:{'+' if sign else ''}.1f}" for end in (difference.low, difference.high))
    match difference.low > -1, difference.high < 1:
        case True, True:
            return f"{low} to {high}"
        case True, False:
            return f"{low} or more"
        case False, True:
            return f"{high} or less"
    return "too few seeds and test images for an interval"


def format_p_value(p: float | None) -> str:
    """A p-value with two digits, or with more where rounding would move it across 0.05; "-" for None."""
    if p is None:
        return "-"
    if p < 1e-4:
        return "< 0.0001"
    return next(text for digits in range(2, 18) if (float(text := f"{p:.{digits}g}") < 0.05) == (p < 0.05))
