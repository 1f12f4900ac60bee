"""Window attention in tiles: blocks of queries against the rectangle of keys that their windows cover."""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from vit_vs_cnn.attention.tracing import kept

#: Queries in a tile, about: smaller tiles score fewer keys in vain, larger ones make better matrix products.
TILE_QUERIES = 64
#: Scores computed at once, as a share of the numbers in the queries: the working memory stays small beside the output.
#: The backward pass holds more beside them.
FORWARD_SHARE, BACKWARD_SHARE = 0.6, 0.2
#: The least is worth a call, the most stays within the caches.
CHUNK_RANGE = (2**16, 2**19)


class Windows(NamedTuple):
    """Which keys a query sees, as tiles need it; see ``local_attention``.

    Arguments:
        size: (rows, cols) of a window.
        dilation: (rows, cols) between two keys of a window.
        shift: whether windows are moved inwards at the edges; else they are cut off there.
        halo: whether the grid of keys is larger than that of queries, by the windows of the outermost queries.
        by_offset: whether the bias has a place for every offset from query to key, ``2 size - 1`` per axis, instead of
            one for every place in the window. The two differ where windows are shifted.
    """

    size: tuple[int, int]
    dilation: tuple[int, int]
    shift: bool
    halo: bool
    by_offset: bool

    @property
    def places(self) -> tuple[int, int]:
        """(rows, cols) of the bias."""
        rows, cols = self.size
        return (2 * rows - 1, 2 * cols - 1) if self.by_offset else (rows, cols)


class TileRun(NamedTuple):
    """Tiles along one axis that look alike: each starts ``tile`` after the one before, its queries and its keys."""

    count: int
    tile: int
    span: int
    first_query: int
    first_key: int
    slots: tuple[tuple[int, ...], ...]  # (tile, span): the place of the bias that a pair reads, -1 for outside


def tile_runs(size: int, axis: int, tile: int, windows: Windows) -> list[TileRun]:
    """Cut one axis of ``size`` queries into tiles of at most ``tile``, and say which keys each needs."""
    window = windows.size[axis]
    tile = -(-size // -(-size // tile))
    runs: list[TileRun] = []
    for first in range(0, size, tile):
        queries = range(first, min(first + tile, size))
        starts = [query if windows.halo else query - (window - 1) // 2 for query in queries]
        if windows.shift:
            starts = [max(0, min(start, size - window)) for start in starts]
        low, high = starts[0], starts[-1] + window
        if not windows.halo:
            low, high = max(low, 0), min(high, size)
        origins = [query - window + 1 for query in queries] if windows.by_offset else starts
        slots = tuple(
            tuple(key - origin if 0 <= key - start < window else -1 for key in range(low, high))
            for start, origin in zip(starts, origins, strict=True)
        )
        last = runs[-1] if runs else None
        if last is not None and last.slots == slots and low == last.first_key + last.count * tile:
            runs[-1] = last._replace(count=last.count + 1)
        else:
            runs.append(TileRun(1, len(queries), high - low, first, low, slots))
    return runs


class Rectangle(NamedTuple):
    """Tiles that look alike, and what each pair of a query and a key reads from the bias."""

    rows: TileRun
    cols: TileRun
    slots: Int[Tensor, "queries keys"]

    @property
    def scores(self) -> int:
        """Number of scores in one row of tiles."""
        return self.cols.count * self.slots.numel()


@kept
def rectangles(grid_size: tuple[int, int], windows: Windows, extra: int, device: torch.device) -> list[Rectangle]:
    """The grid as rectangles of tiles that look alike: nine for a large one, corners, edges and the inside."""
    side = TILE_QUERIES if 1 in grid_size else int(TILE_QUERIES**0.5)
    axes = (tile_runs(size, axis, side, windows) for axis, size in enumerate(grid_size))
    with torch.inference_mode(False):  # they outlive this call, and may be read under autograd
        return [
            Rectangle(rows, cols, _slots(rows, cols, windows.places, extra).to(device)) for rows, cols in product(*axes)
        ]


def _slots(rows: TileRun, cols: TileRun, places: tuple[int, int], extra: int) -> Tensor:
    """The column of the bias for each pair of a tile: the places in order, then "outside", then "extra token"."""
    by_row, by_col = torch.tensor(rows.slots)[:, None, :, None], torch.tensor(cols.slots)[None, :, None, :]
    outside = places[0] * places[1]
    slots = torch.where((by_row >= 0) & (by_col >= 0), by_row * places[1] + by_col, outside)
    slots = rearrange(slots, "r c y x -> (r c) (y x)")
    return torch.cat([slots.new_full((len(slots), extra), outside + 1), slots], dim=1)


class Chunk:
    """Some rows of tiles of a rectangle, for some images and heads: what is worked on at once.

    Its reshapes are written out, and products come with their sums: at this size the calls cost as much as the numbers.
    """

    def __init__(
        self,
        inputs: tuple[Tensor, ...],
        picked: tuple[slice, slice, slice, slice],
        rectangle: Rectangle,
        tile_rows: range,
        *,
        table: Tensor,
        biased: bool,
    ) -> None:
        queries, keys, values, extra_keys, extra_values, _ = inputs
        self.picked = picked  # images, heads, and every how many rows and columns
        self.rectangle = rectangle
        self.tile_rows = tile_rows
        self.extra = extra_keys.shape[2]
        images_and_heads = queries[:, :, 0, 0, 0][picked[:2]].shape
        self.leading = (*images_and_heads, len(tile_rows) * rectangle.cols.count)
        self.table = table[picked[1]] if len(table) > 1 else table
        # Where the bias may mask, a query may be left with nothing to attend to.
        self.empty = (self.table == -torch.inf).all(dim=-1, keepdim=True) if biased else None
        self.scale = queries.shape[-1] ** -0.5
        self.queries = self.of_grid(queries)
        self.keys = self._of_keys(keys, extra_keys)
        self.values = self._of_keys(values, extra_values)

    def weights(self) -> Tensor:
        """The softmax of the scores, ``(tiles, queries, keys)``."""
        # Scores of zero keep the softmax of such a query finite; what it gathers is set to zero elsewhere.
        bias = self.table if self.empty is None else self.table.masked_fill(self.empty, 0.0)
        bias = bias.expand(*self.leading, -1, -1).reshape(-1, *bias.shape[-2:])
        return torch.baddbmm(bias, self.queries, self.keys.mT, alpha=self.scale).softmax(dim=-1)

    def of_grid(self, grid: Tensor) -> Tensor:
        """The tiles of a grid of queries, ``(tiles, queries, dim)``."""
        queries = self.rectangle.rows.tile * self.rectangle.cols.tile
        return self._query_tiles(grid).transpose(3, 4).reshape(-1, queries, grid.shape[-1])

    def to_grid(self, grid: Tensor, tiles: Tensor) -> None:
        """Write tiles of queries to their places in a grid."""
        places = self._query_tiles(grid).transpose(3, 4)
        places.copy_(tiles.view(places.shape))

    def add_to_keys(self, grid: Tensor, extra: Tensor, tiles: Tensor) -> None:
        """Add the gradients of tiles of keys to those of the grid of keys and of the extra tokens."""
        rows, cols, _ = self.rectangle
        places = self._key_tiles(grid)
        tiles = tiles.view(*places.shape[:4], -1, tiles.shape[-1])
        if self.extra:
            extra[self.picked[:2]].add_(tiles[..., : self.extra, :].sum(dim=(2, 3)))
            tiles = tiles[..., self.extra :, :]
        tiles = tiles.unflatten(4, (rows.span, cols.span)).movedim(-1, 4)
        # Neighbours overlap: only tiles that are far enough apart are added at once.
        row_step, col_step = -(-rows.span // rows.tile), -(-cols.span // cols.tile)
        for i, j in product(range(min(row_step, len(self.tile_rows))), range(min(col_step, cols.count))):
            places[:, :, i::row_step, j::col_step].add_(tiles[:, :, i::row_step, j::col_step])

    def add_to_bias(self, bias: Tensor, d_scores: Tensor) -> None:
        """Add the gradients of the scores to those of the places that they read."""
        total = d_scores.view(*self.leading, *d_scores.shape[1:]).sum(dim=(0, 2)).flatten(1)
        bias[self.picked[1]].scatter_add_(1, self.rectangle.slots.flatten().expand_as(total), total)

    def without_empty(self, tiles: Tensor) -> Tensor:
        """The same tiles of queries, those that may attend to nothing set to zero."""
        if self.empty is None:
            return tiles
        return tiles.view(*self.leading, *tiles.shape[1:]).masked_fill(self.empty, 0.0).flatten(0, 2)

    def _query_tiles(self, grid: Tensor) -> Tensor:
        """A view of a grid of queries, ``(batch, heads, tile_rows, rows, tile_cols, cols, dim)``."""
        rows, cols, _ = self.rectangle
        first_row = rows.first_query + rows.tile * self.tile_rows.start
        grid = grid[self.picked].narrow(2, first_row, rows.tile * len(self.tile_rows))
        grid = grid.narrow(3, cols.first_query, cols.tile * cols.count)
        return grid.unflatten(3, (cols.count, cols.tile)).unflatten(2, (len(self.tile_rows), rows.tile))

    def _key_tiles(self, grid: Tensor) -> Tensor:
        """A view of a grid of keys, ``(batch, heads, tile_rows, tile_cols, dim, rows, cols)``: neighbours overlap."""
        rows, cols, _ = self.rectangle
        first_row = rows.first_key + rows.tile * self.tile_rows.start
        grid = grid[self.picked].narrow(2, first_row, rows.tile * (len(self.tile_rows) - 1) + rows.span)
        grid = grid.narrow(3, cols.first_key, cols.tile * (cols.count - 1) + cols.span)
        return grid.unfold(2, rows.span, rows.tile).unfold(3, cols.span, cols.tile)

    def _of_keys(self, grid: Tensor, extra: Tensor) -> Tensor:
        """The extra tokens and the tiles of a grid of keys, ``(tiles, keys, dim)``."""
        tiles = self._key_tiles(grid).movedim(4, -1)
        if not self.extra:
            return tiles.reshape(-1, self.rectangle.rows.span * self.rectangle.cols.span, grid.shape[-1])
        extra = extra[self.picked[:2]][:, :, None, None].expand(*tiles.shape[:4], -1, -1)
        return torch.cat([extra, tiles.flatten(4, 5)], dim=4).flatten(0, 3)


def chunks(inputs: tuple[Tensor, ...], windows: Windows, biased: bool, share: float) -> Iterator[Chunk]:
    """All tiles of the grid, a chunk at a time."""
    batch, heads, *grid_size = inputs[0].shape[:4]
    least, most = CHUNK_RANGE
    budget = min(max(int(share * inputs[0].numel()), least), most)
    # Keys that are dilation apart see only each other: each such lattice is a grid of its own, without dilation.
    steps = tuple(min(pair) for pair in zip(windows.dilation, grid_size, strict=True))
    for first_row, first_col in product(*map(range, steps)):
        lattice = slice(first_row, None, windows.dilation[0]), slice(first_col, None, windows.dilation[1])
        sizes = len(range(grid_size[0])[lattice[0]]), len(range(grid_size[1])[lattice[1]])
        for rectangle in rectangles(sizes, windows, inputs[3].shape[2], inputs[0].device):
            table = inputs[5].index_select(1, rectangle.slots.flatten()).view(-1, 1, *rectangle.slots.shape)
            row_step = min(max(budget // rectangle.scores, 1), rectangle.rows.count)
            head_step = min(max(budget // (rectangle.scores * row_step), 1), heads)
            image_step = max(budget // (rectangle.scores * row_step * head_step), 1)
            for image, head, row in product(
                range(0, batch, image_step), range(0, heads, head_step), range(0, rectangle.rows.count, row_step)
            ):
                picked = (slice(image, image + image_step), slice(head, head + head_step), *lattice)
                tile_rows = range(row, min(row + row_step, rectangle.rows.count))
                yield Chunk(inputs, picked, rectangle, tile_rows, table=table, biased=biased)


class TiledAttention(torch.autograd.Function):
    """Attention of every query to the keys of its window and to the extra tokens, a chunk of tiles at a time.

    ``P = softmax(scale Q K^T + bias)``, ``O = P V``. Backward computes P again: ``dV = P^T dO``,
    ``dS = P * (dO V^T - rowsum(dO * O))``, ``dQ = scale dS K``, ``dK = scale dS^T Q``.

    Reference: Dao et al. 2022 (FlashAttention), algorithms 1 and 4.
    Differs: the scores of a chunk are stored while it is worked on. There is no second derivative.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 (torch passes them by position)
        ctx: Any,
        queries: Float[Tensor, "batch heads rows cols dim"],
        keys: Float[Tensor, "batch heads key_rows key_cols dim"],
        values: Float[Tensor, "batch heads key_rows key_cols value_dim"],
        extra_keys: Float[Tensor, "batch heads extra dim"],
        extra_values: Float[Tensor, "batch heads extra value_dim"],
        bias: Float[Tensor, "bias_heads slots"],
        windows: Windows,
        biased: bool,
    ) -> Float[Tensor, "batch heads rows cols value_dim"]:
        inputs = (queries, keys, values, extra_keys, extra_values, bias)
        output = values.new_empty(*queries.shape[:4], values.shape[-1])
        for chunk in chunks(inputs, windows, biased, FORWARD_SHARE):
            chunk.to_grid(output, chunk.without_empty(torch.bmm(chunk.weights(), chunk.values)))
        ctx.windows, ctx.biased = windows, biased
        ctx.save_for_backward(*inputs, output)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *saved, output = ctx.saved_tensors
        inputs, (direction,) = tuple(saved), gradients
        row_sums = (direction * output).sum(dim=-1, keepdim=True)
        d_queries = torch.empty_like(inputs[0])
        d_keys, d_values, d_extra_keys, d_extra_values, d_bias = (torch.zeros_like(tensor) for tensor in inputs[1:])
        for chunk in chunks(inputs, ctx.windows, ctx.biased, BACKWARD_SHARE):
            d_output = chunk.without_empty(chunk.of_grid(direction))
            weights = chunk.weights()
            chunk.add_to_keys(d_values, d_extra_values, torch.bmm(weights.mT, d_output))
            d_scores = torch.baddbmm(chunk.of_grid(row_sums), d_output, chunk.values.mT, beta=-1).mul_(weights)
            del weights  # the largest tensor but one
            chunk.to_grid(d_queries, torch.bmm(d_scores, chunk.keys))
            chunk.add_to_keys(d_keys, d_extra_keys, torch.bmm(d_scores.mT, chunk.queries))
            if ctx.needs_input_grad[5]:
                chunk.add_to_bias(d_bias, d_scores)
        scale = inputs[0].shape[-1] ** -0.5
        for gradient in (d_queries, d_keys, d_extra_keys):
            gradient.mul_(scale)
        return d_queries, d_keys, d_values, d_extra_keys, d_extra_values, d_bias, None, None
