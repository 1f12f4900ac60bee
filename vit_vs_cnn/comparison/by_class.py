"""Where networks are right and wrong on the same images: class by class, what they confuse, and images to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vit_vs_cnn.comparison.entries import Answered, paired_rows
from vit_vs_cnn.statistics.mean_distribution import SeedScores
from vit_vs_cnn.statistics.pair_comparison import compare_models
from vit_vs_cnn.statistics.significance import holm


@dataclass(frozen=True)
class ClassAccuracy:
    """One class: its images, the accuracy of each group, and for two groups a test corrected for all classes."""

    name: str
    images: int
    accuracy: dict[str, float]
    p_corrected: float | None


def by_class(groups: Mapping[str, Sequence[Answered]], class_names: Sequence[str]) -> list[ClassAccuracy]:
    """Every class that occurs among the test images of all groups.

    There is no significance test where networks are tested on different folds.
    """
    ordered = [one for members in groups.values() for one in members]
    folds = {one.test_set: one.predictions.labels.numpy() for one in ordered}
    labels = np.concatenate(list(folds.values()))
    tested = [{*torch.cat([one.predictions.labels for one in members]).tolist()} for members in groups.values()]
    there = [index for index in range(len(class_names)) if all(index in of_group for of_group in tested)]
    p_values: list[float | None] = [None] * len(there)
    if len(groups) == 2 and len(folds) == 1:
        a, b, paired = paired_correct(*groups.values())
        alone = [_p_value(a[:, labels == i], b[:, labels == i], paired) for i in there]
        p_values = [*holm(alone)]
    return [
        ClassAccuracy(
            class_names[index],
            int((labels == index).sum()),
            {name: _accuracy_of_class(members, index) for name, members in groups.items()},
            p,
        )
        for index, p in zip(there, p_values, strict=True)
    ]


def _p_value(first: np.ndarray, second: np.ndarray, paired: bool) -> float:
    return compare_models(("", ""), SeedScores.of(first), SeedScores.of(second), paired=paired).p_value


def _accuracy_of_class(members: Sequence[Answered], index: int) -> float:
    """Share of right answers to images of a class, over all networks."""
    correct = torch.cat([one.predictions.correct[one.predictions.labels == index] for one in members])
    return float(correct.double().mean())


def confusion(members: Sequence[Answered], classes: int) -> list[list[int]]:
    """Counts over several networks: rows are true classes, columns predicted ones."""
    matrix = torch.zeros(classes * classes, dtype=torch.int64)
    for predictions in (one.predictions for one in members):
        places = predictions.labels * classes + predictions.classes
        matrix += torch.bincount(places, minlength=classes * classes)
    return matrix.view(classes, classes).tolist()


def choose_pictures(tested: Sequence[Answered], *, each: int = 8, seed: int = 0) -> dict[str, list[int]]:
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


def correct_of(members: Sequence[Answered]) -> np.ndarray:
    """Whether each image is classified rightly, ``(networks, images)``."""
    return torch.stack([t.predictions.correct for t in members]).numpy()


def paired_correct(first: Sequence[Answered], second: Sequence[Answered]) -> tuple[np.ndarray, np.ndarray, bool]:
    """Whether each image is classified rightly by the networks that are compared, and whether row by row."""
    mine, other, paired = paired_rows(first, second)
    return correct_of([first[i] for i in mine]), correct_of([second[i] for i in other]), paired
