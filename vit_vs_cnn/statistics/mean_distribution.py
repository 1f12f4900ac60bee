"""Distributions of mean accuracies and their differences, which give intervals, p-values and power."""

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from scipy import optimize, special

from vit_vs_cnn.statistics.intervals import Z_975, Estimate, wilson_interval
from vit_vs_cnn.statistics.variance import SeedVariance, binomial_variance, image_variance

#: Number of nodes of the quadrature over the chi distribution of a standard deviation.
QUADRATURE_NODES = 200
#: Number of degrees of freedom from which Student's distribution is replaced by the normal one.
MAX_DEGREES_OF_FREEDOM = 1e5
#: Probability that a test finds the minimum detectable difference.
POWER = 0.8
#: Largest numbers of seeds and of test images that ``numbers_needed`` returns.
MAX_SEEDS, MAX_IMAGES = 100, 1_000_000


@dataclass(frozen=True, eq=False)
class SeedScores:
    """Test results of one model, one row for each seed.

    Arguments:
        accuracies: accuracy of each seed, in [0, 1].
        images: number of test images of each seed.
        correct: for each seed the score on each image, from 0 (wrong) to 1 (right); None if unknown.
    """

    accuracies: Float[np.ndarray, "seeds"]
    images: Shaped[np.ndarray, "seeds"]
    correct: Sequence[np.ndarray] | None = None

    @classmethod
    def from_correct(cls, correct: Iterable[Any]) -> "SeedScores":
        """Scores from those of single images, one array or tensor ``(images,)`` for each seed."""
        rows = [np.asarray(row, dtype=np.float64) for row in correct]
        return cls(np.array([row.mean() for row in rows]), np.array([len(row) for row in rows]), rows)

    @classmethod
    def concatenate(cls, parts: Sequence["SeedScores"]) -> "SeedScores":
        """Scores of the seeds of all parts; ``correct`` is None if it is None in any part."""
        accuracies, images = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("accuracies", "images")
        )
        correct = [row for part in parts for row in part.correct or ()]
        return cls(accuracies, images, correct if len(correct) == len(accuracies) else None)

    def __len__(self) -> int:
        return len(self.accuracies)

    def __sub__(self, subtrahend: "SeedScores") -> "SeedScores":
        """Differences of paired rows."""
        if len(self) != len(subtrahend):
            raise ValueError(f"paired scores need the same seeds, but there are {len(self)} and {len(subtrahend)}")
        correct, images = None, np.minimum(self.images, subtrahend.images)
        if self.correct is not None and subtrahend.correct is not None:
            correct = [a - b for a, b in zip(self.correct, subtrahend.correct, strict=True)]
        return SeedScores(self.accuracies - subtrahend.accuracies, images, correct)

    @property
    def accuracy(self) -> float:
        return float(self.accuracies.mean())

    @property
    def image_count(self) -> int:
        """Number of test images; the smallest number if it differs between seeds."""
        return int(self.images.min())


@dataclass(frozen=True)
class MeanDistribution:
    """Distribution of a mean over new seeds and new test images: ``mean + sum_j a_j T_j + sigma Z``.

    T_j is Student's with df_j degrees of freedom (seeds) and Z is normal (test images), all independent. Given the
    chi-distributed r_j of each T_j the sum is normal, so that

        ``P[|x - mean| > h] = E_r[2 Phi(-h / sqrt(sigma^2 + sum_j a_j^2 df_j / r_j^2))]``.

    The expectation is a sum over Gauss-Legendre nodes. The interval excludes zero exactly where the p-value is below
    the error rate.

    Arguments:
        seed_parts: (a_j, df_j) of each source of seeds; none for a single network, whose interval then covers test
            images only.
        image_error: sigma, the standard error over test images.
        accuracies: the two accuracies if the mean is their difference; None otherwise.
    """

    mean: float
    seed_parts: tuple[tuple[float, float], ...]
    image_error: float
    accuracies: tuple[float, float] | None = None

    def tail_probability(self, distance: float) -> float:
        """``P[|x - mean| > distance]``."""
        if distance <= 0:
            return 1.0
        variance, weight = np.array([self.image_error**2]), np.ones(1)
        for scale, freedom in self.seed_parts:
            inverse, probability = _inverse_chi_square(freedom)
            variance = (variance[:, None] + scale**2 * inverse).ravel()
            weight = (weight[:, None] * probability).ravel()
        with np.errstate(divide="ignore"):
            return float(weight @ (2 * special.ndtr(-distance / np.sqrt(variance))))

    def interval(self, confidence: float = 0.95, *, bounds: tuple[float, float] = (-1.0, 1.0)) -> Estimate:
        """The central interval, clipped to ``bounds``.

        An end of a difference is set to -1 or 1 if it is impossible with either accuracy as measured. The data then do
        not determine this end.
        """
        half = self._half_width(1 - confidence)
        low, high = self.mean - half, self.mean + half
        if self.accuracies is not None:
            first, second = self.accuracies
            low = -1.0 if low < -max(second, 1 - first) else low
            high = 1.0 if high > max(first, 1 - second) else high
        return Estimate(self.mean, max(bounds[0], low), min(bounds[1], high))

    def _half_width(self, error_rate: float) -> float:
        """Distance from the mean that is exceeded with this probability."""
        upper = 1e-9
        while self.tail_probability(upper) > error_rate:
            upper *= 4
        excess = lambda h: self.tail_probability(h) - error_rate  # noqa: E731
        return float(optimize.root_scalar(excess, bracket=(0.0, upper), xtol=1e-13).root)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of a mean of zero."""
        return self.tail_probability(abs(self.mean))

    def minimum_detectable(self, level: float = 0.05) -> float:
        """Smallest true mean that a two-sided test finds with a power of 80 %, if the estimated variances are true.

        Let s be the standard error and h half the interval at ``level``. The result is the d with
        ``P[|T| > h / s] = 0.8``. T has the noncentral t distribution around d / s with Satterthwaite's degrees of
        freedom.

        Reference: Cohen, "Statistical power analysis for the behavioral sciences", 1988, section 2.5.
        """
        parts = [scale**2 for scale, _ in self.seed_parts]
        variance = sum(parts) + self.image_error**2
        spread = sum(part**2 / freedom for part, (_, freedom) in zip(parts, self.seed_parts, strict=True))
        inverse, weight = _inverse_chi_square(variance**2 / spread if spread else MAX_DEGREES_OF_FREEDOM)
        half_width, error = self._half_width(level), math.sqrt(variance)
        threshold = half_width / np.sqrt(variance * inverse)

        def missing_power(d: float) -> float:
            return POWER - float(weight @ (special.ndtr(d - threshold) + special.ndtr(-d - threshold)))

        return error * optimize.root_scalar(missing_power, bracket=(0.0, 4 * half_width / error + 10)).root


@lru_cache(maxsize=256)
def _inverse_chi_square(df: int | float) -> tuple[Float[np.ndarray, "nodes"], Float[np.ndarray, "nodes"]]:
    """df / r^2 for chi-distributed r, and the probability of each node."""
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    df = min(df, MAX_DEGREES_OF_FREEDOM)
    low, high = (max(0.0, math.sqrt(df) - 9), math.sqrt(df) + 9)
    r = low + (high - low) * (nodes + 1) / 2
    log_density = special.xlogy(df - 1, r) - 0.5 * r**2  # up to a constant
    probability = weights * np.exp(log_density - log_density.max())
    return df / r**2, probability / probability.sum()


def numbers_needed(
    distribution: MeanDistribution, seeds: int, images: int, difference: float, *, level: float
) -> tuple[int | None, int | None]:
    """Number of seeds, and number of test images, each for a power of 80 % at a true difference.

    None if no number of them alone is enough. ``seeds`` and ``images`` are those of ``distribution``.
    """

    def with_seeds(count: int) -> MeanDistribution:
        parts = tuple(
            (scale * math.sqrt(seeds / count), max(1.0, freedom * (count - 1) / max(1, seeds - 1)))
            for scale, freedom in distribution.seed_parts
        )
        return replace(distribution, seed_parts=parts)

    def with_images(count: int) -> MeanDistribution:
        return replace(distribution, image_error=distribution.image_error * math.sqrt(images / count))

    def smallest_number(distribution_with: Callable[[int], MeanDistribution], low: int, high: int) -> int | None:
        is_enough = lambda count: distribution_with(count).minimum_detectable(level) <= abs(difference)  # noqa: E731
        numbers = range(low, max(low, high) + 1)
        index = bisect.bisect_left(numbers, True, key=is_enough)
        return numbers[index] if index < len(numbers) else None

    return smallest_number(with_seeds, seeds, MAX_SEEDS), smallest_number(with_images, images, MAX_IMAGES)


def mean_over_seeds(scores: SeedScores, *, fold_train_size: int | None = None) -> MeanDistribution:
    """Distribution of the mean accuracy over new seeds and new test images.

    The variance of the mean over k seeds and N images is s^2 / k + v / N + 1 / N^2. s is the standard deviation of the
    seeds' accuracies, with k - 1 degrees of freedom, and includes the noise of a single network on single images. v is
    the variance over images that all seeds have in common (``image_variance``). 1 / N^2 is added so that a perfect
    score has a standard error above zero.

    Where seeds hold out different folds, all image noise is part of s, v is 0, and N counts the images of all folds.
    The training sets of two folds overlap. The variance of the mean is therefore s^2 / k + (n_test / n_train) t^2. t^2
    is the variance s^2 without the image noise.

    References: Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 2007 (seeds and images are crossed);
    Nadeau & Bengio, "Inference for the generalization error", Machine Learning 2003, equation 8 (folds).
    Differs: Nadeau & Bengio have s^2 in place of t^2. Image noise of different folds is independent.

    Arguments:
        fold_train_size: number of training images of each seed, n_train, if seeds hold out different folds. None if all
            seeds have the same test images.
    """
    mean, parts = scores.accuracy, _seed_parts(scores, None, fold_train_size)
    if fold_train_size is not None and parts:
        return MeanDistribution(mean, parts, 1 / float(scores.images.sum()))
    if scores.correct is None:
        return MeanDistribution(mean, parts, math.sqrt(binomial_variance(mean, scores.image_count)))
    images = scores.image_count
    variance = image_variance(np.stack(scores.correct)) / images + 1 / images**2
    wilson = (1 - 4 * mean * (1 - mean)) * (Z_975 / images) ** 2  # with all or none right its half width is z^2 / N
    return MeanDistribution(mean, parts, math.sqrt(max(variance, wilson)))


def difference_over_seeds(
    first: SeedScores,
    second: SeedScores,
    *,
    paired: bool = True,
    seed_variance: SeedVariance | None = None,
    fold_train_size: int | None = None,
) -> MeanDistribution:
    """Distribution of the accuracy of ``first`` minus the accuracy of ``second``, over new seeds and new test images.

    Paired rows have the same seed, training subset and test images. Then the result is the distribution of the mean
    difference (``mean_over_seeds``), in which images that are hard for both models cancel. Otherwise the two seed
    variances are added (Behrens-Fisher problem). The image variance is then v_first + v_second - 2 cov, with the
    covariance of the two means over seeds.

    Arguments:
        paired: whether row i of both models has the same seed, training subset and test images. Unpaired rows are of
            the same test images if their number is the same. Raises ValueError: paired, but unequal numbers of seeds.
        seed_variance: variance of a single seed's difference, for example pooled over training-set sizes; by default
            estimated from these seeds.
        fold_train_size: see ``mean_over_seeds``.
    """
    accuracies = (first.accuracy, second.accuracy)
    mean, images = accuracies[0] - accuracies[1], min(first.image_count, second.image_count)
    differences = first - second if paired else None
    if differences is not None:
        parts = _seed_parts(differences, seed_variance, fold_train_size)
    else:
        parts = tuple(part for side in (first, second) for part in _seed_parts(side, None, fold_train_size))
    if fold_train_size is not None and parts:
        return MeanDistribution(mean, parts, 1 / float(min(first.images.sum(), second.images.sum())), accuracies)
    if first.correct is None or second.correct is None:
        variance = sum(binomial_variance(side.accuracy, side.image_count) for side in (first, second))
        return MeanDistribution(mean, parts, math.sqrt(variance), accuracies)
    if differences is not None and differences.correct is not None:
        variance = image_variance(np.stack(differences.correct))
    else:
        rows = np.stack(first.correct), np.stack(second.correct)
        is_same = rows[0].shape[1] == rows[1].shape[1]  # other test sets have no images in common
        covariance = float(np.cov(rows[0].mean(0), rows[1].mean(0), ddof=0)[0, 1]) if is_same else 0.0
        variance = max(0.0, image_variance(rows[0]) + image_variance(rows[1]) - 2 * covariance)
    return MeanDistribution(mean, parts, math.sqrt(variance / images + 1 / images**2), accuracies)


def _seed_parts(
    scores: SeedScores, seed_variance: SeedVariance | None, fold_train_size: int | None
) -> tuple[tuple[float, float], ...]:
    """Standard error over seeds and its degrees of freedom; empty for a single seed."""
    seeds = len(scores)
    if seeds < 2:
        return ()
    variance, freedom = seed_variance or SeedVariance(float(scores.accuracies.var(ddof=1)), seeds - 1)
    of_mean = variance / seeds
    if fold_train_size is not None:
        noise = np.mean([row.var() / len(row) for row in scores.correct]) if scores.correct else 0.0
        of_mean += float(scores.images.mean()) / fold_train_size * max(0.0, variance - float(noise))
    return ((math.sqrt(of_mean), float(freedom)),)


def accuracy_interval(scores: SeedScores, *, fold_train_size: int | None = None) -> Estimate:
    """Accuracy of one model, with Wilson's interval for a single network and ``mean_over_seeds`` for several."""
    if len(scores) == 1:
        wilson = wilson_interval(round(scores.accuracy * scores.image_count), scores.image_count)
        return replace(wilson, value=scores.accuracy)
    return mean_over_seeds(scores, fold_train_size=fold_train_size).interval(bounds=(0.0, 1.0))
