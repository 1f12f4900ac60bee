"""The learning rate over a run."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from vit_vs_cnn.errors import InputError

Shape = Literal["cosine", "linear", "constant"]


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a share of its peak: linear warm-up, then a fall to ``final``.

    Everything is a share of the run, so that one schedule serves every budget.

    Args:
        name: The shape of the fall: cosine, linear, or constant (no fall).
        warmup: Share of the run during which the rate rises linearly from near zero; 1 for a rise up to the last step.
        final: Rate that the fall ends at, right behind the last step, as a share of the peak; a constant rate has none.
    """

    name: Shape = "cosine"
    warmup: float = 0.05
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in get_args(Shape):
            raise InputError(f"schedule is {self.name!r}; allowed: {', '.join(get_args(Shape))}")
        for field, value in (("warmup", self.warmup), ("final", self.final)):
            if not 0 <= value <= 1:
                raise InputError(f"{field} {value} is a share of the run or of the peak rate: from 0 to 1")

    def factor(self, step: int, steps: int) -> float:
        """The rate of optimizer step ``step`` (from 0) in a run of ``steps``, as a share of the peak.

        With ``w = round(warmup * steps)``: ``(step + 1) / (w + 1)`` in the first w steps, so that step w is the first
        at the peak; from there on, with ``t = (step - w) / (steps - w)``, cosine: ``final + (1 - final) (1 + cos(pi t))
        / 2``; linear: ``1 - (1 - final) t``; constant: 1. The last step has ``t = 1 - 1 / (steps - w)``: ``final`` is
        what a step behind the run would have. Where w is all of the run, it is ``(step + 1) / w``: the last step is at
        the peak.
        """
        rise = round(self.warmup * steps)
        if step < rise:
            return (step + 1) / min(rise + 1, steps)
        elapsed = min(1.0, (step - rise) / max(1, steps - rise))
        match self.name:
            case "cosine":
                return self.final + (1 - self.final) * (1 + math.cos(math.pi * elapsed)) / 2
            case "linear":
                return 1 - (1 - self.final) * elapsed
            case "constant":
                return 1.0
