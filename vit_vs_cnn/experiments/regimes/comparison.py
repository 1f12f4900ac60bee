"""Pairs of contenders at one training size: the difference, and what may be said of it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vit_vs_cnn.comparison.statistics import Estimate
from vit_vs_cnn.experiments.regimes.resampling import Draws, estimate_from

Verdict = Literal["ahead", "no difference shown", "descriptive only", "no verdict"]
#: Fewer paired seeds than these describe runs and judge nothing.
SEEDS_FOR_A_VERDICT = 3
LEVEL = 0.05


@dataclass(frozen=True)
class Comparison:
    """Two contenders at one training size, on the same images with the same seeds.

    Arguments:
        first: one of them.
        second: the other.
        size: labelled images.
        difference: accuracy of ``first`` minus that of ``second``, with an interval for this pair by itself.
        seeds: how many they have in common.
        p_value: of "there is no difference", two-sided, from the resamples.
        adjusted_p_value: Holm's, over all pairs at this size.
        verdict: what may be said.
        reason: why there is no verdict.
    """

    first: str
    second: str
    size: int
    difference: Estimate
    seeds: int
    p_value: float
    adjusted_p_value: float
    verdict: Verdict
    reason: str | None

    @property
    def leader(self) -> str:
        """Who has the higher accuracy, whether or not that is shown."""
        return self.first if self.difference.value >= 0 else self.second

    @property
    def follower(self) -> str:
        """The other one."""
        return self.second if self.difference.value >= 0 else self.first

    @property
    def lead(self) -> Estimate:
        """Accuracy of the leader minus that of the follower."""
        d = self.difference
        return d if d.value >= 0 else Estimate(-d.value, -d.high, -d.low)

    @property
    def why_no_verdict(self) -> str | None:
        """What stands in the way of a verdict, for a reader; None where there is one."""
        if self.verdict in ("ahead", "no difference shown"):
            return None
        if self.seeds == 1:
            return "one seed describes these networks only"
        if self.seeds < SEEDS_FOR_A_VERDICT:
            return f"{self.seeds} seeds describe these runs only"
        return self.reason

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def comparisons(draws: Draws, obstacles: Sequence[str | None]) -> list[Comparison]:
    """The two contenders of ``draws`` at each size, judged by themselves.

    Arguments:
        obstacles: for each size, why no verdict may be given.
    """
    found = []
    for place, size in enumerate(draws.sizes):
        resampled = draws.values[:, 0, place] - draws.values[:, 1, place]
        difference = estimate_from(draws.observed[0, place] - draws.observed[1, place], resampled)
        p = two_sided(resampled)
        comparison = Comparison(
            first=draws.contenders[0],
            second=draws.contenders[1],
            size=size,
            difference=difference,
            seeds=draws.seeds[place],
            p_value=p,
            adjusted_p_value=p,
            verdict="no verdict",
            reason=obstacles[place],
        )
        found.append(_judged(comparison, p))
    return found


def two_sided(resampled: np.ndarray) -> float:
    """Twice the smaller share of resamples on one side of zero; never below what their number can tell."""
    sides = min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))
    return min(1.0, 2 * (1 + sides) / (1 + len(resampled)))


def adjust_for_pairs(pairs: Sequence[Sequence[Comparison]]) -> list[list[Comparison]]:
    """The same comparisons with p-values corrected, size by size, for the number of pairs; verdicts follow."""
    adjusted = [list(pair) for pair in pairs]
    for size in sorted({c.size for pair in pairs for c in pair}):
        places = [(i, j) for i, pair in enumerate(pairs) for j, c in enumerate(pair) if c.size == size]
        values = holm([pairs[i][j].p_value for i, j in places])
        for (i, j), value in zip(places, values, strict=True):
            adjusted[i][j] = _judged(pairs[i][j], value)
    return adjusted


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the i-th smallest of m times (m - i + 1), made ascending, at most 1.

    Reference: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian J. Statistics 1979.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = least
    return adjusted


def _judged(comparison: Comparison, adjusted: float) -> Comparison:
    verdict: Verdict
    reason = comparison.reason
    if comparison.seeds < SEEDS_FOR_A_VERDICT:
        verdict = "descriptive only"
        seeds = f"{comparison.seeds} seed{'s' * (comparison.seeds > 1)}"
        reason = reason or f"{seeds} in common; a verdict needs {SEEDS_FOR_A_VERDICT}"
    elif reason is not None:
        verdict = "no verdict"
    else:
        excludes_zero = comparison.difference.low > 0 or comparison.difference.high < 0
        verdict = "ahead" if adjusted < LEVEL and excludes_zero else "no difference shown"
    return dataclasses.replace(comparison, adjusted_p_value=adjusted, verdict=verdict, reason=reason)
