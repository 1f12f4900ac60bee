"""Window attention in tiles: blocks of queries with the rectangle of keys that their windows cover."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from vit_vs_cnn.attention.arguments import Heads, HeadValues
from vit_vs_cnn.attention.windows.neighbourhood import Neighbourhood, cache_tables

#: Number of queries in a tile, about: smaller tiles score fewer keys outside the windows, larger ones make better
#: matrix products.
TILE_QUERIES = 16
#: Number of scores computed at once, relative to the number of elements of the queries. This keeps the working memory
#: below the size of the output. The backward pass holds more tensors of that size.
FORWARD_SHARE, BACKWARD_SHARE = 1.0, 0.25
#: Smallest and largest number of scores computed at once: large enough for a call, small enough for CPU caches.
CHUNK_RANGE = (2**16, 2**19)
#: Bytes of weights that may always be saved for the backward pass.
SAVED_BYTES = 2**22


class TiledAxis(NamedTuple):
    """Axis of a grid in tiles.

    Arguments:
        tiles: number of tiles.
        tile: number of queries in a tile; the last ones of the last tile may be padding.
        span: number of keys in a tile.
        before: number of keys of the first tile that would lie before the beginning of the axis, and are padding.
        pattern_numbers: index into ``patterns`` for each tile.
        patterns: ``(patterns, tile, span)``: place of the key in the window of the query along this axis, from 0; -1
            outside the window.
    """

    tiles: int
    tile: int
    span: int
    before: int
    pattern_numbers: tuple[int, ...]
    patterns: tuple[tuple[tuple[int, ...], ...], ...]

    def key_range(self, tiles: range, size: int) -> "KeyRange":
        """Range of the keys of some tiles, on an axis of ``size`` keys."""
        first = tiles.start * self.tile - self.before
        last = (tiles.stop - 1) * self.tile + self.span - self.before
        low, high = max(first, 0), min(last, size)
        return KeyRange(low, high, low - first, last - high)


class KeyRange(NamedTuple):
    """Keys from ``low`` to ``high``, and the numbers of padding keys before and after them."""

    low: int
    high: int
    before: int
    after: int


@lru_cache
def tile_axis(neighbourhood: Neighbourhood, axis: int, max_tile: int) -> TiledAxis:
    """Axis in equal tiles of at most ``max_tile`` queries."""
    size, window = neighbourhood.grid_size[axis], neighbourhood.window_size[axis]
    tile = -(-size // -(-size // max_tile))
    layouts = []
    for first in range(0, size, tile):
        # Padding queries attend as the last query does. Coordinates are relative to the first query of the tile.
        queries = [min(query, size - 1) - first for query in range(first, first + tile)]
        halo = neighbourhood.boundary == "zero"
        starts = [query if halo else query - (window - 1) // 2 for query in queries]
        low, high = starts[0], starts[-1] + window
        if not halo:
            low, high = max(low, -first), min(high, size - first)
        layouts.append((tuple(starts), low, high))
    distinct = list(dict.fromkeys(layouts))
    low, high = min(layout[1] for layout in distinct), max(layout[2] for layout in distinct)
    patterns = tuple(
        tuple(
            tuple(key - start if 0 <= key - start < window and first <= key < last else -1 for key in range(low, high))
            for start in starts
        )
        for starts, first, last in distinct
    )
    pattern_numbers = tuple(distinct.index(layout) for layout in layouts)
    return TiledAxis(len(layouts), tile, high - low, -low, pattern_numbers, patterns)


class TiledGrid(NamedTuple):
    """Grid in tiles that all have the same size.

    Arguments:
        rows, cols: both axes.
        pattern_numbers: index of the pattern of each tile.
        bias_index: for each pattern, query and key, the index into the flattened bias; one more than the last index for
            pairs outside the window.
    """

    rows: TiledAxis
    cols: TiledAxis
    pattern_numbers: Int[Tensor, "tile_rows tile_cols"]
    bias_index: Int[Tensor, "patterns queries keys"]

    @property
    def row_scores(self) -> int:
        """Number of scores in a row of tiles, of one image and head."""
        return self.cols.tiles * self.bias_index[0].numel()

    @property
    def scores(self) -> int:
        """Number of scores of one image and head."""
        return self.rows.tiles * self.row_scores


@cache_tables
def tile_grid(neighbourhood: Neighbourhood, device: torch.device) -> TiledGrid:
    """Grid in tiles of about ``TILE_QUERIES`` queries."""
    max_tile = TILE_QUERIES if 1 in neighbourhood.grid_size else int(TILE_QUERIES**0.5)
    rows, cols = (tile_axis(neighbourhood, axis, max_tile) for axis in (0, 1))
    numbers = torch.tensor(rows.pattern_numbers)[:, None] * len(cols.patterns) + torch.tensor(cols.pattern_numbers)
    row = torch.tensor(rows.patterns)[:, None, :, None, :, None]
    col = torch.tensor(cols.patterns)[None, :, None, :, None, :]
    entries = neighbourhood.window_size[0] * neighbourhood.window_size[1]
    index = (row * neighbourhood.window_size[1] + col).where((row >= 0) & (col >= 0), entries)
    return TiledGrid(rows, cols, numbers.to(device), index.flatten(4).flatten(2, 3).flatten(0, 1).to(device))


class Chunk:
    """Part of a tiled grid that is computed at once: some rows of tiles, for some images and heads.

    Reshapes are explicit and products are fused with sums, because at this size calls cost as much as arithmetic.
    """

    def __init__(
        self, grid: TiledGrid, images_and_heads: tuple[slice, slice], tile_rows: range, key_size: tuple[int, int]
    ) -> None:
        self.grid = grid
        self.images_and_heads = images_and_heads
        self.tile_rows = tile_rows
        self.key_ranges = (
            grid.rows.key_range(tile_rows, key_size[0]),
            grid.cols.key_range(range(grid.cols.tiles), key_size[1]),
        )
        self.pattern_numbers = grid.pattern_numbers[tile_rows.start : tile_rows.stop].flatten()

    def bias(self, patterns: Float[Tensor, "bias_heads patterns queries keys"]) -> Tensor:
        """Bias of the scores, ``(bias_heads, tiles, queries, keys)``."""
        heads = patterns[self.images_and_heads[1]] if len(patterns) > 1 else patterns
        return heads.index_select(1, self.pattern_numbers)

    def query_tiles(self, grid: Tensor) -> Tensor:
        """Tiles of a grid of queries, ``(tiles, queries, dim)``."""
        queries = self.grid.rows.tile * self.grid.cols.tile
        return self._view_queries(grid).reshape(-1, queries, grid.shape[-1])

    def write_queries(self, grid: Tensor, tiles: Tensor) -> None:
        """Write values of queries, in tiles, to the positions of the queries in a grid, in place."""
        positions = self._view_queries(grid)
        positions.copy_(tiles.view(positions.shape))

    def key_tiles(self, grid: Tensor) -> Tensor:
        """Tiles of a grid of keys, ``(tiles, keys, dim)``."""
        rows, cols = self.key_ranges
        strip = grid[(*self.images_and_heads, slice(rows.low, rows.high), slice(cols.low, cols.high))]
        if any((*rows[2:], *cols[2:])):
            strip = F.pad(strip, (0, 0, *cols[2:], *rows[2:]))
        return self._view_keys(strip).reshape(-1, self.grid.rows.span * self.grid.cols.span, grid.shape[-1])

    def add_to_keys(self, grid: Tensor, tiles: Tensor) -> None:
        """Add gradients of the keys, in tiles, to the gradients of the grid of keys, in place."""
        rows, cols = self.key_ranges
        target = grid[(*self.images_and_heads, slice(rows.low, rows.high), slice(cols.low, cols.high))]
        height, width = (high - low + sum(padding) for low, high, *padding in (rows, cols))
        strip = grid.new_zeros(*target.shape[:2], height, width, grid.shape[-1])
        positions = self._view_keys(strip)
        tiles = tiles.view(positions.shape)
        # Neighbours overlap: only tiles that are far enough apart are added at once.
        row_step, col_step = (-(-axis.span // axis.tile) for axis in (self.grid.rows, self.grid.cols))
        for i, j in product(range(min(row_step, positions.shape[2])), range(min(col_step, positions.shape[3]))):
            positions[:, :, i::row_step, j::col_step].add_(tiles[:, :, i::row_step, j::col_step])
        target.add_(strip[:, :, rows.before : height - rows.after, cols.before : width - cols.after])

    def _view_queries(self, grid: Tensor) -> Tensor:
        """View ``(batch, heads, tile_rows, tile_cols, rows, cols, dim)`` of a grid of queries."""
        rows, cols = self.grid.rows, self.grid.cols
        grid = grid[self.images_and_heads].narrow(2, rows.tile * self.tile_rows.start, rows.tile * len(self.tile_rows))
        return grid.unflatten(3, (cols.tiles, cols.tile)).unflatten(2, (-1, rows.tile)).transpose(3, 4)

    def _view_keys(self, strip: Tensor) -> Tensor:
        """View of a grid of keys with the same dimensions, in which neighbours overlap."""
        rows, cols = self.grid.rows, self.grid.cols
        return strip.unfold(2, rows.span, rows.tile).unfold(3, cols.span, cols.tile).movedim(4, -1)


def iterate_chunks(grid: TiledGrid, queries: Tensor, keys: Tensor, share: float) -> Iterator[Chunk]:
    """All tiles of the grid, a chunk at a time."""
    batch, heads = queries.shape[:2]
    minimum, maximum = CHUNK_RANGE
    budget = min(max(int(share * queries.numel()), minimum), maximum)
    row_step = min(max(budget // grid.row_scores, 1), grid.rows.tiles)
    head_step = min(max(budget // (grid.row_scores * row_step), 1), heads)
    image_step = max(budget // (grid.row_scores * row_step * head_step), 1)
    starts = (range(0, batch, image_step), range(0, heads, head_step), range(0, grid.rows.tiles, row_step))
    for image, head, row in product(*starts):
        images_and_heads = slice(image, image + image_step), slice(head, head + head_step)
        tile_rows = range(row, min(row + row_step, grid.rows.tiles))
        yield Chunk(grid, images_and_heads, tile_rows, (keys.shape[2], keys.shape[3]))


def _pad_queries(grid: Tensor, tiled: TiledGrid) -> Tensor:
    """Grid of queries with zeros that fill up the last tiles."""
    rows = tiled.rows.tiles * tiled.rows.tile - grid.shape[2]
    cols = tiled.cols.tiles * tiled.cols.tile - grid.shape[3]
    return F.pad(grid, (0, 0, 0, cols, 0, rows)) if rows or cols else grid


def _weights(
    chunk: Chunk, queries: Tensor, keys: Tensor, patterns: Tensor, biased: bool
) -> tuple[Float[Tensor, "tiles queries keys"], Tensor | None]:
    """Softmax of the scores, and a mask of the queries that may attend to nothing."""
    bias = chunk.bias(patterns)
    empty = _empty_rows(bias) if biased else None
    if empty is not None:  # zeros keep the softmax of such a query finite; its output is set to zero later
        bias = bias.masked_fill(empty, 0.0)
    query_tiles = chunk.query_tiles(queries)
    images = len(query_tiles) // bias.shape[1]
    bias = bias.expand(-(-images // len(bias)), *bias.shape) if len(bias) > 1 else bias.expand(images, *bias.shape[1:])
    scores = bias.reshape(-1, *bias.shape[-2:]).contiguous()  # by now a copy
    return scores.baddbmm_(query_tiles, keys.mT, alpha=query_tiles.shape[-1] ** -0.5).softmax(dim=-1), empty


def _empty_rows(bias: Tensor) -> Tensor:
    return (bias == -torch.inf).all(dim=-1, keepdim=True)


def _zero_empty(tiles: Tensor, empty: Tensor | None) -> Tensor:
    """Tiles of queries, with zeros for those that may attend to nothing."""
    if empty is None:
        return tiles
    return tiles.view(-1, *empty.shape[:3], tiles.shape[-1]).masked_fill(empty, 0.0).flatten(0, 2)


class TiledAttention(torch.autograd.Function):
    """Attention of each query to the keys of its window, a chunk of tiles at a time.

    ``P = softmax(scale Q K^T + bias)``, ``O = P V``. Backward: ``dV = P^T dO``,
    ``dS = P * (dO V^T - rowsum(dO * O))``, ``dQ = scale dS K``, ``dK = scale dS^T Q``, with P saved or computed again.

    Reference: Dao et al. 2022 (FlashAttention), algorithms 1 and 4.
    Differs: the scores of a chunk are stored while it is computed.

    Arguments:
        biased: True if the bias may leave a query with nothing to attend to.
        saves_weights: save the weights for the backward pass, instead of computing them again.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 (torch passes them by position)
        ctx: Any,
        queries: Float[Tensor, "batch heads rows cols dim"],
        keys: Float[Tensor, "batch heads key_rows key_cols dim"],
        values: Float[Tensor, "batch heads key_rows key_cols value_dim"],
        patterns: Float[Tensor, "bias_heads patterns queries keys"],
        grid: TiledGrid,
        biased: bool,
        saves_weights: bool,
    ) -> Float[Tensor, "batch heads rows cols value_dim"]:
        rows, cols = queries.shape[2:4]
        padded = _pad_queries(queries, grid)
        output = values.new_empty(*padded.shape[:4], values.shape[-1])
        saved = []
        for chunk in iterate_chunks(grid, queries, keys, FORWARD_SHARE):
            weights, empty = _weights(chunk, padded, chunk.key_tiles(keys), patterns, biased)
            chunk.write_queries(output, _zero_empty(torch.bmm(weights, chunk.key_tiles(values)), empty))
            if saves_weights:
                saved.append(weights)
        output = output[:, :, :rows, :cols]
        ctx.grid, ctx.biased, ctx.saves_weights = grid, biased, saves_weights
        ctx.save_for_backward(queries, keys, values, patterns, output, *saved)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (direction,) = gradients
        queries, keys, values, patterns, output, *saved = ctx.saved_tensors
        saved_weights = iter(saved)
        grid, biased = ctx.grid, ctx.biased
        rows, cols = queries.shape[2:4]
        scale = queries.shape[-1] ** -0.5
        row_sums = _pad_queries((direction * output).sum(dim=-1, keepdim=True), grid)
        padded, direction = _pad_queries(queries, grid), _pad_queries(direction, grid)
        d_queries = torch.empty_like(padded)
        d_keys, d_values, d_patterns = (torch.zeros_like(x) for x in (keys, values, patterns))
        share = FORWARD_SHARE if ctx.saves_weights else BACKWARD_SHARE  # saved weights are in chunks
        for chunk in iterate_chunks(grid, queries, keys, share):
            key_tiles = chunk.key_tiles(keys)
            if ctx.saves_weights:
                weights, empty = next(saved_weights), _empty_rows(chunk.bias(patterns)) if biased else None
            else:
                weights, empty = _weights(chunk, padded, key_tiles, patterns, biased)
            d_output = _zero_empty(chunk.query_tiles(direction), empty)
            chunk.add_to_keys(d_values, torch.bmm(weights.mT, d_output))
            sums = chunk.query_tiles(row_sums)
            d_scores = torch.baddbmm(sums, d_output, chunk.key_tiles(values).mT, beta=-1).mul_(weights)
            del weights  # the largest tensor but one
            if ctx.needs_input_grad[3]:
                heads = d_patterns[chunk.images_and_heads[1]] if len(d_patterns) > 1 else d_patterns
                total = d_scores.view(-1, len(heads), len(chunk.pattern_numbers), *d_scores.shape[1:]).sum(dim=0)
                heads.index_add_(1, chunk.pattern_numbers, total)
            d_scores.mul_(scale)
            chunk.write_queries(d_queries, torch.bmm(d_scores, key_tiles))
            chunk.add_to_keys(d_keys, torch.bmm(d_scores.mT, chunk.query_tiles(padded)))
        return d_queries[:, :, :rows, :cols], d_keys, d_values, d_patterns, None, None, None


def tiled_attention(
    queries: Heads, keys: Heads, values: HeadValues, neighbourhood: Neighbourhood, bias: Tensor | None
) -> HeadValues:
    """Output of ``local_attention``, in time and memory that are linear in the number of tokens."""
    device = queries.device.type
    is_cast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if is_cast:  # the backward pass is not under autocast: its inputs must be of one type
        queries, keys, values = (x.to(torch.get_autocast_dtype(device)) for x in (queries, keys, values))
    grid = tile_grid(neighbourhood, queries.device)
    patterns = (
        neighbourhood.bias_table(bias, queries.dtype, queries.device)
        .index_select(1, grid.bias_index.flatten())
        .view(-1, *grid.bias_index.shape)
    )
    inputs = [x.unflatten(2, neighbourhood.grid_size) for x in (queries, keys, values)]
    if neighbourhood.boundary == "zero":
        inputs[1:] = (_add_halo(x, neighbourhood) for x in inputs[1:])
    saves_weights = _saves_weights(grid, (queries, keys, values))
    with torch.autocast(device, enabled=False) if is_cast else nullcontext():  # CUDA's would make softmax float32
        output = TiledAttention.apply(*inputs, patterns, grid, bias is not None, saves_weights)
    assert isinstance(output, Tensor)
    return output.flatten(2, 3)


def _add_halo(grid: Tensor, neighbourhood: Neighbourhood) -> Tensor:
    """Grid of keys, and the zeros around it in the windows of the outermost queries."""
    rows, cols = (((window - 1) // 2, window // 2) for window in neighbourhood.window_size)
    return F.pad(grid, (0, 0, *cols, *rows))


def _saves_weights(grid: TiledGrid, inputs: tuple[Tensor, Tensor, Tensor]) -> bool:
    """True if a backward pass may follow, and the weights take no more memory than the inputs, or little."""
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in inputs):
        return False
    batch, heads = inputs[0].shape[:2]
    size = batch * heads * grid.scores * inputs[0].element_size()
    return size <= max(SAVED_BYTES, sum(x.nbytes for x in inputs))
