"""Window attention in tiles: blocks of queries with the rectangle of keys that their windows cover."""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from vit_vs_cnn.attention.arguments import Heads, HeadValues
from vit_vs_cnn.attention.functional import autocast_type
from vit_vs_cnn.attention.windows.neighbourhood import Neighbourhood, cache_tables, flat_index, window_keys

#: Number of queries in a tile, about: smaller tiles score fewer keys outside the windows, larger ones make better
#: matrix products.
TILE_QUERIES = 16
#: Number of scores computed at once, relative to the number of elements of the queries, which keeps the working memory
#: small. The backward pass holds more tensors of that size.
FORWARD_SHARE, BACKWARD_SHARE = 1.0, 0.25
#: Smallest and largest such number, but at least one row of tiles: fewer make calls costly, more leave the CPU caches.
CHUNK_RANGE = (2**16, 2**19)
#: Weights of at most so many bytes are kept for the backward pass, which otherwise computes them again.
KEPT_BYTES = 2**22

#: Images, heads and rows of tiles that are computed at once.
Chunk = tuple[slice, slice, slice]


class TiledAxis(NamedTuple):
    """Axis of a grid in equal tiles of ``tile`` queries; the last queries of the last tile may be padding."""

    size: int
    window: int
    tile: int

    @property
    def count(self) -> int:
        return -(-self.size // self.tile)

    @property
    def span(self) -> int:
        """Number of keys that the windows of a tile cover."""
        return self.tile + self.window - 1

    @property
    def query_padding(self) -> tuple[int, int]:
        return 0, self.count * self.tile - self.size

    @property
    def key_padding(self) -> tuple[int, int]:
        return (self.window - 1) // 2, self.window // 2 + self.query_padding[1]


class TiledGrid(NamedTuple):
    """Both axes of a grid in tiles. Grids of queries have padding, grids of keys and values have none."""

    rows: TiledAxis
    cols: TiledAxis

    @property
    def row_scores(self) -> int:
        """Number of scores in a row of tiles, of one image and head."""
        return self.cols.count * self.rows.tile * self.cols.tile * self.rows.span * self.cols.span

    def query_tiles(self, grid: Tensor, chunk: Chunk) -> Float[Tensor, "tiles queries dim"]:
        return self._view_queries(grid, chunk).reshape(-1, self.rows.tile * self.cols.tile, grid.shape[-1])

    def write_queries(self, grid: Tensor, chunk: Chunk, tiles: Tensor) -> None:
        """Write values of the queries, in tiles, into a grid."""
        positions = self._view_queries(grid, chunk)
        positions.copy_(tiles.view(positions.shape))

    def key_tiles(self, grid: Tensor, chunk: Chunk) -> Float[Tensor, "tiles keys dim"]:
        """Keys of a chunk, tile by tile, with zeros outside the grid."""
        strip, padding = self._strip(grid, chunk)
        return self._view_keys(F.pad(strip, padding)).reshape(-1, self.rows.span * self.cols.span, grid.shape[-1])

    def add_to_keys(self, grid: Tensor, chunk: Chunk, tiles: Tensor) -> None:
        """Add gradients of the keys, in tiles, to those of a grid, in place."""
        strip, padding = self._strip(grid, chunk)
        padded = F.pad(torch.zeros_like(strip), padding)
        positions = self._view_keys(padded)
        tiles = tiles.view(positions.shape)
        # Neighbours overlap: only tiles that are far enough apart are added at once.
        row_step, col_step = (-(-axis.span // axis.tile) for axis in self)
        for i, j in product(range(min(row_step, positions.shape[2])), range(min(col_step, positions.shape[3]))):
            positions[:, :, i::row_step, j::col_step].add_(tiles[:, :, i::row_step, j::col_step])
        strip.add_(F.pad(padded, [-size for size in padding]))

    def chunks(self, queries: Tensor, share: float) -> Iterator[Chunk]:
        """All tiles, a chunk at a time, with about ``share`` times as many scores as the queries have elements."""
        (batch, heads), (minimum, maximum) = queries.shape[:2], CHUNK_RANGE
        budget = min(max(int(share * queries.numel()), minimum), maximum)
        row_step = min(max(budget // self.row_scores, 1), self.rows.count)
        head_step = min(max(budget // (self.row_scores * row_step), 1), heads)
        image_step = max(budget // (self.row_scores * row_step * head_step), 1)
        yield from product(_slices(batch, image_step), _slices(heads, head_step), _slices(self.rows.count, row_step))

    def _view_queries(self, grid: Tensor, chunk: Chunk) -> Tensor:
        """View ``(images, heads, tile_rows, tile_cols, rows, cols, dim)`` of a grid of queries."""
        images, heads, tiles = chunk
        part = grid[images, heads, tiles.start * self.rows.tile : tiles.stop * self.rows.tile]
        return part.unflatten(3, (-1, self.cols.tile)).unflatten(2, (-1, self.rows.tile)).transpose(3, 4)

    def _strip(self, grid: Tensor, chunk: Chunk) -> tuple[Tensor, list[int]]:
        """View of the keys of a chunk in a grid, and the padding around them."""
        images, heads, tiles = chunk
        low = tiles.start * self.rows.tile - self.rows.key_padding[0]
        high = low + (tiles.stop - tiles.start - 1) * self.rows.tile + self.rows.span
        padding = [0, 0, *self.cols.key_padding, max(-low, 0), max(high - self.rows.size, 0)]
        return grid[images, heads, max(low, 0) : min(high, self.rows.size)], padding

    def _view_keys(self, strip: Tensor) -> Tensor:
        """View of a strip of keys with the same dimensions, in which neighbours overlap."""
        return strip.unfold(2, self.rows.span, self.rows.tile).unfold(3, self.cols.span, self.cols.tile).movedim(4, -1)


def _slices(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def tile_grid(neighbourhood: Neighbourhood) -> TiledGrid:
    """Grid in tiles of about ``TILE_QUERIES`` queries."""
    max_tile = TILE_QUERIES if 1 in neighbourhood.grid_size else int(TILE_QUERIES**0.5)
    rows, cols = (
        TiledAxis(size, window, -(-size // -(-size // max_tile)))
        for size, window in zip(neighbourhood.grid_size, neighbourhood.window_size, strict=True)
    )
    return TiledGrid(rows, cols)


class TileTables(NamedTuple):
    """Tables of the tiles of a grid.

    Arguments:
        bias_index: index into the flattened bias for each query and key of a tile; one more than the last index for
            pairs outside the window.
        outside: True for keys that are not attended to, as they are padding.
        rows, cols: True for the positions of each window along an axis that are attended to.
    """

    bias_index: Int[Tensor, "queries keys"]
    outside: Bool[Tensor, "tile_rows tile_cols 1 keys"]
    rows: Bool[Tensor, "queries window"]
    cols: Bool[Tensor, "queries window"]


@cache_tables
def tile_tables(neighbourhood: Neighbourhood, device: torch.device) -> TileTables:
    grid = tile_grid(neighbourhood)
    row, col = (torch.arange(axis.span) - torch.arange(axis.tile)[:, None] for axis in grid)
    bias_index = flat_index(row, col, neighbourhood.window_size)
    row, col = (
        torch.arange(axis.count)[:, None] * axis.tile + torch.arange(axis.span) - axis.key_padding[0] for axis in grid
    )
    outside = flat_index(row, col, neighbourhood.grid_size) == neighbourhood.patches
    outside = outside.view(grid.rows.count, grid.cols.count, 1, -1)
    rows, cols = (window_keys(axis.size, axis.window) for axis in grid)
    rows, cols = ((keys >= 0) & (keys < axis.size) for keys, axis in zip((rows, cols), grid, strict=True))
    if neighbourhood.boundary == "zero":  # padding is attended to
        outside, rows, cols = torch.zeros_like(outside), torch.ones_like(rows), torch.ones_like(cols)
    return TileTables(*(table.to(device) for table in (bias_index, outside, rows, cols)))


class TiledAttention(torch.autograd.Function):
    """Attention of each query to the keys of its window, a chunk of tiles at a time.

    ``P = softmax(scale Q K^T + bias)``, ``O = P V``. Backward: ``dV = P^T dO``,
    ``dS = P * (dO V^T - rowsum(dO * O))``, ``dQ = scale dS K``, ``dK = scale dS^T Q``, with P kept or computed again.

    Reference: Dao et al. 2022 (FlashAttention), algorithms 1 and 4.
    Differs: whole rows of scores are computed at once, without a running softmax.

    Arguments:
        bias: bias of the pairs of a tile, very negative outside the window; one for all heads, or one for each.
        outside: bias of the keys, very negative outside the grid.
        keeps_weights: keep the weights for the backward pass.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 (torch passes them by position)
        ctx: Any,
        queries: Float[Tensor, "batch heads rows cols dim"],
        keys: Float[Tensor, "batch heads key_rows key_cols dim"],
        values: Float[Tensor, "batch heads key_rows key_cols value_dim"],
        bias: Float[Tensor, "bias_heads queries keys"],
        outside: Float[Tensor, "tile_rows tile_cols 1 keys"],
        grid: TiledGrid,
        keeps_weights: bool,
    ) -> Float[Tensor, "batch heads rows cols value_dim"]:
        output, kept = values.new_empty(*queries.shape[:4], values.shape[-1]), list[Tensor]()
        for chunk in grid.chunks(queries, FORWARD_SHARE):
            query_tiles, key_tiles = grid.query_tiles(queries, chunk), grid.key_tiles(keys, chunk)
            weights = _weights(query_tiles, key_tiles, *_select(bias, outside, chunk))
            grid.write_queries(output, chunk, torch.bmm(weights, grid.key_tiles(values, chunk)))
            kept += [weights] * keeps_weights
        ctx.grid = grid
        ctx.save_for_backward(queries, keys, values, bias, outside, output, *kept)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (direction,) = gradients
        queries, keys, values, bias, outside, output, *kept = ctx.saved_tensors
        grid, scale = ctx.grid, queries.shape[-1] ** -0.5
        row_sums = (direction * output).sum(dim=-1, keepdim=True)
        d_queries = torch.empty_like(queries)
        d_keys, d_values, d_bias = (torch.zeros_like(x) for x in (keys, values, bias))
        for number, chunk in enumerate(grid.chunks(queries, FORWARD_SHARE if kept else BACKWARD_SHARE)):
            query_tiles, d_output, sums = (grid.query_tiles(x, chunk) for x in (queries, direction, row_sums))
            key_tiles = grid.key_tiles(keys, chunk)
            weights = kept[number] if kept else _weights(query_tiles, key_tiles, *_select(bias, outside, chunk))
            grid.add_to_keys(d_values, chunk, torch.bmm(weights.mT, d_output))
            d_scores = torch.baddbmm(sums, d_output, grid.key_tiles(values, chunk).mT, beta=-1).mul_(weights)
            del weights  # the largest tensor but one
            if ctx.needs_input_grad[3]:
                heads = d_bias[chunk[1]]
                images = chunk[0].stop - chunk[0].start
                heads += d_scores.view(images, len(heads), -1, *heads.shape[1:]).sum(dim=(0, 2))
            d_scores.mul_(scale)
            grid.write_queries(d_queries, chunk, torch.bmm(d_scores, key_tiles))
            grid.add_to_keys(d_keys, chunk, torch.bmm(d_scores.mT, query_tiles))
        return d_queries, d_keys, d_values, d_bias, None, None, None


def _select(bias: Tensor, outside: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
    """Bias of the heads of a chunk, and the keys outside the grid in its tiles."""
    return bias[chunk[1]] if len(bias) > 1 else bias, outside[chunk[2]].flatten(0, 1)


def _weights(
    queries: Float[Tensor, "tiles queries dim"],
    keys: Float[Tensor, "tiles keys dim"],
    bias: Float[Tensor, "bias_heads queries keys"],
    outside: Float[Tensor, "image_tiles 1 keys"],
) -> Float[Tensor, "tiles queries keys"]:
    bias = bias[:, None] + outside
    bias = bias.expand(len(queries) // bias[..., 0, 0].numel(), *bias.shape)
    scores = bias.reshape(-1, *bias.shape[3:]).contiguous()  # by now a copy
    # Not baddbmm_, which torch's counter of operations does not know.
    return torch.baddbmm(scores, queries, keys.mT, alpha=queries.shape[-1] ** -0.5, out=scores).softmax(dim=-1)


def tiled_attention(
    queries: Heads, keys: Heads, values: HeadValues, neighbourhood: Neighbourhood, bias: Tensor | None
) -> HeadValues:
    """Output of ``local_attention``, in time and memory that are linear in the number of tokens."""
    if neighbourhood.boundary == "mask":
        neighbourhood, bias = _crop_window(neighbourhood, bias)
    cast_type = autocast_type(queries)
    if cast_type is not None:  # the backward pass is not under autocast: its inputs must be of one type
        queries, keys, values = (x.to(cast_type) for x in (queries, keys, values))
    grid, tables = tile_grid(neighbourhood), tile_tables(neighbourhood, queries.device)
    # Finite, so that the softmax is finite where a query may attend to nothing.
    lowest = torch.finfo(queries.dtype).min / 2
    table = neighbourhood.bias_table(bias, queries.dtype, queries.device).clamp(min=lowest)
    tile_bias = table.index_select(1, tables.bias_index.flatten()).unflatten(1, tables.bias_index.shape)
    outside = torch.zeros_like(tables.outside, dtype=queries.dtype).masked_fill(tables.outside, lowest)
    grids = [x.unflatten(2, neighbourhood.grid_size) for x in (queries, keys, values)]
    padding = [*grid.cols.query_padding, *grid.rows.query_padding]
    grids[0] = F.pad(grids[0], (0, 0, *padding)) if any(padding) else grids[0]
    scores = queries.shape[0] * queries.shape[1] * grid.rows.count * grid.row_scores
    keeps_weights = torch.is_grad_enabled() and scores * queries.element_size() <= KEPT_BYTES
    without_autocast = nullcontext() if cast_type is None else torch.autocast(queries.device.type, enabled=False)
    with without_autocast:  # CUDA's would make softmax float32
        output = TiledAttention.apply(*grids, tile_bias, outside, grid, keeps_weights)
    assert isinstance(output, Tensor)
    output = output[:, :, : grid.rows.size, : grid.cols.size].flatten(2, 3)
    if bias is None:
        return output
    is_allowed, rows, cols = (x.to(bias) for x in (bias > -torch.inf, tables.rows, tables.cols))
    numbers_of_keys = torch.einsum("hyx,ry,cx->hrc", is_allowed, rows, cols).flatten(1)
    return output.masked_fill(numbers_of_keys[..., None] == 0, 0.0)


def _crop_window(neighbourhood: Neighbourhood, bias: Tensor | None) -> tuple[Neighbourhood, Tensor | None]:
    """Crop the window and its bias to positions that are inside the grid for at least one query."""
    window = neighbourhood.window_size
    rows, cols = (min(length, 2 * size - 1) for length, size in zip(window, neighbourhood.grid_size, strict=True))
    top, left = (window[0] - 1) // 2 - (rows - 1) // 2, (window[1] - 1) // 2 - (cols - 1) // 2
    bias = None if bias is None else bias[:, top : top + rows, left : left + cols]
    return neighbourhood._replace(window_size=(rows, cols)), bias
