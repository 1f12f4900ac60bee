"""Accuracy of networks on the same images: intervals, tests of every pair, classes, confusion and example images."""

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.analysis.analysis import find_plan, read_analysis
from vit_vs_cnn.analysis.caveats import shared_caveat
from vit_vs_cnn.analysis.measurements import nothing_learned
from vit_vs_cnn.comparison.entries import (
    ComparisonEntry,
    ScoredNetwork,
    TestedEntry,
    experiment_folder,
    group_entries,
    list_test_sets,
    pair_networks,
)
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan, read_plan
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.record import Answers
from vit_vs_cnn.statistics.caveats import Caveat
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.mean_distribution import SeedScores, accuracy_interval
from vit_vs_cnn.statistics.pair_comparison import ComparisonRules, PairComparison, adjust_comparisons, compare_models
from vit_vs_cnn.statistics.significance import holm

#: Example images of each kind.
MAX_EXAMPLES = 8
#: Smallest difference of accuracies that cannot be a rounding error.
SAME_ACCURACY = 1e-9


@dataclass(frozen=True)
class ClassAccuracy:
    """One class: its images, the accuracy of each group, and for two groups a p-value adjusted for all classes."""

    name: str
    images: int
    accuracy: dict[str, float]
    p_corrected: float | None


@dataclass(frozen=True)
class AccuracyComparison:
    """Accuracy of all networks, in groups of networks that differ by the seed alone.

    Arguments:
        majority: share of the most frequent class.
        top1, top5: accuracy of each group with a 95 % interval, which covers other test images and, with several
            networks, other seeds. No top5 with five classes or fewer.
        pairs: comparison of every two groups; for runs of one experiment as in its report.
        only_one_correct: for each pair the number of images that only the first and only the second group classifies
            correctly, mean over seeds.
        confusion: counts of each group over its seeds: rows are true classes, columns predicted ones.
    """

    majority: float
    few_classes: list[str]
    top1: dict[str, Estimate]
    top5: dict[str, Estimate]
    pairs: list[PairComparison]
    only_one_correct: list[tuple[float, float]]
    classes: list[ClassAccuracy]
    confusion: dict[str, list[list[int]]]


@dataclass(frozen=True)
class ExperimentComparisons:
    """Plan and comparisons of the experiment that all networks come from, and its model of each group; else empty."""

    plan: AnalysisPlan | None = None
    size: int = 0
    comparisons: tuple[PairComparison, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)

    def find(self, own: PairComparison) -> PairComparison | None:
        """The experiment's comparison of the same runs; None if it contains other seeds or images."""
        for reported in self.comparisons:
            names = [self.models.get(group) for group in (own.first, own.second)]
            if reported.train_size != self.size or [reported.first, reported.second] != names:
                continue
            pairs = zip(reported.distribution.accuracies or (), own.distribution.accuracies or (), strict=True)
            is_same = (reported.seeds, reported.images) == (own.seeds, own.images)
            if is_same and all(abs(a - b) < SAME_ACCURACY for a, b in pairs):
                return replace(reported, first=own.first, second=own.second)
        return None

    def find_analysis(
        self, seeds: Sequence[int | None], caveat: Caveat | None
    ) -> tuple[tuple[int, ...], ComparisonRules]:
        """Shared seeds that are compared, and the rules for them."""
        numbers = [seed for seed in seeds if seed is not None]
        if self.plan is None or len(numbers) < len(seeds):
            return tuple(numbers), ComparisonRules(caveat=caveat)
        return self.plan.find_analysis(numbers, is_primary=False, caveat=caveat)


def find_experiment_comparisons(entries: Sequence[ComparisonEntry]) -> ExperimentComparisons:
    """Plan and comparisons of the experiment that all these networks come from.

    Empty if they have no common experiment or no common training-set size, if two groups are of one model, if they are
    tested on new images, or if the experiment has no plan. The comparisons are those with the longest budget.
    Raises InputError: its analysis plan cannot be read.
    """
    runs = {(experiment_folder(entry.trained), _train_size(entry.trained)) for entry in entries}
    models = {entry.group: origin.model for entry in entries if (origin := entry.trained.origin) is not None}
    folder, size = next(iter(runs))
    has_other_images = any(entry.stored is None for entry in entries)
    if len(runs) > 1 or has_other_images or folder is None or size is None or len({*models.values()}) < len(models):
        return ExperimentComparisons()
    if (plan := read_plan(folder)) is None:
        return ExperimentComparisons()
    try:
        with warnings.catch_warnings(action="ignore"):  # missing predictions are reported by the page of the experiment
            analysis, results, _ = read_analysis(folder)
    except InputError:  # an experiment with contradictory results: its networks can still be compared
        return ExperimentComparisons(plan, size, models=models)
    return ExperimentComparisons(find_plan(folder, results), size, analysis.comparisons, models)


def _train_size(trained: TrainedNetwork) -> int | None:
    """Training-set size of the final weights of a run; None for other weights."""
    return trained.origin.train_size if trained.origin is not None and trained.path.name == "last.ckpt" else None


def compare_accuracy(entries: Sequence[TestedEntry], class_names: Sequence[str]) -> AccuracyComparison:
    """Accuracy of every group, the difference of every two, and where they differ."""
    groups = group_entries(entries)
    ordered = [t for members in groups.values() for t in members]
    counts = {t.test_set: t.predictions.class_counts for t in ordered}
    answers = Answers(
        sum(counts.values(), np.zeros_like(entries[0].predictions.class_counts)),
        {t.name: t.predictions.num_predicted_classes for t in ordered},
    )
    top5 = {
        name: [rank < 5 for t in members if (rank := t.predictions.label_rank) is not None]
        for name, members in groups.items()
        if members[0].predictions.num_classes > 5
    }
    pairs, only_one_correct = _compare_pairs(groups, find_experiment_comparisons(entries), answers.majority)
    return AccuracyComparison(
        majority=answers.majority,
        few_classes=answers.few_classes,
        top1={name: _interval(members, [t.predictions.correct for t in members]) for name, members in groups.items()},
        top5={name: _interval(groups[name], hits) for name, hits in top5.items()},
        pairs=pairs,
        only_one_correct=only_one_correct,
        classes=class_accuracies(groups, class_names),
        confusion={name: confusion(members, len(class_names)) for name, members in groups.items()},
    )


def _interval(members: Sequence[TestedEntry], correct: Sequence[Tensor]) -> Estimate:
    return accuracy_interval(SeedScores.from_correct(correct), fold_train_size=_fold_train_size(members))


def _fold_train_size(networks: Sequence[TestedEntry]) -> int | None:
    """Number of training images if networks are tested on different folds; None for one test set."""
    sizes = [t.trained.origin.train_size for t in networks if t.trained.origin is not None]
    return None if len(list_test_sets(networks)) == 1 or not sizes else min(sizes)


def _compare_pairs(
    groups: dict[str, list[TestedEntry]], experiment: ExperimentComparisons, chance: float
) -> tuple[list[PairComparison], list[tuple[float, float]]]:
    """Adjusted comparison of every two groups, and the numbers of images that only one of them classifies correctly."""
    names = sorted(groups, key=lambda name: experiment.models.get(name, name))  # the order of the experiment's report
    pairs = [_compare_pair(groups[a], groups[b], experiment, chance) for a, b in itertools.combinations(names, 2)]
    adjusted = adjust_comparisons([replace(comparison, is_primary=len(pairs) == 1) for comparison, _ in pairs])
    return [experiment.find(comparison) or comparison for comparison in adjusted], [counts for _, counts in pairs]


def _compare_pair(
    first: Sequence[TestedEntry], second: Sequence[TestedEntry], experiment: ExperimentComparisons, chance: float
) -> tuple[PairComparison, tuple[float, float]]:
    ours, theirs, paired = pair_networks(first, second)
    results = {members[0].group: [t.result for t in members] for members in (first, second)}
    caveat = shared_caveat((t.log_caveat for t in (*first, *second)), results)
    seeds, rules = experiment.find_analysis([t.seed for t in ours] if paired else [None], caveat)
    sides = [[t for t in side if not paired or not seeds or t.seed in seeds] for side in (ours, theirs)]
    scores = [SeedScores.from_correct(t.predictions.correct for t in side) for side in sides]
    comparison = compare_models(
        (first[0].group, second[0].group),
        *scores,
        paired=paired,
        fold_train_size=_fold_train_size([*ours, *theirs]),
        rules=replace(rules, caveat=rules.caveat or nothing_learned(scores[0], scores[1], chance)),
    )
    matches = zip(ours, theirs, strict=True) if paired else itertools.product(ours, theirs)
    correct = [(a.predictions.correct, b.predictions.correct) for a, b in matches]
    return comparison, (fmean(int((a & ~b).sum()) for a, b in correct), fmean(int((b & ~a).sum()) for a, b in correct))


def class_accuracies(groups: Mapping[str, Sequence[ScoredNetwork]], class_names: Sequence[str]) -> list[ClassAccuracy]:
    """Accuracy of each class that is in the tests of all groups. Networks on different folds have no p-values."""
    folds = {t.test_set: t.predictions.labels.numpy() for members in groups.values() for t in members}
    labels = np.concatenate([*folds.values()])
    present = [{*torch.cat([t.predictions.labels for t in members]).tolist()} for members in groups.values()]
    classes: list[int] = sorted(set.intersection(*present))
    p_values: list[float | None] = [None] * len(classes)
    if len(groups) == 2 and len(folds) == 1:
        *sides, paired = pair_networks(*groups.values())
        a, b = map(correct_answers, sides)
        scores = [
            (SeedScores.from_correct(a[:, labels == i]), SeedScores.from_correct(b[:, labels == i])) for i in classes
        ]
        p_values = [*holm([compare_models(("", ""), *pair, paired=paired).p_value for pair in scores])]
    answers = {
        name: [torch.cat([getattr(t.predictions, part) for t in members]) for part in ("labels", "correct")]
        for name, members in groups.items()
    }
    return [
        ClassAccuracy(
            class_names[index],
            int((labels == index).sum()),
            {name: float(hits[of_class == index].double().mean()) for name, (of_class, hits) in answers.items()},
            p,
        )
        for index, p in zip(classes, p_values, strict=True)
    ]


def confusion(members: Sequence[ScoredNetwork], classes: int) -> list[list[int]]:
    """Counts over several networks: rows are true classes, columns predicted ones."""
    matrix = np.zeros((classes, classes), dtype=int)
    for predictions in (member.predictions for member in members):
        np.add.at(matrix, (predictions.labels.numpy(), predictions.classes.numpy()), 1)
    return matrix.tolist()


def choose_examples(networks: Sequence[ScoredNetwork], seed: int = 0) -> dict[str, list[int]]:
    """Numbers of random test images that one group alone classifies correctly (its first seed), and that none does."""
    members = [group[0] for group in group_entries(networks).values()]
    correct = correct_answers(members)
    several = len(members) > 1
    kinds = {f"only {t.group} right": correct[i] & (correct.sum(0) == 1) for i, t in enumerate(members) if several}
    kinds["all wrong" if several else "wrong"] = ~correct.any(0)
    rng = np.random.default_rng(seed)
    return {
        kind: sorted(rng.permutation(np.flatnonzero(mask))[:MAX_EXAMPLES].tolist())
        for kind, mask in kinds.items()
        if mask.any()
    }


def correct_answers(members: Sequence[ScoredNetwork]) -> np.ndarray:
    """Correctness of the prediction for each image, ``(networks, images)``."""
    return torch.stack([t.predictions.correct for t in members]).numpy()
