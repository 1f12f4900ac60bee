"""Which head could stand for which offset of a kernel."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torchmetrics import Metric

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.offsets import Reach, default_reach, offsets_within, weights_by_offset
from vit_vs_cnn.seeds import derive_seed


class HeadAssignment(NamedTuple):
    """One head for each offset of a kernel, as far as there are heads, and what chance would give.

    Arguments:
        head_of_offset: by offset (rows, cols) of the kernel, the head assigned.
        kernel_size: K of the K x K kernel.
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


def assign_heads(
    weights: Float[Tensor, "batch heads tokens tokens"],
    *,
    grid_size: tuple[int, int],
    extra_tokens: int = 0,
    reach: Reach | None = None,
    kernel_size: int = 3,
    permutations: int = 199,
) -> HeadAssignment:
    """The assignment of heads to the offsets of a K x K kernel with the greatest ``sum_o E_{x,q} A_h(o)(D_o)``.

    Reference: Kuhn 1955 (the Hungarian method, here scipy's); the null is a permutation test.

    Arguments:
        weights, grid_size, extra_tokens, reach: see ``weights_by_offset``; the kernel must lie within the reach.
        kernel_size: K, odd.
        permutations: of the null; the least p-value is 1 / (permutations + 1).
    """
    values = weights_by_offset(weights, grid_size=grid_size, extra_tokens=extra_tokens, reach=reach)
    reach = default_reach(grid_size) if reach is None else reach
    return assign_offsets(values.mean(dim=(0, 2)), reach, kernel_size=kernel_size, permutations=permutations)


class HeadAssignmentMetric(Metric):
    """``assign_heads`` over batches. Arguments as there, and the number of heads."""

    full_state_update = False
    sums: Tensor
    images: Tensor

    def __init__(
        self,
        num_heads: int,
        *,
        grid_size: tuple[int, int],
        extra_tokens: int = 0,
        reach: Reach | None = None,
        kernel_size: int = 3,
        permutations: int = 199,
    ) -> None:
        super().__init__()
        self.grid_size, self.extra_tokens = grid_size, extra_tokens
        self.kernel_size, self.permutations = kernel_size, permutations
        self.reach = default_reach(grid_size) if reach is None else reach
        _check_kernel(kernel_size, self.reach)
        zeros = torch.zeros(num_heads, len(offsets_within(self.reach)), dtype=torch.float64)
        self.add_state("sums", zeros, dist_reduce_fx="sum")
        self.add_state("images", zeros[0, 0].clone(), dist_reduce_fx="sum")

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        values = weights_by_offset(weights, grid_size=self.grid_size, extra_tokens=self.extra_tokens, reach=self.reach)
        self.sums += values.mean(dim=2).sum(dim=0)
        self.images += len(values)

    def compute(self) -> HeadAssignment:
        return assign_offsets(
            self.sums / self.images, self.reach, kernel_size=self.kernel_size, permutations=self.permutations
        )


def assign_offsets(
    means: Float[Tensor, "heads offsets"], reach: Reach, *, kernel_size: int = 3, permutations: int = 199
) -> HeadAssignment:
    """The assignment for mean weights by offset, as ``offsets_within(reach)`` lists the offsets."""
    _check_kernel(kernel_size, reach)
    weights = means.cpu().numpy()
    steps = offsets_within(reach)
    kernel = np.flatnonzero((steps.abs() <= kernel_size // 2).all(dim=1).numpy())
    heads, places, mass, coverage = _assign(weights, kernel)
    random = np.random.default_rng(derive_seed("assignment", *weights.shape, kernel_size))
    shuffled = [_assign(random.permuted(weights, axis=1), kernel)[2:] for _ in range(permutations)]
    null = np.array(shuffled).reshape(-1, 2)
    reached = int((null[:, 0] >= mass * (1 - 1e-12)).sum())  # a shuffle that changes nothing ties, up to rounding
    null_mass, null_coverage = null.mean(axis=0) if permutations else (np.nan, np.nan)
    return HeadAssignment(
        head_of_offset={
            (int(steps[kernel[place], 0]), int(steps[kernel[place], 1])): int(head)
            for head, place in zip(heads, places, strict=True)
        },
        kernel_size=kernel_size,
        mass=mass,
        coverage=coverage,
        null_mass=float(null_mass),
        null_coverage=float(null_coverage),
        p_value=(1 + reached) / (1 + permutations),
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


def _check_kernel(kernel_size: int, reach: Reach) -> None:
    if kernel_size < 1 or kernel_size % 2 == 0 or kernel_size // 2 > min(reach):
        raise InputError(f"kernel_size must be odd and within the reach {reach} on both sides, but is {kernel_size}")
