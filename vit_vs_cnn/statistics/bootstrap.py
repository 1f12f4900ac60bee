"""95 % intervals over images by resampling them, for means and functions of means."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.statistics.estimate import Estimate

RESAMPLES = 2000
_CHUNK = 100  # resamples drawn at a time: bounds the memory


def bootstrap(
    values: Float[np.ndarray, "images quantities"],
    statistic: Callable[[Float[np.ndarray, "samples quantities"]], Float[np.ndarray, "samples"]],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """A function of the means over images, and its percentile interval for other images like these.

    Images are drawn with replacement, all quantities of one together: what the same images share cancels.

    Reference: Efron & Tibshirani 1993, section 13.3.
    """
    count = len(values)
    generator = np.random.default_rng(derive_seed(seed, "bootstrap"))
    means = []
    for _ in range(RESAMPLES // _CHUNK):
        times = generator.multinomial(count, np.full(count, 1 / count), size=_CHUNK)
        means.append(times @ values / count)
    sampled = statistic(np.concatenate(means))
    low, high = np.quantile(sampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(statistic(values.mean(axis=0, keepdims=True))[0]), float(low), float(high))


def mean_of(values: Float[np.ndarray, "images"], *, seed: int = 0) -> Estimate:
    return bootstrap(values[:, None], lambda means: means[:, 0], seed=seed)


def mean_difference(
    first: Float[np.ndarray, "images"], second: Float[np.ndarray, "images"], *, seed: int = 0
) -> Estimate:
    """The mean of ``first`` minus that of ``second``, on the same images."""
    return bootstrap(np.stack([first, second], axis=1), lambda means: means[:, 0] - means[:, 1], seed=seed)
