"""Predictions of a network, and its accuracy on test images with an entry in the test-set log.

`inspect` and `to-attention` also run networks on test images. They compute no accuracy and write no entry.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.runs.record import LABEL_ARRAYS, UNREADABLE_FILE_ERRORS, open_arrays, read_predictions, refuse_broken
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.test_set_log import TestSetLog

Normalize = Callable[[UInt8[Tensor, "batch channels rows cols"]], Float[Tensor, "batch channels rows cols"]]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of a network for labelled images, computed or read from a file.

    Arguments:
        classes: predicted class; the first of several with the same logit.
        label_log_probability: log probability of the true class, in nats; None in a record.
        label_rank: number of classes ranked before the true one; None in a record.
    """

    labels: Int64[Tensor, "count"]
    sample_ids: Sequence[str]
    num_classes: int
    classes: Int64[Tensor, "count"]
    probability: Float[Tensor, "count"]
    label_log_probability: Float[Tensor, "count"] | None = None
    label_rank: Int64[Tensor, "count"] | None = None
    computed_logits: Float[Tensor, "count classes"] | None = None

    @classmethod
    def from_logits(
        cls,
        logits: Float[Tensor, "count classes"],
        labels: Int64[Tensor, "count"],
        sample_ids: Sequence[str],
    ) -> "Predictions":
        """From the logits of a network. Images without a known class have label 0 here."""
        num_classes, known = logits.shape[1], labels.clamp(min=0)
        label_logits = logits.gather(1, known[:, None])
        is_earlier = torch.arange(num_classes) < known[:, None]
        return cls(
            labels=labels,
            sample_ids=sample_ids,
            num_classes=num_classes,
            classes=logits.argmax(1),
            probability=logits.double().softmax(1).amax(1),
            label_log_probability=-F.cross_entropy(logits.double(), known, reduction="none"),
            label_rank=((logits > label_logits) | ((logits == label_logits) & is_earlier)).sum(1),
            computed_logits=logits,
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Predictions":
        """From the arrays of ``read_predictions`` or ``load_run_predictions``."""
        names = ("labels", "classes", "probability", *LABEL_ARRAYS)
        values: dict[str, Any] = {name: torch.from_numpy(arrays[name]) for name in names if name in arrays}
        return cls(**values, num_classes=int(arrays["num_classes"]), sample_ids=arrays["sample_ids"].tolist())

    @property
    def logits(self) -> Float[Tensor, "count classes"]:
        """Logits of predictions that were computed."""
        assert self.computed_logits is not None, "a file of predictions has no logits"
        return self.computed_logits

    @property
    def correct(self) -> Bool[Tensor, "count"]:
        return self.classes == self.labels

    @property
    def accuracy(self) -> float:
        return self.correct.double().mean().item()

    @property
    def class_counts(self) -> Int64[np.ndarray, "classes"]:
        return torch.bincount(self.labels, minlength=self.num_classes).numpy()

    @property
    def num_predicted_classes(self) -> int:
        return int((torch.bincount(self.classes) > 0).sum())

    @property
    def loss(self) -> float:
        """Mean cross entropy in nats."""
        assert self.label_log_probability is not None, "a record has no losses of single images"
        return -self.label_log_probability.mean().item()

    @property
    def calibration_error(self) -> float:
        """Expected calibration error over 15 bins of equal mass."""
        return calibration_error(self.probability, self.correct)

    def save(self, path: Path, *, of: str = "") -> None:
        """Write an .npz file atomically."""
        assert self.label_log_probability is not None and self.label_rank is not None, "a record is not saved again"
        integer = np.min_scalar_type(self.num_classes)
        with atomic_write(path) as partial, partial.open("wb") as file:
            np.savez_compressed(
                file,
                classes=self.classes.numpy().astype(integer),
                probability=self.probability.numpy(),
                label_log_probability=self.label_log_probability.numpy(),
                label_rank=self.label_rank.numpy().astype(integer),
                labels=self.labels.numpy().astype(integer),
                num_classes=np.array(self.num_classes),
                of=np.array(of),
                sample_ids=np.array([str(name) for name in self.sample_ids]),
            )

    @classmethod
    def load_matching(cls, path: Path, of: str) -> "Predictions | None":
        """Read what ``save`` wrote of these weights and images; None if the file is missing, damaged or of others."""
        try:
            with open_arrays(path) as arrays:
                is_same = "of" in arrays and arrays["of"].item() == of
            return cls.load(path) if is_same else None
        except UNREADABLE_FILE_ERRORS:
            return None

    @classmethod
    def load(cls, path: Path) -> "Predictions":
        """Read what ``save`` wrote; nothing is executed. Raises InputError: a missing, damaged or not finite file."""
        return cls.from_arrays(read_predictions(path))


def hash_weights(network: nn.Module) -> str:
    """``hash_tensors`` of parameters and buffers."""
    return hash_tensors(network.state_dict())


def hash_tensors(state: Mapping[str, Tensor]) -> str:
    """SHA-256 (first 16 hex digits) over names, shapes and values."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def check_finite(logits: Float[Tensor, "count classes"], what: str) -> None:
    """Refuse logits that are not finite (``refuse_broken``). Raises TrainingDiverged: a logit that is not finite."""
    refuse_broken(int((~logits.isfinite()).any(dim=1).sum()), len(logits), what)


@torch.no_grad()
def predict(
    network: nn.Module,
    data: LabelledImages,
    normalize: Normalize,
    *,
    what: str = "the network",
    batch_size: int = 500,
) -> Predictions:
    """Predict images in evaluation mode, on the device of the network. Raises TrainingDiverged: a logit is not finite.

    Batches of large images are smaller than ``batch_size`` (``LabelledImages.limit_batch``).
    """
    device = next(network.parameters()).device
    with evaluation_mode(network):
        batches = (normalize(images.to(device)) for images in data.batches(data.limit_batch(batch_size)))
        logits = torch.cat([network(images).float().cpu() for images in batches])
    check_finite(logits, what)
    return Predictions.from_logits(logits, data.labels, data.sample_ids)


def evaluate_once(
    predict_images: Callable[[LabelledImages], Predictions],
    test: LabelledImages,
    log: TestSetLog,
    *,
    weights: str,
    label: str,
    run: Run | None = None,
    path: Path | None = None,
) -> tuple[Predictions, str]:
    """Evaluate a network on test images, and enter the evaluation in the test-set log.

    Predictions are saved before the entry is made. If the file has those of the same weights and images, a run was
    killed after its evaluation: they are used, and an entry is made only if it is missing.

    Raises:
        TrainingDiverged: a logit is not a finite number. Then nothing is saved or entered.
    """
    key = f"{weights} {test.fingerprint()}"
    predictions = None if path is None else Predictions.load_matching(path, key)
    if predictions is None:
        predictions = predict_images(test)
        if path is not None:
            predictions.save(path, of=key)
    elif (entry := log.find(weights=weights, label=label, run=run)) is not None:
        return predictions, entry
    return predictions, log.record(weights=weights, accuracy=predictions.accuracy, label=label, run=run)


BINS = 15


def equal_mass_bins(confidence: Float[Tensor, "count"], bins: int = BINS) -> Int64[Tensor, "count"]:
    """Bin of each image, with as equal numbers of images as possible, the least confident images in the first bin.

    Images with the same confidence share the bin of their middle one. So bins do not depend on the order of the images,
    and there are fewer bins if there are many ties.
    """
    _, ties, counts = confidence.unique(return_inverse=True, return_counts=True)
    middle = counts.cumsum(0) - counts + (counts - 1) // 2  # index of the middle image of each confidence, sorted
    number = torch.arange(len(confidence)).tensor_split(bins)
    bin_of_place = torch.cat([torch.full_like(part, index) for index, part in enumerate(number)])
    return bin_of_place[middle.cpu()].to(confidence.device)[ties]


def reliability(
    confidence: Float[Tensor, "count"], right: Bool[Tensor, "count"], bins: int = BINS
) -> tuple[list[float], list[float], list[int]]:
    """Mean confidence, accuracy and number of images in bins of equal mass, the least confident first."""
    place = equal_mass_bins(confidence, bins)
    counts = torch.bincount(place, minlength=bins)
    sums = [torch.bincount(place, values.double(), minlength=bins) for values in (confidence, right)]
    there = counts > 0
    means = [(values[there] / counts[there]).tolist() for values in sums]
    return means[0], means[1], counts[there].tolist()


def calibration_error(confidence: Float[Tensor, "count"], right: Bool[Tensor, "count"], bins: int = BINS) -> float:
    """Mean distance of confidence from accuracy: sum_b |B_b| / N |accuracy(B_b) - confidence(B_b)|.

    Reference: Guo et al., "On calibration of modern neural networks", 2017, equation 5.
    Differs: bins of equal mass (``equal_mass_bins``) instead of equal width, so that no bin has few images.
    """
    parts = zip(*reliability(confidence, right, bins), strict=True)
    return sum(count * abs(share - mean) for mean, share, count in parts) / len(right)
