"""Files of predictions, and the record of an experiment: one table of runs, and one file of packed predictions.

A record is small enough to be committed. It has the class and the probability that each run gave for each scored image,
but no checkpoints and no logits.
"""

import csv
import functools
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from vit_vs_cnn.errors import InputError, TrainingDiverged
from vit_vs_cnn.files import file_state
from vit_vs_cnn.runs.result import RunResult

TABLE, PREDICTIONS, CONFIG, RUNS = "results.csv", "predictions.npz", "experiment.yaml", "runs.json"
#: Probabilities are stored as whole numbers from 0 to this.
MAX_PROBABILITY_LEVEL = 255
#: Arrays of whole numbers.
WHOLE_NUMBERS = ("labels", "classes", "num_classes")
#: Arrays that the predictions of a record lack.
LABEL_ARRAYS = ("label_rank", "label_log_probability")
#: Errors of reading a damaged .npz file.
UNREADABLE_FILE_ERRORS = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
_JSON_STARTS = frozenset(' \t\n\r"[{-0123456789tfnNI')
_WORDS = {"": None, "True": True, "False": False}


def is_record(folder: Path) -> bool:
    """True if a folder holds a record: a config and one table of runs, and no list of run folders."""
    return all((folder / name).is_file() for name in (TABLE, CONFIG)) and not (folder / RUNS).exists()


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows as CSV with a header. None is an empty field, other values except strings are written as JSON.

    A string that would be read back as JSON, such as "12", is quoted as JSON; other strings are written unchanged.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _text_of(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def read_table(path: Path) -> list[dict[str, Any]]:
    """Read what ``table_text`` wrote. An empty field is None. Raises InputError: a missing file or a surplus cell."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from error
    for number, line in enumerate(lines, start=2):
        if None in line:
            raise InputError(f"{path} line {number}: more cells than there are columns")
    return [{name: _value_of(text) for name, text in line.items()} for line in lines]


def _text_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and value and _value_of(value) is value:
        return value
    return json.dumps(value)


def _value_of(text: str | None) -> Any:
    if text is None or text in _WORDS:
        return _WORDS.get(text or "")
    if text[0] not in _JSON_STARTS:  # most texts: an exception takes longer
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_result_table(path: Path) -> list[RunResult]:
    """Read a table of runs, one result a line. Raises InputError: a missing or unusable table."""
    rows = read_table(path)
    if not rows:
        raise InputError(f"{path}: the table has no runs")
    return [RunResult.from_row(row, f"{path} line {number}") for number, row in enumerate(rows, start=2)]


def read_recorded_runs(folder: Path) -> dict[Path, RunResult]:
    """The results of a record, by the folder that each run had in its experiment."""
    return {folder / result.run: result for result in read_result_table(folder / TABLE)}


#: Arrays of the predictions of a record. ``classes`` and ``probability`` are ``(runs, images)``; the class is
#: ``num_classes`` for an image that the run is not scored on, and the probability is in 255ths.
PACKED_ARRAYS = ("runs", "classes", "probability", "labels", "sample_ids", "num_classes")


@contextmanager
def open_arrays(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of an .npz file, each read when it is used. Raises one of ``UNREADABLE_FILE_ERRORS``."""
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):  # NumPy would suggest to load it unsafely
            raise ValueError("it is not an .npz file")
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            yield arrays


def read_predictions(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file of predictions, without torch.

    Returns:
        labels, classes, num_classes, sample_ids and probability; unless from a record, also label_rank and
        label_log_probability.

    Raises InputError: the file is missing or has another form, or a probability is not finite.
    """
    try:
        with open_arrays(path) as file:
            arrays = {name: file[name].astype(np.int64) for name in WHOLE_NUMBERS}
            arrays |= {name: file[name] for name in ("probability", "sample_ids")}
            if any(name in file for name in LABEL_ARRAYS):
                arrays["label_rank"] = file["label_rank"].astype(np.int64)
                arrays["label_log_probability"] = file["label_log_probability"]
        if len({array.shape for name, array in arrays.items() if name != "num_classes"}) > 1:
            raise ValueError("its arrays differ in their numbers of images")
    except UNREADABLE_FILE_ERRORS as error:
        raise InputError(f"predictions {path}: {error}") from error
    probability = arrays["probability"]
    refuse_broken(int((~np.isfinite(probability)).sum()), len(probability), f"predictions {path}")
    return arrays


def refuse_broken(broken: int, count: int, subject: str) -> None:
    """Raise TrainingDiverged for predictions that are not finite: the argmax of NaN is the first class."""
    if broken:
        raise TrainingDiverged(
            f"{subject}: predictions for {broken:,} of {count:,} images are not finite (NaN or infinity) and cannot be "
            "scored; the weights are damaged, or training diverged"
        )


@functools.lru_cache(maxsize=4)
def _read_packed(path: Path, state: tuple[int, int, int, int]) -> dict[str, np.ndarray]:
    """Read the predictions of a record. ``state`` changes with the file. Raises InputError: none, or another form."""
    try:
        with open_arrays(path) as arrays:
            packed = {name: arrays[name] for name in PACKED_ARRAYS}
        shape = len(packed["runs"]), len(packed["labels"])
        if {packed["classes"].shape, packed["probability"].shape} != {shape}:
            raise ValueError("its arrays differ in their numbers of runs or images")
    except UNREADABLE_FILE_ERRORS as error:
        raise InputError(f"predictions {path}: {error}") from error
    return packed


def load_run_predictions(folder: Path, run: str) -> dict[str, np.ndarray]:
    """Predictions of one run of an experiment or of a record, without logits. Raises InputError: none can be read."""
    if not is_record(folder):
        return read_predictions(folder / run / PREDICTIONS)
    path = folder / PREDICTIONS
    if not path.exists():
        raise InputError(f"predictions {path}: no such file")
    packed = _read_packed(path, file_state(path))
    if run not in (runs := packed["runs"].tolist()):
        raise InputError(f"predictions of {run}: missing in this record")
    row, num_classes = runs.index(run), packed["num_classes"]
    scored = packed["classes"][row] < num_classes
    return {
        "classes": packed["classes"][row, scored].astype(np.int64),
        "probability": packed["probability"][row, scored] / np.float32(MAX_PROBABILITY_LEVEL),
        "labels": packed["labels"][scored].astype(np.int64),
        "sample_ids": packed["sample_ids"][scored],
        "num_classes": num_classes,
    }


#: Ratio of the largest to the smallest class from which classes are imbalanced.
MIN_IMBALANCE = 4.0
#: The first row of every table of accuracies.
MAJORITY = "always the most frequent class"
#: Networks that a sentence names one by one.
_MAX_LISTED_NETWORKS = 3


@dataclass(frozen=True, eq=False)
class Answers:
    """Predictions of networks on the scored images.

    Arguments:
        named: number of different classes that each network predicts, by its name.
        correct: mask of correctly classified images by run; None if runs were scored on different images.
        balanced_accuracies: mean recall of the classes that occur, by run.
    """

    class_counts: Int64[np.ndarray, "classes"]
    named: Mapping[str, int]
    correct: dict[str, np.ndarray] | None = None
    balanced_accuracies: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_imbalanced(self) -> bool:
        """True if a class has at least ``MIN_IMBALANCE`` times as many images as another one that occurs."""
        counts = self.class_counts[self.class_counts > 0]
        return bool(counts.max() >= MIN_IMBALANCE * counts.min())

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
    """Read the predictions of finished runs. Raises InputError: unreadable, or with different numbers of classes."""
    reference: dict[int | None, tuple[np.ndarray, np.ndarray]] = {}
    correct, balanced, counts, named, num_classes, same = {}, {}, [], {}, None, True
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
        hits, occurs = np.bincount(labels, correct[result.run], minlength=classes), counts[-1] > 0
        balanced[result.run] = float((hits[occurs] / counts[-1][occurs]).mean())
        named[result.run.rpartition("-")[0] or result.run] = len(np.unique(predictions["classes"]))
    total = np.sum(counts, axis=0) if len(reference) > 1 or not same else counts[0]
    return Answers(total, named, correct if same else None, balanced)
