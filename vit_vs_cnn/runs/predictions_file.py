"""Files of predictions, read with NumPy alone: who judges the cells of a grid needs no torch."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from vit_vs_cnn.errors import InputError, TrainingDiverged

WHOLE_NUMBERS = ("labels", "classes", "num_classes")
#: Arrays that the predictions of a record lack.
LABEL_ARRAYS = ("label_rank", "label_log_probability")
#: What reading a file that is no whole .npz file raises.
UNREADABLE_FILE_ERRORS = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


def read_predictions(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of predictions.

    Returns:
        labels, classes, num_classes, sample_ids and probability; unless from a record, also label_rank and
        label_log_probability.

    Raises:
        InputError: no such file, not of this form, or a probability is not a finite number.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name].astype(np.int64) for name in WHOLE_NUMBERS}
            arrays |= {name: file[name] for name in ("probability", "sample_ids")}
            if any(name in file for name in LABEL_ARRAYS):
                arrays["label_rank"] = file["label_rank"].astype(np.int64)
                arrays["label_log_probability"] = file["label_log_probability"]
        if len({array.shape for name, array in arrays.items() if name != "num_classes"}) > 1:
            raise ValueError("its arrays are not of as many images")
    except UNREADABLE_FILE_ERRORS as error:
        raise InputError(f"predictions {path}: {error}") from error
    probability = arrays["probability"]
    refuse_broken(int((~np.isfinite(probability)).sum()), len(probability), f"predictions {path}")
    return arrays


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
