"""What is measured of every head of a layer, all images at once or batch by batch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from vit_vs_cnn.inspection.locality.offsets import (
    Reach,
    default_reach,
    interior_queries,
    log_weights,
    offsets_within,
    patch_weights,
    weights_by_offset,
)

#: Every query counts, also those at the edges.
ALL_QUERIES: Reach = (0, 0)
#: Weights whose standard deviation is below this share of their mean differ by rounding only, and logarithms that vary
#: by less than it: nothing to share out, nothing to fit.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class HeadMeasure(ABC):
    """A function of the mean over images of some terms of their weights: ``measure(weights)``, or see ``OverImages``.

    Arguments:
        grid_size, extra_tokens: of the layer's tokens; see ``patch_weights``.
        reach: which queries are interior, and which offsets are read where any are; ``default_reach`` if None.
    """

    grid_size: tuple[int, int]
    extra_tokens: int = 0
    reach: Reach | None = None

    @abstractmethod
    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        """What is averaged over images, each image by itself: the images come first."""

    def of_means(self, *means: Tensor) -> Any:
        """What the means of the terms say; of a single term the mean."""
        return means[0]

    def __call__(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> Any:
        """Of all images at once; rows are queries."""
        return self.of_means(*(term.mean(dim=0, dtype=torch.float64) for term in self.terms(weights)))

    @property
    def within(self) -> Reach:
        return default_reach(self.grid_size) if self.reach is None else self.reach

    def interior(self, weights: Tensor) -> Float[Tensor, "batch heads queries patches"]:
        """The weights of interior queries at all patches."""
        queries = interior_queries(self.grid_size, self.within).to(weights.device)
        return patch_weights(weights, grid_size=self.grid_size, extra_tokens=self.extra_tokens, queries=queries)

    def by_offset(self, weights: Tensor) -> Float[Tensor, "batch heads queries offsets"]:
        place = {"grid_size": self.grid_size, "extra_tokens": self.extra_tokens}
        return weights_by_offset(weights, **place, reach=self.within)


class OverImages(Metric):
    """A measure over batches and processes: what is kept does not grow with the images."""

    full_state_update = False
    images: Tensor

    def __init__(self, measure: HeadMeasure, num_heads: int) -> None:
        super().__init__()
        self.measure = measure
        tokens = measure.extra_tokens + measure.grid_size[0] * measure.grid_size[1]
        example = measure.terms(torch.ones(1, num_heads, tokens, tokens))
        self.sums = [f"sum_{number}" for number in range(len(example))]
        for name, term in zip(self.sums, example, strict=True):
            self.add_state(name, torch.zeros(term.shape[1:], dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        for name, term in zip(self.sums, self.measure.terms(weights), strict=True):
            getattr(self, name).add_(term.sum(dim=0, dtype=torch.float64))
        self.images += len(weights)

    def compute(self) -> Any:
        return self.measure.of_means(*(getattr(self, name) / self.images for name in self.sums))


class MeanWeights(HeadMeasure):
    """``E_x A`` between all tokens, the extra ones too: attention with the content taken out."""

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        return (weights,)


class Entropy(HeadMeasure):
    """``E_{x,q} -sum_k A log A`` in nats over interior queries and all patches: 0 for one key, log(patches) for all."""

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        return (torch.special.entr(self.interior(weights)).sum(dim=-1).mean(dim=2),)


@dataclass(frozen=True, kw_only=True)
class Distance(HeadMeasure):
    """``E_{x,q} sum_k A |q - k|`` with places in pixels: the mean attention distance of every head.

    Reference: Dosovitskiy et al. 2021, figure 7 (right) and appendix D.7.
    Differs: the class token is left out, and rows are renormalised.

    Arguments:
        patch_size: of a patch in pixels, one number or (rows, cols).
        reach: queries nearer to an edge than this are left out; none are by default.
    """

    reach: Reach | None = ALL_QUERIES
    patch_size: int | Sequence[int | float] = 1

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        return (torch.einsum("bhqk,qk->bhq", self.interior(weights), self._pairs().to(weights.device)).mean(dim=2),)

    @property
    def uniform(self) -> float:
        """That of attention that sees all patches alike: what a distance is to be held against.

        On a square grid of n x n it is near 0.5214 n patches: 4.1365 for n = 8.
        """
        return self._pairs().mean().item()

    def _pairs(self) -> Float[Tensor, "queries patches"]:
        patch = (self.patch_size,) * 2 if isinstance(self.patch_size, int) else self.patch_size
        axes = [torch.arange(size).double() * pixels for size, pixels in zip(self.grid_size, patch, strict=True)]
        places = torch.cartesian_prod(*axes).view(-1, 2)
        pairs = torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")
        return pairs[interior_queries(self.grid_size, self.within)]


class HeadCentres(NamedTuple):
    """Of every head, in patches, (rows, cols) from the query.

    ``width`` is that around each query's own centre; ``spread`` is how far those centres lie from the head's centre.
    The head's attention over all images and queries has the variance ``width^2 + spread^2`` per axis.
    """

    centre: Float[Tensor, "heads 2"]
    width: Float[Tensor, "heads"]
    spread: Float[Tensor, "heads"]


class Centres(HeadMeasure):
    """``c(x, q) = sum_k A (k - q)``, ``width = sqrt(E trace Sigma(x, q) / 2)``, over interior queries and all patches.

    ``Sigma(x, q)`` is the covariance of k under A; ``spread = sqrt(trace Cov c / 2)``; the centre is ``E c``.
    """

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        queries = interior_queries(self.grid_size, self.within).to(weights.device)
        places = torch.cartesian_prod(*(torch.arange(size, device=weights.device).double() for size in self.grid_size))
        steps = places.view(-1, 2) - places.view(-1, 2)[queries, None]
        patches = self.interior(weights)
        centres = torch.einsum("bhqk,qkc->bhqc", patches, steps)
        squares = torch.einsum("bhqk,qk->bhq", patches, steps.square().sum(dim=-1))
        return centres.mean(dim=2), centres.square().sum(dim=-1).mean(dim=2), squares.mean(dim=2)

    def of_means(self, *means: Tensor) -> HeadCentres:
        centre, centre_squares, squares = means
        spread = centre_squares - centre.square().sum(dim=-1)
        return HeadCentres(centre, _radius(squares - centre_squares), _radius(spread))


def _radius(variance: Tensor) -> Tensor:
    """Per axis; rounding may have made a variance of zero negative."""
    return (variance.clamp_min(0.0) / 2).sqrt()


class VarianceShares(NamedTuple):
    """Parts of the variance of the weights, per head; the first three sum to 1.

    All three are not a number where the weights do not vary.
    """

    relative: Float[Tensor, "heads"]
    positional: Float[Tensor, "heads"]
    content: Float[Tensor, "heads"]
    total: Float[Tensor, "heads"]


@dataclass(frozen=True, kw_only=True)
class Shares(HeadMeasure):
    """The law of total variance over offsets d, interior queries q and images x.

    ``V_rel = Var_d(E_{x,q} A)``, ``V_pos = E (E_x A - E_{x,q} A)^2``, ``V_cont = E (A - E_x A)^2``, each over their
    sum. A convolution has ``V_rel`` alone; a fixed map that knows its place adds ``V_pos``.

    Arguments:
        log: of log A, less its mean over d for every image and query, instead of A. Weights too small for their
            floating point type count as its smallest normal number.
    """

    log: bool = False

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        values = self.by_offset(weights)
        if self.log:
            values = log_weights(values, torch.finfo(weights.dtype).tiny)
            values = values - values.mean(dim=-1, keepdim=True)
        return values, values.square().mean(dim=(2, 3))

    def of_means(self, *means: Tensor) -> VarianceShares:
        by_place, squares = means
        by_offset = by_place.mean(dim=1)
        relative = by_offset.var(dim=-1, correction=0)
        positional = (by_place - by_offset[:, None]).square().mean(dim=(1, 2))
        content = (squares - by_place.square().mean(dim=(1, 2))).clamp_min(0.0)
        total = relative + positional + content
        divisor = torch.where(total > ROUNDING**2 * squares, total, torch.nan)
        return VarianceShares(relative / divisor, positional / divisor, content / divisor, total)


class GaussianHeads(NamedTuple):
    """``A(q, d) ~ exp(-alpha |d - offset|^2)`` for every head, and how well that says log A.

    Not a number where the weights are positive at too few offsets to tell. A head that looks at one offset alone is the
    limit: alpha is infinite and R^2 is 1. One whose weights do not vary has alpha 0 and no offset. A negative alpha is
    a head that looks away from the offset.
    """

    alpha: Float[Tensor, "heads"]
    offset: Float[Tensor, "heads 2"]
    r_squared: Float[Tensor, "heads"]


class GaussianFit(HeadMeasure):
    """Least squares of ``E_x log A(x; q, d)``, less its mean over d, on ``(|d|^2, d1, d2)``.

    ``w = argmin sum_{q,d} (log A - w_0 |d|^2 - w_1 d_1 - w_2 d_2)^2``, ``alpha = -w_0``, ``offset = (w_1, w_2) / (2
    alpha)``.

    Reference: Cordonnier et al. 2020, equation 9, read backwards.
    Differs: offsets whose weight vanishes for some query or image are left out, as they have no logarithm.
    """

    def terms(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> tuple[Tensor, ...]:
        values, smallest = self.by_offset(weights), torch.finfo(weights.dtype).tiny
        return log_weights(values, smallest), (values <= smallest).double().mean(dim=2)

    def of_means(self, *means: Tensor) -> GaussianHeads:
        """Over the offsets of each head at which no weight has vanished, for any query or image."""
        logs, vanished = means
        steps = offsets_within(self.within).to(logs)
        fits = [_fit(head, gone, steps) for head, gone in zip(logs, vanished, strict=True)]
        alphas, offsets, shares = zip(*fits, strict=True)
        return GaussianHeads(torch.stack(alphas), torch.stack(offsets), torch.stack(shares))


def _fit(logs: Tensor, vanished: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(alpha, offset, R^2) of one head."""
    kept = vanished == 0
    if kept.sum() == 1 and bool((vanished[~kept] == 1).all()) and len(steps) > 1:
        return logs.new_tensor(torch.inf), steps[kept][0], logs.new_tensor(1.0)
    logs, steps = logs[:, kept], steps[kept]
    design = torch.cat([steps.square().sum(dim=1, keepdim=True), steps], dim=1)
    design = design - design.mean(dim=0)
    if len(steps) < 4 or torch.linalg.matrix_rank(design) < 3:
        return logs.new_tensor(torch.nan), logs.new_full((2,), torch.nan), logs.new_tensor(torch.nan)
    centred = logs - logs.mean(dim=1, keepdim=True)
    solution = torch.linalg.lstsq(design, centred.mean(dim=0)[:, None]).solution[:, 0]
    total = centred.square().sum()
    if total <= ROUNDING**2 * centred.numel():
        return logs.new_tensor(0.0), logs.new_full((2,), torch.nan), logs.new_tensor(torch.nan)
    explained = 1 - (centred - design @ solution).square().sum() / total
    return -solution[0], -solution[1:] / (2 * solution[0]), explained
