"""What a network says of images whose classes are not known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    import pandas

#: Rows of a table that is shown unasked.
SHOWN = 20


@dataclass(frozen=True, eq=False, repr=False)
class Predicted:
    """The classes that a network names.

    Arguments:
        names: of the images: paths of files, or numbers.
        class_names: in the order of the probabilities.
        probabilities: of each class for each image; a row adds up to 1.
    """

    names: Sequence[str]
    class_names: tuple[str, ...]
    probabilities: Float[np.ndarray, "images classes"]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> list[str]:
        """The most probable class of each image."""
        return [self.class_names[number] for number in self.probabilities.argmax(1)]

    def frame(self) -> "pandas.DataFrame":
        """One row for each image: ``image``, ``predicted`` (the most probable class) and its ``probability``."""
        import pandas

        highest = self.probabilities.max(1)
        return pandas.DataFrame({"image": list(self.names), "predicted": self.classes, "probability": highest})

    def __repr__(self) -> str:
        return self.frame().to_string(index=False, max_rows=SHOWN)

    def _repr_html_(self) -> str:
        return self.frame().to_html(index=False, max_rows=SHOWN)
