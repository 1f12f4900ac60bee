"""What a network says of pictures whose class nobody has told it, one batch after the other."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.calibration import LEAST
from vit_vs_cnn.runs.familiarity import FALSE_ALARMS
from vit_vs_cnn.runs.held_out import HeldOut

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
        distances: how far each picture lies from the training images, in units of what is usual; see ``Familiarity``.
            None where that is not known, NaN for a picture that could not be read.
        errors: why, by the number of the picture.
        held_out: where temperature and threshold come from.
        top: how many classes the table has for each picture.
    """

    names: Sequence[str]
    class_names: tuple[str, ...]
    probabilities: Float[np.ndarray, "images classes"]
    distances: Float[np.ndarray, "images"] | None = None
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
        far = [part.distances for part in parts if part.distances is not None]
        return cls(
            [name for part in parts for name in part.names],
            first.class_names,
            np.concatenate([part.probabilities for part in parts]),
            np.concatenate(far) if far else None,
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
    def unfamiliar(self) -> list[bool | None]:
        """Whether each picture lies farther from the training images than 95 % of such images do; None: not known."""
        if self.distances is None:
            return [None] * len(self)
        return [None if number in self.errors else bool(one > 1) for number, one in enumerate(self.distances)]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Plain values by the names of the columns; None where there is nothing to say."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, : self.top]
        unfamiliar = self.unfamiliar
        for number, name in enumerate(self.names):
            error = self.errors.get(number)
            row: dict[str, Any] = {"image": name}
            for place, one in enumerate(order[number], start=1):
                named = (None, None) if error else (self.class_names[one], float(self.probabilities[number, one]))
                row |= dict(zip(names_of(place), named, strict=True))
            far = None if error or self.distances is None else float(self.distances[number])
            yield row | {"distance": far, "unfamiliar": unfamiliar[number], "error": error}

    def frame(self) -> "pandas.DataFrame":
        """One row for each picture.

        ``image``, ``predicted`` (the most probable class) and its ``probability``; with ``top`` above 1 ``class_2`` and
        ``probability_2`` and so on; ``distance`` from the training images, where 1 is the threshold, whether it is
        ``unfamiliar``, and the ``error`` of a picture that could not be read.
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
    return ["image", *classes, "distance", "unfamiliar", "error"]


class Tally:
    """What is counted of pictures as they go by."""

    def __init__(self) -> None:
        self.pictures = 0
        self.by_class: Counter[str] = Counter()
        self.unreadable = 0
        self.unfamiliar: int | None = None
        self.first_error: str | None = None
        self.held_out = HeldOut()

    def add(self, part: Predicted) -> "Tally":
        """Count a batch; of one network, as the others."""
        for number, reason in part.errors.items():
            self.first_error = self.first_error or f"{part.names[number]}: {reason}"
        self.pictures += len(part)
        self.unreadable += len(part.errors)
        self.by_class.update(name for name in part.classes if name is not None)
        if part.distances is not None:
            self.unfamiliar = (self.unfamiliar or 0) + part.unfamiliar.count(True)
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
        """How many, of which classes, how many unfamiliar, how far probabilities can be believed."""
        most = self.by_class.most_common(COUNTED)
        named = ", ".join(f"{name} {count:,}" for name, count in most)
        rest = len(self.by_class) - len(most)
        pictures = "1 picture" if self.read == 1 else f"{self.read:,} pictures"
        lines = [f"{pictures}: {named}" + (f", and {rest} more classes" if rest else "")]
        if self.unreadable:
            lines.append(f"{self.unreadable:,} more could not be read, the first {self.first_error}")
        return [*lines, self._familiarity, self._calibration]

    @property
    def _familiarity(self) -> str:
        if self.unfamiliar is None:
            return (
                "Whether pictures look unlike those that the network was trained on is not known: nothing of these "
                f"weights is kept for it (it takes {LEAST} validation images and a last linear map)"
            )
        return (
            f"{self.unfamiliar:,} ({self.unfamiliar / self.read:.1%}) look unlike what the network was trained on: "
            f"farther from it than {1 - FALSE_ALARMS:.0%} of {self.held_out.images:,} validation images"
        )

    @property
    def _calibration(self) -> str:
        if self.held_out.temperature is None:
            return (
                "Probabilities are as the network gives them, not calibrated: no temperature is kept of these weights "
                f"(it takes {LEAST} validation images)"
            )
        return (
            f"Probabilities are calibrated: temperature {self.held_out.temperature:.3g}, found on "
            f"{self.held_out.images:,} validation images"
        )
