"""Attention between patches, read by the offset from query to key: what every measure of locality starts from."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vit_vs_cnn.errors import InputError

#: How far from a query a measure looks, in patches: (rows, cols) on either side.
Reach = tuple[int, int]


def default_reach(grid_size: tuple[int, int]) -> Reach:
    """A quarter of the grid along each axis, at least one patch if the grid has one on both sides of its middle.

    So half of the rows and cols are interior: 5 x 5 offsets on a grid of 8 x 8, 9 x 9 on one of 16 x 16.
    """
    rows, cols = (min(max(size // 4, 1), (size - 1) // 2) for size in grid_size)
    return rows, cols


def patch_weights(
    weights: Float[Tensor, "batch heads tokens tokens"],
    *,
    grid_size: tuple[int, int],
    extra_tokens: int = 0,
    queries: Int64[Tensor, "queries"] | None = None,
) -> Float[Tensor, "batch heads queries patches"]:
    """The weights between patches in float64, rows summing to one; a row that leaves nothing for patches stays zero.

    Arguments:
        weights: queries down, keys to the right; the extra tokens first, then the grid row by row.
        extra_tokens: tokens that stand for no patch, such as the class token; they are dropped.
        queries: patches whose rows are wanted, as numbers row by row; all if None.
    """
    tokens = extra_tokens + grid_size[0] * grid_size[1]
    if weights.shape[-2:] != (tokens, tokens):
        raise InputError(
            f"weights must be {tokens} x {tokens} for a grid of {grid_size[0]} x {grid_size[1]} and {extra_tokens} "
            f"extra tokens, but are {weights.shape[-2]} x {weights.shape[-1]}"
        )
    rows = weights[:, :, extra_tokens:] if queries is None else weights[:, :, queries + extra_tokens]
    patches = rows[..., extra_tokens:].double()
    total = patches.sum(dim=-1, keepdim=True)
    return patches / total.masked_fill(total == 0, 1.0)


def offsets_within(reach: Reach) -> Int64[Tensor, "offsets 2"]:
    """All offsets (rows, cols) from query to key within the reach, row by row."""
    rows, cols = (torch.arange(-far, far + 1) for far in reach)
    return torch.cartesian_prod(rows, cols).view(-1, 2)


def interior_queries(grid_size: tuple[int, int], reach: Reach) -> Int64[Tensor, "queries"]:
    """The patches from which every offset within the reach is still on the grid, as numbers row by row."""
    if min(reach) < 0 or any(2 * far >= size for far, size in zip(reach, grid_size, strict=True)):
        raise InputError(
            f"reach must be at least 0 and leave a patch of the grid of {grid_size[0]} x {grid_size[1]} that many "
            f"patches from every edge, but is {reach}"
        )
    places = torch.arange(grid_size[0] * grid_size[1]).view(grid_size)
    return places[reach[0] : grid_size[0] - reach[0], reach[1] : grid_size[1] - reach[1]].flatten()


def weights_by_offset(
    weights: Float[Tensor, "batch heads tokens tokens"],
    *,
    grid_size: tuple[int, int],
    extra_tokens: int = 0,
    reach: Reach | None = None,
) -> Float[Tensor, "batch heads queries offsets"]:
    """``A_h(x; q, d)``: the weight of the patch at offset d from q, for interior queries q and offsets within reach.

    Arguments as ``patch_weights``; ``reach`` is that of ``default_reach`` if None. Offsets run row by row, as
    ``offsets_within`` lists them.
    """
    reach = default_reach(grid_size) if reach is None else reach
    queries = interior_queries(grid_size, reach).to(weights.device)
    steps = offsets_within(reach).to(weights.device)
    keys = queries[:, None] + steps[:, 0] * grid_size[1] + steps[:, 1]
    patches = patch_weights(weights, grid_size=grid_size, extra_tokens=extra_tokens, queries=queries)
    return patches.gather(-1, keys.expand(*patches.shape[:2], -1, -1))


def log_weights(weights: Tensor, smallest: float) -> Tensor:
    """Their logarithm; what lies below ``smallest`` counts as that."""
    return weights.clamp_min(smallest).log()
