"""Tests of networks on the same images (McNemar, Cochran, Friedman), and Holm's correction for looking often."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats


def mcnemar_exact(first: Bool[np.ndarray, "images"], second: Bool[np.ndarray, "images"]) -> float:
    """p-value of the exact two-sided test that both are right equally often.

    Given ``n = b + c`` images that one alone gets right, ``b ~ Binomial(n, 1/2)``: ``p = min(1, 2 P[B <= min(b, c)])``.

    Reference: McNemar, "Note on the sampling error of the difference between correlated proportions", 1947.

    Arguments:
        first, second: whether each image is classified rightly, in the same order.
    """
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    return float(stats.binomtest(only_first, only_first + only_second).pvalue) if (first != second).any() else 1.0


def mean_above_zero(differences: Float[np.ndarray, "images"]) -> float:
    """One-sided p-value of the paired t-test that the mean of differences is above zero.

    Where all differences are equal there is no spread to compute with: the sign test, ``2^-n`` or 1.

    Reference: Student, "The probable error of a mean", Biometrika 1908.
    """
    if np.ptp(differences) == 0:
        return float(0.5 ** len(differences)) if differences[0] > 0 else 1.0
    return float(stats.t.sf(differences.mean() / stats.sem(differences), len(differences) - 1))


def holm(p_values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """p-values corrected for their number, such that no false one among them is below alpha more often than that.

    With p-values in the order of p_i / w_i: ``max_{j <= i} min(1, p_j W_j / w_j)``, W_j = 1 less the weights of those
    before j. Equal weights 1 / m give ``max_{j <= i} min(1, (m - j + 1) p_j)``.

    Reference: Holm, "A simple sequentially rejective multiple test procedure", 1979 (section 4 has the weights).

    Arguments:
        weights: shares of the error, above 0; what they lack to 1 is kept for tests that are not here. Equal if none
            are given.
    """
    p = np.asarray(p_values, dtype=float)
    w = np.full(len(p), 1 / max(1, len(p))) if weights is None else np.asarray(weights, dtype=float)
    order = np.argsort(p / w, kind="stable")
    left = 1 - np.concatenate([[0.0], np.cumsum(w[order])[:-1]])
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * left / w[order]))
    return corrected.tolist()


def cochran_q(correct: Bool[np.ndarray, "networks images"]) -> tuple[float, float]:
    """Statistic and p-value that all networks are right equally often: Friedman's test where outcomes are two.

    ``Q = (k - 1) (k sum_j C_j^2 - T^2) / (k T - sum_i R_i^2)`` with column sums C, row sums R and total T; chi-squared
    with k - 1 degrees of freedom.

    Reference: Cochran, "The comparison of percentages in matched samples", Biometrika 1950.
    """
    if (correct == correct[0]).all():
        return 0.0, 1.0
    q, p = stats.friedmanchisquare(*correct)
    return float(q), float(p)


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
