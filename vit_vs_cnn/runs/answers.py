"""The accuracy of always naming the most frequent class, and networks that do little more than that."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

#: The first row of every table of accuracies.
MAJORITY = "always the most frequent class"
#: Networks that a sentence names one by one.
_NAMED = 3


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
        """Which networks name one class only, and which fewer than half of those that occur; a sentence for both."""
        there = int((self.class_counts > 0).sum())
        one = {name: count for name, count in self.named.items() if count == 1 < there}
        few = {name: count for name, count in self.named.items() if count > 1 and 2 * count < there}
        return [_told(found, there) for found in (one, few) if found]


def _told(found: Mapping[str, int], there: int) -> str:
    names, (least, *_, most) = list(found), (min(found.values()), max(found.values()))
    who = ", ".join(names[:_NAMED]) + f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
    say, each, name = ("say", "each", "name each") if len(names) > 1 else ("says", "it", "names")
    named = f"{least} of"
    if least < most:
        name, named = "name", f"{least} to {most} of"
    if most == 1:
        return f"{who} {say} the same class of every image: {each} names 1 of the {there} classes that occur"
    return f"{who} {name} {named} the {there} classes that occur"
