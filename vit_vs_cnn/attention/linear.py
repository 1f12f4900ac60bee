"""Linear attention: the kernel is a product of features, and the cost grows linearly with the tokens."""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import AttentionOutput, Keys, Queries, Values, Weights, check_positive
from vit_vs_cnn.attention.functional import autocast_type
from vit_vs_cnn.counter_random import derive_seed

#: Map from ``(..., tokens, head_dim)`` to ``(..., tokens, features)`` that are not negative.
FeatureMap: TypeAlias = Callable[[Tensor], Tensor]
#: Tokens per chunk of the causal form; it changes time and memory, not the result.
CHUNK_SIZE = 64


def elu_features(tokens: Float[Tensor, "*batch head_dim"]) -> Float[Tensor, "*batch head_dim"]:
    """``phi(x) = elu(x) + 1``.

    Reference: Katharopoulos et al. 2020, equation 7.
    Differs: none.
    """
    return F.elu(tokens.contiguous()) + 1  # of other strides, a compiled backward pass takes ELU's gradient to be dense


def linear_attention(
    queries: Queries, keys: Keys, values: Values, *, feature_map: FeatureMap = elu_features, causal: bool = False
) -> AttentionOutput:
    """Attention in O(tokens * features * head_dim), by summing over the keys first.

    ``out_i = phi(q_i) [sum_j phi(k_j) v_j^T] / (phi(q_i) . sum_j phi(k_j))``; causal: j <= i.

    Reference: Katharopoulos et al. 2020, equations 5 and 9; in chunks: Hua et al. 2022, section 3.2.
    Differs: the causal sums run over chunks: dense within a chunk, one running state between chunks. A query whose
        denominator is zero gets zero. Weights are never computed; ``linear_attention_reference`` returns them.

    Arguments:
        feature_map: map phi to features that are not negative; ``elu_features`` or a ``RandomFeatures``.
        causal: a query attends only to its own token and those before; as many queries as keys.

    Raises:
        ValueError: if a causal call has not as many queries as keys.
    """
    if _is_float16(values):
        inputs = (x.float() for x in (queries, keys, values))
        with torch.autocast(values.device.type, enabled=False):
            return linear_attention(*inputs, feature_map=feature_map, causal=causal).to(torch.float16)
    query_features, key_features = feature_map(queries), feature_map(keys)
    # With a column of ones after the values, one pass computes the numerator and the denominator.
    values = F.pad(values, (0, 1), value=1.0)
    if causal:
        sums = _causal_sums(query_features, key_features, values)
    else:
        sums = query_features @ (key_features.transpose(-2, -1) @ values)
    return _divide(sums[..., :-1], sums[..., -1:])


def linear_attention_reference(
    queries: Queries, keys: Keys, values: Values, *, feature_map: FeatureMap = elu_features, causal: bool = False
) -> tuple[AttentionOutput, Weights]:
    """Output in O(queries * keys), and the weights: ``w_ij = phi(q_i) . phi(k_j) / sum_k phi(q_i) . phi(k_k)``."""
    if _is_float16(values):
        inputs = (x.float() for x in (queries, keys, values))
        with torch.autocast(values.device.type, enabled=False):
            output, weights = linear_attention_reference(*inputs, feature_map=feature_map, causal=causal)
        return output.to(torch.float16), weights.to(torch.float16)
    kernel = feature_map(queries) @ feature_map(keys).transpose(-2, -1)
    if causal:
        kernel = kernel.tril()
    weights = _divide(kernel, kernel.sum(dim=-1, keepdim=True))
    return weights @ values, weights


def _is_float16(values: Tensor) -> bool:
    """True where products are in float16, by their type or by autocast: sums over many keys would overflow."""
    return (autocast_type(values) or values.dtype) == torch.float16


class LinearAttention(nn.Module):
    """Linear attention as the ``inner_attention`` of ``MultiHeadAttention``. All heads share the feature map.

    Reference: Katharopoulos et al. 2020, equation 5.
    Differs: weights, on request, are computed in O(queries * keys).
    """

    def __init__(self, feature_map: FeatureMap = elu_features) -> None:
        super().__init__()
        self.feature_map = feature_map

    def forward(
        self, queries: Queries, keys: Keys, values: Values, *, return_weights: bool = False
    ) -> AttentionOutput | tuple[AttentionOutput, Weights]:
        """``linear_attention``; with ``return_weights`` also the weights ``(batch, heads, queries, keys)``."""
        if return_weights:
            return linear_attention_reference(queries, keys, values, feature_map=self.feature_map)
        return linear_attention(queries, keys, values, feature_map=self.feature_map)


def _causal_sums(query_features: Tensor, key_features: Tensor, values: Tensor) -> Tensor:
    """``sum_{j <= i} (phi(q_i) . phi(k_j)) v_j`` for every token i."""
    tokens, keys = query_features.shape[-2], key_features.shape[-2]
    if tokens != keys:
        raise ValueError(f"causal attention needs as many queries as keys, but there are {tokens} and {keys}")
    chunk_size = min(CHUNK_SIZE, max(tokens, 1))
    padding = -tokens % chunk_size
    query_features, key_features, values = (
        rearrange(F.pad(x, (0, 0, 0, padding)), "b h (chunks n) d -> b h chunks n d", n=chunk_size)
        for x in (query_features, key_features, values)
    )
    within = (query_features @ key_features.transpose(-2, -1)).tril() @ values
    states = key_features.transpose(-2, -1) @ values
    before = F.pad(states.cumsum(dim=2)[:, :, :-1], (0, 0, 0, 0, 1, 0))  # the state that the chunks before it left
    sums = within + query_features @ before
    return rearrange(sums, "b h chunks n d -> b h (chunks n) d")[..., :tokens, :]


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Quotient; zero, also in gradients, where the denominator is zero or too small to be exact."""
    numbers = torch.finfo(denominator.dtype)
    empty = denominator < numbers.tiny / numbers.eps
    return (numerator / denominator.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


def random_frequencies(
    num_features: int, head_dim: int, *, orthogonal: bool = True, generator: torch.Generator | None = None
) -> Float[Tensor, "num_features head_dim"]:
    """Random rows, each N(0, I); with ``orthogonal``, orthogonal within every block of ``head_dim`` rows.

    Reference: Yu et al. 2016, section 3 (orthogonal blocks); Choromanski et al. 2021, section 2.4.
    Differs: none. Float64; a row's length is that of a Gaussian vector, sampled separately from its direction.
    """
    gaussian = torch.randn(num_features, head_dim, dtype=torch.float64, generator=generator)
    if not orthogonal:
        return gaussian
    blocks = -(-num_features // head_dim)
    squares = torch.randn(blocks, head_dim, head_dim, dtype=torch.float64, generator=generator)
    directions, triangular = torch.linalg.qr(squares)
    # The signs make the directions uniform (Mezzadri 2007): LAPACK's own choice of sign is not.
    directions = directions * triangular.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return directions.transpose(-2, -1).flatten(0, 1)[:num_features] * gaussian.norm(dim=-1, keepdim=True)


class RandomFeatures(nn.Module):
    """Positive orthogonal random features (FAVOR+), whose products approximate the kernel of softmax attention.

    ``phi(x) = exp(Omega x' - |x'|^2 / 2) / sqrt(m)``, ``x' = x / d^(1/4)``, ``E[phi(q) . phi(k)] = exp(q . k /
    sqrt(d))``.

    Reference: Choromanski et al. 2021, lemma 1 and section 2.4.
    Differs: all features of a head are multiplied by one number, so that the largest is 1 / sqrt(m); it cancels in
        attention. The frequencies are a buffer, sampled once.

    Arguments:
        head_dim: width d of queries and keys.
        num_features: number m of features; the error falls as 1 / sqrt(m).
        orthogonal: frequencies that are orthogonal in blocks, for a smaller error.
        seed: seed of the frequencies.

    Raises:
        ValueError: if a size is not positive.
    """

    frequencies: Tensor

    def __init__(self, head_dim: int, num_features: int, *, orthogonal: bool = True, seed: int = 0) -> None:
        super().__init__()
        check_positive(head_dim=head_dim, num_features=num_features)
        # Queries that are sampled after torch.manual_seed(seed) must be independent of the frequencies.
        generator = torch.Generator().manual_seed(derive_seed(seed, "random features"))
        frequencies = random_frequencies(num_features, head_dim, orthogonal=orthogonal, generator=generator)
        self.register_buffer("frequencies", frequencies.to(torch.get_default_dtype()))

    def forward(self, tokens: Float[Tensor, "*batch tokens head_dim"]) -> Float[Tensor, "*batch tokens num_features"]:
        tokens = tokens * tokens.shape[-1] ** -0.25
        exponents = tokens @ self.frequencies.mT.to(tokens.dtype) - tokens.square().sum(dim=-1, keepdim=True) / 2
        shift = exponents.new_tensor(math.log(len(self.frequencies)) / 2)
        if exponents.shape[-2]:  # without tokens there is no largest feature
            shift = shift + exponents.detach().amax(dim=(-2, -1), keepdim=True)
        return (exponents - shift).exp()
