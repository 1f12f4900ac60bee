"""Resamples of the accuracies: what other seeds and other test images would have given.

Means and differences of means have their distribution in closed form (``means.Uncertain``). Curves, crossings, data
multipliers and fits are functions of many means at once: they are found in every resample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.means import binomial_variance
from vit_vs_cnn.statistics.measurements import Measurements

#: So many weights of images are held in memory at a time.
CHUNK = 2_500_000


@dataclass(frozen=True, eq=False)
class Draws:
    """Mean accuracies of some contenders over the seeds that all of them have, and resamples of these means.

    Arguments:
        sizes: those at which all of them have a seed in common.
        seeds: how many seeds they have in common at each size.
        variance: of each mean by itself: s^2 / k over the seeds plus p (1 - p) / images.
        values: the resamples; one resample is of the same seeds and images for all contenders and sizes.
    """

    contenders: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    observed: Float[np.ndarray, "contenders sizes"]
    variance: Float[np.ndarray, "contenders sizes"]
    values: Float[np.ndarray, "resamples contenders sizes"]


class Resamples:
    """A hierarchical bootstrap (seed -> test image) whose intervals hold with three seeds, too.

    With y_si whether the network of seed s (of its subset and its initialisation) is right on image i, b_i the image's
    effect and a_s the accuracy of the seed, a resample of the mean over k seeds is

        mean + sum_s w_s a_s + sum_i (v_i / N) b_i,
        w_s = (g_s - mean g) / sqrt(k (k - 1) u),    g_s ~ N(0, 1),    u ~ chi^2_(k-1) / (k - 1),

    v_i multinomial counts. All contenders and sizes share w and v, so what is common to them cancels in differences.
    The seeds' part has exactly Student's distribution with k - 1 degrees of freedom for every contrast of accuracies.
    With one seed there is no such part: the draws then speak of these networks only.

    Reference: Davison & Hinkley, "Bootstrap methods and their application", 1997, 3.8 (hierarchical data); Owen, "The
    pigeonhole bootstrap", Annals of Applied Statistics 2007 (seeds and images are crossed).
    Differs: drawing three seeds and then images with replacement gives 95 % intervals that hold in 79 % of simulations
    where seeds differ much (it has (k - 1) / k of their variance, and no heavier tails: hence w) and in 99 % where they
    do not (what a network does by itself on single images is in a_s already and counts again among images: hence b_i,
    the image's mean over seeds, shrunk to the covariance that different seeds share). A normal draw of standard
    deviation 1 / N is added, so that a perfect score does not look certain.

    Arguments:
        measured: the accuracies; without predictions their images' part is p (1 - p) / N, independent of each other
            (too much for differences, never too little).
    """

    def __init__(self, measured: Measurements, *, count: int, seed: int) -> None:
        self.measured = measured
        self.count = count
        rng = np.random.default_rng(derive_seed("regimes", seed))
        self._seed_normals = rng.standard_normal((2, count, len(measured.seeds)))
        self._normals = rng.standard_normal((count, *measured.accuracy.shape[:2]))
        self._image_deviations = None if measured.correct is None else _image_deviations(measured.correct, count, rng)
        self._seed_weights: dict[bytes, np.ndarray] = {}
        self._mean_deviations: dict[tuple[int, int, bytes], np.ndarray] = {}

    def of(self, contenders: Sequence[str]) -> Draws:
        """The draws for some of the contenders, at the sizes and seeds that they have in common."""
        measured = self.measured
        chosen = [measured.contenders.index(name) for name in contenders]
        shared = np.asarray(measured.present[chosen].all(axis=0))
        sizes = [int(i) for i in np.flatnonzero(shared.any(axis=1))]
        shared = shared[sizes]
        block = np.ix_(chosen, sizes)
        accuracy = measured.accuracy[block]
        seeds = shared.sum(1)
        observed = np.where(shared, accuracy, 0.0).sum(2) / seeds
        images = np.nanmin(np.where(shared, measured.images[block], np.nan), axis=2)
        values = observed + self._seed_part(np.where(shared, accuracy, 0.0), shared)
        noise = self._normals[(slice(None), *block)]
        if self._image_deviations is None:
            values += noise * np.sqrt(binomial_variance(observed, images))
        else:
            values += self._image_part(block, shared) + noise / images
        return Draws(
            contenders=tuple(contenders),
            sizes=tuple(measured.sizes[i] for i in sizes),
            seeds=tuple(int(k) for k in seeds),
            observed=observed,
            variance=_seed_variance(accuracy, shared) + binomial_variance(observed, images),
            values=np.clip(values, 0.0, 1.0),
        )

    def _seed_part(
        self, accuracy: Float[np.ndarray, "contenders sizes seeds"], shared: Bool[np.ndarray, "sizes seeds"]
    ) -> Float[np.ndarray, "resamples contenders sizes"]:
        part = np.zeros((self.count, *accuracy.shape[:2]))
        for size, mask in enumerate(shared):
            k = int(mask.sum())
            if k > 1:
                part[:, :, size] = self._weights_of(mask) @ accuracy[:, size, mask].T
        return part

    def _weights_of(self, mask: Bool[np.ndarray, "seeds"]) -> Float[np.ndarray, "resamples k"]:
        """w of the seeds of a mask, which are the same for most sizes and pairs."""
        key = mask.tobytes()
        if key not in self._seed_weights:
            g, h = (normals[:, mask] - normals[:, mask].mean(1, keepdims=True) for normals in self._seed_normals)
            self._seed_weights[key] = g / np.sqrt(mask.sum() * (h**2).sum(1, keepdims=True))  # sqrt(k (k - 1) u)
        return self._seed_weights[key]

    def _image_part(
        self, block: tuple[np.ndarray, ...], shared: Bool[np.ndarray, "sizes seeds"]
    ) -> Float[np.ndarray, "resamples contenders sizes"]:
        assert self._image_deviations is not None and self.measured.correct is not None
        contenders, sizes = (places.ravel().tolist() for places in block)
        means = [self._mean_deviation(i, j, shared[row]) for i in contenders for row, j in enumerate(sizes)]
        shrink = _shrinkage(self.measured.correct[block], shared)
        return (np.stack(means, axis=1) @ shrink).reshape(self.count, len(contenders), len(sizes))

    def _mean_deviation(
        self, contender: int, size: int, mask: Bool[np.ndarray, "seeds"]
    ) -> Float[np.ndarray, "resamples"]:
        """What other images would change in a mean over seeds: the same in most pairs of a contender."""
        assert self._image_deviations is not None
        key = (contender, size, mask.tobytes())
        if key not in self._mean_deviations:
            self._mean_deviations[key] = (self._image_deviations[:, contender, size] * mask).sum(1) / mask.sum()
        return self._mean_deviations[key]


def _image_deviations(
    correct: Bool[np.ndarray, "contenders sizes seeds count"], resamples: int, rng: np.random.Generator
) -> Float[np.ndarray, "resamples contenders sizes seeds"]:
    """Accuracy on resampled images minus accuracy on all, every network on the same images."""
    count = correct.shape[-1]
    columns = correct.reshape(-1, count).T.astype(np.float32)  # sums of whole numbers below 2^24 are exact
    drawn, chunk = [], max(1, CHUNK // count)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        images = rng.integers(count, size=(rows, count)) + count * np.arange(rows)[:, None]
        weights = np.bincount(images.ravel(), minlength=rows * count).reshape(rows, count)
        drawn.append(weights.astype(np.float32) @ columns)
    means = correct.reshape(-1, count).mean(1)
    return (np.concatenate(drawn).astype(np.float64) / count - means).reshape(resamples, *correct.shape[:-1])


def _shrinkage(
    correct: Bool[np.ndarray, "contenders sizes seeds count"], shared: Bool[np.ndarray, "sizes seeds"]
) -> Float[np.ndarray, "columns columns"]:
    """The matrix that takes the images' seed-averaged effects to effects with the covariance that seeds share.

    Shared is the covariance over images of networks of *different* seeds, averaged over pairs of seeds. Where two
    columns have but one seed, and the same one, there is no such pair and their covariance stays as it is.
    """
    contenders, sizes, seeds, count = correct.shape
    mask = np.broadcast_to(shared, (contenders, sizes, seeds)).reshape(-1, seeds).astype(np.float64)
    hits = correct.reshape(-1, seeds, count).astype(np.float64) * mask[:, :, None]
    hits -= hits.mean(2, keepdims=True)
    summed = hits.sum(1)
    everything = summed @ summed.T / count
    own = sum(hits[:, s] @ hits[:, s].T for s in range(seeds)) / count
    together, pairs = np.outer(mask.sum(1), mask.sum(1)), np.outer(mask.sum(1), mask.sum(1)) - mask @ mask.T
    of_means = everything / together
    target = np.where(pairs > 0, (everything - own) / np.maximum(pairs, 1.0), of_means)
    return _root(of_means, -0.5) @ _root(target, 0.5)


def _root(matrix: Float[np.ndarray, "n n"], power: float) -> Float[np.ndarray, "n n"]:
    """A power of a covariance matrix; directions without variance stay without."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > 1e-12 * max(float(values[-1]), 1e-12)
    return (vectors * np.where(kept, np.where(kept, values, 1.0) ** power, 0.0)) @ vectors.T


def _seed_variance(
    accuracy: Float[np.ndarray, "contenders sizes seeds"], shared: Bool[np.ndarray, "sizes seeds"]
) -> Float[np.ndarray, "contenders sizes"]:
    """s^2 / k of each mean; 0 with one seed, which says nothing of others."""
    k = shared.sum(1)
    mean = np.where(shared, accuracy, 0.0).sum(2) / k
    squares = np.where(shared, (accuracy - mean[:, :, None]) ** 2, 0.0).sum(2)
    return squares / np.maximum(k - 1, 1) / k


def estimate_from(value: float, draws: Float[np.ndarray, "resamples"], confidence: float = 0.95) -> Estimate:
    """A value with the central share of its resamples; plus or minus infinity among them is kept."""
    tail = (1 - confidence) / 2
    low = np.quantile(draws, tail, method="inverted_cdf")
    high = np.quantile(draws, 1 - tail, method="inverted_cdf")
    return Estimate(float(value), float(low), float(high))
