"""Accuracy over the number of labelled images."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.comparison.statistics import Estimate
from vit_vs_cnn.experiments.regimes.resampling import Draws, estimate_from


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


def learning_curve(draws: Draws, by_seed: list[tuple[float, ...]]) -> LearningCurve:
    """The curve of the only contender of ``draws``.

    Arguments:
        by_seed: for each of its sizes the accuracies of its seeds.
    """
    (contender,) = draws.contenders
    points = [
        CurvePoint(size, estimate_from(draws.observed[0, i], draws.values[:, 0, i]), by_seed[i])
        for i, size in enumerate(draws.sizes)
    ]
    return LearningCurve(contender, tuple(points))
