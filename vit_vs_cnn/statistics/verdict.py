"""Two contenders on the same images: the difference, its p-value, and what may be said of it."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from vit_vs_cnn.statistics.estimate import Estimate, p_text, points_range
from vit_vs_cnn.statistics.looks import SEEDS_FOR_A_VERDICT, Plan
from vit_vs_cnn.statistics.means import Uncertain, difference_of_accuracies, difference_over_seeds
from vit_vs_cnn.statistics.significance import holm, mcnemar_exact
from vit_vs_cnn.told import counted

Verdict = Literal["ahead", "equivalent", "no difference shown", "descriptive only", "no verdict"]
#: Those that a reader acts on.
DECIDED: tuple[Verdict, ...] = ("ahead", "equivalent")
#: False verdicts "ahead" among all that are judged together, and false "equivalent", each in at most this share.
LEVEL = 0.05
#: Contenders closer than this are equivalent, where nothing else is said.
MARGIN = 0.01
#: Were one right on all of n images and the other on none, the exact test of McNemar would give p = 2^(1 - n), which is
#: below 5 % from six images on.
FEWEST_IMAGES = 6
MCNEMAR = "exact McNemar"


class ObstacleKind(StrEnum):
    """What stands in the way of a conclusion."""

    FEW_IMAGES = "too few scored images"
    FEW_SEEDS = "too few seeds"
    UNPAIRED = "other seeds or subsets"
    UNFINISHED = "planned seeds are missing"
    UNPLANNED_SEEDS = "no planned seed"
    OTHER_BUDGET = "another budget than planned"
    TEST_SET_LOG = "test-set log"
    TUNING = "unequal tuning"
    ENDED_EARLY = "ended before the budget"
    VALIDATION_IMAGES = "scored on validation images"
    OTHER_IMAGES = "different images"
    OTHER_SUBSETS = "different subsets"


@dataclass(frozen=True)
class Obstacle:
    """Why there is no conclusion on a pair, whatever the numbers.

    Arguments:
        text: clause for a reader.
    """

    kind: ObstacleKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Comparison:
    """Two contenders, compared on the same images.

    Arguments:
        difference: accuracy of ``first`` minus that of ``second``, with an interval for this pair by itself; where
            looks come on the way (``plan``) it is the repeated interval, which holds at all looks together.
        uncertain: the distribution behind it.
        images: on which they are compared; the smaller number, where the sides have others.
        seeds: how many are compared on each side; the smaller number.
        later_seeds: how many more there are than were planned; no verdict stands on these.
        paired: whether seed by seed, on the same subsets.
        p_value: of "there is no difference", two-sided, of this look by itself.
        adjusted_p_value: the same with all looks up to this one allowed for, and corrected over the family (Holm).
        family: how many comparisons are judged together.
        primary: whether it is the one that has half of the error to itself.
        level: the p-value of this look below which it is "ahead", with what the family leaves to it.
        margin: contenders closer than this are equivalent.
        plan: how many seeds were to be compared, and whether verdicts come on the way.
    """

    first: str
    second: str
    difference: Estimate
    uncertain: Uncertain
    images: int
    seeds: int
    later_seeds: int
    paired: bool
    test: str
    p_value: float
    adjusted_p_value: float
    family: int
    primary: bool
    level: float
    margin: float
    plan: Plan
    verdict: Verdict
    reason: Obstacle | None

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
        if self.verdict in ("ahead", "equivalent", "no difference shown"):
            return None
        if self.images < FEWEST_IMAGES:
            return too_few(self.images)
        if self.seeds == 1:
            return "one seed describes these networks only"
        if self.seeds < SEEDS_FOR_A_VERDICT:
            return f"{self.seeds} seeds describe these runs only"
        return self.reason and self.reason.text

    @property
    def smallest_gap(self) -> float | None:
        """The difference that so many seeds with this spread would have shown in 80 % of cases, at this ``level``.

        None where no network can be so far above the worse of the two.
        """
        gap = self.uncertain.detectable(self.level)
        return gap if gap <= self.room else None

    @property
    def room(self) -> float:
        """The largest difference to the worse of the two."""
        return 1 - min(self.uncertain.accuracies or (0.0,))

    @property
    def what_would_show(self) -> str:
        """``smallest_gap`` in words."""
        if self.smallest_gap is None:
            return (
                f"{counted(self.seeds, 'seed')} and {counted(self.images, 'test image')} can only show a gap that is "
                f"larger than the {100 * self.room:.1f} points of room above the worse accuracy"
            )
        return f"a gap of {100 * self.smallest_gap:.1f} points would have been shown in 80 % of cases"

    @property
    def sentence(self) -> str:
        """All of it in words: the same wherever these two are compared."""
        lead, p = self.lead, p_text(self.adjusted_p_value)
        test = f"{'McNemar: ' if self.test == MCNEMAR else ''}p {p if p[0] == '<' else f'= {p}'}"
        interval = points_range(lead, sign=True)
        apart = self.apart(self.leader, self.follower)
        return f"{apart} ({'; '.join([interval, ', '.join([test, *self._allowed_for()])])}); {self._what_it_says()}"

    def apart(self, leader: str, follower: str) -> str:
        """``a is 2.1 points above b``, by what the two are called; 0.0 points are not above."""
        points = f"{100 * self.lead.value:.1f} points"
        if points == "0.0 points":
            return f"{leader} and {follower} are {points} apart"
        return f"{leader} is {points} above {follower}"

    def _allowed_for(self) -> list[str]:
        """What the p-value has been corrected for."""
        told = ["primary comparison"] * (self.primary and self.family > 1)
        told += [f"Holm over {self.family} comparisons"] * (self.family > 1)
        looked = self.plan.on_the_way and self.why_no_verdict is None
        return told + [f"looks at {SEEDS_FOR_A_VERDICT} to {self.plan.seeds} seeds allowed for"] * looked

    def _what_it_says(self) -> str:
        later = f"; {counted(self.later_seeds, 'seed')} beyond the plan only describe" if self.later_seeds else ""
        if self.why_no_verdict is not None:
            return f"no verdict: {self.why_no_verdict}{later}"
        if self.verdict == "ahead":
            return f"shown over {self.seeds} paired seeds{later}"
        if self.verdict == "equivalent":
            return f"equivalent within {margin_text(self.margin)} over {self.seeds} paired seeds{later}"
        return f"no difference is shown: {self.what_would_show}{later}"


Compared = TypeVar("Compared", bound=Comparison)


@dataclass(frozen=True)
class Terms:
    """On what terms two contenders are compared.

    Arguments:
        plan: of seeds; None for those that are there, looked at once.
        later_seeds: how many there are beyond the plan.
        margin: contenders closer than this are equivalent.
        obstacle: why no verdict may be given, whatever the numbers.
    """

    plan: Plan | None = None
    later_seeds: int = 0
    margin: float = MARGIN
    obstacle: Obstacle | None = None


def compare_scores(
    names: tuple[str, str],
    first: Bool[np.ndarray, "seeds images"],
    second: Bool[np.ndarray, "other_seeds images"],
    *,
    paired: bool = True,
    terms: Terms | None = None,
) -> Comparison:
    """Compare two contenders of which it is known which images each network classifies rightly.

    The interval is that of ``means.difference_over_seeds``, and so is the p-value, unless there is one network on each
    side: these have the exact test of McNemar.

    Arguments:
        first, second: whether each image is classified rightly, one row for each seed.
        paired: row i of both has the same seed and subset. A single network on each side need not.
    """
    seeds = min(len(first), len(second))
    single = len(first) == len(second) == 1
    uncertain, images = difference_over_seeds(first, second, paired_seeds=paired or single), first.shape[1]
    p = mcnemar_exact(first[0], second[0]) if single else uncertain.p_value
    test = MCNEMAR if single else "Student over seeds, normal over images"
    sizes = {"images": images, "seeds": seeds}
    return _by_itself(names, uncertain, **sizes, paired=paired, test=test, p=p, terms=terms or Terms())


def compare_accuracies(
    names: tuple[str, str],
    first: Float[np.ndarray, "seeds"],
    second: Float[np.ndarray, "seeds"],
    images: tuple[int, int],
    *,
    terms: Terms | None = None,
) -> Comparison:
    """``compare_scores`` for paired seeds of which nothing but accuracies is known."""
    uncertain = difference_of_accuracies(first, second, images)
    test = "Student over seeds, normal over images, predictions unknown"
    p, sizes = uncertain.p_value, {"images": min(images), "seeds": len(first)}
    return _by_itself(names, uncertain, **sizes, paired=True, test=test, p=p, terms=terms or Terms())


def _by_itself(
    names: tuple[str, str],
    uncertain: Uncertain,
    *,
    images: int,
    seeds: int,
    paired: bool,
    test: str,
    p: float,
    terms: Terms,
) -> Comparison:
    plan = terms.plan or Plan(seeds)
    found = Comparison(
        first=names[0],
        second=names[1],
        difference=uncertain.interval(confidence_of(plan, seeds)),
        uncertain=uncertain,
        images=images,
        seeds=seeds,
        later_seeds=terms.later_seeds,
        paired=paired,
        test=test,
        p_value=p,
        adjusted_p_value=p,
        family=1,
        primary=False,
        level=LEVEL,
        margin=terms.margin,
        plan=plan,
        verdict="no verdict",
        reason=_few_images(images)
        or terms.obstacle
        or (None if paired else Obstacle(ObstacleKind.UNPAIRED, "their seeds or subsets are not the same"))
        or _unfinished(seeds, plan),
    )
    return corrected([found])[0]


def confidence_of(plan: Plan, seeds: int) -> float:
    """That of an interval at this look: 95 %, or more where verdicts come on the way and share the 5 % of error."""
    return 1 - plan.at(seeds).level(seeds, LEVEL)


def _few_images(images: int) -> Obstacle | None:
    return Obstacle(ObstacleKind.FEW_IMAGES, too_few(images)) if images < FEWEST_IMAGES else None


def _unfinished(seeds: int, plan: Plan) -> Obstacle | None:
    """Why a plan without looks on the way gives no verdict yet."""
    if plan.on_the_way or not SEEDS_FOR_A_VERDICT <= seeds < plan.seeds:
        return None
    told = f"{seeds} of the {plan.seeds} planned seeds are there, and looks on the way were not planned"
    return Obstacle(ObstacleKind.UNFINISHED, told)


def corrected(
    family: Sequence[Compared],
    weights: Sequence[float] | None = None,
    *,
    primary: int | None = None,
    count: int | None = None,
) -> list[Compared]:
    """The same comparisons judged together: p-values corrected by weighted Holm; verdicts follow.

    Ahead is who has a corrected p-value below 5 %, with at least three paired seeds and nothing in the way; then the
    interval of the pair by itself leaves zero out, too. Else the two are equivalent where two one-sided tests reject
    "``first`` is better by the margin or more" and "worse by the margin or more" (Schuirmann, J. Pharmacokinetics and
    Biopharmaceutics 1987), each at 2.5 %, so that the interval lies within the margin, and corrected in the same way.

    Arguments:
        weights: of the comparisons, as ``holm`` takes them.
        primary: the place of the one that is told as such.
        count: of the whole family, where some of it is not here.
    """
    apart = _adjusted(family, [one.p_value for one in family], weights)
    within = _adjusted(family, [_equivalence_p(one) for one in family], weights)
    shares = [1 / max(1, len(family))] * len(family) if weights is None else weights
    left = 1 - sum(shares[i] for i, one in enumerate(family) if apart[i] < LEVEL and _may_be_judged(one))
    return [
        _judged(
            one,
            apart[i],
            equivalent=within[i] < LEVEL,
            family=count or len(family),
            primary=i == primary,
            level=one.plan.at(one.seeds).level(
                one.seeds, LEVEL if apart[i] < LEVEL else LEVEL * min(1.0, shares[i] / left)
            ),
        )
        for i, one in enumerate(family)
    ]


def _may_be_judged(one: Comparison) -> bool:
    return one.seeds >= SEEDS_FOR_A_VERDICT and one.reason is None


def _adjusted(family: Sequence[Comparison], p_values: Sequence[float], weights: Sequence[float] | None) -> list[float]:
    """Looks allowed for, then Holm. Where no verdict may be given the share of the error is passed on to no other."""
    p = [one.plan.at(one.seeds).p_value(one.seeds, value) for one, value in zip(family, p_values, strict=True)]
    every = holm(p, weights)
    strict = holm([value if _may_be_judged(one) else 1.0 for one, value in zip(family, p, strict=True)], weights)
    return [strict[i] if _may_be_judged(one) else every[i] for i, one in enumerate(family)]


def _equivalence_p(one: Comparison) -> float:
    """Twice the larger p-value of the two one-sided tests."""
    inside = one.margin - abs(one.uncertain.mean)
    return one.uncertain.beyond(inside) if inside > 0 else 1.0


def _judged(one: Compared, adjusted: float, *, equivalent: bool, family: int, primary: bool, level: float) -> Compared:
    verdict: Verdict
    reason = one.reason
    if one.seeds < SEEDS_FOR_A_VERDICT and one.images >= FEWEST_IMAGES:
        verdict = "descriptive only"
        few = f"{counted(one.seeds, 'seed')} in common; a verdict needs {SEEDS_FOR_A_VERDICT}"
        reason = reason or Obstacle(ObstacleKind.FEW_SEEDS, few)
    elif reason is not None:
        verdict = "no verdict"
    elif adjusted < LEVEL:
        verdict = "ahead"
    else:
        verdict = "equivalent" if equivalent else "no difference shown"
    told = {"adjusted_p_value": adjusted, "family": family, "primary": primary, "level": level}
    return dataclasses.replace(one, verdict=verdict, reason=reason, **told)


def too_few(images: int) -> str:
    """Why so few images to score on answer nothing."""
    return (
        f"{counted(images, 'image')} to score on can show no difference, however large it is; "
        f"it takes {FEWEST_IMAGES} or more"
    )


def margin_text(margin: float) -> str:
    """A margin in points, with every digit that it has: "1.0 points", "0.25 points"."""
    points = round(100 * margin, 6)
    return f"{points:.1f} points" if points == round(points, 1) else f"{points:g} points"


def early_end(ended_early: Iterable[Any]) -> Obstacle | None:
    """The obstacle of runs that a callback ended before their budget; None where all came to its end."""
    told = "some of their runs ended before their budget"
    return Obstacle(ObstacleKind.ENDED_EARLY, told) if any(ended_early) else None


def reservations(found: Iterable[Obstacle | None]) -> Obstacle | None:
    """What the test-set log has against a conclusion on a pair; None where it has nothing."""
    told = sorted({one.text for one in found if one is not None})
    return Obstacle(ObstacleKind.TEST_SET_LOG, "; ".join(told)) if told else None
