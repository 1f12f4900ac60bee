"""Two contenders on the same images: the difference, its p-value, and what may be said of it."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from vit_vs_cnn.statistics.estimate import Estimate, p_text
from vit_vs_cnn.statistics.means import Uncertain, difference_of_accuracies, difference_over_seeds
from vit_vs_cnn.statistics.significance import holm, mcnemar_exact

Verdict = Literal["ahead", "no difference shown", "descriptive only", "no verdict"]
#: Fewer paired seeds than these describe runs and judge nothing.
SEEDS_FOR_A_VERDICT = 3
LEVEL = 0.05
UNPAIRED = "their seeds or subsets are not the same"
MCNEMAR = "exact McNemar"


@dataclass(frozen=True)
class Comparison:
    """Two contenders, compared on the same images.

    Arguments:
        difference: accuracy of ``first`` minus that of ``second``, with an interval for this pair by itself.
        seeds: how many are compared on each side; the smaller number.
        paired: whether seed by seed, on the same subsets.
        p_value: of "there is no difference", two-sided.
        adjusted_p_value: Holm's, over all pairs of the family.
        family: how many pairs were looked at together: those at one size.
    """

    first: str
    second: str
    difference: Estimate
    seeds: int
    paired: bool
    test: str
    p_value: float
    adjusted_p_value: float
    family: int
    verdict: Verdict
    reason: str | None

    @property
    def leader(self) -> str:
        return self.first if self.difference.value >= 0 else self.second

    @property
    def follower(self) -> str:
        return self.second if self.difference.value >= 0 else self.first

    @property
    def lead(self) -> Estimate:
        return self.difference if self.difference.value >= 0 else -self.difference

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

    @property
    def sentence(self) -> str:
        """All of it in words: the same wherever these two are compared."""
        lead, p = self.lead, p_text(self.adjusted_p_value)
        points = f"{100 * lead.value:.1f} points"
        apart = f"{self.leader} is {points} above {self.follower}"
        if points == "0.0 points":
            apart = f"{self.leader} and {self.follower} are {points} apart"
        test = f"{'McNemar: ' if self.test == MCNEMAR else ''}p {p if p[0] == '<' else f'= {p}'}"
        holms = f", Holm over {self.family} pairs" if self.family > 1 else ""
        interval = f"{100 * lead.low:+.1f} to {100 * lead.high:+.1f}"
        return f"{apart} ({interval}; {test}{holms}); {self._what_it_says()}"

    def _what_it_says(self) -> str:
        if self.why_no_verdict is not None:
            return f"no verdict: {self.why_no_verdict}"
        return f"shown over {self.seeds} paired seeds" if self.verdict == "ahead" else "no difference is shown"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


Compared = TypeVar("Compared", bound=Comparison)


def compare_scores(
    names: tuple[str, str],
    first: Bool[np.ndarray, "seeds images"],
    second: Bool[np.ndarray, "other_seeds images"],
    *,
    paired: bool = True,
    obstacle: str | None = None,
) -> Comparison:
    """Compare two contenders of which it is known which images each network classifies rightly.

    The interval is that of ``means.difference_over_seeds``, and so is the p-value, unless there is one network on each
    side: these have the exact test of McNemar.

    Arguments:
        first, second: whether each image is classified rightly, one row for each seed.
        paired: row i of both has the same seed and subset. A single network on each side need not.
        obstacle: why no verdict may be given, whatever the numbers.
    """
    seeds = min(len(first), len(second))
    single = len(first) == len(second) == 1
    uncertain = difference_over_seeds(first, second, paired_seeds=paired or single)
    p = mcnemar_exact(first[0], second[0]).p_value if single else uncertain.p_value
    test = MCNEMAR if single else "Student over seeds, normal over images"
    reason = obstacle if paired else obstacle or UNPAIRED
    return _by_itself(names, uncertain, seeds=seeds, paired=paired, test=test, p=p, reason=reason)


def compare_accuracies(
    names: tuple[str, str],
    first: Float[np.ndarray, "seeds"],
    second: Float[np.ndarray, "seeds"],
    images: tuple[int, int],
    *,
    obstacle: str | None = None,
) -> Comparison:
    """``compare_scores`` for paired seeds of which nothing but accuracies is known."""
    uncertain = difference_of_accuracies(first, second, images)
    test = "Student over seeds, normal over images, predictions unknown"
    p, seeds = uncertain.p_value, len(first)
    return _by_itself(names, uncertain, seeds=seeds, paired=True, test=test, p=p, reason=obstacle)


def _by_itself(
    names: tuple[str, str], uncertain: Uncertain, *, seeds: int, paired: bool, test: str, p: float, reason: str | None
) -> Comparison:
    found = Comparison(
        first=names[0],
        second=names[1],
        difference=uncertain.interval(),
        seeds=seeds,
        paired=paired,
        test=test,
        p_value=p,
        adjusted_p_value=p,
        family=1,
        verdict="no verdict",
        reason=reason,
    )
    return corrected([found])[0]


def corrected(family: Sequence[Compared]) -> list[Compared]:
    """The same comparisons with p-values corrected for their number (Holm); verdicts follow.

    Ahead is who has a corrected p-value below 5 % and an interval off zero, with at least three paired seeds and
    nothing in the way; the interval is of the pair by itself.
    """
    adjusted = holm([comparison.p_value for comparison in family])
    return [_judged(one, p, len(family)) for one, p in zip(family, adjusted, strict=True)]


def _judged(comparison: Compared, adjusted: float, family: int) -> Compared:
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
    return dataclasses.replace(comparison, adjusted_p_value=adjusted, family=family, verdict=verdict, reason=reason)


def early_end(ended_early: Iterable[Any]) -> str | None:
    """Why runs that a callback ended before their budget allow no verdict; None where all came to its end."""
    return "some of their runs ended before their budget" if any(ended_early) else None


def reservations(reasons: Iterable[str | None]) -> str | None:
    """What the ledger of a test set has against a verdict on a pair; None where it has nothing."""
    return "; ".join(sorted({reason for reason in reasons if reason is not None})) or None
