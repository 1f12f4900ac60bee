"""Bounds of numbers, sizes of images, and messages about them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Annotated, Any, TypeAlias, get_origin

from vit_vs_cnn.errors import InputError

#: (rows, cols), or one number for both.
Size2d: TypeAlias = int | Sequence[int]


@dataclass(frozen=True)
class Bounds:
    """A lower and an upper bound, each inclusive or exclusive, and whether a number must be whole."""

    at_least: int | float | None = None
    above: int | float | None = None
    at_most: int | float | None = None
    below: int | float | None = None
    is_whole: bool = False

    def hold(self, value: Any) -> bool:
        """True if a value is a finite number within the bounds."""
        kind: Any = Integral if self.is_whole else Real
        return (
            isinstance(value, kind)
            and not isinstance(value, bool)
            and abs(value) < math.inf
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        ends = {"at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below}
        message = " and ".join(f"{word} {end}" for word, end in ends.items() if end is not None)
        if self.at_least is not None and self.at_most is not None:
            message = f"from {self.at_least} to {self.at_most}"
        return f"a whole number, {message}" if self.is_whole else message


AT_LEAST_0, AT_LEAST_1 = Bounds(at_least=0), Bounds(at_least=1)
SHARE, SHARE_ABOVE_0 = Bounds(at_least=0, at_most=1), Bounds(above=0, at_most=1)
#: Bounds of the numbers of a recipe.
RECIPE = {"label_smoothing": Bounds(at_least=0, below=1), "ema_half_life": SHARE_ABOVE_0}


def check_numbers(values: Mapping[str, Any], /, **bounds: Bounds) -> None:
    """Raise InputError for a number outside of its bounds: ``check_numbers({"top": top}, top=AT_LEAST_1)``."""
    for name, limits in bounds.items():
        if (value := values[name]) is not None and not limits.hold(value):
            raise InputError(f"{name} must be {limits}, but is {value!r}")


class Bounded:
    """Base class of dataclasses. It checks fields that are annotated like ``splits: Annotated[int, AT_LEAST_1]``.

    Raises InputError: the number in a field is outside of the bounds.
    """

    def __post_init__(self) -> None:
        block: Any = self
        hints: dict[str, Any] = {f.name: f.type for f in fields(block) if get_origin(f.type) is Annotated}
        check_numbers(vars(self), **{name: hint.__metadata__[0] for name, hint in hints.items()})


def as_rows_and_cols(name: str, size: Size2d, *, minimum: int = 1) -> tuple[int, int]:
    """Size as (rows, cols), from one number for both or from two. Raises InputError: a side below ``minimum``."""
    pair = tuple(size) if isinstance(size, Iterable) else (size, size)
    if len(pair) != 2 or any(isinstance(side, str | float) or side < minimum for side in pair):
        raise InputError(f"{name} must be a whole number or (rows, cols), at least {minimum}, but is {size!r}")
    return pair[0], pair[1]
