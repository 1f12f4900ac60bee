"""Accuracy over the number of labelled images."""

from collections.abc import Sequence
from dataclasses import dataclass

from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.measurements import Measurements


@dataclass(frozen=True)
class CurvePoint:
    """One contender at one training size.

    Arguments:
        size: labelled images, validation included.
        accuracy: mean over the seeds, with an interval for fresh seeds and fresh test images; with one seed for fresh
            test images alone.
        by_seed: the accuracies that it is the mean of.
    """

    size: int
    accuracy: Estimate
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class LearningCurve:
    """Accuracy of one contender at every training size."""

    contender: str
    points: tuple[CurvePoint, ...]


def learning_curve(measured: Measurements, contender: str) -> LearningCurve:
    """The curve of one contender over the sizes that it was run with."""
    points = []
    for size in measured.sizes:
        there = measured.shared((contender, size))
        if there.any():
            by_seed = measured.accuracy[measured.contenders.index(contender), measured.sizes.index(size), there]
            points.append(CurvePoint(size, measured.interval((contender, size)), tuple(by_seed.tolist())))
    return LearningCurve(contender, tuple(points))


def best_of(curves: Sequence[LearningCurve]) -> str:
    """Who has the highest accuracy at the largest size."""
    return max(curves, key=lambda one: (one.points[-1].size, one.points[-1].accuracy.value)).contender
