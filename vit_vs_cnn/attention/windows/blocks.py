"""Attention within blocks: the grid is cut into windows that do not overlap, and the cuts may be shifted."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from vit_vs_cnn.attention.functional import attended, quickest_attention, scaled_dot_product_attention
from vit_vs_cnn.attention.shapes import AttendedHeads, Heads, HeadValues, Sizes, TokenWeights
from vit_vs_cnn.attention.tracing import is_tracing, kept
from vit_vs_cnn.attention.windows.neighbourhood import neighbourhood
from vit_vs_cnn.attention.windows.sliding import extra_queries_bias

#: Up to this many scores one masked product of all tokens with all is quicker than cutting the grid and joining it.
DENSE_SCORES = 2**17

#: Added to the scores in a window: for every pair of its places, or for every offset from query to key.
BlockBias = Float[Tensor, "heads places places"] | Float[Tensor, "heads offset_rows offset_cols"]


class Blocks(NamedTuple):
    """How a grid is cut into windows.

    Arguments:
        shift: (rows, cols) by which the cuts are moved.
        extra_tokens: tokens without a place, first in the sequence.
    """

    grid_size: tuple[int, int]
    window_size: tuple[int, int]
    shift: tuple[int, int]
    extra_tokens: int

    @property
    def margins(self) -> tuple[int, int]:
        """(rows, cols) missing at the end of the grid for a whole number of windows."""
        rows, cols = (-size % window for size, window in zip(self.grid_size, self.window_size, strict=True))
        return rows, cols

    @property
    def counts(self) -> tuple[int, int]:
        """(rows, cols) of windows."""
        rows, cols = (-(-size // window) for size, window in zip(self.grid_size, self.window_size, strict=True))
        return rows, cols


def block_attention(
    queries: Heads,
    keys: Heads,
    values: HeadValues,
    *,
    grid_size: Sizes,
    window_size: Sizes,
    shift: Sizes = 0,
    bias: BlockBias | None = None,
    extra_tokens: int = 0,
    extra_bias: Float[Tensor, "heads 3"] | None = None,
    return_weights: bool = False,
) -> AttendedHeads:
    """Attention of each token to those of its window, the windows tiling the grid.

    Two tokens see each other where ``floor((p - shift) / window)`` agrees for their rows and for their columns.

    Reference: Liu et al. 2021 (Swin), section 3.2: the grid is rolled, so that shifted windows are as many as others,
    and a mask keeps apart what the rolling brings together.
    Differs: the grid need not divide: it is padded at its end, and the padding masked; it may have extra tokens.

    Arguments:
        queries, keys, values: ``(batch, heads, tokens, head_dim)``: the extra tokens, then the grid row by row.
        grid_size: (rows, cols); or the length of a sequence.
        window_size: (rows, cols) of a window, or one number for both axes.
        shift: (rows, cols) by which the cuts are moved down and right, or one number; smaller than the window.
        bias: added to the scores, per head: ``(heads, places, places)`` with ``places = rows * cols`` of a window, row
            by row; or ``(heads, 2 rows - 1, 2 cols - 1)``, per offset from query to key.
        extra_tokens: how many tokens, first in the sequence, have no place: they see all and are seen by all.
        extra_bias: as in ``local_attention``.
        return_weights: also return the weights, tokens x tokens with zeros outside the windows.

    Raises:
        ValueError: if a size is not positive, the shift is not within the window, or a shape does not fit.
    """
    blocks = _given(queries, grid_size, window_size, shift, extra_tokens)
    plain = bias is None and extra_bias is None and not return_weights
    scores = queries.shape[0] * queries.shape[1] * queries.shape[2] ** 2
    if plain and not is_tracing() and scores <= DENSE_SCORES:
        return quickest_attention(queries, keys, values, _dense_mask(blocks, queries.dtype, queries.device))
    cut = [_cut(blocks, x[:, :, extra_tokens:]) for x in (queries, keys, values)]
    if extra_tokens:
        cut[1:] = (_with_extra(x[:, :, :extra_tokens], tiles) for x, tiles in zip((keys, values), cut[1:], strict=True))
    of_extra = extra_queries_bias(extra_bias, extra_tokens, queries.shape[2] - extra_tokens)
    if plain:  # no head differs from another, and no row is empty: a token sees itself
        windows = blocks.counts[0] * blocks.counts[1]
        mask = _plain_mask(blocks, queries.dtype, queries.device)
        tiles = [x.unflatten(1, (-1, windows)).flatten(0, 1) for x in cut]
        output = quickest_attention(*tiles, added=mask)
        output, weights = output.unflatten(0, queries.shape[:2]).flatten(1, 2), None
    else:
        added = _scores_bias(blocks, queries, bias, extra_bias)
        output, weights = attended(*cut, bias=added, return_weights=return_weights)
    output = _join(blocks, output)
    weights = None if weights is None else _between_tokens(blocks, weights)
    if extra_tokens:
        extra = queries[:, :, :extra_tokens]
        first, first_weights = attended(extra, keys, values, bias=of_extra, return_weights=return_weights)
        output = torch.cat([first, output], dim=2)
        if weights is not None and first_weights is not None:
            weights = torch.cat([first_weights, weights], dim=2)
    return output if weights is None else (output, weights)


def block_attention_reference(
    queries: Heads,
    keys: Heads,
    values: HeadValues,
    *,
    grid_size: Sizes,
    window_size: Sizes,
    shift: Sizes = 0,
    bias: BlockBias | None = None,
) -> tuple[HeadValues, TokenWeights]:
    """``block_attention`` as one masked product of all tokens with all; outputs and weights, no extra tokens."""
    blocks = _given(queries, grid_size, window_size, shift, 0)
    block, place = _places(blocks)
    mask = (block[:, :, None] == block[:, None, :]).all(dim=0)
    matrix = None
    if bias is not None:
        pairs = _pair_bias(blocks, bias)
        index = place[0] * blocks.window_size[1] + place[1]
        matrix = pairs[:, index][:, :, index]
    return scaled_dot_product_attention(queries, keys, values, mask=mask, bias=matrix, return_weights=True)


def _places(blocks: Blocks) -> tuple[Int[Tensor, "2 patches"], Int[Tensor, "2 patches"]]:
    """The window of each token, and its place there, by rows and by cols."""
    placed = [torch.arange(size) - move for size, move in zip(blocks.grid_size, blocks.shift, strict=True)]
    by_row, by_col = torch.meshgrid(*placed, indexing="ij")
    places = torch.stack([by_row.flatten(), by_col.flatten()])
    window = torch.tensor(blocks.window_size)[:, None]
    return places.div(window, rounding_mode="floor"), places.remainder(window)


@kept
def _dense_mask(blocks: Blocks, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "1 1 tokens tokens"]:
    """What is added to the scores of all tokens with all."""
    block, _ = _places(blocks)
    apart = (block[:, :, None] != block[:, None, :]).any(dim=0)
    mask = torch.zeros(apart.shape, dtype=dtype).masked_fill(apart, -torch.inf)
    return F.pad(mask, (blocks.extra_tokens, 0) * 2)[None, None].to(device)


@kept
def _plain_mask(
    blocks: Blocks, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "1 windows places keys"] | None:
    """What is added to the scores in the windows of every head where nothing is but what must not be seen."""
    if not any(blocks.shift) and not any(blocks.margins):
        return None
    _, seen = _layout(blocks, device)
    mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill(~seen, -torch.inf)
    return F.pad(mask, (blocks.extra_tokens, 0))[None]


def _cut(blocks: Blocks, patches: Tensor) -> Shaped[Tensor, "batch head_windows places dim"]:
    rows, cols = blocks.margins
    grid = F.pad(patches.unflatten(2, blocks.grid_size), (0, 0, 0, cols, 0, rows))
    grid = grid.roll((-blocks.shift[0], -blocks.shift[1]), dims=(2, 3)) if any(blocks.shift) else grid
    y, x = blocks.window_size
    return rearrange(grid, "b heads (i y) (j x) d -> b (heads i j) (y x) d", y=y, x=x)


def _join(blocks: Blocks, tiles: Tensor) -> Float[Tensor, "batch heads patches dim"]:
    """The grid from its windows: the inverse of ``_cut``."""
    rows, cols = blocks.grid_size
    (i, j), (y, x) = blocks.counts, blocks.window_size
    grid = rearrange(tiles, "b (heads i j) (y x) d -> b heads (i y) (j x) d", i=i, j=j, y=y, x=x)
    grid = grid.roll(blocks.shift, dims=(2, 3)) if any(blocks.shift) else grid
    return grid[:, :, :rows, :cols].flatten(2, 3)


def _with_extra(extra: Tensor, tiles: Tensor) -> Tensor:
    repeated = repeat(extra, "b heads n d -> b (heads windows) n d", windows=tiles.shape[1] // extra.shape[1])
    return torch.cat([repeated, tiles], dim=2)


def _between_tokens(blocks: Blocks, weights: Tensor) -> Float[Tensor, "batch heads patches tokens"]:
    extra, patches = blocks.extra_tokens, blocks.grid_size[0] * blocks.grid_size[1]
    tokens, _ = _layout(blocks, weights.device)
    weights = weights.unflatten(1, (-1, len(tokens)))
    matrix = weights.new_zeros(*weights.shape[:2], patches + 1, patches + 1 + extra)
    keys = torch.cat([tokens.new_tensor(range(extra)).expand(len(tokens), -1), tokens + extra], dim=1)
    matrix[:, :, tokens[:, :, None], keys[:, None, :]] = weights  # the padding is written to one more row and column
    return matrix[:, :, :-1, :-1]


@kept
def _layout(
    blocks: Blocks, device: torch.device
) -> tuple[Int[Tensor, "windows places"], Bool[Tensor, "windows places places"]]:
    """Which token stands at each place of each window (one past the last for padding), and who sees whom."""
    patches = blocks.grid_size[0] * blocks.grid_size[1]
    tokens = _cut(blocks, torch.arange(1, patches + 1)[None, None, :, None])[0, :, :, 0] - 1  # -1 for padding
    tokens = tokens.where(tokens >= 0, patches)
    # Rolling brings tokens of several windows together; padding is a window of its own.
    window = F.pad(_places(blocks)[0], (0, 1), value=-2)[:, tokens]
    return tokens.to(device), (window[..., None] == window[..., None, :]).all(dim=0).to(device)


def _scores_bias(
    blocks: Blocks, queries: Tensor, bias: Tensor | None, extra_bias: Tensor | None
) -> Float[Tensor, "1 head_windows places keys"] | None:
    """All that is added to the scores in the windows, minus infinity for what must not be seen."""
    if bias is None and extra_bias is None and not any(blocks.shift) and not any(blocks.margins):
        return None
    heads, extra = queries.shape[1], blocks.extra_tokens
    _, seen = _layout(blocks, queries.device)
    pairs = queries.new_zeros(heads, *seen.shape[1:]) if bias is None else _pair_bias(blocks, bias).to(queries.dtype)
    added = pairs[:, None].masked_fill(~seen, -torch.inf)
    first = queries.new_zeros(heads, 3) if extra_bias is None else extra_bias.to(queries.dtype)
    first = first[:, 0, None, None, None].expand(*added.shape[:3], extra)
    return torch.cat([first, added], dim=-1).flatten(0, 1).unsqueeze(0)


def _pair_bias(blocks: Blocks, bias: Tensor) -> Float[Tensor, "heads places places"]:
    rows, cols = blocks.window_size
    heads, places = len(bias), rows * cols
    if bias.shape == (heads, places, places):
        return bias
    if bias.shape != (heads, 2 * rows - 1, 2 * cols - 1):
        raise ValueError(
            f"bias must be (heads, {places}, {places}), per pair of places, or "
            f"(heads, {2 * rows - 1}, {2 * cols - 1}), per offset, for window_size={blocks.window_size}, "
            f"but is {tuple(bias.shape)}"
        )
    by_row, by_col = (torch.arange(size, device=bias.device) for size in (rows, cols))
    row_offsets = (by_row - by_row[:, None] + rows - 1)[:, None, :, None]
    col_offsets = (by_col - by_col[:, None] + cols - 1)[None, :, None, :]
    return rearrange(bias[:, row_offsets, col_offsets], "heads r c y x -> heads (r c) (y x)")


def _given(queries: Tensor, grid_size: Sizes, window_size: Sizes, shift: Sizes, extra_tokens: int) -> Blocks:
    around = neighbourhood(grid_size, window_size, extra_tokens=extra_tokens)
    moved = (shift,) * 2 if isinstance(shift, int) else tuple(shift)
    if isinstance(grid_size, int) or len(grid_size) == 1:
        moved = (moved[0], 0)
    pairs = list(zip(moved, around.window_size, strict=False))
    if len(moved) != 2 or any(not 0 <= move < window for move, window in pairs):
        raise ValueError(f"shift must be in [0, window_size) = [0, {around.window_size}), but is {shift}")
    around.of(queries)
    return Blocks(around.grid_size, around.window_size, moved, extra_tokens)
