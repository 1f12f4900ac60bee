"""Attention within blocks: windows that tile the grid and do not overlap; their borders may be shifted."""

from typing import Literal, NamedTuple, Required, TypedDict, Unpack, overload

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from vit_vs_cnn.attention.arguments import Heads, HeadValues, TokenWeights
from vit_vs_cnn.attention.functional import attend_nonempty, scaled_dot_product_attention
from vit_vs_cnn.attention.positions import GridLayer
from vit_vs_cnn.attention.relative import RelativePosition, expand_offsets
from vit_vs_cnn.attention.windows.neighbourhood import cache_tables, check_shapes
from vit_vs_cnn.attention.windows.sliding import OffsetBias
from vit_vs_cnn.bounds import Size2d, as_rows_and_cols


class Blocks(NamedTuple):
    """Grid of tokens that is cut into windows without overlap, with borders shifted by ``shift`` (rows, cols)."""

    grid_size: tuple[int, int]
    window_size: tuple[int, int]
    shift: tuple[int, int]

    @property
    def margins(self) -> tuple[int, int]:
        """(rows, cols) of padding at the end of the grid that make a whole number of windows."""
        rows, cols = (-size % window for size, window in zip(self.grid_size, self.window_size, strict=True))
        return rows, cols

    @property
    def counts(self) -> tuple[int, int]:
        """(rows, cols) of windows."""
        rows, cols = (-(-size // window) for size, window in zip(self.grid_size, self.window_size, strict=True))
        return rows, cols

    def window_of_tokens(self) -> Int[Tensor, "tokens 2"]:
        """(rows, cols) of the window of each token."""
        axes = (
            (torch.arange(size) - move).div(window, rounding_mode="floor")
            for size, window, move in zip(*self, strict=True)
        )
        return torch.cartesian_prod(*axes)

    def mask(self) -> Bool[Tensor, "tokens tokens"]:
        """Mask that is True between tokens of the same window."""
        window = self.window_of_tokens()
        return (window[:, None] == window).all(dim=-1)


class BlockOptions(TypedDict, total=False):
    """Keyword arguments of ``block_attention``, for type checkers."""

    grid_size: Required[Size2d]
    window_size: Required[Size2d]
    shift: Size2d
    bias: Tensor | None


@overload
def block_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_weights: Literal[False] = False,
    **options: Unpack[BlockOptions],
) -> Tensor: ...


@overload
def block_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: Literal[True], **options: Unpack[BlockOptions]
) -> tuple[Tensor, Tensor]: ...


def block_attention(
    queries: Heads,
    keys: Heads,
    values: HeadValues,
    *,
    grid_size: Size2d,
    window_size: Size2d,
    shift: Size2d = 0,
    bias: OffsetBias | None = None,
    return_weights: bool = False,
) -> HeadValues | tuple[HeadValues, TokenWeights]:
    """Attention of each token to those of its window. The windows tile the grid.

    Two tokens attend to each other where ``floor((p - shift) / window)`` agrees for their rows and for their columns.

    Reference: Liu et al. 2021 (Swin), section 3.2: the grid is rolled, so that shifted windows are as many as others,
    and a mask separates tokens that only the rolling brings together.
    Differs: the window need not divide the grid, which is padded at its end, and the padding masked.

    Arguments:
        queries, keys, values: ``(batch, heads, tokens, head_dim)``, the tokens of the grid row by row.
        grid_size: (rows, cols), or one number for both; a sequence is a grid of one column.
        window_size: (rows, cols) of a window, or one number for both.
        shift: (rows, cols) by which the borders move down and right, or one number for both; smaller than the window.
        bias: added to the scores for each head and offset from query to key, ``(heads, 2 rows - 1, 2 cols - 1)``.
        return_weights: compute all tokens with all under a mask, and return the weights, tokens x tokens with zeros
            outside the windows.

    Raises:
        ValueError: if a size is not positive, the shift is not smaller than the window, or a shape does not fit.
    """
    grid, window = as_rows_and_cols("grid_size", grid_size), as_rows_and_cols("window_size", window_size)
    blocks = Blocks(grid, window, as_rows_and_cols("shift", shift, minimum=0))
    if blocks.shift[0] >= window[0] or blocks.shift[1] >= window[1]:
        raise ValueError(f"shift must be smaller than the window of {window}, but is {shift}")
    check_shapes(queries, bias, grid, (2 * window[0] - 1, 2 * window[1] - 1))
    if return_weights:
        token_bias = None if bias is None else expand_offsets(bias, grid)
        mask = blocks.mask().to(queries.device)
        return scaled_dot_product_attention(queries, keys, values, mask=mask, bias=token_bias, return_weights=True)
    mask = None
    if any(blocks.shift) or any(blocks.margins):
        mask = _block_mask(blocks, queries.device).repeat(queries.shape[1], 1, 1)
    tiles = _cut(blocks, queries), _cut(blocks, keys), _cut(blocks, values)
    if bias is None:  # every token may attend to itself
        return _join(blocks, attend_nonempty(*tiles, mask))
    windows = blocks.counts[0] * blocks.counts[1]
    window_bias = expand_offsets(bias, blocks.window_size)[:, None].expand(-1, windows, -1, -1).flatten(0, 1)
    return _join(blocks, scaled_dot_product_attention(*tiles, mask=mask, bias=window_bias))


@cache_tables
def _block_mask(blocks: Blocks, device: torch.device) -> Bool[Tensor, "windows queries keys"]:
    """Mask for the rolled and cut grid, in which a window may contain tokens of several true windows and padding."""
    window = blocks.window_of_tokens()[None, None].to(device)
    window = _cut(blocks, window + 2)  # no token is in window 0, which the padding then is
    return (window[0, :, :, None] == window[0, :, None, :]).all(dim=-1)


def _cut(blocks: Blocks, tokens: Shaped[Tensor, "batch heads tokens dim"]) -> Shaped[Tensor, "batch windows keys dim"]:
    """Windows of all heads, the windows of the first head first."""
    rows, cols = blocks.margins
    grid = tokens.unflatten(2, blocks.grid_size)
    grid = F.pad(grid, (0, 0, 0, cols, 0, rows)) if rows or cols else grid
    grid = grid.roll((-blocks.shift[0], -blocks.shift[1]), dims=(2, 3)) if any(blocks.shift) else grid
    y, x = blocks.window_size
    return rearrange(grid, "b heads (i y) (j x) d -> b (heads i j) (y x) d", y=y, x=x)


def _join(blocks: Blocks, windows: Tensor) -> HeadValues:
    """Tokens of the grid from its windows: the inverse of ``_cut``."""
    rows, cols = blocks.grid_size
    (i, j), (y, x) = blocks.counts, blocks.window_size
    grid = rearrange(windows, "b (heads i j) (y x) d -> b heads (i y) (j x) d", i=i, j=j, y=y, x=x)
    grid = grid.roll(blocks.shift, dims=(2, 3)) if any(blocks.shift) else grid
    return grid[:, :, :rows, :cols].flatten(2, 3)


class BlockWindow(GridLayer):
    """Layer of ``block_attention`` with a fixed window and shift; otherwise as ``SlidingWindow``.

    Reference: Liu et al. 2021 (Swin), section 3.2.
    Differs: a window is cut to the grid along an axis that is not longer than it, and not shifted there (as in their
    code, where the shorter axis decides for both).

    Arguments:
        shifted: move the borders by half a window.
    """

    def __init__(
        self, grid_size: tuple[int, int], window_size: Size2d, shifted: bool = False, num_prefix_tokens: int = 0
    ) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        self.window_size = as_rows_and_cols("window_size", window_size)
        self.shifted = shifted

    def forward(
        self,
        queries: Heads,
        keys: Heads,
        values: HeadValues,
        *,
        relative_position: RelativePosition | None = None,
        return_weights: bool = False,
    ) -> HeadValues | tuple[HeadValues, TokenWeights]:
        size = self.grid_size
        window = min(self.window_size[0], size[0]), min(self.window_size[1], size[1])
        row, col = (w // 2 if self.shifted and w < s else 0 for w, s in zip(window, size, strict=True))
        bias, prefix = None, self.num_prefix_tokens
        if prefix or return_weights:
            if relative_position is not None:
                bias = relative_position.token_bias()
            mask = F.pad(Blocks(size, window, (row, col)).mask(), (prefix, 0, prefix, 0), value=True).to(queries.device)
            return scaled_dot_product_attention(
                queries, keys, values, mask=mask, bias=bias, return_weights=return_weights
            )
        if relative_position is not None:
            bias = relative_position.bias_at_offsets(range(1 - window[0], window[0]), range(1 - window[1], window[1]))
        return block_attention(queries, keys, values, grid_size=size, window_size=window, shift=(row, col), bias=bias)
