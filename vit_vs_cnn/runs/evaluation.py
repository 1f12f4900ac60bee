"""Predictions of a network, and its accuracy on test images with an entry in the test-set log.

`inspect` and `to-attention` also run networks on test images. They compute no accuracy and write no entry.
"""

import hashlib
import io
import zipfile
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
from vit_vs_cnn.files import written_whole
from vit_vs_cnn.models.features import logits_and_features
from vit_vs_cnn.models.recording import as_evaluated
from vit_vs_cnn.runs.calibration import calibration_error
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.ledger import TestLedger
from vit_vs_cnn.runs.predictions_file import BROKEN, LABEL_ARRAYS, read_predictions, refuse_broken

Normalise = Callable[[UInt8[Tensor, "batch channels rows cols"]], Float[Tensor, "batch channels rows cols"]]


@dataclass(frozen=True, eq=False)
class Said:
    """What a network says of each test image, as a file of predictions holds it.

    Arguments:
        classes: what it says, by its number; of several with the same logit the first.
        probability: of what it says.
        label_log_probability: the log of the probability of the true class, in nats; None in a record.
        label_rank: how many classes come before the true one: 0 where it is right; None in a record.
        logits: rounded to 16 bits; None where they were not kept, or not asked for.
    """

    labels: Int64[Tensor, "count"]
    sample_ids: Sequence[str]
    num_classes: int
    classes: Int64[Tensor, "count"]
    probability: Float[Tensor, "count"]
    label_log_probability: Float[Tensor, "count"] | None = None
    label_rank: Int64[Tensor, "count"] | None = None
    logits: Float[Tensor, "count classes"] | None = None

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "Said":
        """From the arrays of ``read_predictions`` or ``load_run_predictions``."""
        names = ("labels", "classes", "probability", *LABEL_ARRAYS)
        values: dict[str, Any] = {name: torch.from_numpy(arrays[name]) for name in names if name in arrays}
        values |= {"num_classes": int(arrays["num_classes"]), "sample_ids": arrays["sample_ids"].tolist()}
        return Said(**values, logits=torch.from_numpy(arrays["logits"]).float() if "logits" in arrays else None)

    @property
    def correct(self) -> Bool[Tensor, "count"]:
        """Whether each image is classified rightly."""
        return self.classes == self.labels

    @property
    def accuracy(self) -> float:
        return self.correct.double().mean().item()

    @property
    def class_counts(self) -> Int64[np.ndarray, "classes"]:
        """How many of the images are of each class."""
        return torch.bincount(self.labels, minlength=self.num_classes).numpy()

    @property
    def classes_named(self) -> int:
        """How many classes the network names at least once."""
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


class Predictions(Said):
    """What a network says, with its exact logits; ``features`` are what it says that by, where they were asked for."""

    logits: Float[Tensor, "count classes"]
    features: Float[Tensor, "count width"] | None

    def __init__(
        self,
        logits: Float[Tensor, "count classes"],
        labels: Int64[Tensor, "count"],
        sample_ids: Sequence[str],
        features: Float[Tensor, "count width"] | None = None,
    ) -> None:
        # Its base is frozen.
        vars(self).update(logits=logits, labels=labels, sample_ids=sample_ids, features=features)

    @property
    def num_classes(self) -> int:
        return self.logits.shape[1]

    @property
    def classes(self) -> Int64[Tensor, "count"]:
        return self.logits.argmax(1)

    @property
    def probability(self) -> Float[Tensor, "count"]:
        return self.logits.double().softmax(1).amax(1)

    @property
    def label_log_probability(self) -> Float[Tensor, "count"]:
        return -F.cross_entropy(self.logits.double(), self.labels, reduction="none")

    @property
    def label_rank(self) -> Int64[Tensor, "count"]:
        own = self.logits.gather(1, self.labels[:, None])
        earlier = torch.arange(self.num_classes) < self.labels[:, None]
        return ((self.logits > own) | ((self.logits == own) & earlier)).sum(1)

    def save(self, path: Path, *, of: str = "", logits: bool = False) -> None:
        """Write what it says as an .npz file, whole or not at all; nothing but the names is compressed.

        Arguments:
            of: which weights on which images, for ``load_of``.
            logits: whether these are kept, too, rounded to 16 bits.
        """
        whole = np.min_scalar_type(self.num_classes)
        arrays = {
            "classes": self.classes.numpy().astype(whole),
            "probability": self.probability.numpy(),
            "label_log_probability": self.label_log_probability.numpy(),
            "label_rank": self.label_rank.numpy().astype(whole),
            "labels": self.labels.numpy().astype(whole),
            "num_classes": np.array(self.num_classes),
            "of": np.array(of),
            "sample_ids": np.array([str(name) for name in self.sample_ids]),
        }
        if logits:
            largest = torch.finfo(torch.float16).max
            arrays["logits"] = self.logits.clamp(-largest, largest).half().numpy()
        with written_whole(path) as partial, zipfile.ZipFile(partial, "w") as archive:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy")
                member.compress_type = zipfile.ZIP_DEFLATED if name == "sample_ids" else zipfile.ZIP_STORED
                np.lib.format.write_array(content := io.BytesIO(), array, allow_pickle=False)
                archive.writestr(member, content.getbuffer())

    @staticmethod
    def load_of(path: Path, of: str) -> "Said | None":
        """Read what ``save`` wrote of the same weights and images; None where there is no such file, or none whole."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                known = "of" in arrays and arrays["of"].item() == of
            return Predictions.load(path) if known else None
        except BROKEN:
            return None

    @staticmethod
    def load(path: Path, *, logits: bool = True) -> "Said":
        """Read what ``save`` wrote, earlier versions too, which kept the logits alone; nothing of the file is executed.

        Arguments:
            logits: whether they are read where they were kept.

        Raises:
            InputError: no such file, not of this form, or answers that are no finite numbers.
        """
        arrays = read_predictions(path, logits=logits)
        if "logits" in arrays and "label_rank" not in arrays:  # of an earlier version
            read, labels = (torch.from_numpy(arrays[name]) for name in ("logits", "labels"))
            return Predictions(read, labels, arrays["sample_ids"].tolist())
        return Said.from_arrays(arrays)


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
    """``refuse_broken`` for logits.

    Raises:
        TrainingDiverged: some are no finite numbers.
    """
    refuse_broken(int((~logits.isfinite()).any(dim=1).sum()), len(logits), what)


@torch.no_grad()
def predict(
    network: nn.Module,
    data: LabelledImages,
    normalise: Normalise,
    *,
    what: str = "the network",
    batch_size: int = 500,
    classifier: nn.Linear | None = None,
) -> Predictions:
    """The network's logits for every image, in evaluation mode, on the network's device.

    Arguments:
        classifier: the network's last linear map, if its features are asked for.

    Raises:
        TrainingDiverged: an answer that is no finite number.
    """
    device = next(network.parameters()).device
    with as_evaluated(network):
        batches = (normalise(images.to(device)) for images in data.batches(batch_size))
        if classifier is None:
            found = [(network(images),) for images in batches]
        else:
            found = [logits_and_features(network, images, classifier) for images in batches]
    logits, *features = (torch.cat([part.float().cpu() for part in parts]) for parts in zip(*found, strict=True))
    check_finite(logits, what)
    return Predictions(logits, data.labels, data.sample_ids, *features)


def evaluate(
    network: nn.Module,
    test: LabelledImages,
    normalise: Normalise,
    *,
    ledger: TestLedger,
    what: str,
    cell: Cell | None = None,
    keep: Path | None = None,
    keep_logits: bool = False,
    answers: Callable[[LabelledImages], Predictions] | None = None,
) -> tuple[Said, str]:
    """Test a network, once, on the record.

    Where predictions are kept, that is done before the ledger notes them. If those of the same weights and images are
    there already, a run was killed behind its test: they are taken, and the ledger notes what it lacks.

    Arguments:
        ledger: of these test images.
        what: for a reader of the ledger.
        cell: the run that trained the network, where it is one of ours.
        keep: the file for the predictions, if they are to be kept.
        keep_logits: whether the file holds logits, too.
        answers: a quicker way to what the network says of the images.

    Returns:
        the predictions, and the hash of their entry in the test-set log.

    Raises:
        TrainingDiverged: an answer that is no finite number; nothing is kept or noted then.
    """
    weights, test_set = hash_weights(network), test.fingerprint()
    predictions: Said | None = None if keep is None else Predictions.load_of(keep, f"{weights} {test_set}")
    if predictions is not None and (entry := ledger.find(weights=weights, what=what, cell=cell)) is not None:
        return predictions, entry
    if predictions is None:
        predictions = predict(network, test, normalise, what=what) if answers is None else answers(test)
        if keep is not None:
            predictions.save(keep, of=f"{weights} {test_set}", logits=keep_logits)
    return predictions, ledger.record(weights=weights, accuracy=predictions.accuracy, what=what, cell=cell)
