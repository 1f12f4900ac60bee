"""The accuracy of always naming the most frequent class, and networks that do little more than that."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Int64

from vit_vs_cnn.runs.evaluation import Predictions

#: The first row of every table of accuracies.
MAJORITY = "always the most frequent class"


def majority_share(class_counts: Int64[np.ndarray, "classes"]) -> float:
    """The accuracy of naming the most frequent class of the test images whatever the image."""
    return float(class_counts.max() / class_counts.sum())


def class_counts(predictions: Predictions) -> Int64[np.ndarray, "classes"]:
    """How many of the images are of each class."""
    return torch.bincount(predictions.labels, minlength=predictions.logits.shape[1]).numpy()


def classes_named(predictions: Predictions) -> int:
    """How many classes the network names at least once."""
    return len(predictions.logits.argmax(1).unique())


def told_of_few(named: Mapping[str, int], there: int) -> list[str]:
    """A sentence on each network that names one class only, or fewer than half of those that occur in the images."""
    found = []
    for name, count in named.items():
        if count == 1 < there:
            found.append(f"{name} says the same class of every image: it names 1 of the {there} classes that occur")
        elif 2 * count < there:
            found.append(f"{name} names {count} of the {there} classes that occur")
    return found
