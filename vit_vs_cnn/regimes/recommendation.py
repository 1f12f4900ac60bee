"""The recommendation of an experiment, as data: which model to train, or what would be needed to decide."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from vit_vs_cnn.regimes.budgets import EqualCostDifference
from vit_vs_cnn.regimes.measurements import AccuracyPoint, failed_to_learn
from vit_vs_cnn.regimes.model_summaries import ModelSummary
from vit_vs_cnn.runs.result import StartKind
from vit_vs_cnn.statistics.mean_distribution import images_needed, seeds_needed
from vit_vs_cnn.statistics.pair_comparison import Conclusion, PairComparison

#: Starts whose best models a recommendation names.
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


@dataclass(frozen=True)
class Recommendation:
    """Model to train with all images and the longest budget.

    Arguments:
        best: model of the highest accuracy.
        rival: best model with another network; None where nothing is compared.
        comparison: of these two at the largest training-set size.
        others: the best model of every other start, such as from scratch where ``best`` and ``rival`` are pretrained.
        seeds_needed: seeds with which the measured difference, or the margin of equivalence if that is larger, would be
            significant in 80 % of experiments; None if no number is enough, or if the seeds that were run are.
        images_needed: the same for test images.
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
    """Recommend the best model if it is significantly better than the best model with another network.

    A model that computes more is recommended only if it is also better at equal compute.

    Arguments:
        points: accuracies with the longest budget.
        chance: accuracy of always predicting the most frequent class; None where unknown.
    """
    largest = max((one.train_size or 0 for one in comparisons), default=max(point.train_size for point in points))
    ranked = sorted((p for p in points if p.train_size == largest), key=lambda p: -p.accuracy.value)
    best = ranked[0].model
    comparison = _deciding_comparison(models, ranked, [one for one in comparisons if one.train_size == largest])
    if comparison is None:
        return Recommendation(RecommendationKind.ONE_MODEL, best)
    leader, follower = comparison.leader, comparison.follower
    others = _best_of_other_starts(models, ranked, comparison)
    means = np.array([point.accuracy.value for point in ranked if point.model in (leader, follower)])
    if chance is not None and failed_to_learn(means, chance, test_images).all():
        return Recommendation(RecommendationKind.NOTHING_LEARNED, leader, follower, comparison, others)
    match comparison.conclusion:
        case Conclusion.SIGNIFICANTLY_BETTER:
            held = holds_at_equal_cost(comparison, equal_cost)
            kind = RecommendationKind.TRAIN if held else RecommendationKind.TRAIN_AT_EQUAL_STEPS
            return Recommendation(kind, leader, follower, comparison, others)
        case Conclusion.EQUIVALENT:
            return Recommendation(RecommendationKind.EITHER, leader, follower, comparison, others)
        case Conclusion.NO_CONCLUSION:
            return Recommendation(RecommendationKind.NO_CONCLUSION, leader, follower, comparison, others)
    goal = max(abs(comparison.difference.value), comparison.margin)
    seeds = images = None
    if comparison.minimum_detectable is None or comparison.minimum_detectable > goal:
        seeds = seeds_needed(comparison.distribution, comparison.seeds, goal, level=comparison.level)
        images = images_needed(comparison.distribution, comparison.images, goal, level=comparison.level)
    return Recommendation(RecommendationKind.NOT_ENOUGH_EVIDENCE, leader, follower, comparison, others, seeds, images)


def _deciding_comparison(
    models: Sequence[ModelSummary], ranked: Sequence[AccuracyPoint], comparisons: Sequence[PairComparison]
) -> PairComparison | None:
    """The comparison of the best model with the best one that has another network, of the same start if there is one.

    If the best model is not compared, the comparison of the best ones that are.
    """
    rank = {point.model: place for place, point in enumerate(ranked)}
    networks = {model.key: model.network or model.key for model in models}
    starts = {model.key: model.start_kind for model in models}
    known = [one for one in comparisons if one.first in rank and one.second in rank]
    different = [one for one in known if networks[one.first] != networks[one.second]] or known

    def order(comparison: PairComparison) -> tuple[int, bool, int]:
        better, worse = sorted((rank[comparison.first], rank[comparison.second]))
        return better, starts[comparison.first] != starts[comparison.second], worse

    return min(different, key=order, default=None)


def _best_of_other_starts(
    models: Sequence[ModelSummary], ranked: Sequence[AccuracyPoint], comparison: PairComparison
) -> tuple[str, ...]:
    """The best model of every start that neither of two compared models has, the best first."""
    starts = {model.key: model.start_kind for model in models}
    best: dict[StartKind, str] = {}
    for point in ranked:
        best.setdefault(starts[point.model], point.model)
    compared = {starts[name] for name in comparison.names}
    return tuple(model for start, model in best.items() if start in _STARTS and start not in compared)


def holds_at_equal_cost(comparison: PairComparison, equal_cost: Sequence[EqualCostDifference]) -> bool:
    """True if a lead holds at equal steps and at equal training FLOPs.

    A leader that is cheaper than its rival holds its lead without a further comparison.
    """
    for one in equal_cost:
        if {one.first, one.second} != comparison.names or one.train_size != comparison.train_size or not one.is_unequal:
            continue
        is_first = one.first == comparison.leader
        if one.difference is None:
            if (one.ratio if is_first else 1 / one.ratio) > 1:
                return False
        elif (one.difference if is_first else -one.difference).low <= 0:
            return False
    return True
