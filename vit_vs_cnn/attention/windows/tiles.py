"""Window attention in tiles: blocks of queries against the rectangle of keys that their windows cover."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from vit_vs_cnn.attention.differentiation import gradients_again
from vit_vs_cnn.attention.tracing import kept
from vit_vs_cnn.attention.windows.neighbourhood import Neighbourhood

#: Queries in a tile, about: smaller tiles score fewer keys in vain, larger ones make better matrix products.
TILE_QUERIES = 16
#: Scores computed at once, as a share of the numbers in the queries: the working memory stays small beside the output.
#: The backward pass holds more beside them.
FORWARD_SHARE, BACKWARD_SHARE = 1.0, 0.25
#: The least is worth a call, the most stays within the caches.
CHUNK_RANGE = (2**16, 2**19)


class Cut(NamedTuple):
    """One axis in tiles. Keys that are ``step`` apart see only each other: each such lattice has its own tiles.

    Arguments:
        tiles: number of tiles of each lattice.
        step: number of lattices, and the distance of neighbours on each.
        tile: queries of a tile; the last ones of the last tile may be none of the grid's.
        span: keys of a tile.
        before: how many keys of the first tile lie before the first key.
        kinds: which pattern each tile has, lattice after lattice within tile after tile.
        patterns: of tile x span: the place of the bias that a pair reads, -1 for outside.
    """

    tiles: int
    step: int
    tile: int
    span: int
    before: int
    kinds: tuple[int, ...]
    patterns: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def queries(self) -> int:
        """Number of queries in all tiles, those that are none of the grid's among them."""
        return self.tiles * self.tile * self.step

    def reach(self, tiles: range, size: int) -> "Reach":
        """Which of ``size`` keys some tiles need."""
        first = (tiles.start * self.tile - self.before) * self.step
        last = ((tiles.stop - 1) * self.tile + self.span - self.before) * self.step
        low, high = max(first, 0), min(last, size)
        return Reach(low, high, low - first, last - high)


class Reach(NamedTuple):
    """Keys from ``low`` to ``high``, and how many more are missing before and after them."""

    low: int
    high: int
    before: int
    after: int


def cut_axis(around: Neighbourhood, axis: int, tile: int) -> Cut:
    """Cut one axis into equal tiles of at most ``tile``, and say which keys each needs."""
    size, window, step = around.grid_size[axis], around.window_size[axis], around.dilation[axis]
    length = -(-size // step)
    tile = -(-length // -(-length // tile))
    seen = {}
    for first, lattice in product(range(0, length, tile), range(step)):
        inside = max(len(range(lattice, size, step)), 1)
        # A query past the end looks where the last one does.
        queries = [min(query, inside - 1) - first for query in range(first, first + tile)]
        starts = [query if around.has_halo else query - (window - 1) // 2 for query in queries]
        if around.boundary == "shift":
            starts = [max(-first, min(start, inside - window - first)) for start in starts]
        bounds = (starts[0], starts[-1] + window)
        if not around.has_halo:
            bounds = (max(bounds[0], -first), min(bounds[1], inside - first))
        origins = [query - window + 1 for query in queries] if around.by_offset else starts
        seen[first, lattice] = tuple(starts), tuple(origins), bounds
    distinct = {found: number for number, found in enumerate(dict.fromkeys(seen.values()))}
    low = min(bounds[0] for _, _, bounds in distinct)
    high = max(bounds[1] for _, _, bounds in distinct)
    patterns = tuple(
        tuple(
            tuple(key - origin if 0 <= key - start < window and b[0] <= key < b[1] else -1 for key in range(low, high))
            for start, origin in zip(starts, origins, strict=True)
        )
        for starts, origins, b in distinct
    )
    kinds = tuple(distinct[found] for found in seen.values())
    return Cut(len(seen) // step, step, tile, high - low, -low, kinds, patterns)


class Layout(NamedTuple):
    """A grid in tiles.

    Arguments:
        kinds: the pattern of each tile, ``(tile_rows, row_lattices * tile_cols * col_lattices)``.
        slots: the column of the bias for each pair of a pattern: the places in order, then "outside", "extra token".
    """

    rows: Cut
    cols: Cut
    kinds: Int[Tensor, "tile_rows others"]
    slots: Int[Tensor, "patterns queries keys"]

    @property
    def row_scores(self) -> int:
        """Number of scores in a row of tiles, of one image and head."""
        return self.kinds.shape[1] * self.slots[0].numel()

    @property
    def scores(self) -> int:
        """Number of scores of one image and head."""
        return self.rows.tiles * self.row_scores


@kept
def layout(around: Neighbourhood, device: torch.device) -> Layout:
    """The grid in tiles that all have the same size."""
    tile = (TILE_QUERIES,) * 2 if 1 in around.grid_size else (int(TILE_QUERIES**0.5),) * 2
    rows, cols = (cut_axis(around, axis, tile[axis]) for axis in (0, 1))
    by_row = torch.tensor(rows.kinds).view(rows.tiles, rows.step, 1)
    kinds = (by_row * len(cols.patterns) + torch.tensor(cols.kinds)).flatten(1)
    row, col = torch.tensor(rows.patterns)[:, None, :, None, :, None], torch.tensor(cols.patterns)[:, None, :, None]
    outside = around.places[0] * around.places[1]
    slots = torch.where((row >= 0) & (col >= 0), row * around.places[1] + col, outside)
    slots = rearrange(slots, "i j r c y x -> (i j) (r c) (y x)")
    slots = torch.cat([slots.new_full((*slots.shape[:2], around.extra_tokens), outside + 1), slots], dim=-1)
    return Layout(rows, cols, kinds.to(device), slots.to(device))


class Chunk:
    """Some rows of tiles, for some images and heads: what is worked on at once.

    Its reshapes are written out, and products come with their sums: at this size the calls cost as much as the numbers.
    """

    def __init__(
        self, grid: Layout, picked: tuple[slice, slice], tile_rows: range, extra: int, key_size: tuple[int, int]
    ) -> None:
        self.grid = grid
        self.picked = picked  # images and heads
        self.tile_rows = tile_rows
        self.extra = extra
        self.reaches = grid.rows.reach(tile_rows, key_size[0]), grid.cols.reach(range(grid.cols.tiles), key_size[1])
        self.kinds = grid.kinds[tile_rows.start : tile_rows.stop].flatten()

    def bias(self, patterns: Float[Tensor, "bias_heads patterns queries keys"]) -> Tensor:
        """What is added to the scores, ``(bias_heads, tiles, queries, keys)``."""
        return (patterns[self.picked[1]] if len(patterns) > 1 else patterns).index_select(1, self.kinds)

    def of_queries(self, grid: Tensor) -> Tensor:
        """The tiles of a grid of queries, ``(tiles, queries, dim)``."""
        queries = self.grid.rows.tile * self.grid.cols.tile
        return self._query_tiles(grid).reshape(-1, queries, grid.shape[-1])

    def to_queries(self, grid: Tensor, tiles: Tensor) -> None:
        """Write tiles of queries to their places in a grid."""
        places = self._query_tiles(grid)
        places.copy_(tiles.view(places.shape))

    def of_keys(self, grid: Tensor, extra: Tensor) -> Tensor:
        """The extra tokens and the tiles of a grid of keys, ``(tiles, keys, dim)``."""
        rows, cols = self.reaches
        strip = grid[(*self.picked, slice(rows.low, rows.high), slice(cols.low, cols.high))]
        if any((*rows[2:], *cols[2:])):
            strip = F.pad(strip, (0, 0, *cols[2:], *rows[2:]))
        tiles = self._key_tiles(strip)
        if not self.extra:
            return tiles.reshape(-1, self.grid.rows.span * self.grid.cols.span, grid.shape[-1])
        extra = extra[self.picked][:, :, None].expand(-1, -1, len(self.kinds), -1, -1)
        return torch.cat([extra, tiles.flatten(6, 7).flatten(2, 5)], dim=3).flatten(0, 2)

    def add_to_keys(self, grid: Tensor, extra: Tensor, tiles: Tensor) -> None:
        """Add the gradients of tiles of keys to those of the grid of keys and of the extra tokens."""
        rows, cols = self.reaches
        target = grid[(*self.picked, slice(rows.low, rows.high), slice(cols.low, cols.high))]
        height, width = (high - low + sum(missing) for low, high, *missing in (rows, cols))
        strip = grid.new_zeros(*target.shape[:2], height, width, grid.shape[-1])
        places = self._key_tiles(strip)
        if self.extra:
            tiles = tiles.unflatten(0, (*target.shape[:2], -1))
            extra[self.picked].add_(tiles[..., : self.extra, :].sum(dim=2))
            tiles = tiles[..., self.extra :, :]
        tiles = tiles.reshape(places.shape)
        # Neighbours overlap: only tiles that are far enough apart are added at once.
        row_step, col_step = (-(-cut.span // cut.tile) for cut in (self.grid.rows, self.grid.cols))
        for i, j in product(range(min(row_step, places.shape[2])), range(min(col_step, places.shape[4]))):
            places[:, :, i::row_step, :, j::col_step].add_(tiles[:, :, i::row_step, :, j::col_step])
        target.add_(strip[:, :, rows.before : height - rows.after, cols.before : width - cols.after])

    def _query_tiles(self, grid: Tensor) -> Tensor:
        """A view of a grid of queries: batch, heads, tiles by rows and cols (lattices inmost), rows, cols, dim."""
        rows, cols = self.grid.rows, self.grid.cols
        high = rows.tile * rows.step
        grid = grid[self.picked].narrow(2, high * self.tile_rows.start, high * len(self.tile_rows))
        grid = grid.unflatten(3, (cols.tiles, cols.tile, cols.step)).unflatten(2, (-1, rows.tile, rows.step))
        return grid.permute(0, 1, 2, 4, 5, 7, 3, 6, 8)

    def _key_tiles(self, strip: Tensor) -> Tensor:
        """The same view of a grid of keys: neighbours overlap."""
        rows, cols = self.grid.rows, self.grid.cols
        strip = strip.unflatten(3, (-1, cols.step)).unflatten(2, (-1, rows.step))
        return strip.unfold(2, rows.span, rows.tile).unfold(4, cols.span, cols.tile).movedim(6, -1)


def chunks(grid: Layout, queries: Tensor, keys: Tensor, extra: int, share: float) -> Iterator[Chunk]:
    """All tiles of the grid, a chunk at a time."""
    batch, heads = queries.shape[:2]
    least, most = CHUNK_RANGE
    budget = min(max(int(share * queries.numel()), least), most)
    row_step = min(max(budget // grid.row_scores, 1), grid.rows.tiles)
    head_step = min(max(budget // (grid.row_scores * row_step), 1), heads)
    image_step = max(budget // (grid.row_scores * row_step * head_step), 1)
    key_size = (keys.shape[2], keys.shape[3])
    starts = (range(0, batch, image_step), range(0, heads, head_step), range(0, grid.rows.tiles, row_step))
    for image, head, row in product(*starts):
        picked = slice(image, image + image_step), slice(head, head + head_step)
        yield Chunk(grid, picked, range(row, min(row + row_step, grid.rows.tiles)), extra, key_size)


class Way(NamedTuple):
    """How ``TiledAttention`` goes about it.

    Arguments:
        biased: whether the bias may leave a query with nothing to attend to.
        keeps: whether the weights are kept for the backward pass, instead of computed again.
    """

    biased: bool
    keeps: bool


def _padded(grid: Tensor, cut: Layout) -> Tensor:
    """A grid of queries with zeros for those that fill up the last tiles."""
    rows, cols = cut.rows.queries - grid.shape[2], cut.cols.queries - grid.shape[3]
    return F.pad(grid, (0, 0, 0, cols, 0, rows)) if rows or cols else grid


def _weights(
    chunk: Chunk, queries: Tensor, tiles: Tensor, patterns: Tensor, biased: bool
) -> tuple[Float[Tensor, "tiles queries keys"], Tensor | None]:
    """The softmax of the scores; and which queries may attend to nothing."""
    bias = chunk.bias(patterns)
    empty = _empty(bias) if biased else None
    if empty is not None:  # zeros keep the softmax of such a query finite; what it gathers is set to zero elsewhere
        bias = bias.masked_fill(empty, 0.0)
    asked = chunk.of_queries(queries)
    images = len(asked) // bias.shape[1]
    bias = bias.expand(-(-images // len(bias)), *bias.shape) if len(bias) > 1 else bias.expand(images, *bias.shape[1:])
    scores = bias.reshape(-1, *bias.shape[-2:]).contiguous()  # by now a copy
    return scores.baddbmm_(asked, tiles.mT, alpha=asked.shape[-1] ** -0.5).softmax(dim=-1), empty


def _empty(bias: Tensor) -> Tensor:
    return (bias == -torch.inf).all(dim=-1, keepdim=True)


def _zeroed(tiles: Tensor, empty: Tensor | None) -> Tensor:
    """The same tiles of queries, those that may attend to nothing set to zero."""
    if empty is None:
        return tiles
    return tiles.view(-1, *empty.shape[:3], tiles.shape[-1]).masked_fill(empty, 0.0).flatten(0, 2)


def _add_to_bias(patterns: Tensor, chunk: Chunk, d_scores: Tensor) -> None:
    """Add the gradients of the scores to those of the patterns that they read."""
    heads = patterns[chunk.picked[1]] if len(patterns) > 1 else patterns
    total = d_scores.view(-1, len(heads), len(chunk.kinds), *d_scores.shape[1:]).sum(dim=0)
    heads.index_add_(1, chunk.kinds, total)


def _at_once(cut: Layout, biased: bool, *inputs: Tensor) -> Tensor:
    """``TiledAttention`` in operations that torch differentiates as often as one likes."""
    queries, keys, values, extra_keys, extra_values, patterns = inputs
    everything = slice(None), slice(None)
    key_size = (keys.shape[2], keys.shape[3])
    chunk = Chunk(cut, everything, range(cut.rows.tiles), extra_keys.shape[2], key_size)
    weights, empty = _weights(chunk, _padded(queries, cut), chunk.of_keys(keys, extra_keys), patterns, biased)
    tiles = _zeroed(torch.bmm(weights, chunk.of_keys(values, extra_values)), empty)
    rows, cols = cut.rows, cut.cols
    grid = rearrange(
        tiles,
        "(b h i y j x) (r c) d -> b h (i r y) (j c x) d",
        h=queries.shape[1],
        i=rows.tiles,
        y=rows.step,
        j=cols.tiles,
        x=cols.step,
        b=len(queries),
        r=rows.tile,
    )
    return grid[:, :, : queries.shape[2], : queries.shape[3]]


class TiledAttention(torch.autograd.Function):
    """Attention of every query to the keys of its window and to the extra tokens, a chunk of tiles at a time.

    ``P = softmax(scale Q K^T + bias)``, ``O = P V``. Backward: ``dV = P^T dO``,
    ``dS = P * (dO V^T - rowsum(dO * O))``, ``dQ = scale dS K``, ``dK = scale dS^T Q``, with P kept or computed again.

    Reference: Dao et al. 2022 (FlashAttention), algorithms 1 and 4.
    Differs: the scores of a chunk are stored while it is worked on.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 (torch passes them by position)
        ctx: Any,
        queries: Float[Tensor, "batch heads rows cols dim"],
        keys: Float[Tensor, "batch heads key_rows key_cols dim"],
        values: Float[Tensor, "batch heads key_rows key_cols value_dim"],
        extra_keys: Float[Tensor, "batch heads extra dim"],
        extra_values: Float[Tensor, "batch heads extra value_dim"],
        patterns: Float[Tensor, "bias_heads patterns queries keys"],
        grid: Layout,
        way: Way,
    ) -> Float[Tensor, "batch heads rows cols value_dim"]:
        rows, cols = queries.shape[2:4]
        padded = _padded(queries, grid)
        output = values.new_empty(*padded.shape[:4], values.shape[-1])
        saved = []
        for chunk in chunks(grid, queries, keys, extra_keys.shape[2], FORWARD_SHARE):
            weights, empty = _weights(chunk, padded, chunk.of_keys(keys, extra_keys), patterns, way.biased)
            chunk.to_queries(output, _zeroed(torch.bmm(weights, chunk.of_keys(values, extra_values)), empty))
            if way.keeps:
                saved.append(weights)
        output = output[:, :, :rows, :cols]
        ctx.grid, ctx.way = grid, way
        ctx.save_for_backward(queries, keys, values, extra_keys, extra_values, patterns, output, *saved)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (direction,) = gradients
        *inputs, output = ctx.saved_tensors[:7]
        if torch.is_grad_enabled():
            return *gradients_again(partial(_at_once, ctx.grid, ctx.way.biased), inputs, direction), None, None
        queries, keys, values, extra_keys, extra_values, patterns = inputs
        kept_weights = iter(ctx.saved_tensors[7:])
        grid, biased = ctx.grid, ctx.way.biased
        rows, cols = queries.shape[2:4]
        scale = queries.shape[-1] ** -0.5
        row_sums = _padded((direction * output).sum(dim=-1, keepdim=True), grid)
        padded, direction = _padded(queries, grid), _padded(direction, grid)
        d_queries = torch.empty_like(padded)
        d_keys, d_values, d_extra_keys, d_extra_values, d_patterns = (torch.zeros_like(x) for x in inputs[1:])
        share = FORWARD_SHARE if ctx.way.keeps else BACKWARD_SHARE  # what is kept is in chunks
        for chunk in chunks(grid, queries, keys, extra_keys.shape[2], share):
            tiles = chunk.of_keys(keys, extra_keys)
            if ctx.way.keeps:
                weights, empty = next(kept_weights), _empty(chunk.bias(patterns)) if biased else None
            else:
                weights, empty = _weights(chunk, padded, tiles, patterns, biased)
            d_output = _zeroed(chunk.of_queries(direction), empty)
            chunk.add_to_keys(d_values, d_extra_values, torch.bmm(weights.mT, d_output))
            rows_of = chunk.of_queries(row_sums)
            d_scores = torch.baddbmm(rows_of, d_output, chunk.of_keys(values, extra_values).mT, beta=-1).mul_(weights)
            del weights  # the largest tensor but one
            if ctx.needs_input_grad[5]:
                _add_to_bias(d_patterns, chunk, d_scores)
            d_scores.mul_(scale)
            chunk.to_queries(d_queries, torch.bmm(d_scores, tiles))
            chunk.add_to_keys(d_keys, d_extra_keys, torch.bmm(d_scores.mT, chunk.of_queries(padded)))
        return d_queries[:, :, :rows, :cols], d_keys, d_values, d_extra_keys, d_extra_values, d_patterns, None, None
