"""Accuracy of networks on the same images: each with an interval, every pair with a test, and where they differ."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.comparison.by_class import ClassAccuracy, by_class, confusion, correct_of, paired_correct
from vit_vs_cnn.comparison.entries import Tested, grouped, paired_rows
from vit_vs_cnn.comparison.family import Family, family_of
from vit_vs_cnn.runs.answers import Answers
from vit_vs_cnn.runs.tuning_record import tuning_obstacle
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.means import accuracy_interval
from vit_vs_cnn.statistics.significance import Friedman, cochran_q, friedman_nemenyi
from vit_vs_cnn.statistics.verdict import Comparison, compare_scores, early_end, reservations


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
        comparison: the difference, its p-value and the verdict: what ``report`` says of the same cells.
        only_first, only_second: images that only one of them gets right, averaged over seeds.
    """

    comparison: Comparison
    only_first: float
    only_second: float


@dataclass(frozen=True)
class Overall:
    """One test for more than two groups, before any pair is looked at."""

    test: str
    statistic: float
    p_value: float
    ranks: Friedman | None


@dataclass(frozen=True)
class Accuracy:
    """All on accuracy.

    Arguments:
        few_classes: sentences on networks that name one class only, or fewer than half of those that occur.
        confusion: of each group, summed over its seeds: rows are true classes, columns predicted ones.
        disagreement: share of images that two networks call different names.
    """

    majority: float
    few_classes: list[str]
    groups: list[GroupAccuracy]
    pairs: list[Pair]
    overall: Overall | None
    classes: list[ClassAccuracy]
    confusion: dict[str, list[list[int]]]
    networks: list[str]
    disagreement: list[list[float]]


def judge_accuracy(tested: Sequence[Tested], class_names: Sequence[str]) -> Accuracy:
    groups = grouped(tested)
    ordered = [t for members in groups.values() for t in members]
    answers = Answers(tested[0].predictions.class_counts, {t.name: t.predictions.classes_named for t in ordered})
    return Accuracy(
        majority=answers.majority,
        few_classes=answers.few_classes,
        groups=[_group(name, members) for name, members in groups.items()],
        pairs=_pairs(groups, family_of(tested)),
        overall=_overall(groups) if len(groups) > 2 else None,
        classes=by_class(groups, class_names),
        confusion={name: confusion(members, len(class_names)) for name, members in groups.items()},
        networks=[t.name for t in ordered],
        disagreement=_disagreement(ordered),
    )


def _group(name: str, members: Sequence[Tested]) -> GroupAccuracy:
    top5 = None
    ranks = [t.predictions.label_rank for t in members]
    if members[0].predictions.num_classes > 5:
        top5 = accuracy_interval(torch.stack([rank < 5 for rank in ranks if rank is not None]).numpy())
    by_network = {t.name: t.predictions.accuracy for t in members}
    return GroupAccuracy(name, [t.seed for t in members], accuracy_interval(correct_of(members)), top5, by_network)


def _pairs(groups: dict[str, list[Tested]], family: Family) -> list[Pair]:
    pairs = [_pair(groups[a], groups[b], family) for a, b in itertools.combinations(groups, 2)]
    judged = family.judged([pair.comparison for pair in pairs])
    return [replace(pair, comparison=comparison) for pair, comparison in zip(pairs, judged, strict=True)]


def _pair(first: Sequence[Tested], second: Sequence[Tested], family: Family) -> Pair:
    a, b, paired = paired_correct(first, second)
    if a.mean() < b.mean():
        return _pair(second, first, family)
    seeds = [first[i].seed for i in paired_rows(first, second)[0]]
    planned = family.planned(seeds) if paired else slice(None)
    unequal = tuning_obstacle({members[0].group: [t.tuning for t in members] for members in (first, second)})
    early = early_end(t.result and t.result.cost.ended_early for t in (*first, *second))
    reserved = reservations(t.reservation for t in (*first, *second))
    names = (first[0].group, second[0].group)
    both = float((a & b).mean()) if paired else float((a[:, None] & b[None]).mean())
    count = a.shape[1]
    terms = family.terms(seeds, reserved or (unequal and unequal.obstacle) or early)
    return Pair(
        comparison=compare_scores(names, a[planned], b[planned], paired=paired, terms=terms),
        only_first=count * (float(a.mean()) - both),
        only_second=count * (float(b.mean()) - both),
    )


def _overall(groups: dict[str, list[Tested]]) -> Overall:
    """Friedman's test over shared seeds; Cochran's Q, which is Friedman's over images, where there is one seed."""
    seeds = set.intersection(*({t.seed for t in members} for members in groups.values())) - {None}
    if len(seeds) >= 2:
        by_seed = [[t.predictions.accuracy for t in members if t.seed in seeds] for members in groups.values()]
        if all(len(row) == len(seeds) for row in by_seed):
            ranks = friedman_nemenyi(by_seed)
            return Overall(f"Friedman over {len(seeds)} seeds", ranks.statistic, ranks.p_value, ranks)
    statistic, p = cochran_q(np.concatenate([correct_of(members[:1]) for members in groups.values()]))
    return Overall("Cochran's Q over images (Friedman's test on right and wrong)", statistic, p, None)


def _disagreement(tested: Sequence[Tested]) -> list[list[float]]:
    predicted: Tensor = torch.stack([t.predictions.classes for t in tested])
    return [[float((a != b).double().mean()) for b in predicted] for a in predicted]
