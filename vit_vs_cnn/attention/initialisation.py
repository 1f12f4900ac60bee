"""Weights that attention may start from: looking near, as a convolution does, before anything is learned."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention

#: (rows, cols) from query to key of the nine heads of a 3 x 3 kernel, the nearest first; a tenth head starts again.
IMPULSE_OFFSETS = ((0, 0), (-1, 0), (0, 1), (0, -1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1))
#: Height of an impulse, and of the noise beside it (a truncated normal of this standard deviation).
IMPULSE, NOISE, NOISE_STD = 1000.0, 3.0, 0.6
#: Directions of the positional code that are weaker than this share of the strongest are left out of the fit.
WEAKEST_DIRECTION = 0.05


@torch.no_grad()
def initialise_mimetic(
    attention: MultiHeadAttention,
    query_key: tuple[float, float] = (0.7, 0.7),
    value_output: tuple[float, float] = (0.4, 0.4),
) -> None:
    """Tokens attend to what is like them, and the layer subtracts it: the pattern of trained networks, by hand.

    ``W_Q^h (W_K^h)^T ~ a Z_h + b I`` with (a, b) of ``query_key``, of rank ``head_dim``; ``W_V W_O = a Z - b I`` with
    (a, b) of ``value_output``; Z is normal of variance 1 / D. A product is split evenly by its SVD: ``U S^(1/2)`` and
    ``V S^(1/2)``. Biases are zero. Best beside sinusoidal positions, whose likeness then means nearness.

    Reference: Trockman & Kolter 2023 (Mimetic initialization).
    Differs: none.

    Arguments:
        attention: changed in place; of one width throughout.
        query_key: (noise, identity) of the products of queries and keys.
        value_output: (noise, minus identity) of the product of values and output.

    Raises:
        ValueError: if the layer's widths differ, its heads are wider than its tokens, or it has no output projection.
    """
    _check_square(attention)
    noise, identity = query_key
    products = _noisy_identity(attention, (attention.num_heads,), noise, identity)
    queries, keys = _split(products, attention.head_dim)
    _set_heads(attention.query_projection, queries)
    _set_heads(attention.key_projection, keys)
    _set_value_and_output(attention, *value_output)


@torch.no_grad()
def initialise_impulse(
    attention: MultiHeadAttention,
    code: Float[Tensor, "tokens embed_dim"],
    grid_size: tuple[int, int],
    *,
    scale: float = 7.0,
    value_output: tuple[float, float] = (0.4, 0.4),
) -> None:
    """Every head looks from its patch at one neighbour, as one weight of a 3 x 3 kernel does, by position alone.

    ``W_Q^h (W_K^h)^T ~ P^+ M_h (P^+)^T``, P the layer-normed positional code, M_h of ``impulse_targets``, so that
    ``P W_Q^h (W_K^h)^T P^T`` is M_h as far as the code and ``head_dim`` can tell. The product is split evenly by its
    SVD, either factor scaled to Frobenius norm ``scale``. Values and output as in ``initialise_mimetic``.

    Reference: Zheng et al. 2024, 2025 (Structured initialization).
    Differs: the pseudo-inverse leaves out what is weaker than a twentieth of the code's strongest direction (besides
    what exceeds rank ``head_dim``): theirs is made for random codes, which have no such directions, and on sines and
    cosines it would spend the whole norm on them. Dimensions of a head that are then left over have keys of zero and
    the queries that they had. The code itself is left as it is: their factor of 18 lifts one of deviation .02 to .36,
    and sines and cosines have .71 from the start.

    Arguments:
        attention: changed in place; of one width throughout.
        code: what is added to the patches, row by row, before the layer norm; no extra tokens.
        scale: Frobenius norm of each head's map of queries, and of keys: how sharp the impulse is.

    Raises:
        ValueError: as ``initialise_mimetic``, or if ``code`` is not of the grid.
    """
    _check_square(attention)
    rows, cols = grid_size
    if len(code) != rows * cols:
        raise ValueError(f"code must have {rows * cols} rows for grid_size={grid_size}, but has {len(code)}")
    normed = F.layer_norm(code.double().cpu(), code.shape[1:], eps=NORM_EPS)
    tokens, strengths, channels = _strongest_directions(normed, attention.head_dim)
    targets = tokens.T @ impulse_targets(grid_size, attention.num_heads) @ tokens
    rank = len(strengths)
    factors = _split(targets / (strengths[:, None] * strengths), rank)
    queries, keys = (scale * channels @ factor / torch.linalg.matrix_norm(factor, keepdim=True) for factor in factors)
    # Dimensions of a head that the code cannot fill: keys of zero leave the scores, drawn queries let the keys learn.
    spare = attention.query_projection.weight.unflatten(0, (attention.num_heads, -1))[:, rank:].mT
    _set_heads(attention.query_projection, torch.cat([queries, spare.to(queries)], dim=-1))
    _set_heads(attention.key_projection, F.pad(keys, (0, attention.head_dim - rank)))
    _set_value_and_output(attention, *value_output)


def impulse_targets(grid_size: tuple[int, int], num_heads: int) -> Float[Tensor, "heads tokens tokens"]:
    """What the scores of the heads should be: 1000 where the key lies at the head's offset, else noise.

    ``M_h[q, k] = 1000 [k - q = D_h] + 3 n [k - q != D_h]``, n a normal of deviation 0.6 cut off at 2; D_h of
    ``IMPULSE_OFFSETS``. A query whose neighbour lies outside the grid has noise alone.

    Reference: Zheng et al. 2025 (Structured initialization).
    Differs: none.
    """
    rows, cols = grid_size
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).view(-1, 2)
    offsets = torch.tensor([IMPULSE_OFFSETS[head % len(IMPULSE_OFFSETS)] for head in range(num_heads)])
    hits = (places[:, None] + offsets[:, None, None] == places).all(dim=-1)
    noise = nn.init.trunc_normal_(torch.empty(hits.shape, dtype=torch.float64), std=NOISE_STD)
    return torch.where(hits, IMPULSE, NOISE * noise)


@torch.no_grad()
def initialise_gated(attention: MultiHeadAttention) -> None:
    """The values are the tokens: with the positional weights of ``GatedAttention`` a head then passes its neighbour on.

    ``W_V = I``; queries, keys and output keep what they have.

    Reference: d'Ascoli et al. 2021, section 3.
    Differs: none.

    Raises:
        ValueError: as ``initialise_mimetic``, or if the heads together are not as wide as a token.
    """
    _check_square(attention)
    width = attention.num_heads * attention.head_dim
    if width != attention.embed_dim:
        raise ValueError(
            f"num_heads * head_dim must equal embed_dim={attention.embed_dim} for values that are the tokens, but is "
            f"{width}"
        )
    nn.init.eye_(attention.value_projection.weight)
    if attention.value_projection.bias is not None:
        nn.init.zeros_(attention.value_projection.bias)


def _check_square(attention: MultiHeadAttention) -> None:
    widths = (attention.key_projection.in_features, attention.value_projection.in_features)
    if any(width != attention.embed_dim for width in widths):
        raise ValueError(
            f"key_dim and value_dim must equal embed_dim={attention.embed_dim}, as the products are square, but are "
            f"{widths[0]} and {widths[1]}"
        )
    if attention.head_dim * attention.num_heads > attention.embed_dim:
        raise ValueError(
            f"num_heads * head_dim must not exceed embed_dim={attention.embed_dim}, but is "
            f"{attention.num_heads} * {attention.head_dim}"
        )
    if attention.output_projection is None:
        raise ValueError("output_projection must be there to be initialised, but output_projection=False")


def _noisy_identity(attention: MultiHeadAttention, batch: Sequence[int], noise: float, identity: float) -> Tensor:
    """``noise Z + identity I``, Z normal of variance 1 / D; in float64, from torch's global generator."""
    width = attention.embed_dim
    drawn = torch.randn(*batch, width, width, dtype=torch.float64) / width**0.5
    return noise * drawn + identity * torch.eye(width, dtype=torch.float64)


def _split(products: Float[Tensor, "*batch dim dim"], rank: int) -> tuple[Tensor, Tensor]:
    """L and R, ``(..., dim, rank)``, of the nearest product ``L R^T`` of that rank, equally large."""
    left, singular, right = torch.linalg.svd(products)
    root = singular[..., None, :rank].sqrt()
    return left[..., :rank] * root, right.mT[..., :rank] * root


def _strongest_directions(matrix: Float[Tensor, "tokens dim"], rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """``U, S, V`` of ``matrix ~ U S V^T``: at most ``rank`` directions, and none that is weak beside the first."""
    left, singular, right = torch.linalg.svd(matrix, full_matrices=False)
    rank = int((singular[:rank] > WEAKEST_DIRECTION * singular[0]).sum())
    return left[:, :rank], singular[:rank], right[:rank].T


def _set_value_and_output(attention: MultiHeadAttention, noise: float, identity: float) -> None:
    inner = attention.num_heads * attention.head_dim
    values, output = _split(_noisy_identity(attention, (), noise, -identity), inner)
    _set(attention.value_projection, values.T)
    assert attention.output_projection is not None
    _set(attention.output_projection, output)


def _set_heads(projection: nn.Linear, maps: Float[Tensor, "heads dim head_dim"]) -> None:
    _set(projection, rearrange(maps, "heads dim head_dim -> (heads head_dim) dim"))


def _set(projection: nn.Linear, weight: Tensor) -> None:
    """``nn.Linear`` holds its map transposed."""
    projection.weight.copy_(weight)
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)
