"""Measures of every head of a layer, from its attention weights."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vit_vs_cnn.errors import InputError

Weights = Float[Tensor, "batch heads tokens tokens"]
#: Relative standard deviation below which weights differ by rounding only.
ROUNDING = 1e-6


def max_offset(grid_size: tuple[int, int]) -> tuple[int, int]:
    """Largest offset from query to key that is read, in patches (rows, cols) to either side.

    A quarter of the grid along each axis, at least one patch if the middle has a neighbour on both sides. So half of
    the rows and cols are interior: 5 x 5 offsets on a grid of 8 x 8, 9 x 9 on one of 16 x 16.
    """
    rows, cols = (min(max(size // 4, 1), (size - 1) // 2) for size in grid_size)
    return rows, cols


def interior_queries(grid_size: tuple[int, int]) -> Int64[Tensor, "queries"]:
    """Numbers of the patches from which every offset is still on the grid, row by row."""
    patches = torch.arange(grid_size[0] * grid_size[1]).view(grid_size)
    (rows, cols), (far_rows, far_cols) = grid_size, max_offset(grid_size)
    return patches[far_rows : rows - far_rows, far_cols : cols - far_cols].flatten()


def patch_weights(
    weights: Weights, grid_size: tuple[int, int], extra_tokens: int
) -> Float[Tensor, "batch heads patches patches"]:
    """Weights between patches in float64. Rows sum to one; a row that attends to extra tokens alone is zero.

    Raises:
        InputError: weights of another number of tokens.
    """
    tokens = extra_tokens + grid_size[0] * grid_size[1]
    if weights.shape[-2:] != (tokens, tokens):
        raise InputError(
            f"weights must be {tokens} x {tokens} for a grid of {grid_size[0]} x {grid_size[1]} and {extra_tokens} "
            f"extra tokens, but are {weights.shape[-2]} x {weights.shape[-1]}"
        )
    patches = weights[:, :, extra_tokens:, extra_tokens:].double()
    total = patches.sum(dim=-1, keepdim=True)
    return patches / total.masked_fill(total == 0, 1.0)


def patch_distances(grid_size: tuple[int, int], patch_size: Sequence[int | float]) -> Float[Tensor, "patches patches"]:
    """Distance of each pair of patches in pixels."""
    axes = [torch.arange(size).double() * pixels for size, pixels in zip(grid_size, patch_size, strict=True)]
    positions = torch.cartesian_prod(*axes).view(-1, 2)
    return torch.cdist(positions, positions, compute_mode="donot_use_mm_for_euclid_dist")


def uniform_distance(grid_size: tuple[int, int], patch_size: Sequence[int | float] = (1, 1)) -> float:
    """``attention_distance`` of equal weights: near 0.5214 n patches on a grid of n x n, 4.1365 for n = 8."""
    return patch_distances(grid_size, patch_size).mean().item()


def attention_distance(
    weights: Weights,
    grid_size: tuple[int, int],
    patch_size: Sequence[int | float] = (1, 1),
    *,
    extra_tokens: int = 0,
) -> Float[Tensor, "heads"]:
    """``E_{x,q} sum_k A |q - k|`` with positions in pixels: the mean attention distance of every head.

    Reference: Dosovitskiy et al. 2021, figure 7 (right) and appendix D.7.
    Differs: the class token is left out, and rows are renormalised.
    """
    distances = patch_distances(grid_size, patch_size).to(weights.device)
    patches = patch_weights(weights, grid_size, extra_tokens)
    return torch.einsum("bhqk,qk->bhq", patches, distances).mean(dim=(0, 2))


class HeadMeasures:
    """Measures of the heads of a layer over batches; the memory does not grow with the images.

    - ``distance``: ``attention_distance``; ``distance_ratio``: the same over ``uniform_distance``.
    - ``centre``: ``E c``, (rows, cols) from the query in patches, with ``c(x, q) = sum_k A (k - q)``; ``width``:
      ``sqrt(E trace Sigma(x, q) / 2)``, Sigma(x, q) the covariance of k under A.
    - ``relative``, ``positional``, ``content``: shares of the variance of the weights over offsets d, queries q and
      images x (law of total variance), which sum to 1: ``V_rel = Var_d(E_{x,q} A)``, ``V_pos = E (E_x A - E_{x,q}
      A)^2``, ``V_cont = E (A - E_x A)^2``. A convolution has ``V_rel`` alone. Not a number if the weights do not vary.

    All but the distance are over interior queries. The shares read the offsets up to ``max_offset``.
    """

    def __init__(
        self,
        grid_size: tuple[int, int],
        extra_tokens: int = 0,
        patch_size: Sequence[int | float] = (1, 1),
    ) -> None:
        self.grid_size, self.extra_tokens, self.patch_size = grid_size, extra_tokens, patch_size
        self.images = 0
        self.sums: dict[str, Tensor] = {}

    def update(self, weights: Weights) -> None:
        queries = interior_queries(self.grid_size)
        offsets = torch.cartesian_prod(*(torch.arange(-far, far + 1) for far in max_offset(self.grid_size))).view(-1, 2)
        positions = torch.cartesian_prod(*(torch.arange(size).double() for size in self.grid_size)).view(-1, 2)
        steps = (positions - positions[queries, None]).to(weights.device)
        interior = patch_weights(weights, self.grid_size, self.extra_tokens)[:, :, queries]
        keys = (queries[:, None] + offsets[:, 0] * self.grid_size[1] + offsets[:, 1]).to(weights.device)
        by_offset = interior.gather(-1, keys.expand(*interior.shape[:2], -1, -1))
        centres = torch.einsum("bhqk,qkc->bhqc", interior, steps)
        distance = attention_distance(weights, self.grid_size, self.patch_size, extra_tokens=self.extra_tokens)
        terms = {
            "weights": weights.sum(dim=0, dtype=torch.float64),
            "distance": distance * len(weights),
            "centre": centres.mean(dim=2).sum(dim=0),
            "centre_squares": centres.square().sum(dim=-1).mean(dim=2).sum(dim=0),
            "squares": torch.einsum("bhqk,qk->bhq", interior, steps.square().sum(dim=-1)).mean(dim=2).sum(dim=0),
            "by_offset": by_offset.sum(dim=0),
            "offset_squares": by_offset.square().mean(dim=(2, 3)).sum(dim=0),
        }
        self.sums = {name: self.sums[name] + term if self.images else term for name, term in terms.items()}
        self.images += len(weights)

    def mean_weights(self) -> Float[Tensor, "heads tokens tokens"]:
        """``E_x A`` between all tokens, the extra ones included."""
        return self.sums["weights"] / self.images

    def compute(self) -> dict[str, Float[Tensor, "heads *parts"]]:
        """The measures by name."""
        means = {name: total / self.images for name, total in self.sums.items()}
        at_offset = means["by_offset"].mean(dim=1)
        shares = {
            "relative": at_offset.var(dim=-1, correction=0),
            "positional": (means["by_offset"] - at_offset[:, None]).square().mean(dim=(1, 2)),
            "content": (means["offset_squares"] - means["by_offset"].square().mean(dim=(1, 2))).clamp_min(0.0),
        }
        total = torch.stack([*shares.values()]).sum(dim=0)
        total = torch.where(total > ROUNDING**2 * means["offset_squares"], total, torch.nan)
        return {name: share / total for name, share in shares.items()} | {
            "centre": means["centre"],
            "width": ((means["squares"] - means["centre_squares"]).clamp_min(0.0) / 2).sqrt(),
            "distance": means["distance"],
            "distance_ratio": means["distance"] / (uniform_distance(self.grid_size, self.patch_size) or torch.nan),
        }
