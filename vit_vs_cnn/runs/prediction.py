"""Predicted classes of unlabelled images."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from vit_vs_cnn.console import format_count
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.evaluation import MIN_VALIDATION_IMAGES
from vit_vs_cnn.runs.held_out import MAX_FALSE_ALARM_RATE, HeldOut

if TYPE_CHECKING:
    import pandas

#: Number of rows that are displayed, and of classes that a summary counts.
MAX_SHOWN_ROWS, MAX_COUNTED_CLASSES = 20, 10


@dataclass(frozen=True, eq=False, repr=False)
class ImagePredictions:
    """Predicted classes of images.

    Arguments:
        probabilities: of each class, calibrated if there is a temperature; NaN for unreadable images.
        ood_scores: out-of-distribution scores (``OutOfDistributionScore``). None if they are not offered for the
            network, NaN for unreadable images.
    """

    names: Sequence[str]
    class_names: tuple[str, ...]
    probabilities: Float[np.ndarray, "images classes"]
    ood_scores: Float[np.ndarray, "images"] | None = None
    errors: dict[int, str] = field(default_factory=dict)
    held_out: HeldOut = field(default_factory=HeldOut)
    top: int = 1
    written: tuple[Path, ...] = ()

    @classmethod
    def concatenate(cls, parts: Sequence["ImagePredictions"], location: str = "images") -> "ImagePredictions":
        """Join batches of one network.

        Raises:
            InputError: no images, or none that can be read; the message names the ``location`` that was searched.
        """
        if not parts:
            raise InputError(f"{location}: there are no images")
        first, errors, count = parts[0], {}, 0
        for part in parts:
            errors |= {count + index: reason for index, reason in part.errors.items()}
            count += len(part)
        scores = [part.ood_scores for part in parts if part.ood_scores is not None]
        predictions = cls(
            [name for part in parts for name in part.names],
            first.class_names,
            np.concatenate([part.probabilities for part in parts]),
            np.concatenate(scores) if scores else None,
            errors,
            first.held_out,
            first.top,
        )
        if len(errors) == count:
            more = f", and {count - 1:,} more that cannot be read" * (count > 1)
            raise InputError(f"{predictions.first_error}{more}")
        return predictions

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> list[str | None]:
        """The most probable class of each image; None for unreadable ones."""
        best = self.probabilities.argmax(1)
        return [None if index in self.errors else self.class_names[number] for index, number in enumerate(best)]

    @property
    def by_class(self) -> dict[str, int]:
        """Number of images of each predicted class, the most frequent first."""
        return dict(Counter(name for name in self.classes if name is not None).most_common())

    @property
    def is_out_of_distribution(self) -> list[bool | None]:
        """Mask of images that are less like the training images than 95 % of the validation images; None if unknown."""
        if self.ood_scores is None:
            return [None] * len(self)
        return [None if index in self.errors else bool(score > 1) for index, score in enumerate(self.ood_scores)]

    @property
    def first_error(self) -> str:
        """The first unreadable image, and the reason."""
        index, reason = next(iter(self.errors.items()))
        return f"{self.names[index]}: {reason}"

    @property
    def columns(self) -> list[str]:
        """Names of the columns of the table."""
        classes = [name for rank in range(1, self.top + 1) for name in _column_names(rank)]
        return ["image", *classes, "ood_score", "is_out_of_distribution", "error"]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the table as plain values by the name of the column; None for an empty one."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, : self.top]
        flags = self.is_out_of_distribution
        for index, name in enumerate(self.names):
            error = self.errors.get(index)
            row: dict[str, Any] = {"image": name}
            for rank, number in enumerate(order[index], start=1):
                values = (None, None) if error else (self.class_names[number], float(self.probabilities[index, number]))
                row |= dict(zip(_column_names(rank), values, strict=True))
            score = None if error or self.ood_scores is None else float(self.ood_scores[index])
            yield row | {"ood_score": score, "is_out_of_distribution": flags[index], "error": error}

    def frame(self) -> "pandas.DataFrame":
        """One row for each image.

        ``image``, ``predicted`` (the most probable class) and its ``probability``; with ``top`` above 1 ``class_2`` and
        ``probability_2`` and so on; ``ood_score``, whose threshold is 1, ``is_out_of_distribution``, and the ``error``
        of an unreadable image.
        """
        import pandas

        return pandas.DataFrame(list(self.rows()), columns=self.columns)

    def to_dict(self) -> dict[str, Any]:
        return {**self.held_out.to_dict(), "pictures": list(self.rows()), "written": [*map(str, self.written)]}

    def __repr__(self) -> str:
        return self.frame().to_string(index=False, max_rows=MAX_SHOWN_ROWS, na_rep="")

    def _repr_html_(self) -> str:
        return self.frame().to_html(index=False, max_rows=MAX_SHOWN_ROWS, na_rep="")

    @property
    def lines(self) -> list[str]:
        """Counts of images by class and of flagged ones, and whether probabilities are calibrated."""
        counts = self.by_class
        class_texts = ", ".join(f"{name} {count:,}" for name, count in [*counts.items()][:MAX_COUNTED_CLASSES])
        rest = len(counts) - MAX_COUNTED_CLASSES
        line = f"{format_count(len(self) - len(self.errors), 'image')}: {class_texts}"
        lines = [line + (f", and {rest} more classes" if rest > 0 else "")]
        if self.errors:
            lines.append(f"{len(self.errors):,} more could not be read, the first {self.first_error}")
        scores, held_out = self.ood_scores, self.held_out
        if scores is None:
            lines.append(
                f"Out-of-distribution flags are not offered for this network: they need {MIN_VALIDATION_IMAGES} "
                "validation images, a last linear layer, and a score that separates noise and blank images from "
                "validation images"
            )
        else:
            count = self.is_out_of_distribution.count(True)
            lines.append(
                f"{count:,} ({count / (len(self) - len(self.errors)):.0%}) flagged as out of distribution: less like "
                f"the training images than {1 - MAX_FALSE_ALARM_RATE:.0%} of {held_out.images:,} validation images"
            )
        if held_out.temperature is None:
            return [*lines, f"Probabilities are not calibrated: that needs {MIN_VALIDATION_IMAGES} validation images"]
        return [
            *lines,
            f"Probabilities are calibrated: temperature {held_out.temperature:.3g}, found on "
            f"{held_out.images:,} validation images",
        ]


def _column_names(rank: int) -> tuple[str, str]:
    """Columns of the class with a rank, from 1 for the most probable."""
    return ("predicted", "probability") if rank == 1 else (f"class_{rank}", f"probability_{rank}")
