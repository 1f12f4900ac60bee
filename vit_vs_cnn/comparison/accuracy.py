"""Accuracy of networks on the same images: each with an interval, every pair with a test, and where they differ."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.comparison.contestants import Tested, grouped, paired_members
from vit_vs_cnn.comparison.significance import (
    Friedman,
    cochran_q,
    difference_over_seeds,
    friedman_nemenyi,
    holm,
    mcnemar_exact,
    p_value_over_seeds,
    paired_bootstrap,
)
from vit_vs_cnn.comparison.statistics import Estimate, accuracy_over_seeds

SIGNIFICANCE = 0.05
#: A word on kinds of networks takes this many paired seeds; fewer describe the runs at hand.
SEEDS_FOR_A_VERDICT = 3


@dataclass(frozen=True)
class GroupAccuracy:
    """One group over its seeds.

    Arguments:
        top1, top5: with 95 % intervals: of fresh images for one network, of fresh seeds and images for several; no
            top5 where there are five classes or fewer.
        by_network: top-1 of each network.
    """

    name: str
    seeds: list[int | None]
    top1: Estimate
    top5: Estimate | None
    by_network: dict[str, float]


@dataclass(frozen=True)
class Pair:
    """Two groups on the same images; the first has the higher accuracy.

    Arguments:
        seeds: how many were compared on each side; the smaller number.
        paired_seeds: whether seed by seed, on the same subsets.
        difference: first minus second, with its interval.
        bootstrap: the same by resampling.
        only_first, only_second: images that only one of them gets right, averaged over seeds.
        test: how the p-value was found.
        p_value, p_corrected: by itself, and for the number of pairs (Holm).
        significant: whether the corrected one is below 5 %.
        verdict: whether this says something of the kinds: at least three paired seeds and equally many trials.
        text: all of it in a sentence.
    """

    first: str
    second: str
    seeds: int
    paired_seeds: bool
    difference: Estimate
    bootstrap: Estimate
    only_first: float
    only_second: float
    test: str
    p_value: float
    p_corrected: float
    significant: bool
    verdict: bool
    text: str


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
        confusion: of each group, summed over its seeds: rows are true classes, columns predicted ones.
        networks: names, in the order of ``disagreement``.
        disagreement: share of images that two networks call different names.
    """

    groups: list[GroupAccuracy]
    pairs: list[Pair]
    overall: Overall | None
    classes: list[ClassAccuracy]
    confusion: dict[str, list[list[int]]]
    networks: list[str]
    disagreement: list[list[float]]


def judge_accuracy(tested: Sequence[Tested], class_names: Sequence[str], *, seed: int = 0) -> Accuracy:
    """Compare networks that were tested on the same images.

    Arguments:
        tested: the networks, of one group or several.
        class_names: in the order of the logits.
        seed: of the bootstrap.
    """
    groups = grouped(tested)
    return Accuracy(
        groups=[_group(name, members) for name, members in groups.items()],
        pairs=_pairs(groups, seed),
        overall=_overall(groups) if len(groups) > 2 else None,
        classes=_classes(groups, class_names),
        confusion={name: _confusion(members, len(class_names)) for name, members in groups.items()},
        networks=[t.name for members in groups.values() for t in members],
        disagreement=_disagreement([t for members in groups.values() for t in members]),
    )


def correct_of(members: Sequence[Tested]) -> np.ndarray:
    """Whether each image is classified rightly, ``(networks, images)``."""
    return torch.stack([t.predictions.correct for t in members]).numpy()


def _group(name: str, members: Sequence[Tested]) -> GroupAccuracy:
    accuracies, count = [t.predictions.accuracy for t in members], len(members[0].predictions.labels)
    top5 = None
    if members[0].predictions.logits.shape[1] > 5:
        top5 = accuracy_over_seeds([_top5(t) for t in members], count)
    by_network = {t.name: t.predictions.accuracy for t in members}
    return GroupAccuracy(
        name, [t.contestant.seed for t in members], accuracy_over_seeds(accuracies, count), top5, by_network
    )


def _top5(one: Tested) -> float:
    labels = one.predictions.labels[:, None]
    return float((one.predictions.logits.topk(5).indices == labels).any(1).double().mean())


def _pairs(groups: dict[str, list[Tested]], seed: int) -> list[Pair]:
    pairs = [_pair(groups[a], groups[b], seed) for a, b in itertools.combinations(groups, 2)]
    corrected = holm([pair.p_value for pair in pairs])
    return [_concluded(pair, p, groups, len(pairs)) for pair, p in zip(pairs, corrected, strict=True)]


def _pair(first: Sequence[Tested], second: Sequence[Tested], seed: int) -> Pair:
    mine, other, paired = paired_members(first, second)
    a, b = correct_of(mine), correct_of(other)
    if a.mean() < b.mean():
        return _pair(second, first, seed)
    if len(mine) == len(other) == 1:
        test, p = "exact McNemar", mcnemar_exact(a[0], b[0]).p_value
    else:
        test, p = "t over seeds and images", p_value_over_seeds(a, b, paired_seeds=paired)
    both = float((a[:, None] & b[None]).mean()) if not paired else float((a & b).mean())
    count = a.shape[1]
    return Pair(
        first=first[0].group,
        second=second[0].group,
        seeds=min(len(mine), len(other)),
        paired_seeds=paired,
        difference=difference_over_seeds(a, b, paired_seeds=paired),
        bootstrap=paired_bootstrap(a, b, seed=seed, paired_seeds=paired),
        only_first=count * (float(a.mean()) - both),
        only_second=count * (float(b.mean()) - both),
        test=test,
        p_value=p,
        p_corrected=p,
        significant=False,
        verdict=False,
        text="",
    )


def _concluded(pair: Pair, corrected: float, groups: dict[str, list[Tested]], pairs: int) -> Pair:
    """The pair with the p-value that the number of pairs leaves, and a sentence."""
    trials = [{t.contestant.trials for t in groups[name]} for name in (pair.first, pair.second)]
    equal_trials = trials[0] == trials[1] and len(trials[0]) == 1 and None not in trials[0]
    verdict = pair.paired_seeds and pair.seeds >= SEEDS_FOR_A_VERDICT and equal_trials
    significant = corrected < SIGNIFICANCE
    points = f"{100 * pair.difference.value:.1f} points"
    interval = f"95 % {100 * pair.difference.low:+.1f} to {100 * pair.difference.high:+.1f}"
    p = f"p = {corrected:.2g}" if corrected >= 1e-4 else "p < 0.0001"
    how = f"{pair.test}, {p}{f', Holm over {pairs} pairs' if pairs > 1 else ''}"
    ahead = f"{pair.first} is {points} above {pair.second}"
    if points == "0.0 points":
        ahead = f"{pair.first} and {pair.second} are {points} apart"
    text = f"{ahead} ({interval}; {how}); " + _what_it_says(pair, significant=significant, equal_trials=equal_trials)
    return replace(pair, p_corrected=corrected, significant=significant, verdict=verdict, text=text)


def _what_it_says(pair: Pair, *, significant: bool, equal_trials: bool) -> str:
    if not significant:
        return "no difference is shown"
    if pair.seeds == 1:
        return "these two networks differ, but one run of each says nothing of their kinds"
    if pair.seeds < SEEDS_FOR_A_VERDICT:
        return f"{pair.seeds} seeds describe these runs and are no verdict"
    if not pair.paired_seeds:
        return "their seeds or subsets are not the same, so no verdict"
    if not equal_trials:
        return "their recipes had unequal or unknown trials, so no verdict"
    return f"it holds over {pair.seeds} paired seeds"


def _overall(groups: dict[str, list[Tested]]) -> Overall:
    """Friedman's test over shared seeds; Cochran's Q, which is Friedman's over images, where there is one seed."""
    seeds = set.intersection(*({t.contestant.seed for t in members} for members in groups.values())) - {None}
    if len(seeds) >= 2:
        by_seed = [
            [t.predictions.accuracy for t in members if t.contestant.seed in seeds] for members in groups.values()
        ]
        if all(len(row) == len(seeds) for row in by_seed):
            ranks = friedman_nemenyi(by_seed)
            return Overall(f"Friedman over {len(seeds)} seeds", ranks.statistic, ranks.p_value, ranks)
    statistic, p = cochran_q(np.concatenate([correct_of(members[:1]) for members in groups.values()]))
    return Overall("Cochran's Q over images (Friedman's test on right and wrong)", statistic, p, None)


def _classes(groups: dict[str, list[Tested]], class_names: Sequence[str]) -> list[ClassAccuracy]:
    labels = next(iter(groups.values()))[0].predictions.labels.numpy()
    correct = {name: correct_of(members) for name, members in groups.items()}
    there = [(index, name) for index, name in enumerate(class_names) if (labels == index).any()]
    p_values: list[float | None] = [None] * len(there)
    if len(groups) == 2:
        first, second, paired = paired_members(*groups.values())
        a, b = correct_of(first), correct_of(second)
        p_values = [*holm([_class_p(a[:, labels == c], b[:, labels == c], paired) for c, _ in there])]
    return [
        ClassAccuracy(
            name,
            int((labels == index).sum()),
            {group: float(right[:, labels == index].mean()) for group, right in correct.items()},
            p,
        )
        for (index, name), p in zip(there, p_values, strict=True)
    ]


def _class_p(first: np.ndarray, second: np.ndarray, paired: bool) -> float:
    if len(first) == len(second) == 1:
        return mcnemar_exact(first[0], second[0]).p_value
    return p_value_over_seeds(first, second, paired_seeds=paired)


def _confusion(members: Sequence[Tested], classes: int) -> list[list[int]]:
    matrix = torch.zeros(classes * classes, dtype=torch.int64)
    for one in members:
        predictions = one.predictions
        matrix += torch.bincount(
            predictions.labels * classes + predictions.logits.argmax(1), minlength=classes * classes
        )
    return matrix.view(classes, classes).tolist()


def _disagreement(tested: Sequence[Tested]) -> list[list[float]]:
    predicted: Tensor = torch.stack([t.predictions.logits.argmax(1) for t in tested])
    return [[float((a != b).double().mean()) for b in predicted] for a in predicted]


def choose_pictures(tested: Sequence[Tested], *, each: int = 8, seed: int = 0) -> dict[str, list[int]]:
    """Numbers of test images to look at: those that one network alone gets right, and those that all get wrong.

    They are drawn, not picked: at random among all there are, from a fixed seed.

    Arguments:
        tested: one network of each group.
        each: how many of a kind, at most.
        seed: of the draw.
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
