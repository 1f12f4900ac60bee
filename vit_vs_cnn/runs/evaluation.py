"""The one place that opens the test set, on the record of its ledger."""

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError, TrainingDiverged
from vit_vs_cnn.files import written_whole
from vit_vs_cnn.models.features import logits_and_features
from vit_vs_cnn.models.recording import as_evaluated
from vit_vs_cnn.runs.calibration import expected_calibration_error
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.ledger import Noted, TestLedger

Normalise = Callable[[UInt8[Tensor, "batch channels rows cols"]], Float[Tensor, "batch channels rows cols"]]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a network says of each test image; ``features`` are what it says that by, where they were asked for."""

    logits: Float[Tensor, "count classes"]
    labels: Int64[Tensor, "count"]
    sample_ids: Sequence[str]
    features: Float[Tensor, "count width"] | None = None

    @property
    def correct(self) -> Tensor:
        """Whether each image is classified rightly, ``(count,)`` bool."""
        return self.logits.argmax(1) == self.labels

    @property
    def accuracy(self) -> float:
        return self.correct.double().mean().item()

    @property
    def class_counts(self) -> Int64[np.ndarray, "classes"]:
        """How many of the images are of each class."""
        return torch.bincount(self.labels, minlength=self.logits.shape[1]).numpy()

    @property
    def classes_named(self) -> int:
        """How many classes the network names at least once."""
        return len(self.logits.argmax(1).unique())

    @property
    def loss(self) -> float:
        """Mean cross entropy in nats."""
        return F.cross_entropy(self.logits.double(), self.labels).item()

    @property
    def calibration_error(self) -> float:
        """Expected calibration error over 15 bins of equal mass."""
        return expected_calibration_error(self.logits.double().softmax(1), self.labels)

    def is_of_the_images_of(self, other: "Predictions") -> bool:
        """Whether both speak of the same images in the same order."""
        same_labels = self.labels.shape == other.labels.shape and bool((self.labels == other.labels).all())
        return same_labels and list(self.sample_ids) == list(other.sample_ids)

    def save(self, path: Path, *, of: str = "") -> None:
        """Write ``logits``, ``labels`` and ``sample_ids`` as an .npz file, whole or not at all.

        Arguments:
            of: which weights on which images, for ``load_of``.
        """
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez_compressed(
                file,
                logits=self.logits.float().numpy(),
                labels=self.labels.numpy(),
                sample_ids=np.array([str(i) for i in self.sample_ids]),
                of=np.array(of),
            )

    @classmethod
    def load_of(cls, path: Path, of: str) -> "Predictions | None":
        """Read what ``save`` wrote of the same weights and images; None where there is no such file, or none whole."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                known = "of" in arrays and arrays["of"].item() == of
            return cls.load(path) if known else None
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
            return None

    @classmethod
    def load(cls, path: Path) -> "Predictions":
        """Read what ``save`` wrote; nothing of the file is executed.

        Raises:
            InputError: no such file, not of this form, or answers that are no finite numbers.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                found = cls(
                    logits=torch.from_numpy(arrays["logits"]),
                    labels=torch.from_numpy(arrays["labels"]),
                    sample_ids=arrays["sample_ids"].tolist(),
                )
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"predictions {path}: {error}") from error
        check_finite(found.logits, f"predictions {path}")
        return found


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
    """See that a network's answers are numbers: an argmax of NaN names the first class and looks like an accuracy.

    Raises:
        TrainingDiverged: some are not; it names ``what``, and how many.
    """
    broken = int((~logits.isfinite()).any(dim=1).sum())
    if broken:
        raise TrainingDiverged(
            f"{what}: its answers to {broken:,} of {len(logits):,} images are not finite numbers (NaN or infinity), so "
            "they cannot be scored; its weights are damaged or of a training that diverged"
        )


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
    answers: Callable[[LabelledImages], Predictions] | None = None,
) -> tuple[Predictions, Noted]:
    """Test a network, once, on the record.

    Where predictions are kept, that is done before the ledger notes them. If those of the same weights and images are
    there already, a run was killed behind its test: they are taken, and the ledger notes what it lacks.

    Arguments:
        ledger: of these test images.
        what: for a reader of the ledger.
        cell: the run that trained the network, where it is one of ours.
        keep: the file for the predictions, if they are to be kept.
        answers: a quicker way to what the network says of the images.

    Returns:
        the predictions, and where the ledger notes them.

    Raises:
        TrainingDiverged: an answer that is no finite number; nothing is kept or noted then.
    """
    weights, test_set = hash_weights(network), test.fingerprint()
    assert ledger.test_set == test_set, "a ledger is of one test set"
    predictions = None if keep is None else Predictions.load_of(keep, f"{weights} {test_set}")
    if predictions is not None and (noted := ledger.noted(weights=weights, what=what, cell=cell)) is not None:
        return predictions, noted
    if predictions is None:
        predictions = predict(network, test, normalise, what=what) if answers is None else answers(test)
        if keep is not None:
            predictions.save(keep, of=f"{weights} {test_set}")
    return predictions, ledger.record(weights=weights, accuracy=predictions.accuracy, what=what, cell=cell)
