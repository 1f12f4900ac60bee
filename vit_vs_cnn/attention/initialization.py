"""Initial weights under which attention is local, as a convolution is, before training."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.multihead import NORM_EPS, PARTS, MultiHeadAttention

#: Offsets (rows, cols) from query to key of a 3 x 3 kernel, the nearest first. Head h has offset h modulo 9.
IMPULSE_OFFSETS = ((0, 0), (-1, 0), (0, 1), (0, -1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1))
#: Height of an impulse, and scale of the noise elsewhere (a truncated normal of this standard deviation).
IMPULSE, NOISE, NOISE_STD = 1000.0, 3.0, 0.6
#: Singular value of the position encoding, relative to the largest, below which its direction is left out of the fit.
MIN_RELATIVE_SINGULAR_VALUE = 0.05
#: Factor of the noise and of the identity in the query-key products and in the value-output product.
QUERY_KEY_MIX, VALUE_OUTPUT_MIX = 0.7, 0.4
#: Frobenius norm of either factor of a head's query-key product after ``initialize_impulse``.
IMPULSE_NORM = 7.0


@torch.no_grad()
def initialize_mimetic(attention: MultiHeadAttention) -> None:
    """Initialize so that tokens attend to similar tokens and the layer subtracts them, as in trained networks.

    ``W_Q^h (W_K^h)^T ~ 0.7 (Z_h + I)``, of rank ``head_dim``; ``W_V W_O = 0.4 (Z - I)``; Z is normal of variance 1 / D.
    A product is split evenly by its SVD: ``U S^(1/2)`` and ``V S^(1/2)``. Biases are zero. Best with sinusoidal
    positions, whose similarity then means nearness.

    Reference: Trockman & Kolter 2023 (Mimetic initialization).
    Differs: none.

    Arguments:
        attention: layer to change in place, of one width throughout.

    Raises:
        ValueError: if the layer's widths differ.
    """
    _check_square(attention)
    products = _noisy_identity(attention, QUERY_KEY_MIX, QUERY_KEY_MIX, (attention.num_heads,))
    queries, keys = _split(products, attention.head_dim)
    _set_heads(attention.query_projection, queries)
    _set_heads(attention.key_projection, keys)
    _set_value_and_output(attention)


@torch.no_grad()
def initialize_impulse(
    attention: MultiHeadAttention, position_encoding: Float[Tensor, "tokens embed_dim"], grid_size: tuple[int, int]
) -> None:
    """Initialize so that every head attends to one neighbour of a 3 x 3 kernel, by position alone.

    ``W_Q^h (W_K^h)^T ~ P^+ M_h (P^+)^T``, P the layer-normed position encoding, M_h of ``impulse_targets``, so
    that ``P W_Q^h (W_K^h)^T P^T`` approximates M_h as well as P and ``head_dim`` allow. The product is split evenly by
    its SVD, either factor scaled to Frobenius norm 7. Values and output as in ``initialize_mimetic``.

    Reference: Zheng et al. 2024, 2025 (Structured initialization).
    Differs: the pseudo-inverse leaves out singular values below a twentieth of the largest, and those beyond rank
    ``head_dim``. The random encodings of the papers have no small singular values; those of sines and cosines would
    dominate the norm of the weights. Dimensions of a head beyond the rank get key weights of zero and keep their query
    weights. The encoding is not scaled. The papers multiply theirs by 18, which raises its standard deviation from 0.02
    to 0.36; that of sines and cosines is 0.71.

    Arguments:
        attention: layer to change in place, of one width throughout.
        position_encoding: encoding that is added to the patches, row by row, before the layer norm; no prefix tokens.

    Raises:
        ValueError: as ``initialize_mimetic``, or if ``position_encoding`` does not have a row for each patch.
    """
    _check_square(attention)
    rows, cols = grid_size
    if (count := len(position_encoding)) != rows * cols:
        raise ValueError(f"position_encoding must have {rows * cols} rows for grid_size={grid_size}, but has {count}")
    normed = F.layer_norm(position_encoding.double().cpu(), position_encoding.shape[1:], eps=NORM_EPS)
    left, singular, right = torch.linalg.svd(normed, full_matrices=False)
    rank = int((singular[: attention.head_dim] > MIN_RELATIVE_SINGULAR_VALUE * singular[0]).sum())
    tokens, strengths, channels = left[:, :rank], singular[:rank], right[:rank].T
    targets = tokens.T @ impulse_targets(grid_size, attention.num_heads) @ tokens
    factors = _split(targets / (strengths[:, None] * strengths), rank)
    queries, keys = (
        IMPULSE_NORM * channels @ factor / torch.linalg.matrix_norm(factor, keepdim=True) for factor in factors
    )
    # Unused dimensions of a head: keys of zero do not change the scores, random queries let the keys learn.
    spare = attention.query_projection.weight.unflatten(0, (attention.num_heads, -1))[:, rank:].mT
    _set_heads(attention.query_projection, torch.cat([queries, spare.to(queries)], dim=-1))
    _set_heads(attention.key_projection, F.pad(keys, (0, attention.head_dim - rank)))
    _set_value_and_output(attention)


def impulse_targets(grid_size: tuple[int, int], num_heads: int) -> Float[Tensor, "heads tokens tokens"]:
    """Target scores of the heads: 1000 where the key is at the head's offset, else noise.

    ``M_h[q, k] = 1000 [k - q = D_h] + 3 n [k - q != D_h]``, n normal of standard deviation 0.6, truncated at 2; D_h of
    ``IMPULSE_OFFSETS``. A query whose neighbour is outside the grid has noise alone.

    Reference: Zheng et al. 2025 (Structured initialization).
    Differs: none.
    """
    rows, cols = grid_size
    positions = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).view(-1, 2)
    offsets = torch.tensor([IMPULSE_OFFSETS[head % len(IMPULSE_OFFSETS)] for head in range(num_heads)])
    hits = (positions[:, None] + offsets[:, None, None] == positions).all(dim=-1)
    noise = nn.init.trunc_normal_(torch.empty(hits.shape, dtype=torch.float64), std=NOISE_STD)
    return torch.where(hits, IMPULSE, NOISE * noise)


@torch.no_grad()
def initialize_gated(attention: MultiHeadAttention) -> None:
    """Initialize so that the values are the tokens: with ``GatedAttention`` a head then outputs its neighbour.

    ``W_V = I``; queries, keys and output are unchanged.

    Reference: d'Ascoli et al. 2021, section 3.
    Differs: none.

    Raises:
        ValueError: as ``initialize_mimetic``.
    """
    _check_square(attention)
    _set(attention.value_projection, torch.eye(attention.embed_dim))


def _check_square(attention: MultiHeadAttention) -> None:
    dim, key_dim, value_dim = (getattr(attention, f"{part}_projection").in_features for part in PARTS)
    if key_dim != dim or value_dim != dim:
        raise ValueError(f"key_dim and value_dim must equal embed_dim={dim}, but are {key_dim} and {value_dim}")


def _noisy_identity(attention: MultiHeadAttention, noise: float, identity: float, batch: Sequence[int] = ()) -> Tensor:
    """``noise Z + identity I``, Z normal of variance 1 / D; in float64, from torch's global generator."""
    width = attention.embed_dim
    normal = torch.randn(*batch, width, width, dtype=torch.float64) / width**0.5
    return noise * normal + identity * torch.eye(width, dtype=torch.float64)


def _split(products: Float[Tensor, "*batch dim dim"], rank: int) -> tuple[Tensor, Tensor]:
    """Factors L and R, ``(..., dim, rank)``, of the nearest product ``L R^T`` of that rank, with equal norms."""
    left, singular, right = torch.linalg.svd(products)
    root = singular[..., None, :rank].sqrt()
    return left[..., :rank] * root, right.mT[..., :rank] * root


def _set_value_and_output(attention: MultiHeadAttention) -> None:
    products = _noisy_identity(attention, VALUE_OUTPUT_MIX, -VALUE_OUTPUT_MIX)
    values, output = _split(products, attention.embed_dim)
    _set(attention.value_projection, values.T)
    _set(attention.output_projection, output)


def _set_heads(projection: nn.Linear, maps: Float[Tensor, "heads dim head_dim"]) -> None:
    _set(projection, rearrange(maps, "heads dim head_dim -> (heads head_dim) dim"))


def _set(projection: nn.Linear, weight: Tensor) -> None:
    """``nn.Linear`` holds its map transposed."""
    projection.weight.copy_(weight)
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)
