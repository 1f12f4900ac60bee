"""Where a head looks, seen from its query, and how widely."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from vit_vs_cnn.inspection.locality.offsets import Reach, default_reach, interior_queries, patch_weights


class HeadCentres(NamedTuple):
    """Of every head, in patches, (rows, cols) from the query.

    ``width`` is that around each query's own centre; ``spread`` is how far those centres lie from the head's centre.
    The head's attention over all images and queries has the variance ``width^2 + spread^2`` per axis.
    """

    centre: Float[Tensor, "heads 2"]
    width: Float[Tensor, "heads"]
    spread: Float[Tensor, "heads"]


def head_centres(
    weights: Float[Tensor, "batch heads tokens tokens"],
    *,
    grid_size: tuple[int, int],
    extra_tokens: int = 0,
    reach: Reach | None = None,
) -> HeadCentres:
    """``c(x, q) = sum_k A (k - q)``, ``width = sqrt(E trace Sigma(x, q) / 2)``, over interior queries and all patches.

    ``Sigma(x, q)`` is the covariance of k under A; ``spread = sqrt(trace Cov c / 2)``; the centre is ``E c``.

    Arguments: see ``weights_by_offset``; ``reach`` only says which queries are interior.
    """
    centres, squares = _moments(weights, grid_size, extra_tokens, reach)
    centre = centres.mean(dim=(0, 2))
    width = (squares - centres.square().sum(dim=-1)).mean(dim=(0, 2))
    spread = (centres - centre[:, None]).square().sum(dim=-1).mean(dim=(0, 2))
    return HeadCentres(centre, _radius(width), _radius(spread))


class HeadCentresMetric(Metric):
    """``head_centres`` over batches. Arguments as there, and the number of heads."""

    full_state_update = False
    centres: Tensor
    centre_squares: Tensor
    squares: Tensor
    images: Tensor

    def __init__(
        self, num_heads: int, *, grid_size: tuple[int, int], extra_tokens: int = 0, reach: Reach | None = None
    ) -> None:
        super().__init__()
        self.grid_size, self.extra_tokens, self.reach = grid_size, extra_tokens, reach
        zeros = torch.zeros(num_heads, 2, dtype=torch.float64)
        self.add_state("centres", zeros, dist_reduce_fx="sum")
        self.add_state("centre_squares", zeros[:, 0].clone(), dist_reduce_fx="sum")
        self.add_state("squares", zeros[:, 0].clone(), dist_reduce_fx="sum")
        self.add_state("images", zeros[0, 0].clone(), dist_reduce_fx="sum")

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        centres, squares = _moments(weights, self.grid_size, self.extra_tokens, self.reach)
        self.centres += centres.mean(dim=2).sum(dim=0)
        self.centre_squares += centres.square().sum(dim=-1).mean(dim=2).sum(dim=0)
        self.squares += squares.mean(dim=2).sum(dim=0)
        self.images += len(centres)

    def compute(self) -> HeadCentres:
        centre, centre_squares = self.centres / self.images, self.centre_squares / self.images
        width = self.squares / self.images - centre_squares
        return HeadCentres(centre, _radius(width), _radius(centre_squares - centre.square().sum(dim=-1)))


def _moments(
    weights: Tensor, grid_size: tuple[int, int], extra_tokens: int, reach: Reach | None
) -> tuple[Float[Tensor, "batch heads queries 2"], Float[Tensor, "batch heads queries"]]:
    """The mean of k - q under A, and that of its square."""
    queries = interior_queries(grid_size, default_reach(grid_size) if reach is None else reach).to(weights.device)
    patches = patch_weights(weights, grid_size=grid_size, extra_tokens=extra_tokens, queries=queries)
    places = torch.cartesian_prod(*(torch.arange(size, device=weights.device).double() for size in grid_size))
    steps = places.view(-1, 2) - places.view(-1, 2)[queries, None]
    centres = torch.einsum("bhqk,qkc->bhqc", patches, steps)
    return centres, torch.einsum("bhqk,qk->bhq", patches, steps.square().sum(dim=-1))


def _radius(variance: Tensor) -> Tensor:
    """Per axis; rounding may have made a variance of zero negative."""
    return (variance.clamp_min(0.0) / 2).sqrt()
