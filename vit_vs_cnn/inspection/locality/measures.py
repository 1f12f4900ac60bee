"""Measures of every head of a layer, from its attention weights: all images at once, or a running mean over batches."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.seeds import derive_seed

#: Largest offset from query to key that a measure reads, in patches: (rows, cols) to either side.
MaxOffset = tuple[int, int]
#: All queries count, also those at the edges.
ALL_QUERIES: MaxOffset = (0, 0)
#: Relative standard deviation below which weights or their logarithms differ by rounding only.
ROUNDING = 1e-6


def default_max_offset(grid_size: tuple[int, int]) -> MaxOffset:
    """A quarter of the grid along each axis, at least one patch if the middle has a neighbour on both sides.

    So half of the rows and cols are interior: 5 x 5 offsets on a grid of 8 x 8, 9 x 9 on one of 16 x 16.
    """
    rows, cols = (min(max(size // 4, 1), (size - 1) // 2) for size in grid_size)
    return rows, cols


def offset_grid(max_offset: MaxOffset) -> Int64[Tensor, "offsets 2"]:
    """All offsets (rows, cols) from query to key up to the largest, row by row."""
    rows, cols = (torch.arange(-far, far + 1) for far in max_offset)
    return torch.cartesian_prod(rows, cols).view(-1, 2)


def interior_queries(grid_size: tuple[int, int], max_offset: MaxOffset) -> Int64[Tensor, "queries"]:
    """Numbers of the patches from which every offset is still on the grid, row by row."""
    if min(max_offset) < 0 or any(2 * far >= size for far, size in zip(max_offset, grid_size, strict=True)):
        raise InputError(
            f"max_offset must be at least 0 and leave a patch of the grid of {grid_size[0]} x {grid_size[1]} that many "
            f"patches from every edge, but is {max_offset}"
        )
    places = torch.arange(grid_size[0] * grid_size[1]).view(grid_size)
    (rows, cols), (far_rows, far_cols) = grid_size, max_offset
    return places[far_rows : rows - far_rows, far_cols : cols - far_cols].flatten()


@dataclass(frozen=True, kw_only=True)
class HeadMeasure(ABC):
    """A function of the mean over images of some terms of the weights: ``measure(weights)``, or see ``RunningMean``.

    Arguments:
        grid_size, extra_tokens: of the layer's tokens.
        max_offset: which queries are interior, and which offsets are read; ``default_max_offset`` if None.
    """

    grid_size: tuple[int, int]
    extra_tokens: int = 0
    max_offset: MaxOffset | None = None

    @abstractmethod
    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        """The terms that are averaged over images, the first dimension."""

    def of_means(self, *means: Tensor) -> Any:
        """The measure from the means of the terms; of a single term the mean."""
        return means[0]

    def __call__(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> Any:
        """The measure of all images at once; rows are queries."""
        return self.of_means(*(term.mean(dim=0, dtype=torch.float64) for term in self.terms(weights)))

    @property
    def within(self) -> MaxOffset:
        return default_max_offset(self.grid_size) if self.max_offset is None else self.max_offset

    @property
    def queries(self) -> Int64[Tensor, "queries"]:
        return interior_queries(self.grid_size, self.within)

    def interior(self, weights: Tensor) -> Float[Tensor, "batch heads queries patches"]:
        """Weights of interior queries at all patches, in float64, rows summing to one or, without patches, zero."""
        tokens = self.extra_tokens + self.grid_size[0] * self.grid_size[1]
        if weights.shape[-2:] != (tokens, tokens):
            raise InputError(
                f"weights must be {tokens} x {tokens} for a grid of {self.grid_size[0]} x {self.grid_size[1]} and "
                f"{self.extra_tokens} extra tokens, but are {weights.shape[-2]} x {weights.shape[-1]}"
            )
        rows = weights[:, :, self.queries.to(weights.device) + self.extra_tokens]
        patches = rows[..., self.extra_tokens :].double()
        total = patches.sum(dim=-1, keepdim=True)
        return patches / total.masked_fill(total == 0, 1.0)

    def by_offset(self, weights: Tensor) -> Float[Tensor, "batch heads queries offsets"]:
        """``A_h(x; q, d)``: the weight of the patch at offset d from q, in the order of ``offset_grid``."""
        steps = offset_grid(self.within)
        keys = self.queries[:, None] + steps[:, 0] * self.grid_size[1] + steps[:, 1]
        patches = self.interior(weights)
        return patches.gather(-1, keys.to(weights.device).expand(*patches.shape[:2], -1, -1))


class RunningMean:
    """A measure over batches; its memory does not grow with the images."""

    def __init__(self, measure: HeadMeasure) -> None:
        self.measure, self.images = measure, 0
        self.sums: list[Tensor] = []

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        terms = [term.sum(dim=0, dtype=torch.float64) for term in self.measure.terms(weights)]
        self.sums = [have + more for have, more in zip(self.sums, terms, strict=True)] if self.images else terms
        self.images += len(weights)

    def compute(self) -> Any:
        return self.measure.of_means(*(total / self.images for total in self.sums))


class MeanWeights(HeadMeasure):
    """``E_x A`` between all tokens, the extra ones included."""

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        return (weights,)


@dataclass(frozen=True, kw_only=True)
class AttentionDistance(HeadMeasure):
    """``E_{x,q} sum_k A |q - k|`` with places in pixels: the mean attention distance of every head.

    Reference: Dosovitskiy et al. 2021, figure 7 (right) and appendix D.7.
    Differs: the class token is left out, and rows are renormalised.

    Arguments:
        patch_size: of a patch in pixels, one number or (rows, cols).
        max_offset: queries closer to an edge are left out; none by default.
    """

    max_offset: MaxOffset | None = ALL_QUERIES
    patch_size: int | Sequence[int | float] = 1

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        return (torch.einsum("bhqk,qk->bhq", self.interior(weights), self._pairs().to(weights.device)).mean(dim=2),)

    @property
    def uniform(self) -> float:
        """That of attention with equal weights: near 0.5214 n patches on a grid of n x n, 4.1365 for n = 8."""
        return self._pairs().mean().item()

    def _pairs(self) -> Float[Tensor, "queries patches"]:
        patch = (self.patch_size,) * 2 if isinstance(self.patch_size, int) else self.patch_size
        axes = [torch.arange(size).double() * pixels for size, pixels in zip(self.grid_size, patch, strict=True)]
        places = torch.cartesian_prod(*axes).view(-1, 2)
        return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")[self.queries]


class HeadCentres(NamedTuple):
    """Centre and spread of every head, in patches, (rows, cols) from the query.

    ``width`` is that around each query's own centre; ``spread`` is the distance of those centres from the head's
    centre. Attention over all images and queries has the variance ``width^2 + spread^2`` per axis.
    """

    centre: Float[Tensor, "heads 2"]
    width: Float[Tensor, "heads"]
    spread: Float[Tensor, "heads"]


class HeadCentreMeasure(HeadMeasure):
    """``c(x, q) = sum_k A (k - q)``, ``width = sqrt(E trace Sigma(x, q) / 2)``, over interior queries and all patches.

    ``Sigma(x, q)`` is the covariance of k under A; ``spread = sqrt(trace Cov c / 2)``; the centre is ``E c``.
    """

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        places = torch.cartesian_prod(*(torch.arange(size, device=weights.device).double() for size in self.grid_size))
        steps = places.view(-1, 2) - places.view(-1, 2)[self.queries.to(weights.device), None]
        patches = self.interior(weights)
        centres = torch.einsum("bhqk,qkc->bhqc", patches, steps)
        squares = torch.einsum("bhqk,qk->bhq", patches, steps.square().sum(dim=-1))
        return centres.mean(dim=2), centres.square().sum(dim=-1).mean(dim=2), squares.mean(dim=2)

    def of_means(self, *means: Tensor) -> HeadCentres:
        centre, centre_squares, squares = means
        variances = squares - centre_squares, centre_squares - centre.square().sum(dim=-1)
        # rounding may make a variance of zero negative
        width, spread = ((variance.clamp_min(0.0) / 2).sqrt() for variance in variances)
        return HeadCentres(centre, width, spread)


class VarianceShares(NamedTuple):
    """Parts of the variance of the weights, per head, summing to 1; not a number if the weights do not vary."""

    relative: Float[Tensor, "heads"]
    positional: Float[Tensor, "heads"]
    content: Float[Tensor, "heads"]


class VarianceShareMeasure(HeadMeasure):
    """The law of total variance over offsets d, interior queries q and images x.

    ``V_rel = Var_d(E_{x,q} A)``, ``V_pos = E (E_x A - E_{x,q} A)^2``, ``V_cont = E (A - E_x A)^2``, each over their
    sum. A convolution has ``V_rel`` alone; fixed weights that depend on the place add ``V_pos``.
    """

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        values = self.by_offset(weights)
        return values, values.square().mean(dim=(2, 3))

    def of_means(self, *means: Tensor) -> VarianceShares:
        by_place, squares = means
        by_offset = by_place.mean(dim=1)
        relative = by_offset.var(dim=-1, correction=0)
        positional = (by_place - by_offset[:, None]).square().mean(dim=(1, 2))
        content = (squares - by_place.square().mean(dim=(1, 2))).clamp_min(0.0)
        total = relative + positional + content
        total = torch.where(total > ROUNDING**2 * squares, total, torch.nan)
        return VarianceShares(relative / total, positional / total, content / total)


class GaussianHeads(NamedTuple):
    """``A(q, d) ~ exp(-alpha |d - offset|^2)`` for every head, and the R^2 of log A.

    Not a number if the weights are positive at too few offsets. A head with one offset alone is the limit: alpha is
    infinite and R^2 is 1. One whose weights do not vary has alpha 0 and no offset. A negative alpha is a head that
    attends away from the offset.
    """

    alpha: Float[Tensor, "heads"]
    offset: Float[Tensor, "heads 2"]
    r_squared: Float[Tensor, "heads"]


class GaussianFit(HeadMeasure):
    """Least squares of ``E_x log A(x; q, d)``, less its mean over d, on ``(|d|^2, d1, d2)``.

    ``w = argmin sum_{q,d} (log A - w_0 |d|^2 - w_1 d_1 - w_2 d_2)^2``, ``alpha = -w_0``, ``offset = (w_1, w_2) / (2
    alpha)``.

    Reference: Cordonnier et al. 2020, equation 9, solved for its parameters.
    Differs: offsets whose weight vanishes for some query or image are left out, as they have no logarithm.
    """

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        values, smallest = self.by_offset(weights), torch.finfo(weights.dtype).tiny
        return values.clamp_min(smallest).log(), (values <= smallest).double().mean(dim=2)

    def of_means(self, *means: Tensor) -> GaussianHeads:
        logs, vanished = means
        steps = offset_grid(self.within).to(logs)
        fits = [_fit_gaussian(head, gone, steps) for head, gone in zip(logs, vanished, strict=True)]
        alphas, offsets, shares = zip(*fits, strict=True)
        return GaussianHeads(torch.stack(alphas), torch.stack(offsets), torch.stack(shares))


def _fit_gaussian(logs: Tensor, vanished: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(alpha, offset, R^2) of one head."""
    nan, no_offset = logs.new_tensor(torch.nan), logs.new_full((2,), torch.nan)
    kept = vanished == 0
    if kept.sum() == 1 and bool((vanished[~kept] == 1).all()) and len(steps) > 1:
        return logs.new_tensor(torch.inf), steps[kept][0], logs.new_tensor(1.0)
    logs, steps = logs[:, kept], steps[kept]
    design = torch.cat([steps.square().sum(dim=1, keepdim=True), steps], dim=1)
    design = design - design.mean(dim=0)
    if len(steps) < 4 or torch.linalg.matrix_rank(design) < 3:
        return nan, no_offset, nan
    centred = logs - logs.mean(dim=1, keepdim=True)
    total = centred.square().sum()
    if total <= ROUNDING**2 * centred.numel():
        return logs.new_tensor(0.0), no_offset, nan
    solution = torch.linalg.lstsq(design, centred.mean(dim=0)[:, None]).solution[:, 0]
    explained = 1 - (centred - design @ solution).square().sum() / total
    return -solution[0], -solution[1:] / (2 * solution[0]), explained


@dataclass(frozen=True)
class HeadAssignment:
    """One head for each offset of a kernel, and chance.

    Arguments:
        head_of_offset: by offset (rows, cols) of the kernel, the head assigned.
        mass: mean weight of the assigned heads at their offsets.
        coverage: share of the K^2 offsets whose head attends there more than at any other offset.
        null_mass, null_coverage: their means if every head's offsets are shuffled, each head on its own.
        p_value: how often shuffled heads have at least this mass, the unshuffled ones included.
    """

    head_of_offset: dict[tuple[int, int], int]
    mass: float
    coverage: float
    null_mass: float
    null_coverage: float
    p_value: float


@dataclass(frozen=True, kw_only=True)
class HeadAssignmentMeasure(HeadMeasure):
    """The assignment of heads to the offsets of a K x K kernel with the greatest ``sum_o E_{x,q} A_h(o)(D_o)``.

    Reference: Kuhn 1955 (the Hungarian method, here scipy's); the null is a permutation test.

    Arguments:
        permutations: of the null; the smallest p-value is 1 / (permutations + 1).
    """

    kernel_size: int = 3
    permutations: int = 199

    def __post_init__(self) -> None:
        size = self.kernel_size
        if size < 1 or size % 2 == 0 or size // 2 > min(self.within):
            raise InputError(
                f"kernel_size must be odd and within the offsets {self.within} on both sides, but is {size}"
            )

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        return (self.by_offset(weights).mean(dim=2),)

    def of_means(self, *means: Tensor) -> HeadAssignment:
        """Of mean weights by offset, in the order of ``offset_grid``."""
        weights, steps = means[0].cpu().numpy(), offset_grid(self.within)
        kernel = np.flatnonzero((steps.abs() <= self.kernel_size // 2).all(dim=1).numpy())
        heads, places, mass, coverage = _assign(weights, kernel)
        random = np.random.default_rng(derive_seed("assignment", *weights.shape, self.kernel_size))
        null = np.array([_assign(random.permuted(weights, axis=1), kernel)[2:] for _ in range(self.permutations)])
        reached = int((null[:, 0] >= mass * (1 - 1e-12)).sum())  # a shuffle that changes nothing ties, up to rounding
        offsets = [(int(row), int(col)) for row, col in steps[kernel[places]].tolist()]
        head_of_offset = dict(zip(offsets, heads.tolist(), strict=True))
        null_mass, null_coverage = null.mean(axis=0).tolist()
        p_value = (1 + reached) / (1 + self.permutations)
        return HeadAssignment(head_of_offset, mass, coverage, null_mass, null_coverage, p_value)


def _assign(weights: np.ndarray, kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Heads and their places in the kernel, the mean mass there, and the share of the kernel that is covered."""
    heads, places = linear_sum_assignment(weights[:, kernel], maximize=True)
    assigned = kernel[places]
    others = weights[heads].copy()
    others[np.arange(len(heads)), assigned] = -np.inf
    mass = weights[heads, assigned]
    covered = int((mass > others.max(axis=1, initial=-np.inf)).sum())
    return heads, places, float(mass.mean()), covered / len(kernel)
