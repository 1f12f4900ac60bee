"""What the best of so many trials is to be expected to reach."""

from collections.abc import Sequence
from math import comb


def expected_best(values: Sequence[float], count: int) -> float:
    """Expected maximum of ``count`` of the values, drawn without replacement.

    E_k = sum_i v_(i) C(i - 1, k - 1) / C(N, k), with the values in ascending order, i = 1 ... N: of all subsets of k
    values, C(i - 1, k - 1) have the i-th as their largest.

    Reference: the curve is that of Dodge et al., "Show Your Work: Improved Reporting of Experimental Results", EMNLP
        2019, who draw with replacement; without it the estimate is unbiased (Tang et al., "Showing Your Work Doesn't
        Always Work", ACL 2020).

    Arguments:
        values: of the trials, one for each.
        count: k, from 1 to as many as there are.

    Raises:
        ValueError: there are fewer values.
    """
    if not 1 <= count <= len(values):
        raise ValueError(f"the best of {count} needs as many values; there are {len(values)}")
    ways = [comb(place, count - 1) for place in range(len(values))]
    return sum(value * way for value, way in zip(sorted(values), ways, strict=True)) / comb(len(values), count)
