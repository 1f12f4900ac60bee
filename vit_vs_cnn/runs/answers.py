"""The accuracy of always naming the most frequent class, and networks that do little more than that."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

#: The first row of every table of accuracies.
MAJORITY = "always the most frequent class"


@dataclass(frozen=True, eq=False)
class Answers:
    """What networks said of the images that score them.

    Arguments:
        class_counts: how many of the images are of each class.
        named: by network, how many classes it names.
        correct: by cell, whether each image is classified rightly; None where cells were not scored on the same images,
            as when validation images score them: then the accuracies must do.
    """

    class_counts: Int64[np.ndarray, "classes"]
    named: Mapping[str, int]
    correct: dict[str, np.ndarray] | None = None

    @property
    def majority(self) -> float:
        """The accuracy of naming the most frequent class whatever the image."""
        return float(self.class_counts.max() / self.class_counts.sum())

    @property
    def few_classes(self) -> list[str]:
        """A sentence on each network that names one class only, or fewer than half of those that occur."""
        found, there = [], int((self.class_counts > 0).sum())
        for name, count in self.named.items():
            if count == 1 < there:
                found.append(f"{name} says the same class of every image: it names 1 of the {there} classes that occur")
            elif 2 * count < there:
                found.append(f"{name} names {count} of the {there} classes that occur")
        return found
