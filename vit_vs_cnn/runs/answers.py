"""Predictions of runs: the accuracy of the majority class, and networks that predict few classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.record import load_run_predictions
from vit_vs_cnn.runs.result import RunResult

#: The first row of every table of accuracies.
MAJORITY = "always the most frequent class"
#: Networks that a sentence names one by one.
_MAX_LISTED_NETWORKS = 3


@dataclass(frozen=True, eq=False)
class Answers:
    """Predictions of networks on the scored images.

    Arguments:
        class_counts: number of images of each class.
        named: number of different classes that each network predicts, by its name.
        correct: mask of correctly classified images by run; None if runs were scored on different images.
    """

    class_counts: Int64[np.ndarray, "classes"]
    named: Mapping[str, int]
    correct: dict[str, np.ndarray] | None = None

    @property
    def majority(self) -> float:
        """The accuracy of always predicting the most frequent class."""
        return float(self.class_counts.max() / self.class_counts.sum())

    @property
    def few_classes(self) -> list[str]:
        """A sentence on networks that predict one class only, or fewer than half of the classes that occur."""
        occurring = int((self.class_counts > 0).sum())
        few = {
            n: count for n, count in self.named.items() if count < occurring and (count == 1 or 2 * count < occurring)
        }
        if not few:
            return []
        rest = len(few) - _MAX_LISTED_NETWORKS
        names = ", ".join([*few][:_MAX_LISTED_NETWORKS]) + f" and {rest} more" * (rest > 0)
        predict, fewest, most = "predict" if len(few) > 1 else "predicts", min(few.values()), max(few.values())
        count = f"{most}" if fewest == most else f"{fewest} to {most}"
        return [f"{names} {predict} {count} of the {occurring} classes that occur"]


def load_predictions(folder: Path, results: Sequence[RunResult]) -> Answers:
    """Read the predictions of finished runs.

    Raises:
        InputError: a file that cannot be read, or runs with different numbers of classes.
    """
    reference: dict[int | None, tuple[np.ndarray, np.ndarray]] = {}
    correct, counts, named, num_classes, same = {}, [], {}, None, True
    for result in results:
        predictions = load_run_predictions(folder, result.run)
        labels, classes = predictions["labels"], int(predictions["num_classes"])
        num_classes = num_classes or classes
        if classes != num_classes:
            raise InputError(f"predictions of {result.run}: {classes} classes, and {num_classes} in other runs")
        first = reference.setdefault(result.data.fold, (labels, predictions["sample_ids"]))
        same &= np.array_equal(labels, first[0]) and np.array_equal(predictions["sample_ids"], first[1])
        correct[result.run] = predictions["classes"] == labels
        counts.append(np.bincount(labels, minlength=classes))
        named[result.run.rpartition("-")[0] or result.run] = len(np.unique(predictions["classes"]))
    total = np.sum(counts, axis=0) if len(reference) > 1 or not same else counts[0]
    return Answers(total, named, correct if same else None)
