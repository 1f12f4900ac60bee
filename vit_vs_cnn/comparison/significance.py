"""Whether networks tested on the same images differ: exact tests, bootstraps, and corrections for looking often."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Shaped
from scipy import optimize, stats

from vit_vs_cnn.comparison.statistics import Estimate

RESAMPLES = 10_000


@dataclass(frozen=True)
class McNemar:
    """Two networks on the same images: how many only one of them gets right, and how surprising that is by chance."""

    only_first: int
    only_second: int
    p_value: float


def mcnemar_exact(first: Bool[np.ndarray, "images"], second: Bool[np.ndarray, "images"]) -> McNemar:
    """Exact two-sided test that both are right equally often.

    Given ``n = b + c`` images that one alone gets right, ``b ~ Binomial(n, 1/2)``: ``p = min(1, 2 P[B <= min(b, c)])``.

    Reference: McNemar, "Note on the sampling error of the difference between correlated proportions", 1947.

    Arguments:
        first, second: whether each image is classified rightly, in the same order.
    """
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    discordant = only_first + only_second
    p = min(1.0, 2 * float(stats.binom.cdf(min(only_first, only_second), discordant, 0.5))) if discordant else 1.0
    return McNemar(only_first, only_second, p)


def paired_bootstrap(
    first: Bool[np.ndarray, "seeds images"],
    second: Bool[np.ndarray, "other_seeds images"],
    *,
    seed: int,
    paired_seeds: bool = True,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Estimate:
    """Percentile interval of the difference in mean accuracy, seeds and then images drawn again with replacement.

    Images are drawn once for both sides, so what both find hard cancels. Images that all networks treat alike are
    interchangeable: their numbers are drawn at once from a multinomial distribution, which is the same.

    Reference: Efron & Tibshirani, "An introduction to the bootstrap", 1993, chapters 8 and 13.

    Arguments:
        first, second: whether each image is classified rightly, one row for each seed.
        seed: of the draws.
        paired_seeds: row i of both has the same seed (and subset), so that rows are drawn in pairs.
        resamples: how many draws.

    Raises:
        ValueError: rows to be paired that differ in number.
    """
    if paired_seeds and len(first) != len(second):
        raise ValueError(f"paired seeds must be as many on both sides, but are {len(first)} and {len(second)}")
    patterns, counts = np.unique(np.concatenate([first, second]), axis=1, return_counts=True)
    rng, count = np.random.default_rng(seed), first.shape[1]
    images = rng.multinomial(count, counts / count, size=resamples) / count
    ours = _drawn_rows(rng, len(first), resamples)
    theirs = ours if paired_seeds else _drawn_rows(rng, len(second), resamples)
    of_rows = images @ patterns.T.astype(float)  # accuracy of each row in each draw of images
    drawn = (of_rows[:, : len(first)] * ours).sum(1) - (of_rows[:, len(first) :] * theirs).sum(1)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(first.mean() - second.mean()), float(low), float(high))


def _drawn_rows(rng: np.random.Generator, rows: int, resamples: int) -> np.ndarray:
    """Weight of each row in each draw, ``(resamples, rows)``."""
    return rng.multinomial(rows, np.full(rows, 1 / rows), size=resamples) / rows


def difference_over_seeds(
    first: Shaped[np.ndarray, "seeds images"],
    second: Shaped[np.ndarray, "other_seeds images"],
    *,
    paired_seeds: bool,
    confidence: float = 0.95,
) -> Estimate:
    """Mean accuracy of ``first`` minus ``second``, for fresh seeds and fresh images.

    Half-width sqrt(sum_g (t_g s_g)^2 / k_g + z^2 v / count): with paired seeds one term, of the differences (then it is
    ``statistics.paired_difference``); else one term for each side. A side with one seed has no such term.
    """
    mean, seeds, images = _parts(first, second, paired_seeds)
    half = _half_width(1 - confidence, seeds, images)
    return Estimate(mean, mean - half, mean + half)


def p_value_over_seeds(
    first: Shaped[np.ndarray, "seeds images"], second: Shaped[np.ndarray, "other_seeds images"], *, paired_seeds: bool
) -> float:
    """The smallest error rate at which the interval of ``difference_over_seeds`` leaves zero out."""
    mean, seeds, images = _parts(first, second, paired_seeds)
    least = 1e-12
    if mean == 0 or (images == 0 and not any(error for _, error in seeds)):
        return 1.0 if mean == 0 else least
    if _half_width(least, seeds, images) < abs(mean):
        return least
    found = optimize.root_scalar(
        lambda p: _half_width(p, seeds, images) - abs(mean), bracket=(least, 1.0), method="brentq", xtol=1e-12
    )
    return float(found.root)


def _parts(first: np.ndarray, second: np.ndarray, paired: bool) -> tuple[float, list[tuple[int, float]], float]:
    """The difference; for each source of seeds its degrees of freedom and squared error; the images' squared error."""
    difference = first.mean(0) - second.mean(0)
    images = float(difference.var(ddof=1)) / len(difference) if len(difference) > 1 else 0.0
    sides = [first.mean(1) - second.mean(1)] if paired else [first.mean(1), second.mean(1)]
    seeds = [(len(side) - 1, float(side.var(ddof=1)) / len(side)) for side in sides if len(side) > 1]
    return float(difference.mean()), seeds, images


def _half_width(p: float, seeds: list[tuple[int, float]], images: float) -> float:
    squares = sum(float(stats.t.isf(p / 2, df)) ** 2 * error for df, error in seeds)
    return float(np.sqrt(squares + float(stats.norm.isf(p / 2)) ** 2 * images))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number: ``max_{j <= i} min(1, (m - j + 1) p_(j))`` over the sorted ones.

    Reference: Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * np.asarray(p_values, dtype=float)[order]))
    return corrected.tolist()


def cochran_q(correct: Bool[np.ndarray, "networks images"]) -> tuple[float, float]:
    """Statistic and p-value that all networks are right equally often: Friedman's test where outcomes are two.

    ``Q = (k - 1) (k sum_j C_j^2 - T^2) / (k T - sum_i R_i^2)`` with column sums C, row sums R and total T; chi-squared
    with k - 1 degrees of freedom.

    Reference: Cochran, "The comparison of percentages in matched samples", Biometrika 1950.
    """
    k, of_networks, of_images = len(correct), correct.sum(1).astype(float), correct.sum(0).astype(float)
    spread = k * of_images.sum() - (of_images**2).sum()
    if spread == 0:
        return 0.0, 1.0
    q = (k - 1) * (k * (of_networks**2).sum() - of_images.sum() ** 2) / spread
    return float(q), float(stats.chi2.sf(q, k - 1))


@dataclass(frozen=True)
class Friedman:
    """Ranks of contenders over blocks.

    Arguments:
        statistic, p_value: of the hypothesis that all rank alike.
        ranks: mean rank of each contender; 1 is the best.
        critical_difference: two mean ranks further apart than this differ at 5 % (Nemenyi).
    """

    statistic: float
    p_value: float
    ranks: list[float]
    critical_difference: float


def friedman_nemenyi(accuracies: Sequence[Sequence[float]]) -> Friedman:
    """Friedman's test on ``(contenders, blocks)`` accuracies, blocks being seeds or data sets, and Nemenyi's distance.

    ``CD = q_.05 sqrt(k (k + 1) / (6 N))``, q the studentized range at infinite degrees of freedom over sqrt 2.

    Reference: Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 2006, section 3.2.2.
    Differs: with fewer than about ten blocks the chi-squared approximation is coarse; the caller says so.

    Raises:
        ValueError: fewer than three contenders or two blocks.
    """
    values = np.asarray(accuracies, dtype=float)
    k, blocks = values.shape
    if k < 3 or blocks < 2:
        raise ValueError(f"Friedman's test needs three contenders and two blocks, but has {k} and {blocks}")
    ranks = stats.rankdata(-values, axis=0).mean(1)
    distance = float(stats.studentized_range.isf(0.05, k, np.inf)) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * blocks))
    if np.ptp(values, axis=0).max() == 0:  # all ranks tied: nothing to test
        return Friedman(0.0, 1.0, ranks.tolist(), float(distance))
    statistic, p = stats.friedmanchisquare(*values)
    return Friedman(float(statistic), float(p), ranks.tolist(), float(distance))
