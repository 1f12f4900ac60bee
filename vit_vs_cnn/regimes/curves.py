"""Accuracy over the number of labelled images."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.means import accuracy_interval, accuracy_interval_without_images
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def learning_curve(measured: Measurements, contender: str) -> LearningCurve:
    """The curve of one contender over the sizes that it was run with."""
    place = measured.contenders.index(contender)
    points = []
    for i, size in enumerate(measured.sizes):
        there = measured.present[place, i]
        if there.any():
            by_seed = tuple(float(a) for a in measured.accuracy[place, i, there])
            points.append(CurvePoint(size, _accuracy(measured, place, i, by_seed), by_seed))
    return LearningCurve(contender, tuple(points))


def _accuracy(measured: Measurements, contender: int, size: int, by_seed: tuple[float, ...]) -> Estimate:
    there = measured.present[contender, size]
    if measured.correct is not None:
        return accuracy_interval(measured.correct[contender, size, there])
    return accuracy_interval_without_images(by_seed, int(measured.images[contender, size, there].min()))
