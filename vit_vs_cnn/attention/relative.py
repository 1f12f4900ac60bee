"""Relative positions: biases of the scores that depend on the offset from query to key."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.positions import GridLayer
from vit_vs_cnn.attention.windows.neighbourhood import Neighbourhood, bias_index_matrix


class RelativePosition(GridLayer):
    """Bias of the scores for each head and each offset from query to key.

    A subclass defines the bias at given offsets; this class arranges it for all pairs of tokens. Prefix tokens have no
    offset: their pairs have ``prefix_bias``.
    """

    def bias_at_offsets(self, rows: range, cols: range) -> Float[Tensor, "heads offset_rows offset_cols"]:
        """Bias where the key is ``rows`` below and ``cols`` right of the query."""
        raise NotImplementedError

    def prefix_bias(self) -> Float[Tensor, "heads 3"] | None:
        """Bias (patch to prefix token, prefix token to patch, among prefix tokens); None for zero."""
        return None

    def token_bias(self) -> Float[Tensor, "heads tokens tokens"]:
        """Bias between all tokens: the prefix tokens, then the grid row by row."""
        rows, cols = self.grid_size
        offset_bias = self.bias_at_offsets(range(1 - rows, rows), range(1 - cols, cols))
        return add_prefix_bias(expand_offsets(offset_bias, (rows, cols)), self.prefix_bias(), self.num_prefix_tokens)


def expand_offsets(
    bias: Float[Tensor, "heads offset_rows offset_cols"], grid_size: tuple[int, int]
) -> Float[Tensor, "heads patches patches"]:
    """Bias of each pair of patches of a grid, taken from ``bias`` at the offset from query to key.

    The offset of zero is in the middle of ``bias``. Pairs with an offset outside of ``bias`` get minus infinity.
    """
    _, rows, cols = bias.shape
    neighbourhood = Neighbourhood(grid_size, (rows, cols), "mask")
    index = bias_index_matrix(neighbourhood, bias.device)
    table = neighbourhood.bias_table(bias, bias.dtype, bias.device)
    return table.index_select(1, index.flatten()).unflatten(1, index.shape)


def add_prefix_bias(
    bias: Float[Tensor, "bias_heads patches patches"],
    prefix_bias: Float[Tensor, "heads 3"] | None,
    num_prefix_tokens: int,
) -> Float[Tensor, "heads tokens tokens"]:
    """Bias between all tokens, from that between the patches and the ``prefix_bias`` of a relative position."""
    if not num_prefix_tokens:
        return bias
    if prefix_bias is None:
        return F.pad(bias, (num_prefix_tokens, 0, num_prefix_tokens, 0))
    heads, patches, count = len(prefix_bias), bias.shape[1], num_prefix_tokens
    to_prefix, from_prefix, among_prefix = prefix_bias.to(bias.dtype)[:, :, None, None].unbind(1)
    top = [among_prefix.expand(-1, count, count), from_prefix.expand(-1, count, patches)]
    bottom = [to_prefix.expand(-1, patches, count), bias.expand(heads, -1, -1)]
    return torch.cat([torch.cat(top, dim=2), torch.cat(bottom, dim=2)], dim=1)


class RelativeBias(RelativePosition):
    """Learned bias for each head and offset.

    ``scores[q, k] = Q[q] . K[k] / sqrt(head_dim) + B_h[row_k - row_q, col_k - col_q]``.

    Reference: Liu et al. 2021 (Swin), equation 4; Shaw et al. 2018 for the idea; class token as in Bao et al. 2022
    (BEiT), three numbers per head.
    Differs: over the whole grid, or any window of it.
    """

    def __init__(self, grid_size: tuple[int, int], num_heads: int, num_prefix_tokens: int = 0) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        rows, cols = grid_size
        self.table = nn.Parameter(torch.empty(num_heads, 2 * rows - 1, 2 * cols - 1))
        self.prefix = nn.Parameter(torch.empty(num_heads, 3)) if num_prefix_tokens else None
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)

    def bias_at_offsets(self, rows: range, cols: range) -> Float[Tensor, "heads offset_rows offset_cols"]:
        """Bias as in ``RelativePosition``. Outside the grid it is the bias of the nearest offset in the grid."""
        table = self.table
        for axis, (size, offsets) in enumerate(zip(self.grid_size, (rows, cols), strict=True), start=1):
            if offsets != range(1 - size, size):
                indices = (torch.tensor(offsets, device=table.device) + size - 1).clamp(0, 2 * size - 2)
                table = table.index_select(axis, indices)
        return table

    def prefix_bias(self) -> Float[Tensor, "heads 3"] | None:
        return self.prefix

    @torch.no_grad()
    def resize(self, grid_size: tuple[int, int]) -> None:
        """Resize to another grid in place, by bicubic interpolation in every head; the parameter is replaced."""
        if grid_size != self.grid_size:
            shape = [2 * size - 1 for size in grid_size]
            table = F.interpolate(self.table[None], size=shape, mode="bicubic")[0]
            self.table = nn.Parameter(table, requires_grad=self.table.requires_grad)
        super().resize(grid_size)


class QuadraticBias(RelativePosition):
    """Preference of each head for one offset, with a learned centre and sharpness.

    ``B_h[d] = -alpha_h |d - D_h|^2``: as alpha grows, the head attends to offset D_h alone, and the layer convolves.

    Reference: Cordonnier et al. 2020, equation 9.
    Differs: added to the query-key scores instead of replacing them; the centres start as the offsets of the smallest
    square kernel that has one for each head, nearest first, instead of at random. Prefix tokens get zero.
    """

    def __init__(self, grid_size: tuple[int, int], num_heads: int, num_prefix_tokens: int = 0) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        self.sharpness = nn.Parameter(torch.ones(num_heads))
        self.centres = nn.Parameter(torch.tensor(kernel_offsets(num_heads), dtype=torch.get_default_dtype()))

    def bias_at_offsets(self, rows: range, cols: range) -> Float[Tensor, "heads offset_rows offset_cols"]:
        row, col = (torch.tensor(offsets).to(self.centres) for offsets in (rows, cols))
        row_distance = (row - self.centres[:, :1]).square()
        col_distance = (col - self.centres[:, 1:]).square()
        return -self.sharpness[:, None, None] * (row_distance[:, :, None] + col_distance[:, None, :])


def kernel_offsets(count: int) -> list[tuple[int, int]]:
    """Offsets (rows, cols) of the smallest odd square kernel that has at least ``count``: the nearest ``count``."""
    reach = math.ceil(math.sqrt(count)) // 2
    offsets = [(row, col) for row in range(-reach, reach + 1) for col in range(-reach, reach + 1)]
    return sorted(offsets, key=lambda offset: (offset[0] ** 2 + offset[1] ** 2, offset))[:count]
