"""Accuracy of networks on the same images: each with an interval, every pair with a test, and where they differ."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.comparison.by_class import ClassAccuracy, by_class, confusion
from vit_vs_cnn.comparison.entries import Tested, grouped, names_of_test_sets, on_one_fold, paired_rows
from vit_vs_cnn.comparison.experiment_comparisons import ExperimentComparisons, find_experiment_comparisons
from vit_vs_cnn.regimes.caveats import shared_obstacle
from vit_vs_cnn.runs.answers import Answers
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.mean_distribution import SeedScores, accuracy_interval
from vit_vs_cnn.statistics.pair_comparison import (
    PairComparison,
    adjust_comparisons,
    compare_models,
)


@dataclass(frozen=True)
class GroupAccuracy:
    """One group over its seeds.

    Arguments:
        top1, top5: with 95 % intervals: of fresh images for one network, of fresh seeds and images for several; no
            top5 where there are five classes or fewer.
    """

    name: str
    seeds: list[int | None]
    top1: Estimate
    top5: Estimate | None
    by_network: dict[str, float]


@dataclass(frozen=True)
class Pair:
    """Two groups on the same images; the first of the comparison has the higher accuracy.

    Arguments:
        comparison: the difference, its p-value and the conclusion; for runs of one experiment that of its report.
        only_first, only_second: images that only one of them gets right, averaged over seeds.
    """

    comparison: PairComparison
    only_first: float
    only_second: float


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of all networks.

    Arguments:
        few_classes: sentences on networks that name one class only, or fewer than half of those that occur.
        confusion: of each group, summed over its seeds: rows are true classes, columns predicted ones.
        networks: those of one test set.
        disagreement: share of images that two of these call different names.
    """

    majority: float
    few_classes: list[str]
    groups: list[GroupAccuracy]
    pairs: list[Pair]
    classes: list[ClassAccuracy]
    confusion: dict[str, list[list[int]]]
    networks: list[str]
    disagreement: list[list[float]]


def judge_accuracy(tested: Sequence[Tested], class_names: Sequence[str]) -> Accuracy:
    groups = grouped(tested)
    ordered = [t for members in groups.values() for t in members]
    counts = {t.test_set: t.predictions.class_counts for t in ordered}
    answers = Answers(
        sum(counts.values(), np.zeros_like(tested[0].predictions.class_counts)),
        {t.name: t.predictions.classes_named for t in ordered},
    )
    shown = on_one_fold(ordered)
    return Accuracy(
        majority=answers.majority,
        few_classes=answers.few_classes,
        groups=[_group(name, members) for name, members in groups.items()],
        pairs=_pairs(groups, find_experiment_comparisons(tested)),
        classes=by_class(groups, class_names),
        confusion={name: confusion(members, len(class_names)) for name, members in groups.items()},
        networks=[t.name for t in shown],
        disagreement=_disagreement(shown),
    )


def _group(name: str, members: Sequence[Tested]) -> GroupAccuracy:
    top5, ratio = None, _test_train_ratio(members)
    if members[0].predictions.num_classes > 5:
        ranks = [rank for t in members if (rank := t.predictions.label_rank) is not None]
        top5 = accuracy_interval(_scores([rank < 5 for rank in ranks]), test_train_ratio=ratio)
    top1 = accuracy_interval(_scores([t.predictions.correct for t in members]), test_train_ratio=ratio)
    by_network = {t.name: t.predictions.accuracy for t in members}
    return GroupAccuracy(name, [t.seed for t in members], top1, top5, by_network)


def _scores(correct: Sequence[Tensor]) -> SeedScores:
    rows = [one.double().numpy() for one in correct]
    return SeedScores(np.array([row.mean() for row in rows]), np.array([len(row) for row in rows]), rows)


def _test_train_ratio(networks: Sequence[Tested]) -> float | None:
    """Test images for each training image where networks are tested on different folds; None for one test set."""
    sizes = [len(t.test) / t.origin.train_size for t in networks if t.origin is not None]
    return None if len(names_of_test_sets(networks)) == 1 or not sizes else max(sizes)


def _pairs(groups: dict[str, list[Tested]], experiment: ExperimentComparisons) -> list[Pair]:
    pairs = [_pair(groups[a], groups[b], experiment) for a, b in itertools.combinations(groups, 2)]
    own = [pair.comparison for pair in pairs]
    if len(own) == 1:
        own = [replace(own[0], is_primary=True)]
    adjusted = zip(pairs, adjust_comparisons(own), strict=True)
    return [replace(pair, comparison=experiment.find(one) or one) for pair, one in adjusted]


def _pair(first: Sequence[Tested], second: Sequence[Tested], experiment: ExperimentComparisons) -> Pair:
    *rows, paired = paired_rows(first, second)
    ours, theirs = [first[i] for i in rows[0]], [second[i] for i in rows[1]]
    if fmean(t.predictions.accuracy for t in ours) < fmean(t.predictions.accuracy for t in theirs):
        return _pair(second, first, experiment)
    both = [*first, *second]
    obstacle = shared_obstacle(
        (t.reservation for t in both),
        {members[0].group: [t.tuning for t in members] for members in (first, second)},
        (t.result and t.result.cost.ended_early for t in both),
    )
    analysis = experiment.analysis_of([t.seed for t in ours] if paired else [None], obstacle)
    chosen = [i for i, t in enumerate(ours) if not paired or not analysis.seeds or t.seed in analysis.seeds]
    sides = ([ours[i] for i in chosen], [theirs[i] for i in chosen]) if paired else (ours, theirs)
    together = zip(ours, theirs, strict=True) if paired else itertools.product(ours, theirs)
    answers = [(one.predictions.correct, two.predictions.correct) for one, two in together]
    return Pair(
        comparison=compare_models(
            (first[0].group, second[0].group),
            *(_scores([t.predictions.correct for t in side]) for side in sides),
            paired=paired,
            test_train_ratio=_test_train_ratio(ours),
            rules=analysis.rules,
        ),
        only_first=fmean(int((one & ~two).sum()) for one, two in answers),
        only_second=fmean(int((two & ~one).sum()) for one, two in answers),
    )


def _disagreement(tested: Sequence[Tested]) -> list[list[float]]:
    predicted: Tensor = torch.stack([t.predictions.classes for t in tested])
    return [[float((a != b).double().mean()) for b in predicted] for a in predicted]
