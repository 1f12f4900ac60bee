"""Means over seeds and images, and their differences: the distribution that every interval and p-value is read from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Shaped
from scipy import optimize, special, stats

from vit_vs_cnn.statistics.estimate import Estimate, wilson_interval

#: Places at which the chi distribution of a standard deviation is summed.
NODES = 200
#: Of the normal distribution lies 95 % within so many deviations.
Z = float(special.ndtri(0.975))
#: Degrees of freedom beyond which Student's distribution is the normal one.
MANY = 1e5


@dataclass(frozen=True)
class Uncertain:
    """What k seeds and N images say of a mean over all seeds and all images: ``mean + sum_j a_j T_j + sigma Z``.

    T_j is Student's with df_j degrees of freedom (seeds: s / sqrt k), Z is normal (images), all independent. Given the
    chi-distributed r_j behind each T_j the sum is normal, so that

        ``P[|x - mean| > h] = E_r[2 Phi(-h / sqrt(sigma^2 + sum_j a_j^2 df_j / r_j^2))]``,

    which is summed over Gauss-Legendre nodes: no random number is drawn, and equal data have equal intervals in any
    order. The interval leaves zero out exactly where the p-value is below its error rate.

    ``resampling.Resamples`` draws from the same distribution, jointly for many means, for what is no mean.

    Arguments:
        students: (a_j, df_j) of each source of seeds; none for a single network, which says nothing of other seeds.
        accuracies: the two that a difference is of; None for other means.
    """

    mean: float
    students: tuple[tuple[float, int], ...]
    sigma: float
    accuracies: tuple[float, float] | None = None

    @property
    def is_of_images(self) -> bool:
        """Whether the images make the interval more than the seeds do: more seeds would hardly narrow it."""
        of_seeds = sum((scale * stats.t.ppf(0.975, df)) ** 2 for scale, df in self.students)
        return bool((self.sigma * Z) ** 2 > 3 * of_seeds)

    def beyond(self, distance: float) -> float:
        """``P[|x - mean| > distance]``, from 1 at distance 0."""
        if distance <= 0:
            return 1.0
        variance, weight = np.array([self.sigma**2]), np.ones(1)
        for scale, df in self.students:
            inverse, probability = _inverse_chi_square(df)
            variance = (variance[:, None] + scale**2 * inverse).ravel()
            weight = (weight[:, None] * probability).ravel()
        with np.errstate(divide="ignore"):
            return float(weight @ (2 * special.ndtr(-distance / np.sqrt(variance))))

    def interval(self, confidence: float = 0.95, *, within: tuple[float, float] = (-1.0, 1.0)) -> Estimate:
        """The central interval, cut to what is possible.

        The end of a difference is possible where one of the two accuracies may stay as measured. Beyond that the data
        say nothing of this end: it is -1 or 1.
        """
        half = self._half(1 - confidence)
        low, high = self.mean - half, self.mean + half
        if self.accuracies is not None:
            first, second = self.accuracies
            low = -1.0 if low < -max(second, 1 - first) else low
            high = 1.0 if high > max(first, 1 - second) else high
        return Estimate(self.mean, max(within[0], low), min(within[1], high))

    def _half(self, error: float) -> float:
        """The distance that is exceeded with this probability."""
        reach = 1e-9
        while self.beyond(reach) > error:
            reach *= 4
        return float(optimize.root_scalar(lambda h: self.beyond(h) - error, bracket=(0.0, reach), xtol=1e-13).root)

    @property
    def p_value(self) -> float:
        """Of "the mean is zero", two-sided."""
        return self.beyond(abs(self.mean))

    def detectable(self, level: float, power: float = 0.8) -> float:
        """The mean that would be told from zero at a two-sided level with this power, were the spread the true one.

        With s the standard error and h half the interval at that level it is the d with ``P[|T| > h / s] = power``,
        where T is of the noncentral t distribution around d / s, its degrees of freedom Satterthwaite's.

        Reference: Cohen, "Statistical power analysis for the behavioral sciences", 1988, section 2.5.
        """
        parts = [scale**2 for scale, _ in self.students]
        variance = sum(parts) + self.sigma**2
        spread = sum(part**2 / df for part, (_, df) in zip(parts, self.students, strict=True))
        inverse, weight = _inverse_chi_square(variance**2 / spread if spread else MANY)
        threshold = self._half(level) / np.sqrt(variance * inverse)

        def lacking(d: float) -> float:
            return power - float(weight @ (special.ndtr(d - threshold) + special.ndtr(-d - threshold)))

        error = math.sqrt(variance)
        return error * optimize.root_scalar(lacking, bracket=(0.0, 4 * self._half(level) / error + 10)).root


@lru_cache(maxsize=256)
def _inverse_chi_square(df: int | float) -> tuple[Float[np.ndarray, "nodes"], Float[np.ndarray, "nodes"]]:
    """df / r^2 for chi-distributed r, and the probability of each."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    df = min(df, MANY)
    low, high = (max(0.0, math.sqrt(df) - 9), math.sqrt(df) + 9)
    r = low + (high - low) * (nodes + 1) / 2
    probability = weights * stats.chi.pdf(r, df)
    return df / r**2, probability / probability.sum()


def mean_over_seeds(scores: Shaped[np.ndarray, "seeds images"]) -> Uncertain:
    """The mean of what several networks do on the same images, for fresh seeds and fresh images.

    a = s / sqrt k with k - 1 degrees of freedom, s the standard deviation of the seeds' means; sigma^2 = v / N + 1/N^2
    with v the variance over images that different seeds share (``shared_variance``): what a network does by itself on
    single images is in s already. 1 / N is there so that a perfect score does not look certain.

    Reference: Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 2007 (seeds and images are crossed).

    Arguments:
        scores: of each network on each image, from 0 to 1 (right or wrong, say).
    """
    rows = np.asarray(scores, dtype=np.float64)
    return _uncertain(float(rows.mean()), [rows.mean(1)], shared_variance(rows), rows.shape[1], networks=1)


def difference_over_seeds(
    first: Shaped[np.ndarray, "seeds images"], second: Shaped[np.ndarray, "other_seeds images"], *, paired_seeds: bool
) -> Uncertain:
    """The mean of ``first`` minus that of ``second`` on the same images, for fresh seeds and fresh images.

    With paired seeds (row i of both has one seed and one subset) it is ``mean_over_seeds`` of the differences, so that
    what both find hard cancels. Else each side has a Student's part of its own (Behrens and Fisher's problem), and
    v = v_first + v_second - 2 cov of the two means over images. sigma^2 has 1 / N^2 for each side.
    """
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    count, mean, accuracies = one.shape[1], float(one.mean() - two.mean()), (float(one.mean()), float(two.mean()))
    if not paired_seeds:
        together = float(np.cov(one.mean(0), two.mean(0), ddof=0)[0, 1])
        variance = shared_variance(one) + shared_variance(two) - 2 * together
        found = _uncertain(mean, [one.mean(1), two.mean(1)], max(0.0, variance), count, networks=2)
        return replace(found, accuracies=accuracies)
    if len(one) != len(two):
        raise ValueError(f"paired seeds must be as many on both sides, but are {len(one)} and {len(two)}")
    found = _uncertain(mean, [one.mean(1) - two.mean(1)], shared_variance(one - two), count, networks=2)
    return replace(found, accuracies=accuracies)


def shared_variance(rows: Float[np.ndarray, "seeds images"]) -> float:
    """The variance over images that networks of different seeds share: their covariance, averaged over pairs of seeds.

    (k^2 var(mean) - sum_s var(row_s)) / (k (k - 1)), at least 0; of a single network its own variance.
    """
    k = len(rows)
    if k == 1:
        return float(rows[0].var())
    return max(0.0, float(k**2 * rows.mean(0).var() - rows.var(1).sum()) / (k * (k - 1)))


def mean_of_accuracies(accuracies: Sequence[float] | Float[np.ndarray, "seeds"], images: int) -> Uncertain:
    """``mean_over_seeds`` where nobody knows which images were right: the images' part is p (1 - p) / N."""
    values = np.asarray(accuracies, dtype=np.float64)
    mean = float(values.mean())
    return Uncertain(mean, _students([values]), _binomial_deviation((mean, images)))


def difference_of_accuracies(
    first: Float[np.ndarray, "seeds"], second: Float[np.ndarray, "seeds"], images: tuple[int, int]
) -> Uncertain:
    """``difference_over_seeds`` with paired seeds where nobody knows which images were right.

    The two then count as tested on images of their own, which is too much for the error and never too little.
    """
    sigma = _binomial_deviation((float(first.mean()), images[0]), (float(second.mean()), images[1]))
    accuracies = (float(first.mean()), float(second.mean()))
    return Uncertain(float(first.mean() - second.mean()), _students([first - second]), sigma, accuracies)


def binomial_variance(
    accuracy: Float[np.ndarray, "*shape"], images: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """p (1 - p) / N with two right and two wrong images added, so that a perfect score does not look certain.

    Reference: Agresti & Coull, "Approximate is better than exact", American Statistician 1998.
    """
    p = (accuracy * images + 2) / (images + 4)
    return p * (1 - p) / (images + 4)


def accuracy_interval(scores: Shaped[np.ndarray, "seeds images"]) -> Estimate:
    """The accuracy of one contender: Wilson's interval for a single network, else that of ``mean_over_seeds``."""
    if len(scores) == 1:
        return wilson_interval(int(scores.sum()), scores.shape[1])
    return mean_over_seeds(scores).interval(within=(0.0, 1.0))


def accuracy_interval_without_images(accuracies: Sequence[float], images: int) -> Estimate:
    """``accuracy_interval`` where only the accuracies are known."""
    if len(accuracies) == 1:
        wilson = wilson_interval(round(accuracies[0] * images), images)
        return Estimate(float(accuracies[0]), wilson.low, wilson.high)
    return mean_of_accuracies(accuracies, images).interval(within=(0.0, 1.0))


def _binomial_deviation(*sides: tuple[float, int]) -> float:
    """Of accuracies (and numbers of images) that were measured on images of their own."""
    accuracies, images = np.array(sides, dtype=np.float64).T
    return math.sqrt(float(binomial_variance(accuracies, images).sum()))


def _uncertain(mean: float, seeds: Sequence[np.ndarray], variance: float, images: int, *, networks: int) -> Uncertain:
    of_images = variance / images + networks / images**2
    if networks == 1:  # with all or none right, Wilson's interval reaches z^2 / N, whatever the seeds agree on
        of_images = max(of_images, (1 - 4 * mean * (1 - mean)) * (Z / images) ** 2)
    return Uncertain(mean, _students(seeds), math.sqrt(of_images))


def _students(sides: Sequence[np.ndarray]) -> tuple[tuple[float, int], ...]:
    """s / sqrt k and k - 1 of each side that has several seeds."""
    several = [side for side in sides if len(side) > 1]
    return tuple((float(side.std(ddof=1)) / math.sqrt(len(side)), len(side) - 1) for side in several)
