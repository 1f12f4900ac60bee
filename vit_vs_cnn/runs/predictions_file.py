"""Files of predictions, read with NumPy alone: who judges the cells of a grid needs no torch."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from vit_vs_cnn.errors import InputError, TrainingDiverged

WHOLE_NUMBERS = ("labels", "classes", "num_classes")
#: Arrays that the predictions of a record lack.
LABEL_ARRAYS = ("label_rank", "label_log_probability")
#: What reading a file that is no whole .npz file raises.
BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


def read_predictions(path: Path, *, logits: bool = True) -> dict[str, np.ndarray]:
    """The arrays of a file of predictions, those of earlier versions too, which kept the logits alone.

    Arguments:
        logits: whether they are read where they were kept beside the rest.

    Returns:
        labels, classes, num_classes and sample_ids; of new files also probability, label_rank and
        label_log_probability (unless from a record) and, where asked for and kept, logits. Files of earlier versions
        have labels, sample_ids and logits, from which classes and probability are computed.

    Raises:
        InputError: no such file, not of this form, or answers that are no finite numbers.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = _answers(arrays, logits=logits) if "classes" in arrays else _logits(arrays)
    except BROKEN as error:
        raise InputError(f"predictions {path}: {error}") from error
    numbers = found["probability"][:, None] if "probability" in found else found["logits"]
    refuse_broken(int((~np.isfinite(numbers)).any(axis=1).sum()), len(numbers), f"predictions {path}")
    return found


def _answers(arrays: NpzFile, *, logits: bool) -> dict[str, np.ndarray]:
    """Raises KeyError, ValueError: something is missing, or not of as many images as the rest."""
    found = {name: arrays[name].astype(np.int64) for name in WHOLE_NUMBERS}
    found |= {name: arrays[name] for name in ("probability", "sample_ids")}
    if any(name in arrays for name in LABEL_ARRAYS):
        found |= {"label_rank": arrays["label_rank"].astype(np.int64)}
        found |= {"label_log_probability": arrays["label_log_probability"]}
    if len({one.shape for name, one in found.items() if name != "num_classes"}) > 1:
        raise ValueError("its arrays are not of as many images")
    return found | ({"logits": arrays["logits"]} if logits and "logits" in arrays else {})


def _logits(arrays: NpzFile) -> dict[str, np.ndarray]:
    found = {name: arrays[name] for name in ("logits", "labels", "sample_ids")}
    images, classes = found["logits"].shape
    if (images,) != found["labels"].shape:
        raise ValueError("its arrays are not of as many images")
    logits = found["logits"].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(logits - logits.max(1, keepdims=True))
        probability = weights.max(1) / weights.sum(1)
    return found | {"classes": logits.argmax(1), "probability": probability, "num_classes": np.array(classes)}


def refuse_broken(broken: int, count: int, what: str) -> None:
    """See that a network's answers are numbers: an argmax of NaN names the first class and looks like an accuracy.

    Raises:
        TrainingDiverged: some are not; it names ``what``, and how many.
    """
    if broken:
        raise TrainingDiverged(
            f"{what}: its answers to {broken:,} of {count:,} images are not finite numbers (NaN or infinity), so "
            "they cannot be scored; its weights are damaged or of a training that diverged"
        )
