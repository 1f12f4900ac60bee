"""Window attention with query-key scores, whose heads share keys and values: fast in tiles, and a slow reference."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vit_vs_cnn.attention.arguments import Images
from vit_vs_cnn.attention.convolution.geometry import ConvolutionGeometry
from vit_vs_cnn.attention.windows.neighbourhood import flat_index

#: Queries in a tile along each axis. Larger tiles compute more scores outside the windows, smaller ones are slower.
TILE = 2
#: Numbers in the largest tensor of a chunk of images. A CPU is fastest while they fit into its caches.
CHUNK_NUMBERS = {"cpu": 2**22}
CHUNK_NUMBERS_ELSEWHERE = 2**27


class ContentScores(NamedTuple):
    """Parameters of the scores ``scores[h, s] = (x W_Q^h) . (x_s W_K) / sqrt(key_dim) + B[h, s]``."""

    query_weight: Float[Tensor, "heads key_dim channels"]
    key_weight: Float[Tensor, "key_dim channels"]
    bias: Float[Tensor, "heads positions"]


def run_in_chunks(
    function: Callable[..., Tensor], images: Float[Tensor, "batch ..."], *tensors: Tensor, numbers: int
) -> Tensor:
    """``function(images, *tensors)`` in chunks of images, to save memory; the backward pass recomputes each chunk.

    Arguments:
        numbers: number of elements of the largest tensor that the function makes for one image.
    """
    budget = CHUNK_NUMBERS.get(images.device.type, CHUNK_NUMBERS_ELSEWHERE)
    size = max(budget // numbers, 1)
    # An exported program has no fixed number of images.
    if torch.compiler.is_exporting() or len(images) <= size:
        return function(images, *tensors)
    outputs = [
        checkpoint(function, part, *tensors, use_reentrant=False, preserve_rng_state=False)
        for part in images.split(size)
    ]
    return torch.cat(outputs)


def content_attention(
    images: Images, scores: ContentScores, geometry: ConvolutionGeometry
) -> Float[Tensor, "queries heads channels"]:
    """Output of every head at every query, with the tokens as values. The rows are ordered tile by tile.

    ``A_h X[q] = sum_s softmax_s(scores[h, s]) X[q stride + s dilation]``. The queries of a tile, for all heads, are one
    matrix. The tokens of the rectangle that their windows cover are the other. ``tiles_to_grid`` restores the order of
    the rows.

    Reference: Ramachandran et al. 2019 (windows); Shazeer 2019 (keys and values shared between heads).
    Differs: a bias for each head and position; strides.
    """
    tiles = _tile_sizes(geometry)
    queries, tokens = _cut_tiles(images, geometry, tiles)
    heads, key_dim, _ = scores.query_weight.shape
    projected = (queries @ scores.query_weight.flatten(0, 1).mT).view(
        tokens.shape[0], tiles[0] * tiles[1] * heads, key_dim
    )
    keys = tokens @ scores.key_weight.mT
    bias = torch.cat([scores.bias, scores.bias.new_full((heads, 1), -torch.inf)], dim=1)
    bias = rearrange(bias[:, _bias_index(geometry, tiles, bias.device)], "heads q k -> 1 (q heads) k")
    bias = bias.to(projected.dtype).expand(tokens.shape[0], -1, -1)
    weights = torch.baddbmm(bias, projected, keys.mT, alpha=key_dim**-0.5).softmax(dim=-1)
    return torch.bmm(weights, tokens).view(queries.shape[0], heads, tokens.shape[-1])


def tiles_to_grid(rows: Float[Tensor, "queries channels"], images: Tensor, geometry: ConvolutionGeometry) -> Images:
    """Rows of ``content_attention`` on the grid of queries, without the padding of the last tiles."""
    tiles, counts = _tile_sizes(geometry), geometry.num_queries(images)
    r, c = (-(-count // tile) for count, tile in zip(counts, tiles, strict=True))
    # Every length is given: of an empty batch none follows from the others.
    grid = rearrange(rows, "(b r c y x) d -> b d (r y) (c x)", b=images.shape[0], r=r, c=c, y=tiles[0], x=tiles[1])
    return grid[:, :, : counts[0], : counts[1]]


def content_attention_reference(
    images: Images, scores: ContentScores, geometry: ConvolutionGeometry
) -> tuple[Float[Tensor, "batch queries heads channels"], Float[Tensor, "batch queries heads positions"]]:
    """Output and weights as the equation states, with the queries row by row; slower than ``content_attention``."""
    padded = geometry.pad_for_windows(images, geometry.num_queries(images))
    windows = rearrange(geometry.unfold_windows(padded), "b d r c y x -> b (r c) (y x) d")
    keys = torch.einsum("bdrc,kd->bkrc", padded, scores.key_weight)
    keys = rearrange(geometry.unfold_windows(keys), "b d r c y x -> b (r c) (y x) d")
    centre = (geometry.rows.window - 1) // 2 * geometry.cols.window + (geometry.cols.window - 1) // 2
    queries = torch.einsum("bnd,hkd->bnhk", windows[:, :, centre], scores.query_weight)
    logits = torch.einsum("bnhk,bnsk->bnhs", queries, keys) * queries.shape[-1] ** -0.5
    weights = (logits + scores.bias).softmax(dim=-1)
    return torch.einsum("bnhs,bnsd->bnhd", weights, windows), weights


def _cut_tiles(images: Tensor, geometry: ConvolutionGeometry, tiles: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Tokens at the queries, tile by tile, and tokens in the windows of each tile, ``(tiles, keys, channels)``."""
    counts = [-(-count // tile) * tile for count, tile in zip(geometry.num_queries(images), tiles, strict=True)]
    padded = geometry.pad_for_windows(images, (counts[0], counts[1])).permute(0, 2, 3, 1).contiguous()
    queries = tokens = padded
    for dim, (axis, tile, count) in enumerate(zip(geometry, tiles, counts, strict=True), start=1):
        tokens = tokens.unfold(dim, axis.span(tile), axis.stride * tile)
        last = axis.query_offset + (count - 1) * axis.stride
        queries = queries[(slice(None),) * dim + (slice(axis.query_offset, last + 1, axis.stride),)]
    tokens = tokens[..., :: geometry.rows.dilation, :: geometry.cols.dilation]
    queries = rearrange(queries, "b (r y) (c x) d -> (b r c y x) d", y=tiles[0], x=tiles[1])
    return queries, rearrange(tokens, "b r c d y x -> (b r c) (y x) d")


def _tile_sizes(geometry: ConvolutionGeometry) -> tuple[int, int]:
    """Queries of a tile along the rows and the columns; one where the window is dilated."""
    rows, cols = (TILE if axis.dilation == 1 else 1 for axis in geometry)
    return rows, cols


def _bias_index(
    geometry: ConvolutionGeometry, tiles: tuple[int, int], device: torch.device
) -> Int[Tensor, "queries keys"]:
    """Window position of each pair of a query and a key of a tile; the number of positions for pairs without one."""
    # A dilated axis has one query in a tile, whose keys are the positions of its window.
    rows, cols = (
        torch.arange(axis.span(tile) if axis.dilation == 1 else axis.window, device=device)
        - torch.arange(tile, device=device)[:, None] * axis.stride
        for axis, tile in zip(geometry, tiles, strict=True)
    )
    return flat_index(rows, cols, (geometry.rows.window, geometry.cols.window))
