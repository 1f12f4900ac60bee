"""Predictions of a network for unlabelled images, one batch after the other."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.calibration import LEAST
from vit_vs_cnn.runs.held_out import HeldOut
from vit_vs_cnn.runs.out_of_distribution import MAX_FALSE_ALARM_RATE

if TYPE_CHECKING:
    import pandas

#: Rows of a table that is shown unasked, and classes that are counted one by one.
SHOWN, COUNTED = 20, 10


@dataclass(frozen=True, eq=False, repr=False)
class Predicted:
    """The classes that a network names.

    Arguments:
        names: of the pictures: paths of files, or numbers.
        class_names: in the order of the probabilities.
        probabilities: of each class for each picture, calibrated where there is a temperature; a row adds up to 1, or
            is NaN where the picture could not be read.
        ood_scores: out-of-distribution score of each image (``OutOfDistributionScore``). None if it is not offered for
            the network, NaN for an image that could not be read.
        errors: why, by the number of the picture.
        held_out: where temperature and threshold come from.
        top: how many classes the table has for each picture.
    """

    names: Sequence[str]
    class_names: tuple[str, ...]
    probabilities: Float[np.ndarray, "images classes"]
    ood_scores: Float[np.ndarray, "images"] | None = None
    errors: dict[int, str] = field(default_factory=dict)
    held_out: HeldOut = field(default_factory=HeldOut)
    top: int = 1

    @classmethod
    def joined(cls, parts: Sequence["Predicted"]) -> "Predicted":
        """Batches of one network, at least one, as one."""
        first, errors, count = parts[0], {}, 0
        for part in parts:
            errors |= {count + number: reason for number, reason in part.errors.items()}
            count += len(part)
        scores = [part.ood_scores for part in parts if part.ood_scores is not None]
        return cls(
            [name for part in parts for name in part.names],
            first.class_names,
            np.concatenate([part.probabilities for part in parts]),
            np.concatenate(scores) if scores else None,
            errors,
            first.held_out,
            first.top,
        )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> list[str | None]:
        """The most probable class of each picture; None of one that could not be read."""
        best = self.probabilities.argmax(1)
        return [None if number in self.errors else self.class_names[one] for number, one in enumerate(best)]

    @property
    def is_out_of_distribution(self) -> list[bool | None]:
        """Whether each image is less like the training images than 95 % of the validation images; None: unknown."""
        if self.ood_scores is None:
            return [None] * len(self)
        return [
            None if number in self.errors else bool(ood_score > 1) for number, ood_score in enumerate(self.ood_scores)
        ]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Plain values by the names of the columns; None where there is nothing to say."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, : self.top]
        flags = self.is_out_of_distribution
        for number, name in enumerate(self.names):
            error = self.errors.get(number)
            row: dict[str, Any] = {"image": name}
            for place, one in enumerate(order[number], start=1):
                names = (None, None) if error else (self.class_names[one], float(self.probabilities[number, one]))
                row |= dict(zip(names_of(place), names, strict=True))
            score = None if error or self.ood_scores is None else float(self.ood_scores[number])
            yield row | {"ood_score": score, "is_out_of_distribution": flags[number], "error": error}

    def frame(self) -> "pandas.DataFrame":
        """One row for each picture.

        ``image``, ``predicted`` (the most probable class) and its ``probability``; with ``top`` above 1 ``class_2`` and
        ``probability_2`` and so on; ``ood_score``, whose threshold is 1, ``is_out_of_distribution``, and the ``error``
        of an image that could not be read.
        """
        import pandas

        return pandas.DataFrame(list(self.rows()), columns=columns_of(self.top))

    def to_dict(self) -> dict[str, Any]:
        return {**self.held_out.to_dict(), "pictures": list(self.rows())}

    @property
    def lines(self) -> list[str]:
        """The whole in a few sentences."""
        return Tally().add(self).lines

    def __repr__(self) -> str:
        return self.frame().to_string(index=False, max_rows=SHOWN, na_rep="")

    def _repr_html_(self) -> str:
        return self.frame().to_html(index=False, max_rows=SHOWN, na_rep="")


def names_of(place: int) -> tuple[str, str]:
    """The columns of the class that stands at a place, from 1 for the most probable."""
    return ("predicted", "probability") if place == 1 else (f"class_{place}", f"probability_{place}")


def columns_of(top: int) -> list[str]:
    classes = [name for place in range(1, top + 1) for name in names_of(place)]
    return ["image", *classes, "ood_score", "is_out_of_distribution", "error"]


class Tally:
    """What is counted of pictures as they go by."""

    def __init__(self) -> None:
        self.pictures = 0
        self.by_class: Counter[str] = Counter()
        self.unreadable = 0
        self.out_of_distribution: int | None = None
        self.first_error: str | None = None
        self.held_out = HeldOut()

    def add(self, part: Predicted) -> "Tally":
        """Count a batch; of one network, as the others."""
        for number, reason in part.errors.items():
            self.first_error = self.first_error or f"{part.names[number]}: {reason}"
        self.pictures += len(part)
        self.unreadable += len(part.errors)
        self.by_class.update(name for name in part.classes if name is not None)
        if part.ood_scores is not None:
            self.out_of_distribution = (self.out_of_distribution or 0) + part.is_out_of_distribution.count(True)
        self.held_out = part.held_out
        return self

    @property
    def read(self) -> int:
        return self.pictures - self.unreadable

    def require_some(self, where: str = "images") -> None:
        """Raises InputError: there was no picture ``where`` they were looked for, or none that could be read."""
        if not self.pictures:
            raise InputError(f"{where}: no picture is there")
        if not self.read:
            others = self.pictures - 1
            more = f", and {others:,} more that cannot be read" if others else ""
            raise InputError(f"{self.first_error}{more}")

    @property
    def lines(self) -> list[str]:
        """Counts of images by class and of flagged ones, and whether probabilities are calibrated."""
        most = self.by_class.most_common(COUNTED)
        named = ", ".join(f"{name} {count:,}" for name, count in most)
        rest = len(self.by_class) - len(most)
        pictures = "1 picture" if self.read == 1 else f"{self.read:,} pictures"
        lines = [f"{pictures}: {named}" + (f", and {rest} more classes" if rest else "")]
        if self.unreadable:
            lines.append(f"{self.unreadable:,} more could not be read, the first {self.first_error}")
        return [*lines, self._flags, self._calibration]

    @property
    def _flags(self) -> str:
        if self.out_of_distribution is None:
            return (
                f"Out-of-distribution flags are not offered for this network: they need {LEAST} validation images, a "
                "last linear layer, and a score that separates noise and blank images from validation images"
            )
        share = f"{self.out_of_distribution / self.read:.0%}"
        return (
            f"{self.out_of_distribution:,} ({share}) flagged as out of distribution: less like the training images "
            f"than {1 - MAX_FALSE_ALARM_RATE:.0%} of {self.held_out.images:,} validation images"
        )

    @property
    def _calibration(self) -> str:
        if self.held_out.temperature is None:
            return f"Probabilities are not calibrated: that needs {LEAST} validation images"
        return (
            f"Probabilities are calibrated: temperature {self.held_out.temperature:.3g}, found on "
            f"{self.held_out.images:,} validation images"
        )
