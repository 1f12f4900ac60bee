"""Scaled dot-product attention, its masked softmax, and masks."""

from typing import Literal, TypedDict, Unpack, overload

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vit_vs_cnn.attention.arguments import (
    AnyBias,
    AnyMask,
    AttentionOutput,
    Keys,
    Queries,
    Values,
    Weights,
    check_mask,
)

#: Weights of all heads of a batch that a CPU keeps for the backward pass in half precision, at most.
_MAX_SAVED_WEIGHTS = 2**25


def masked_softmax(scores: Float[Tensor, "*rows keys"], mask: AnyMask | None) -> Float[Tensor, "*rows keys"]:
    """Softmax over the keys that the mask allows; a row that may attend to nothing is zero.

    ``weights[i, j] = mask[i, j] exp(scores[i, j]) / sum_k mask[i, k] exp(scores[i, k])``, and 0 where the sum is empty.

    Reference: Vaswani et al. 2017, equation 1 and section 3.2.3.
    Differs: an empty sum gives 0 with zero gradient, where a softmax over minus infinities gives NaN.

    Arguments:
        scores: finite numbers; ``attention_from_scores`` also accepts minus infinity as a mask.
        mask: True where a query may attend, broadcast against ``scores``; None allows all.

    Raises:
        ValueError: if ``mask`` is not boolean, or has more dimensions than ``scores``.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    check_mask(mask, scores.ndim)
    empty = ~mask.any(dim=-1, keepdim=True)
    # An empty row gets scores of 0, not minus infinity: its softmax is then finite, and so is its gradient.
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(empty, 0.0)
    return scores.softmax(dim=-1).masked_fill(empty, 0.0)


class AttentionOptions(TypedDict, total=False):
    """Keyword arguments of ``scaled_dot_product_attention``, for type checkers."""

    mask: Tensor | None
    bias: Tensor | None
    dropout: float
    scale: float | None


@overload
def scaled_dot_product_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_weights: Literal[False] = False,
    **options: Unpack[AttentionOptions],
) -> Tensor: ...


@overload
def scaled_dot_product_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: Literal[True], **options: Unpack[AttentionOptions]
) -> tuple[Tensor, Tensor]: ...


@overload
def scaled_dot_product_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: bool, **options: Unpack[AttentionOptions]
) -> Tensor | tuple[Tensor, Tensor]: ...


def scaled_dot_product_attention(
    queries: Queries,
    keys: Keys,
    values: Values,
    *,
    mask: AnyMask | None = None,
    bias: AnyBias | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    return_weights: bool = False,
) -> AttentionOutput | tuple[AttentionOutput, Weights]:
    """Mean of the values, weighted by the similarity of each key to the query.

    ``Attention(Q, K, V) = softmax(scale Q K^T + bias) V``, ``scale = 1 / sqrt(head_dim)``.

    Reference: Vaswani et al. 2017, equation 1.
    Differs: a query that may attend to nothing gets exactly zero, in outputs and gradients, on both paths.

    Torch's fused kernels have one backward pass. For second derivatives and the transforms of ``torch.func``, call it
    under ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``.

    Arguments:
        values: ``(batch, heads, keys, value_head_dim)``; their width may differ from that of the keys.
        mask: True where a query may attend; broadcast against ``(batch, heads, queries, keys)`` from the right.
        bias: added to the scaled scores, broadcast like ``mask``; minus infinity masks.
        dropout: probability of dropping a weight; 0 outside training.
        scale: factor of the scores; ``1 / sqrt(head_dim)`` if None.
        return_weights: also return the weights ``(batch, heads, queries, keys)`` before dropout, computed without the
            fused kernel. Rows sum to one.

    Raises:
        ValueError: if ``mask`` is not boolean or has more dimensions than ``queries``, or if ``bias`` is boolean.

    Example:
        >>> queries, keys, values = torch.randn(3, 2, 4, 5, 8).unbind()
        >>> scaled_dot_product_attention(queries, keys, values).shape
        torch.Size([2, 4, 5, 8])
        >>> _, weights = scaled_dot_product_attention(queries, keys, values, return_weights=True)
        >>> weights.shape, torch.allclose(weights.sum(-1), torch.ones(2, 4, 5))
        (torch.Size([2, 4, 5, 5]), True)
    """
    if mask is not None:
        check_mask(mask, queries.ndim)
    if bias is not None:
        if bias.dtype == torch.bool:
            raise ValueError("bias must be numbers that are added to the scores, but is boolean; it may be a mask")
        bias = bias.to(queries.dtype)  # first: a finite number there may be minus infinity here, and masks then
    if return_weights:
        scores = _scores(queries, keys, scale)
        if bias is not None:
            mask = (bias != -torch.inf) if mask is None else mask & (bias != -torch.inf)
            scores = scores + bias
        weights = masked_softmax(scores, mask)
        return F.dropout(weights, dropout) @ values, weights
    # Torch's kernels treat an empty row differently: allow it before, set it to zero after.
    if bias is not None and keys.shape[-2]:
        bias = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        empty = bias.detach().amax(dim=-1, keepdim=True) == -torch.inf
        attn_mask = bias.masked_fill(empty, 0.0)
    elif mask is not None and keys.shape[-2]:
        empty = ~mask.any(dim=-1, keepdim=True)
        attn_mask = mask | empty
    else:
        return attend_nonempty(queries, keys, values, None, dropout=dropout, scale=scale)
    if attn_mask.shape[-1] != keys.shape[-2]:  # kernels broadcast over batch and heads, not all of them over keys
        attn_mask = attn_mask.expand(*attn_mask.shape[:-1], keys.shape[-2])
    output = attend_nonempty(queries, keys, values, attn_mask, dropout=dropout, scale=scale)
    return output.masked_fill(empty, 0.0)


def attend_nonempty(
    queries: Queries,
    keys: Keys,
    values: Values,
    attn_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scale: float | None = None,
) -> AttentionOutput:
    """Output of attention in which every query may attend to a key, by a fused kernel or by separate products.

    ``attn_mask`` is boolean, or added to the scores, as of torch's ``scaled_dot_product_attention``.
    """
    if attn_mask is not None:  # torch's fused kernels take masks of two dimensions or of all
        attn_mask = attn_mask[(None,) * (queries.ndim - attn_mask.ndim)]
    if not _explicit_is_faster(queries, keys, values, attn_mask):
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask, dropout_p=dropout, scale=scale)
    scores = _scores(queries, keys, scale)
    if attn_mask is not None:
        is_mask = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if is_mask else scores + attn_mask
    return F.dropout(scores.softmax(dim=-1), dropout) @ values


def _scores(queries: Tensor, keys: Tensor, scale: float | None) -> Tensor:
    return (queries * (queries.shape[-1] ** -0.5 if scale is None else scale)) @ keys.transpose(-2, -1)


def _explicit_is_faster(queries: Tensor, keys: Tensor, values: Tensor, attn_mask: Tensor | None) -> bool:
    """True where separate products and softmax are faster on a CPU than torch's fused kernel with its backward pass.

    This holds in half precision, and where a bias needs a gradient, which no fused kernel of a CPU supports.
    """
    if not (queries.is_cpu and torch.is_grad_enabled()):
        return False
    if attn_mask is not None and attn_mask.requires_grad:
        return True
    is_half = queries.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    needs_gradient = is_half and (queries.requires_grad or keys.requires_grad or values.requires_grad)
    return needs_gradient and queries[..., 0].numel() * keys.shape[-2] <= _MAX_SAVED_WEIGHTS


def autocast_type(tensor: Tensor) -> torch.dtype | None:
    """Type of autocast on the device of a tensor; None where it is off."""
    device = tensor.device.type
    is_on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if is_on else None


def valid_length_mask(
    lengths: Int[Tensor, "batch"] | Int[Tensor, "batch queries"], tokens: int
) -> Bool[Tensor, "batch 1 rows tokens"]:
    """Mask of padded sequences, which allows the first tokens of each.

    ``mask[b, 0, i, j] = j < lengths[b]``, or ``j < lengths[b, i]`` with a length for each query.

    Reference: Zhang et al., Dive into Deep Learning, section 11.3.
    Differs: a boolean mask, not scores of -1e6, under which an empty row would attend to all its padding alike.

    Arguments:
        lengths: ``(batch,)``, or ``(batch, queries)``. A length of 0 masks the whole row, which then gets zeros. A
            length above ``tokens`` masks nothing.
        tokens: number of keys, padding included.
    """
    lengths = lengths[:, None] if lengths.ndim == 1 else lengths
    return torch.arange(tokens, device=lengths.device) < lengths[:, None, :, None]


def causal_mask(tokens: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "tokens tokens"]:
    """Mask under which a token attends to itself and to the tokens before it.

    ``mask[i, j] = j <= i``.

    Reference: Vaswani et al. 2017, section 3.2.3.
    Differs: none.
    """
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()


def combine_masks(*masks: AnyMask | None) -> AnyMask | None:
    """Conjunction of masks; None allows all, and the result is None only if all are None."""
    combined: Tensor | None = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined
