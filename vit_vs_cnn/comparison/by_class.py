"""Where networks are right and wrong on the same images: class by class, what they confuse, and images to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vit_vs_cnn.comparison.entries import Answered, paired_rows
from vit_vs_cnn.statistics.significance import holm
from vit_vs_cnn.statistics.verdict import compare_scores


@dataclass(frozen=True)
class ClassAccuracy:
    """One class: its images, the accuracy of each group, and for two groups a test corrected for all classes."""

    name: str
    images: int
    accuracy: dict[str, float]
    p_corrected: float | None


def by_class(groups: Mapping[str, Sequence[Answered]], class_names: Sequence[str]) -> list[ClassAccuracy]:
    """Every class that occurs."""
    labels = next(iter(groups.values()))[0].predictions.labels.numpy()
    correct = {name: correct_of(members) for name, members in groups.items()}
    there = {index: labels == index for index in range(len(class_names)) if (labels == index).any()}
    p_values: list[float | None] = [None] * len(there)
    if len(groups) == 2:
        a, b, paired = paired_correct(*groups.values())
        alone = [compare_scores(("", ""), a[:, of], b[:, of], paired=paired).p_value for of in there.values()]
        p_values = [*holm(alone)]
    return [
        ClassAccuracy(
            class_names[index], int(of.sum()), {name: float(right[:, of].mean()) for name, right in correct.items()}, p
        )
        for (index, of), p in zip(there.items(), p_values, strict=True)
    ]


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
