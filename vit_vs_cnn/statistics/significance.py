"""Exact and paired tests, Holm's adjustment for multiple comparisons, and error rates of interim analyses."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

#: Significance level: share of false claims among experiments with equal models.
ERROR_RATE = 0.05
#: Error rates of the first analysis, and of the second one, made after seeds were added. The probability of a false
#: claim in either is at most 6 %. Later analyses are exploratory.
INTERIM_ERROR_RATES = (ERROR_RATE, 0.01)


def mcnemar_exact(first: Bool[np.ndarray, "images"], second: Bool[np.ndarray, "images"]) -> float:
    """Two-sided p-value of the exact test that two networks are right equally often on the same images.

    Given ``n = b + c`` images that exactly one of them classifies correctly, ``b ~ Binomial(n, 1/2)`` and
    ``p = min(1, 2 P[B <= min(b, c)])``.

    Reference: McNemar, "Note on the sampling error of the difference between correlated proportions", 1947.
    """
    from scipy import stats  # takes half a second to load

    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    return float(stats.binomtest(only_first, only_first + only_second).pvalue) if (first != second).any() else 1.0


def fisher_exact(first_failures: int, first_runs: int, second_failures: int, second_runs: int) -> float:
    """Two-sided p-value of Fisher's exact test that runs of two models fail equally often.

    Reference: Fisher, "On the interpretation of chi-squared from contingency tables", JRSS 1922.
    """
    from scipy import stats

    table = [[first_failures, first_runs - first_failures], [second_failures, second_runs - second_failures]]
    return float(stats.fisher_exact(table).pvalue)  # pyright: ignore[reportAttributeAccessIssue]


def one_sided_p_value(differences: Float[np.ndarray, "images"]) -> float:
    """One-sided p-value of the paired t-test for a mean difference above zero.

    If all differences are equal, the t-test is undefined and the sign test gives the p-value: ``2^-n`` or 1.

    Reference: Student, "The probable error of a mean", Biometrika 1908.
    """
    from scipy import stats

    if np.ptp(differences) == 0:
        return float(0.5 ** len(differences)) if differences[0] > 0 else 1.0
    return float(stats.t.sf(differences.mean() / stats.sem(differences), len(differences) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for multiple comparisons by Holm's method, in the given order.

    The i-th smallest of m is multiplied by m - i + 1, and none is smaller than the one before it.

    Reference: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted.tolist()
