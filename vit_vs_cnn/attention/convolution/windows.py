"""Window attention whose heads share keys and values: in tiles, and as its equation reads."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vit_vs_cnn.attention.convolution.geometry import Axis, Geometry, windows_of
from vit_vs_cnn.attention.shapes import Images
from vit_vs_cnn.attention.tracing import is_tracing

#: Queries in a tile, per axis: larger tiles score more keys in vain, smaller ones make small matrix products.
TILE = 2
#: Numbers in the largest tensor of a chunk of images. The CPU is quickest while they stay in its caches.
CHUNK_NUMBERS = {"cpu": 2**22}
CHUNK_NUMBERS_ELSEWHERE = 2**27


class WindowScores(NamedTuple):
    """What the scores are made of: ``scores[h, s] = (x W_Q^h) . (x_s W_K) / sqrt(key_dim) + B[h, s]``."""

    query_weight: Float[Tensor, "heads key_dim channels"]
    key_weight: Float[Tensor, "key_dim channels"]
    bias: Float[Tensor, "heads places"]


def in_chunks(
    function: Callable[..., Tensor], images: Float[Tensor, "batch ..."], *tensors: Tensor | None, numbers: int
) -> Tensor:
    """``function(images, *tensors)``, some images at a time; what a chunk computed is computed again for its gradient.

    Arguments:
        numbers: in the largest tensor that the function makes for one image.
    """
    if is_tracing():
        return function(images, *tensors)
    budget = CHUNK_NUMBERS.get(images.device.type, CHUNK_NUMBERS_ELSEWHERE)
    size = max(budget // numbers, 1)
    if len(images) <= size:
        return function(images, *tensors)
    parts = images.split(size)
    if not torch.is_grad_enabled():
        return torch.cat([function(part, *tensors) for part in parts])
    return torch.cat(
        [checkpoint(function, part, *tensors, use_reentrant=False, preserve_rng_state=False) for part in parts]
    )


def shared_window_attention(
    images: Images, scores: WindowScores, geometry: Geometry
) -> Float[Tensor, "queries heads channels"]:
    """What every head gathers at every query, the tokens themselves being the values; the queries tile by tile.

    ``A_h X[q] = sum_s softmax_s(scores[h, s]) X[q stride + s dilation]``. The queries of a tile, for all heads, are one
    matrix; the rectangle of tokens that their windows cover is the other. ``tiles_to_grid`` puts the rows
    where they belong.

    Reference: Ramachandran et al. 2019 (windows); Shazeer 2019 (keys and values shared between heads).
    Differs: a bias per head and place; strides.
    """
    tiles = tile_sizes(geometry)
    queries, tokens = _in_tiles(images, geometry, tiles)
    heads, key_dim, _ = scores.query_weight.shape
    projected = (queries @ scores.query_weight.flatten(0, 1).mT).view(
        tokens.shape[0], tiles[0] * tiles[1] * heads, key_dim
    )
    keys = tokens @ scores.key_weight.mT
    table = torch.cat([scores.bias, scores.bias.new_full((heads, 1), -torch.inf)], dim=1)
    table = rearrange(table[:, tile_slots(geometry, tiles, table.device)], "heads q k -> 1 (q heads) k")
    table = table.to(projected.dtype).expand(tokens.shape[0], -1, -1)
    weights = torch.baddbmm(table, projected, keys.mT, alpha=key_dim**-0.5).softmax(dim=-1)
    return torch.bmm(weights, tokens).view(queries.shape[0], heads, tokens.shape[-1])


def _in_tiles(images: Tensor, geometry: Geometry, tiles: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The tokens at the queries, tile by tile, and those that a tile's windows cover, ``(tiles, keys, channels)``."""
    counts = [-(-count // tile) * tile for count, tile in zip(geometry.counts(images), tiles, strict=True)]
    padded = geometry.padded(images, (counts[0], counts[1])).permute(0, 2, 3, 1).contiguous()
    queries = tokens = padded
    for dim, (axis, tile, count) in enumerate(zip(geometry, tiles, counts, strict=True), start=1):
        tokens = tokens.unfold(dim, axis.length(tile), axis.stride * tile)
        last = axis.query_place + (count - 1) * axis.stride
        queries = queries[(slice(None),) * dim + (slice(axis.query_place, last + 1, axis.stride),)]
    tokens = tokens[..., :: geometry.rows.dilation, :: geometry.cols.dilation]
    queries = rearrange(queries, "b (r y) (c x) d -> (b r c y x) d", y=tiles[0], x=tiles[1])
    return queries, rearrange(tokens, "b r c d y x -> (b r c) (y x) d")


def tiles_to_grid(rows: Float[Tensor, "queries channels"], images: Tensor, geometry: Geometry) -> Images:
    """Rows of ``shared_window_attention`` on the grid of queries, those beyond it left out."""
    tiles, counts = tile_sizes(geometry), geometry.counts(images)
    r, c = (-(-count // tile) for count, tile in zip(counts, tiles, strict=True))
    # Every length is named: of an empty batch none follows from the others.
    grid = rearrange(rows, "(b r c y x) d -> b d (r y) (c x)", b=images.shape[0], r=r, c=c, y=tiles[0], x=tiles[1])
    return grid[:, :, : counts[0], : counts[1]]


def shared_window_attention_reference(
    images: Images, scores: WindowScores, geometry: Geometry
) -> tuple[Float[Tensor, "batch queries heads channels"], Float[Tensor, "batch queries heads places"]]:
    """The same as its equation reads, the queries row by row, and the weights; no product is computed in vain."""
    padded = geometry.padded(images, geometry.counts(images))
    windows = rearrange(windows_of(geometry, padded), "b d r c y x -> b (r c) (y x) d")
    keys = torch.einsum("bdrc,kd->bkrc", padded, scores.key_weight)
    keys = rearrange(windows_of(geometry, keys), "b d r c y x -> b (r c) (y x) d")
    centre = (geometry.rows.window - 1) // 2 * geometry.cols.window + (geometry.cols.window - 1) // 2
    queries = torch.einsum("bnd,hkd->bnhk", windows[:, :, centre], scores.query_weight)
    logits = torch.einsum("bnhk,bnsk->bnhs", queries, keys) * queries.shape[-1] ** -0.5
    weights = (logits + scores.bias).softmax(dim=-1)
    return torch.einsum("bnhs,bnsd->bnhd", weights, windows), weights


def tile_sizes(geometry: Geometry) -> tuple[int, int]:
    """Queries of a tile along the rows and the columns; one where the places of a window are apart."""
    rows, cols = (TILE if axis.dilation == 1 else 1 for axis in geometry)
    return rows, cols


def tile_slots(geometry: Geometry, tiles: tuple[int, int], device: torch.device) -> Tensor:
    """The place of the window that each pair of a tile is, ``(queries, keys)``; the number of places for none."""
    rows, cols = (_axis_slots(axis, tile, device) for axis, tile in zip(geometry, tiles, strict=True))
    rows, cols = rows[:, None, :, None], cols[None, :, None, :]
    slots = (rows * geometry.cols.window + cols).where((rows >= 0) & (cols >= 0), geometry.places)
    return slots.flatten(2).flatten(0, 1)


def _axis_slots(axis: Axis, tile: int, device: torch.device) -> Tensor:
    if axis.dilation != 1:
        return torch.arange(axis.window, device=device)[None]
    places = torch.arange(axis.length(tile), device=device) - torch.arange(tile, device=device)[:, None] * axis.stride
    return places.where((places >= 0) & (places < axis.window), -1)
