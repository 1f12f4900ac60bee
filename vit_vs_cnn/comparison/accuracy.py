"""Accuracy of networks on the same images: each with an interval, every pair with a test, and where they differ."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.comparison.entries import Tested, grouped, paired_rows
from vit_vs_cnn.runs.answers import Answers
from vit_vs_cnn.runs.tuning_record import unequal_chances
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.means import accuracy_interval
from vit_vs_cnn.statistics.significance import Friedman, cochran_q, friedman_nemenyi, holm
from vit_vs_cnn.statistics.verdict import Comparison, compare_scores, corrected, early_end, reservations


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
class ClassAccuracy:
    """One class: its images, the accuracy of each group, and for two groups a test corrected for all classes."""

    name: str
    images: int
    accuracy: dict[str, float]
    p_corrected: float | None


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
        few_classes: a sentence on each network that names one class only, or fewer than half of those that occur.
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
        pairs=_pairs(groups),
        overall=_overall(groups) if len(groups) > 2 else None,
        classes=_classes(groups, class_names),
        confusion={name: _confusion(members, len(class_names)) for name, members in groups.items()},
        networks=[t.name for t in ordered],
        disagreement=_disagreement(ordered),
    )


def correct_of(members: Sequence[Tested]) -> np.ndarray:
    """Whether each image is classified rightly, ``(networks, images)``."""
    return torch.stack([t.predictions.correct for t in members]).numpy()


def _group(name: str, members: Sequence[Tested]) -> GroupAccuracy:
    top5 = None
    if members[0].predictions.logits.shape[1] > 5:
        top5 = accuracy_interval(torch.stack([_in_top5(t) for t in members]).numpy())
    by_network = {t.name: t.predictions.accuracy for t in members}
    return GroupAccuracy(name, [t.seed for t in members], accuracy_interval(correct_of(members)), top5, by_network)


def _in_top5(one: Tested) -> Tensor:
    labels = one.predictions.labels[:, None]
    return (one.predictions.logits.topk(5).indices == labels).any(1)


def _pairs(groups: dict[str, list[Tested]]) -> list[Pair]:
    pairs = [_pair(groups[a], groups[b]) for a, b in itertools.combinations(groups, 2)]
    family = corrected([pair.comparison for pair in pairs])
    return [replace(pair, comparison=comparison) for pair, comparison in zip(pairs, family, strict=True)]


def _pair(first: Sequence[Tested], second: Sequence[Tested]) -> Pair:
    a, b, paired = _rows(first, second)
    if a.mean() < b.mean():
        return _pair(second, first)
    unequal = unequal_chances({members[0].group: [t.chance for t in members] for members in (first, second)})
    early = early_end(t.training.get("ended_early") for t in (*first, *second))
    reserved = reservations(t.reservation for t in (*first, *second))
    names = (first[0].group, second[0].group)
    both = float((a & b).mean()) if paired else float((a[:, None] & b[None]).mean())
    count = a.shape[1]
    return Pair(
        comparison=compare_scores(names, a, b, paired=paired, obstacle=reserved or unequal or early),
        only_first=count * (float(a.mean()) - both),
        only_second=count * (float(b.mean()) - both),
    )


def _rows(first: Sequence[Tested], second: Sequence[Tested]) -> tuple[np.ndarray, np.ndarray, bool]:
    """Whether each image is classified rightly by the networks that are compared, and whether row by row."""
    mine, other, paired = paired_rows(first, second)
    return correct_of([first[i] for i in mine]), correct_of([second[i] for i in other]), paired


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


def _classes(groups: dict[str, list[Tested]], class_names: Sequence[str]) -> list[ClassAccuracy]:
    labels = next(iter(groups.values()))[0].predictions.labels.numpy()
    correct = {name: correct_of(members) for name, members in groups.items()}
    there = {index: labels == index for index in range(len(class_names)) if (labels == index).any()}
    p_values: list[float | None] = [None] * len(there)
    if len(groups) == 2:
        a, b, paired = _rows(*groups.values())
        p_values = [*holm([_class_p(a[:, of], b[:, of], paired) for of in there.values()])]
    return [
        ClassAccuracy(
            class_names[index], int(of.sum()), {name: float(right[:, of].mean()) for name, right in correct.items()}, p
        )
        for (index, of), p in zip(there.items(), p_values, strict=True)
    ]


def _class_p(first: np.ndarray, second: np.ndarray, paired: bool) -> float:
    return compare_scores(("", ""), first, second, paired=paired).p_value


def _confusion(members: Sequence[Tested], classes: int) -> list[list[int]]:
    matrix = torch.zeros(classes * classes, dtype=torch.int64)
    for predictions in (one.predictions for one in members):
        places = predictions.labels * classes + predictions.logits.argmax(1)
        matrix += torch.bincount(places, minlength=classes * classes)
    return matrix.view(classes, classes).tolist()


def _disagreement(tested: Sequence[Tested]) -> list[list[float]]:
    predicted: Tensor = torch.stack([t.predictions.logits.argmax(1) for t in tested])
    return [[float((a != b).double().mean()) for b in predicted] for a in predicted]


def choose_pictures(tested: Sequence[Tested], *, each: int = 8, seed: int = 0) -> dict[str, list[int]]:
    """Numbers of test images to look at: those that one network alone gets right, and those that all get wrong.

    They are drawn, not picked: at random among all there are, from a fixed seed.

    Arguments:
        tested: one network of each group.
    """
    right = correct_of(tested)
    kinds = {f"only {t.group} right": right[i] & (right.sum(0) == 1) for i, t in enumerate(tested) if len(tested) > 1}
    kinds["all wrong" if len(tested) > 1 else "wrong"] = right.sum(0) == 0
    rng = np.random.default_rng(seed)
    return {
        kind: sorted(rng.permutation(np.flatnonzero(there))[:each].tolist())
        for kind, there in kinds.items()
        if there.any()
    }
