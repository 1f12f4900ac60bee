"""Accuracies laid out by contender, training size and seed: what the resamples stand on."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.means import (
    Uncertain,
    accuracy_interval,
    accuracy_interval_without_images,
    difference_of_accuracies,
    difference_over_seeds,
)

#: A contender and a training size.
Place = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Measurements:
    """Accuracies in the order (contender, size, seed); NaN where there is no cell.

    Arguments:
        sizes: labelled images, ascending.
        seeds: ascending; contenders are paired by them.
        correct: whether each network is right on each test image, zero where there is no cell; None if unknown.
    """

    contenders: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    accuracy: Float[np.ndarray, "contenders sizes seeds"]
    images: Float[np.ndarray, "contenders sizes seeds"]
    correct: Bool[np.ndarray, "contenders sizes seeds count"] | None

    @property
    def present(self) -> Bool[np.ndarray, "contenders sizes seeds"]:
        return ~np.isnan(self.accuracy)

    def shared(self, *places: Place) -> Bool[np.ndarray, "seeds"]:
        """Which seeds all of these have."""
        return np.logical_and.reduce([self.present[self._at(place)] for place in places])

    def interval(self, place: Place) -> Estimate:
        """The accuracy over all seeds there."""
        at, there = self._at(place), self.shared(place)
        if self.correct is not None:
            return accuracy_interval(self.correct[at][there])
        return accuracy_interval_without_images(self.accuracy[at][there].tolist(), int(self.images[at][there].min()))

    def difference(self, first: Place, second: Place) -> Uncertain:
        """The accuracy at the first place minus that at the second, over the seeds that both have."""
        places, both = (self._at(first), self._at(second)), self.shared(first, second)
        if self.correct is not None:
            return difference_over_seeds(*(self.correct[at][both] for at in places), paired_seeds=True)
        ours, theirs = (self.accuracy[at][both] for at in places)
        images = (int(self.images[places[0]][both].min()), int(self.images[places[1]][both].min()))
        return difference_of_accuracies(ours, theirs, images)

    def _at(self, place: Place) -> tuple[int, int]:
        return self.contenders.index(place[0]), self.sizes.index(place[1])
