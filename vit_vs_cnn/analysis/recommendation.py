"""Recommendation of an experiment: the model to train, or the number of seeds or images needed to decide."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from vit_vs_cnn.analysis.budgets import EqualCostDifference
from vit_vs_cnn.analysis.measurements import AccuracyPoint, failed_to_learn
from vit_vs_cnn.analysis.model_summaries import ModelSummary
from vit_vs_cnn.runs.result import StartKind
from vit_vs_cnn.statistics.caveats import CaveatKind
from vit_vs_cnn.statistics.mean_distribution import numbers_needed
from vit_vs_cnn.statistics.pair_comparison import Conclusion, PairComparison

#: Kinds of start for which a recommendation names the best model.
_STARTS = (StartKind.SCRATCH, StartKind.LINEAR_PROBE, StartKind.FINETUNED)


class RecommendationKind(StrEnum):
    """Kind of recommendation."""

    TRAIN = "train the better model"
    TRAIN_AT_EQUAL_STEPS = "better at equal steps, not shown at equal compute"
    EITHER = "either model"
    NOT_ENOUGH_EVIDENCE = "not enough evidence"
    NOTHING_LEARNED = "no model is better than always predicting the most frequent class"
    NO_CONCLUSION = "no conclusion"
    ONE_MODEL = "nothing is compared"


#: Kind of recommendation that follows from a conclusion, for models that learned something and cost the same.
_KINDS = {
    Conclusion.SIGNIFICANTLY_BETTER: RecommendationKind.TRAIN,
    Conclusion.EQUIVALENT: RecommendationKind.EITHER,
    Conclusion.NOT_ENOUGH_EVIDENCE: RecommendationKind.NOT_ENOUGH_EVIDENCE,
    Conclusion.NO_CONCLUSION: RecommendationKind.NO_CONCLUSION,
}


@dataclass(frozen=True)
class Recommendation:
    """Model to train with all images and the longest budget.

    Arguments:
        best: model with the highest accuracy.
        rival: best model with another network; None if nothing is compared.
        comparison: comparison of ``best`` and ``rival`` at the largest training-set size.
        others: best model of every other kind of start, such as from scratch if ``best`` and ``rival`` are pretrained.
        seeds_needed: number of seeds for which a difference as large as the measured one (or as the equivalence margin,
            if that is larger) would be significant in 80 % of experiments. None if no number is enough, or if no more
            seeds are needed.
        images_needed: the same for the number of test images.
    """

    kind: RecommendationKind
    best: str
    rival: str | None = None
    comparison: PairComparison | None = None
    others: tuple[str, ...] = ()
    seeds_needed: int | None = None
    images_needed: int | None = None


def recommend(
    models: Sequence[ModelSummary],
    points: Sequence[AccuracyPoint],
    comparisons: Sequence[PairComparison],
    equal_cost: Sequence[EqualCostDifference],
    *,
    chance: float | None,
    test_images: int,
) -> Recommendation:
    """Recommend the best model, with the longest budget, if it is significantly better than its rival.

    The rival is the best model with another network; among models with one network, the best with another start.
    A model that computes more is recommended only if it is also better at equal compute.
    """
    sizes = [c.train_size for c in comparisons if c.train_size is not None] or [point.train_size for point in points]
    largest = max(sizes)
    ranked = sorted((p for p in points if p.train_size == largest), key=lambda p: -p.accuracy.value)
    best = ranked[0].model
    comparison = _deciding_comparison(models, ranked, [c for c in comparisons if c.train_size == largest])
    if comparison is None:
        return Recommendation(RecommendationKind.ONE_MODEL, best)
    leader, follower = comparison.leader, comparison.follower
    starts = {model.key: model.start_kind for model in models}
    compared = {starts[name] for name in comparison.names}
    best_of_start = {starts[point.model]: point.model for point in reversed(ranked)}
    others = [model for start, model in best_of_start.items() if start in _STARTS and start not in compared]
    rest = tuple(sorted(others, key=[point.model for point in ranked].index))
    means = np.array([point.accuracy.value for point in ranked if point.model in (leader, follower)])
    kind, seeds, images = _KINDS[comparison.conclusion], None, None
    if chance is not None and failed_to_learn(means, chance, test_images).all():
        kind = RecommendationKind.NOTHING_LEARNED
    elif kind is RecommendationKind.TRAIN and not _holds_at_equal_cost(comparison, equal_cost):
        kind = RecommendationKind.TRAIN_AT_EQUAL_STEPS
    elif kind is RecommendationKind.NOT_ENOUGH_EVIDENCE:
        goal = max(abs(comparison.difference.value), comparison.margin)
        if comparison.minimum_detectable is None or comparison.minimum_detectable > goal:
            numbers = comparison.seeds, comparison.images
            seeds, images = numbers_needed(comparison.distribution, *numbers, goal, level=comparison.level)
    return Recommendation(kind, leader, follower, comparison, rest, seeds, images)


def _deciding_comparison(
    models: Sequence[ModelSummary], ranked: Sequence[AccuracyPoint], comparisons: Sequence[PairComparison]
) -> PairComparison | None:
    """Comparison of the best model with the best model of another network, if possible with the same start.

    If the best model is in no comparison, the next best one is used. A comparison that lacks planned seeds decides only
    if all do.
    """
    rank = {point.model: number for number, point in enumerate(ranked)}
    networks = {model.key: model.network or model.key for model in models}
    starts = {model.key: model.start_kind for model in models}
    possible = [c for c in comparisons if c.first in rank and c.second in rank]
    possible = [c for c in possible if c.caveat is None or c.caveat.kind is not CaveatKind.UNFINISHED] or possible
    different = [c for c in possible if networks[c.first] != networks[c.second]] or possible

    def order(comparison: PairComparison) -> tuple[int, bool, int]:
        better, worse = sorted((rank[comparison.first], rank[comparison.second]))
        return better, starts[comparison.first] != starts[comparison.second], worse

    return min(different, key=order, default=None)


def find_equal_cost(
    comparison: PairComparison, equal_cost: Sequence[EqualCostDifference]
) -> EqualCostDifference | None:
    """The same comparison at equal training FLOPs, with the leader first; None if both have the same FLOPs."""
    for result in equal_cost:
        if {result.first, result.second} == comparison.names and result.train_size == comparison.train_size:
            if result.first == comparison.leader:
                return result
            difference = None if result.difference is None else -result.difference
            return replace(
                result, first=result.second, second=result.first, ratio=1 / result.ratio, difference=difference
            )
    return None


def _holds_at_equal_cost(comparison: PairComparison, equal_cost: Sequence[EqualCostDifference]) -> bool:
    """True if the better model is also better at equal training FLOPs, or is known to be the cheaper one."""
    if (result := find_equal_cost(comparison, equal_cost)) is None:
        return True
    return result.ratio < 1 if result.difference is None else result.difference.low > 0
