"""Accuracies laid out by contender, training size and seed: what the resamples stand on."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float


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
