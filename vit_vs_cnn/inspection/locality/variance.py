"""How much of an attention map is decided by the offset alone, by the place, and by the content."""

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

#: Weights whose standard deviation is below this share of their mean differ by rounding only: nothing to share out.
ROUNDING = 1e-6


class VarianceShares(NamedTuple):
    """Parts of the variance of the weights, per head; the first three sum to 1.

    All three are not a number where the weights do not vary.
    """

    relative: Float[Tensor, "heads"]
    positional: Float[Tensor, "heads"]
    content: Float[Tensor, "heads"]
    total: Float[Tensor, "heads"]


def variance_shares(
    weights: Float[Tensor, "batch heads tokens tokens"],
    *,
    grid_size: tuple[int, int],
    extra_tokens: int = 0,
    reach: Reach | None = None,
    log: bool = False,
) -> VarianceShares:
    """The law of total variance over offsets d, interior queries q and images x.

    ``V_rel = Var_d(E_{x,q} A)``, ``V_pos = E (E_x A - E_{x,q} A)^2``, ``V_cont = E (A - E_x A)^2``, each over their
    sum. A convolution has ``V_rel`` alone; a fixed map that knows its place adds ``V_pos``.

    Arguments:
        weights: of one layer, for as many images as there are.
        grid_size, extra_tokens, reach: see ``weights_by_offset``.
        log: of log A, less its mean over d for every image and query, instead of A. Weights too small for their
            floating point type count as its smallest normal number.
    """
    values = _values(weights, grid_size=grid_size, extra_tokens=extra_tokens, reach=reach, log=log)
    by_place, by_offset = values.mean(dim=0), values.mean(dim=(0, 2))
    relative = by_offset.var(dim=-1, correction=0)
    positional = (by_place - by_offset[:, None]).square().mean(dim=(1, 2))
    content = (values - by_place).square().mean(dim=(0, 2, 3))
    return _shares(relative, positional, content, scale=values.square().mean(dim=(0, 2, 3)))


class VarianceSharesMetric(Metric):
    """``variance_shares`` over batches: what is kept does not grow with the images.

    Arguments:
        num_heads: attention heads of the layer.
        grid_size, extra_tokens, reach, log: see ``variance_shares``.
    """

    full_state_update = False
    sums: Tensor
    squares: Tensor
    images: Tensor

    def __init__(
        self,
        num_heads: int,
        *,
        grid_size: tuple[int, int],
        extra_tokens: int = 0,
        reach: Reach | None = None,
        log: bool = False,
    ) -> None:
        super().__init__()
        self.grid_size, self.extra_tokens, self.log = grid_size, extra_tokens, log
        self.reach = default_reach(grid_size) if reach is None else reach
        shape = (num_heads, len(interior_queries(grid_size, self.reach)), len(offsets_within(self.reach)))
        self.add_state("sums", torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("squares", torch.zeros(num_heads, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        values = _values(
            weights, grid_size=self.grid_size, extra_tokens=self.extra_tokens, reach=self.reach, log=self.log
        )
        self.sums += values.sum(dim=0)
        self.squares += values.square().sum(dim=0).mean(dim=(1, 2))
        self.images += len(values)

    def compute(self) -> VarianceShares:
        by_place, squares = self.sums / self.images, self.squares / self.images
        by_offset = by_place.mean(dim=1)
        relative = by_offset.var(dim=-1, correction=0)
        positional = (by_place - by_offset[:, None]).square().mean(dim=(1, 2))
        content = (squares - by_place.square().mean(dim=(1, 2))).clamp_min(0.0)
        return _shares(relative, positional, content, scale=squares)


def _values(
    weights: Tensor, *, grid_size: tuple[int, int], extra_tokens: int, reach: Reach | None, log: bool
) -> Float[Tensor, "batch heads queries offsets"]:
    values = weights_by_offset(weights, grid_size=grid_size, extra_tokens=extra_tokens, reach=reach)
    if not log:
        return values
    logs = log_weights(values, torch.finfo(weights.dtype).tiny)
    return logs - logs.mean(dim=-1, keepdim=True)


def _shares(relative: Tensor, positional: Tensor, content: Tensor, *, scale: Tensor) -> VarianceShares:
    total = relative + positional + content
    divisor = torch.where(total > ROUNDING**2 * scale, total, torch.nan)
    return VarianceShares(relative / divisor, positional / divisor, content / divisor, total)
