"""Attention as two pure functions: the softmax that knows what is masked, and the weighted mean that it makes."""

from typing import Literal, TypedDict, Unpack, overload

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.attention.checks import check_mask
from vit_vs_cnn.attention.differentiation import fused_attention
from vit_vs_cnn.attention.shapes import AnyMask, Attended, Bias, Keys, Mask, Queries, Values


def masked_softmax(scores: Float[Tensor, "*rows keys"], mask: AnyMask | None) -> Float[Tensor, "*rows keys"]:
    """Softmax over the keys that the mask allows; a row that may attend to nothing is zero.

    ``weights[i, j] = mask[i, j] exp(scores[i, j]) / sum_k mask[i, k] exp(scores[i, k])``, and 0 where the sum is empty.

    Reference: Vaswani et al. 2017, equation 1 and section 3.2.3.
    Differs: an empty sum gives 0 with zero gradient, where a softmax over minus infinities gives NaN.

    Arguments:
        scores: finite ones; minus infinity does not mask here (``attention_from_scores`` takes it so).
        mask: True where a query may attend, broadcast against ``scores``; None allows all.

    Raises:
        ValueError: if ``mask`` is not boolean.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    check_mask(mask)
    empty = ~mask.any(dim=-1, keepdim=True)
    # An empty row gets scores of 0, not minus infinity: its softmax is then finite, and so is its gradient.
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(empty, 0.0)
    return scores.softmax(dim=-1).masked_fill(empty, 0.0)


class Options(TypedDict, total=False):
    """What ``scaled_dot_product_attention`` takes by name, for type checkers."""

    mask: Tensor | None
    bias: Tensor | None
    dropout: float
    scale: float | None


@overload
def scaled_dot_product_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: Literal[False] = False, **options: Unpack[Options]
) -> Tensor: ...


@overload
def scaled_dot_product_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...


def scaled_dot_product_attention(
    queries: Queries,
    keys: Keys,
    values: Values,
    *,
    mask: Mask | None = None,
    bias: Bias | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    return_weights: bool = False,
) -> Attended:
    """Weighted mean of the values, weighted by how well each key answers the query.

    ``Attention(Q, K, V) = softmax(scale Q K^T + bias) V``, ``scale = 1 / sqrt(head_dim)``.

    Reference: Vaswani et al. 2017, equation 1.
    Differs: a query that may attend to nothing gets exactly zero, in outputs and gradients, on both paths.

    Arguments:
        values: ``(batch, heads, keys, value_head_dim)``; their width may differ from that of the keys.
        mask: True where a query may attend; broadcast against ``(batch, heads, queries, keys)`` from the right.
        bias: added to the scaled scores, broadcast like ``mask``; an entry of minus infinity masks.
        dropout: probability that a weight is dropped (0 outside training).
        scale: what the scores are multiplied by; ``1 / sqrt(head_dim)`` if None.
        return_weights: also return the weights ``(batch, heads, queries, keys)``, computed explicitly instead of by the
            fused kernel. They are those before dropout, so that the rows sum to one.

    On a processor the products are written out as well where a gradient is asked for in half precision, in which the
    backward pass of torch's fused kernel takes many times as long, or that of ``bias``, which it does not know.

    Raises:
        ValueError: if ``mask`` is not boolean.
    """
    if mask is not None:
        check_mask(mask)
    if bias is not None:
        bias = bias.to(queries.dtype)  # first: what is finite there may be minus infinity here, and masks then
        mask = (bias != -torch.inf) if mask is None else mask & (bias != -torch.inf)
    if return_weights:
        scores = _scores(queries, keys, scale)
        weights = masked_softmax(scores if bias is None else scores + bias, mask)
        return dropped(weights, dropout) @ values, weights
    if mask is None:
        return quickest_attention(queries, keys, values, None, dropout=dropout, scale=scale)
    # Torch's kernel must not see an empty row, on which kernels and versions differ: opened before, zero after.
    empty = ~mask.any(dim=-1, keepdim=True)
    added = mask | empty if bias is None else bias.masked_fill(~mask, -torch.inf).masked_fill(empty, 0.0)
    if added.shape[-1] != keys.shape[-2]:  # kernels broadcast over batch and heads, not all of them over keys
        added = added.expand(*added.shape[:-1], keys.shape[-2])
    return quickest_attention(queries, keys, values, added, dropout=dropout, scale=scale).masked_fill(empty, 0.0)


def quickest_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    added: Tensor | None,
    *,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """``scaled_dot_product_attention`` where no row is empty: by torch's fused kernel, or product by product.

    Arguments:
        added: to the scores, or a boolean mask.
    """
    if not _is_quicker_by_products(queries, keys, values, added):
        return fused_attention(queries, keys, values, added, dropout_p=dropout, scale=scale)
    scores = _scores(queries, keys, scale)
    if added is not None:
        scores = scores.masked_fill(~added, -torch.inf) if added.dtype == torch.bool else scores + added
    return dropped(scores.softmax(dim=-1), dropout) @ values


def _scores(queries: Tensor, keys: Tensor, scale: float | None) -> Tensor:
    return (queries * (queries.shape[-1] ** -0.5 if scale is None else scale)) @ keys.transpose(-2, -1)


#: Weights of all heads of a batch that are kept for a backward pass, at most; beyond, memory counts for more.
_MOST_WEIGHTS = 2**25


def _is_quicker_by_products(queries: Tensor, keys: Tensor, values: Tensor, added: Tensor | None) -> bool:
    """Whether products and softmax, one by one, take less time than what torch does."""
    if queries.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    if added is not None and added.requires_grad:  # which no fused kernel of a processor knows
        return True
    if not (queries.requires_grad or keys.requires_grad or values.requires_grad):
        return False
    is_half = queries.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    return is_half and queries[..., 0].numel() * keys.shape[-2] <= _MOST_WEIGHTS


def attended(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: bool, **options: Unpack[Options]
) -> tuple[Tensor, Tensor | None]:
    """``scaled_dot_product_attention`` for callers that pass ``return_weights`` on; without it there are no weights."""
    if return_weights:
        return scaled_dot_product_attention(queries, keys, values, return_weights=True, **options)
    return scaled_dot_product_attention(queries, keys, values, **options), None


def dropped(weights: Tensor, dropout: float) -> Tensor:
    return F.dropout(weights, dropout) if dropout > 0.0 else weights
