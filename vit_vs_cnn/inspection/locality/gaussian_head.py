"""The Gaussian head of the theorem, fitted to what a head does: how sharp it is, and which offset it prefers."""

from typing import NamedTuple

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
    weights_by_offset,
)

#: Logarithms that vary by less than this differ by rounding only.
ROUNDING = 1e-6


class GaussianHeads(NamedTuple):
    """``A(q, d) ~ exp(-alpha |d - offset|^2)`` for every head, and how well that says log A.

    Not a number where the weights are positive at too few offsets to tell. A head that looks at one offset alone is the
    limit: alpha is infinite and R^2 is 1. One whose weights do not vary has alpha 0 and no offset. A negative alpha is
    a head that looks away from the offset.
    """

    alpha: Float[Tensor, "heads"]
    offset: Float[Tensor, "heads 2"]
    r_squared: Float[Tensor, "heads"]


def gaussian_heads(
    weights: Float[Tensor, "batch heads tokens tokens"],
    *,
    grid_size: tuple[int, int],
    extra_tokens: int = 0,
    reach: Reach | None = None,
) -> GaussianHeads:
    """Least squares of ``E_x log A(x; q, d)``, less its mean over d, on ``(|d|^2, d1, d2)``.

    ``w = argmin sum_{q,d} (log A - w_0 |d|^2 - w_1 d_1 - w_2 d_2)^2``, ``alpha = -w_0``, ``offset = (w_1, w_2) / (2
    alpha)``.

    Reference: Cordonnier et al. 2020, equation 9, read backwards.
    Differs: offsets whose weight vanishes for some query or image are left out, as they have no logarithm.

    Arguments: see ``weights_by_offset``; images are the batch.
    """
    values = weights_by_offset(weights, grid_size=grid_size, extra_tokens=extra_tokens, reach=reach)
    smallest = torch.finfo(weights.dtype).tiny
    vanished = (values <= smallest).double().mean(dim=(0, 2))
    reach = default_reach(grid_size) if reach is None else reach
    return fit_gaussian_heads(log_weights(values, smallest).mean(dim=0), vanished, reach)


class GaussianHeadsMetric(Metric):
    """``gaussian_heads`` over batches: what is kept does not grow with the images.

    Arguments:
        num_heads: attention heads of the layer.
        grid_size, extra_tokens, reach: see ``weights_by_offset``.
    """

    full_state_update = False
    logs: Tensor
    vanished: Tensor
    images: Tensor

    def __init__(
        self, num_heads: int, *, grid_size: tuple[int, int], extra_tokens: int = 0, reach: Reach | None = None
    ) -> None:
        super().__init__()
        self.grid_size, self.extra_tokens = grid_size, extra_tokens
        self.reach = default_reach(grid_size) if reach is None else reach
        queries, offsets = len(interior_queries(grid_size, self.reach)), len(offsets_within(self.reach))
        zeros = torch.zeros(num_heads, queries, offsets, dtype=torch.float64)
        self.add_state("logs", zeros, dist_reduce_fx="sum")
        self.add_state("vanished", zeros[:, 0].clone(), dist_reduce_fx="sum")
        self.add_state("images", zeros[0, 0, 0].clone(), dist_reduce_fx="sum")

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        values = weights_by_offset(weights, grid_size=self.grid_size, extra_tokens=self.extra_tokens, reach=self.reach)
        smallest = torch.finfo(weights.dtype).tiny
        self.logs += log_weights(values, smallest).sum(dim=0)
        self.vanished += (values <= smallest).double().mean(dim=2).sum(dim=0)
        self.images += len(values)

    def compute(self) -> GaussianHeads:
        return fit_gaussian_heads(self.logs / self.images, self.vanished / self.images, self.reach)


def fit_gaussian_heads(
    logs: Float[Tensor, "heads queries offsets"], vanished: Float[Tensor, "heads offsets"], reach: Reach
) -> GaussianHeads:
    """The fit to mean logarithms, over the offsets of each head at which no weight has ``vanished``.

    Arguments:
        logs: ``E_x log A``.
        vanished: the share of weights, over images and queries, that are zero.
        reach: that of the offsets.
    """
    steps = offsets_within(reach).to(logs)
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
