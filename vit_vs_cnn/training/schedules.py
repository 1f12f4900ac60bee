"""The learning rate over a run."""

import math
from dataclasses import dataclass
from typing import Literal

from vit_vs_cnn.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a share of its peak: linear warm-up, then a fall to ``final``.

    Everything is a share of the run, so that one schedule serves every budget.

    Args:
        name: The shape of the fall: cosine, linear, or constant (no fall).
        warmup: Share of the run during which the rate rises linearly from near zero.
        final: Rate at the end, as a share of the peak.
    """

    name: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = 0.05
    final: float = 0.0

    def __post_init__(self) -> None:
        for field, value in (("warmup", self.warmup), ("final", self.final)):
            if not 0 <= value <= 1:
                raise InputError(f"{field} {value} is a share of the run or of the peak rate: from 0 to 1")

    def factor(self, step: int, steps: int) -> float:
        """The rate of optimizer step ``step`` (from 0) in a run of ``steps``, as a share of the peak.

        Warm-up: (step + 1) / w with w = warmup * steps; after it, with t from 0 to 1 over the rest,
        cosine: final + (1 - final) (1 + cos(pi t)) / 2; linear: 1 - (1 - final) t.
        """
        rise = round(self.warmup * steps)
        if step < rise:
            return (step + 1) / (rise + 1)
        elapsed = min(1.0, (step - rise) / max(1, steps - rise))
        match self.name:
            case "cosine":
                return self.final + (1 - self.final) * (1 + math.cos(math.pi * elapsed)) / 2
            case "linear":
                return 1 - (1 - self.final) * elapsed
            case "constant":
                return 1.0
