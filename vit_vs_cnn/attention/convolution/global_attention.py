"""Global attention by the quadratic relative code: every head prefers the tokens near one offset."""

import math
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.attention.convolution.geometry import Axis, Geometry, fold_copies
from vit_vs_cnn.attention.functional import scaled_dot_product_attention
from vit_vs_cnn.attention.shapes import Images


class QuadraticScores(NamedTuple):
    """What scores are made of: ``(x_q W_Q^h) . (x_k W_K) / sqrt(key_dim) - alpha_h |k - q - D_h|^2``."""

    query_weight: Float[Tensor, "heads key_dim channels"]
    key_weight: Float[Tensor, "key_dim channels"]
    sharpness: Float[Tensor, " heads"]
    centres: Float[Tensor, "heads 2"]


def axis_scores(
    axis: Axis, size: int, sharpness: Float[Tensor, " heads"], centres: Float[Tensor, " heads"]
) -> Float[Tensor, "heads queries keys"]:
    """``-alpha (k - q - D)^2`` along one axis, between its queries and ``axis.quadratic_keys``.

    "circular" takes the distance around the torus.
    """
    start, length = axis.quadratic_keys(size)
    first = (axis.kernel - 1) // 2 * axis.dilation - axis.before
    # Whole numbers up to the size of an image: float32 or better holds their squares.
    keys = torch.arange(start, start + length, device=centres.device).to(centres)
    queries = (torch.arange(axis.count(size), device=centres.device) * axis.stride + first).to(centres)
    distance = keys - queries[:, None] - centres[:, None, None]
    if axis.mode == "circular":
        distance = (distance + size / 2).remainder(size) - size / 2
    return -sharpness[:, None, None] * distance.square()


def axis_weights(
    axis: Axis, size: int, sharpness: Float[Tensor, ""], dtype: torch.dtype
) -> Float[Tensor, "kernel queries tokens"]:
    """The softmax along one axis for every place of the kernel, on the tokens of the image.

    The code is a sum over the axes, so its softmax is the product of theirs. Copies of a token count for it; the share
    of tokens of zeros is missing from the rows.
    """
    exact = torch.promote_types(dtype, torch.float32)  # squares beyond 256 have no place in bfloat16
    places = torch.arange(axis.kernel, device=sharpness.device) - (axis.kernel - 1) // 2
    scores = axis_scores(axis, size, sharpness.to(exact).expand(axis.kernel), (places * axis.dilation).to(exact))
    sources = axis.sources(size, *axis.quadratic_keys(size), sharpness.device)
    return fold_copies(scores.softmax(dim=-1), sources, size).to(dtype)


def global_attention(
    images: Images, scores: QuadraticScores, geometry: Geometry
) -> tuple[Float[Tensor, "batch heads queries channels"], Float[Tensor, "batch heads queries tokens"]]:
    """What every head gathers at every query, the tokens themselves being the values, and the weights."""
    size = (images.shape[2], images.shape[3])
    keys, queries, sources, codes = images, geometry.queries(images), [], []
    for dim, axis in enumerate(geometry):
        start, length = axis.quadratic_keys(size[dim])
        keys = axis.pad(keys, dim + 2, start, length)
        sources.append(axis.sources(size[dim], start, length, images.device))
        codes.append(axis_scores(axis, size[dim], scores.sharpness, scores.centres[:, dim]))
    tokens = rearrange(keys, "b c y x -> b 1 (y x) c")
    projected = torch.einsum("bcij,hkc->bhijk", queries, scores.query_weight).flatten(2, 3)
    bias = codes[0][:, :, None, :, None] + codes[1][:, None, :, None, :]
    heads = (-1, len(bias), -1, -1)
    gathered, weights = scaled_dot_product_attention(
        projected,
        (tokens @ scores.key_weight.mT).expand(heads),
        tokens.expand(heads),
        bias=rearrange(bias, "h i j y x -> h (i j) (y x)"),
        return_weights=True,
    )
    rows, cols = sources[0][:, None], sources[1]
    tokens_of_keys = (rows * size[1] + cols).where((rows >= 0) & (cols >= 0), -1)
    return gathered, fold_copies(weights, tokens_of_keys.flatten(), math.prod(size))
