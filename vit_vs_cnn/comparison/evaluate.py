"""Evaluation of one network on new labelled images."""

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Bool, UInt64

from vit_vs_cnn.comparison.entries import open_test_set_log
from vit_vs_cnn.comparison.new_images import read_labelled_images, shorten_list
from vit_vs_cnn.console import format_count
from vit_vs_cnn.data.decoding import describe_unreadable
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import CommandResult
from vit_vs_cnn.networks.evaluation import calibration_error, hash_weights
from vit_vs_cnn.networks.trained_network import ImagePredictions, TrainedNetwork
from vit_vs_cnn.statistics.intervals import Estimate, wilson_interval
from vit_vs_cnn.strict_yaml import frame_records

#: Smallest number of classes with a top-5 accuracy.
MIN_CLASSES_FOR_TOP5 = 10


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(CommandResult):
    """Accuracy and calibration of a network on labelled images.

    Arguments:
        images: number of readable images.
        accuracy, top5: with their 95 % intervals (Wilson); no top5 with fewer than ten classes.
        balanced_accuracy: mean recall of the classes that have images.
        mean_probability: mean probability of the predicted classes.
        calibration_error: expected calibration error of these probabilities, over 15 bins of equal mass.
        confusion: number of images by true class (rows) and predicted class (columns).
        training_images: number of these images that are recorded training images of the network.
        remarks: warnings and notes.
        predictions: of all images, unreadable ones included.
    """

    network: str
    images: int
    accuracy: Estimate
    balanced_accuracy: float
    top5: Estimate | None
    mean_probability: float
    calibration_error: float
    confusion: pandas.DataFrame
    training_images: int
    remarks: list[str]
    predictions: ImagePredictions
    written: tuple[Path, ...] = ()

    def frame(self) -> pandas.DataFrame:
        """One row for each class: ``class``, ``images``, ``recall`` with its 95 % interval (Wilson), ``low`` to
        ``high``, and ``predicted_NAME``, the number of its images that are predicted as class NAME.
        """
        rows = list[dict[str, Any]]()
        for name, counts in self.confusion.to_dict("index").items():
            images = sum(counts.values())
            recall = wilson_interval(counts[name], images) if images else Estimate(*[np.nan] * 3)
            row = {"class": name, "images": images, "recall": recall.value, "low": recall.low, "high": recall.high}
            rows.append(row | {f"predicted_{other}": count for other, count in counts.items()})
        return pandas.DataFrame(rows)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of ``frame`` as plain values."""
        return frame_records(self.frame())

    def to_dict(self) -> dict[str, Any]:
        values = {name: value for name, value in vars(self).items() if name not in ("confusion", "predictions")}
        values |= {name: values[name] and dataclasses.asdict(values[name]) for name in ("accuracy", "top5")}
        calibration = self.predictions.calibration.to_dict()
        return {**values, **calibration, "classes": self.rows(), "written": [*map(str, self.written)]}

    @property
    def lines(self) -> list[str]:
        """The measures, the classes without images, warnings and notes."""
        absent = [*self.confusion.index[self.confusion.sum(axis=1) == 0]]
        total = len(self.confusion)
        classes = f"{total - len(absent)} of {total} classes" if absent else f"{total} classes"
        difference = 100 * (self.mean_probability - self.accuracy.value)
        distance = f"{abs(difference):.1f} points {'above' if difference >= 0 else 'below'} the accuracy"
        return [
            f"{self.network} on {format_count(self.images, 'image')} of {classes}: accuracy {_percent(self.accuracy)}",
            f"Balanced accuracy, the mean recall of these classes: {100 * self.balanced_accuracy:.1f} %",
            *([f"Top-5 accuracy: {_percent(self.top5)}"] if self.top5 else []),
            f"Mean probability of the predicted classes: {100 * self.mean_probability:.1f} %, {distance}; expected "
            f"calibration error {self.calibration_error:.3f}",
            *self.predictions.lines[1:],
            *([f"Classes without images: {shorten_list(absent)}"] if absent else []),
            *self.remarks,
        ]


def _percent(accuracy: Estimate) -> str:
    return f"{100 * accuracy.value:.1f} % (95 % CI {100 * accuracy.low:.1f} to {100 * accuracy.high:.1f})"


def evaluate_network(
    trained: TrainedNetwork, images: Any, labels: Any = None, report_progress: Callable[[str], None] = lambda _: None
) -> Evaluation:
    """Predict labelled images, and count the training and test images of the network among them.

    If there are test images of its experiment, the evaluation is entered in the test-set log.

    Raises:
        InputError: as ``read_labelled_images``, or test images of an experiment that is scored on validation images.
    """
    inputs, numbers = read_labelled_images(trained, images, labels)
    predicted = trained.predict_inputs(inputs, report_progress=report_progress)
    if predicted.errors:
        warnings.warn(describe_unreadable(predicted.names, predicted.errors), stacklevel=3)
    report_progress("looking for training and test images")
    readable = [index for index in range(len(inputs)) if index not in predicted.errors]
    truth, probabilities = np.array(numbers)[readable], predicted.probabilities[readable]
    ranked = np.argsort(-probabilities, axis=1, kind="stable")[:, :5] == truth[:, None]
    probability, correct = torch.from_numpy(probabilities.max(1)), ranked[:, 0]
    confusion = np.zeros((len(trained.class_names),) * 2, dtype=np.int64)
    np.add.at(confusion, (truth, probabilities.argmax(1)), 1)
    hashes = np.concatenate([part.hashes() for part in trained.identify(inputs[index] for index in readable)])
    count, training_images = len(readable), trained.training_hashes.count_in(hashes)
    remarks = _record_test_images(trained, hashes, correct)
    if not trained.training_hashes.is_whole:
        remarks.insert(
            0, f"warning: not all training images of {trained.name} are recorded, so some may be among these images"
        )
    if training_images:
        text = f"{training_images:,} of the {count:,} images are training images of {trained.name}"
        remarks.insert(0, f"warning: {text}; the accuracy on new images may be lower")
    is_top5 = len(trained.class_names) >= MIN_CLASSES_FOR_TOP5
    return Evaluation(
        network=trained.name,
        images=count,
        accuracy=wilson_interval(int(correct.sum()), count),
        balanced_accuracy=float(
            np.mean([counts[row] / counts.sum() for row, counts in enumerate(confusion) if any(counts)])
        ),
        top5=wilson_interval(int(ranked.sum()), count) if is_top5 else None,
        mean_probability=float(probability.mean()),
        calibration_error=calibration_error(probability, torch.from_numpy(correct)),
        confusion=pandas.DataFrame(confusion, index=[*trained.class_names], columns=[*trained.class_names]),
        training_images=training_images,
        remarks=remarks,
        predictions=predicted,
    )


def _record_test_images(
    trained: TrainedNetwork, hashes: UInt64[np.ndarray, "readable"], correct: Bool[np.ndarray, "readable"]
) -> list[str]:
    """Enter the evaluation of test images of the network's experiment in the test-set log. Returns a note if any."""
    if (run := trained.origin) is None:
        return []
    try:
        pool = trained.pool()
    except InputError as error:
        return [f"note: test images of the experiment are not recognized, as its images cannot be opened: {error}"]
    is_test = np.isin(hashes, pool.test_hashes(run.seed))
    if not is_test.any():
        return []
    part = f"{is_test.sum():,} of the {len(is_test):,} images are test images of {run.experiment.name}"
    if run.experiment.protocol.scored_on != "test":
        raise InputError(
            f"{part}, which is scored on validation images, so that its test images stay unused; remove these, or "
            "evaluate them with vit-vs-cnn compare --open-test-set"
        )
    log, weights = open_test_set_log(trained, pool.test_set(run.seed)), hash_weights(trained.network)
    log.record(weights=weights, accuracy=float(correct[is_test].mean()), label=f"{trained.name} (evaluate)", run=run)
    return [f"note: {part}; the test-set log now has {log.count(weights)} evaluations of this network"]
