"""Which head could stand for which offset of a kernel."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.measures import HeadMeasure
from vit_vs_cnn.inspection.locality.offsets import offsets_within
from vit_vs_cnn.seeds import derive_seed


class HeadAssignment(NamedTuple):
    """One head for each offset of a kernel, as far as there are heads, and what chance would give.

    Arguments:
        head_of_offset: by offset (rows, cols) of the kernel, the head assigned.
        mass: mean weight of the assigned heads at their offsets.
        coverage: share of the K^2 offsets whose head looks there more than at any other offset within reach.
        null_mass, null_coverage: their means where every head's offsets are shuffled, each head for itself.
        p_value: how often shuffled heads reach the mass, the unshuffled ones counted in.
    """

    head_of_offset: dict[tuple[int, int], int]
    kernel_size: int
    mass: float
    coverage: float
    null_mass: float
    null_coverage: float
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Assignment(HeadMeasure):
    """The assignment of heads to the offsets of a K x K kernel with the greatest ``sum_o E_{x,q} A_h(o)(D_o)``.

    Reference: Kuhn 1955 (the Hungarian method, here scipy's); the null is a permutation test.

    Arguments:
        permutations: of the null; the least p-value is 1 / (permutations + 1).
    """

    kernel_size: int = 3
    permutations: int = 199

    def __post_init__(self) -> None:
        size = self.kernel_size
        if size < 1 or size % 2 == 0 or size // 2 > min(self.within):
            raise InputError(f"kernel_size must be odd and within the reach {self.within} on both sides, but is {size}")

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        return (self.by_offset(weights).mean(dim=2),)

    def of_means(self, *means: Tensor) -> HeadAssignment:
        """Of mean weights by offset, as ``offsets_within`` lists the offsets."""
        weights, steps = means[0].cpu().numpy(), offsets_within(self.within)
        kernel = np.flatnonzero((steps.abs() <= self.kernel_size // 2).all(dim=1).numpy())
        heads, places, mass, coverage = _assign(weights, kernel)
        random = np.random.default_rng(derive_seed("assignment", *weights.shape, self.kernel_size))
        shuffled = [_assign(random.permuted(weights, axis=1), kernel)[2:] for _ in range(self.permutations)]
        null = np.array(shuffled).reshape(-1, 2)
        reached = int((null[:, 0] >= mass * (1 - 1e-12)).sum())  # a shuffle that changes nothing ties, up to rounding
        null_mass, null_coverage = null.mean(axis=0) if self.permutations else (np.nan, np.nan)
        return HeadAssignment(
            head_of_offset={
                (int(steps[kernel[place], 0]), int(steps[kernel[place], 1])): int(head)
                for head, place in zip(heads, places, strict=True)
            },
            kernel_size=self.kernel_size,
            mass=mass,
            coverage=coverage,
            null_mass=float(null_mass),
            null_coverage=float(null_coverage),
            p_value=(1 + reached) / (1 + self.permutations),
        )


def _assign(weights: np.ndarray, kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Heads and their places in the kernel, the mean mass there, and the share of the kernel that is covered."""
    heads, places = linear_sum_assignment(weights[:, kernel], maximize=True)
    assigned = kernel[places]
    others = weights[heads].copy()
    others[np.arange(len(heads)), assigned] = -np.inf
    mass = weights[heads, assigned]
    covered = int((mass > others.max(axis=1, initial=-np.inf)).sum())
    return heads, places, float(mass.mean()), covered / len(kernel)
