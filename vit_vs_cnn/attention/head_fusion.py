"""Attention weights fused over the heads as soon as they are computed, where no gradients are needed."""

import torch
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.attention.arguments import AttentionOutput, Keys, Queries, Values, Weights
from vit_vs_cnn.errors import InputError

#: Operation that joins two heads, entry by entry; the mean is divided by the number of heads at the end.
_OPERATIONS = {"mean": torch.add, "max": torch.maximum, "min": torch.minimum}
HEAD_FUSIONS = tuple(_OPERATIONS)
#: Weights of one head that a CPU holds at once: about the size of its cache.
MAX_CACHED_WEIGHTS = 2**18

FusedWeights = Float[Tensor, "batch 1 queries keys"]


def reduce_heads(weights: Weights, head_fusion: str = "mean") -> FusedWeights:
    """Mean, maximum or minimum over the heads, ``f_h(A[h, i, j])``; reduced weights stay as they are.

    Raises:
        InputError: if the fusion is unknown.
    """
    check_head_fusion(head_fusion)
    if weights.shape[1] == 1:
        return weights
    if head_fusion == "mean":
        return weights.mean(dim=1, keepdim=True)
    return weights.amax(dim=1, keepdim=True) if head_fusion == "max" else weights.amin(dim=1, keepdim=True)


def attention_with_fused_heads(
    queries: Queries, keys: Keys, values: Values, head_fusion: str = "mean", *, scale: float | None = None
) -> tuple[AttentionOutput, FusedWeights]:
    """Output of ``scaled_dot_product_attention`` without mask and bias, and ``reduce_heads`` of its weights.

    About as fast as the fused kernels: the weights of one head of a few images are computed at a time. There are no
    gradients.

    Arguments:
        queries, keys, values: see ``scaled_dot_product_attention``.
        head_fusion: see ``reduce_heads``.
        scale: factor of the scores; ``1 / sqrt(head_dim)`` if None.

    Raises:
        InputError: if the fusion is unknown.
    """
    check_head_fusion(head_fusion)
    batch, heads, tokens, width = queries.shape
    size = batch if queries.is_cuda else min(batch, max(1, MAX_CACHED_WEIGHTS // (tokens * keys.shape[2]))) or 1
    output = queries.new_empty(batch, tokens, heads, values.shape[-1])  # in the memory order of the fused kernels
    fused = queries.new_empty(batch, tokens, keys.shape[2])
    other_heads, zero = queries.new_empty(size, *fused.shape[1:]), queries.new_zeros(())
    factor = width**-0.5 if scale is None else scale
    for start in range(0, batch, size):
        part = slice(start, start + size)
        for head in range(heads):
            weights = other_heads[: batch - start] if head else fused[part]
            torch.baddbmm(zero, queries[part, head], keys[part, head].mT, beta=0.0, alpha=factor, out=weights)
            torch.softmax(weights, dim=-1, out=weights)
            torch.bmm(weights, values[part, head], out=output[part, :, head])
            if head:
                _OPERATIONS[head_fusion](fused[part], weights, out=fused[part])
    if head_fusion == "mean":
        fused /= heads
    return output.transpose(1, 2), fused.unsqueeze(1)


def check_head_fusion(head_fusion: str) -> None:
    """Raise InputError unless the fusion is known."""
    if head_fusion not in HEAD_FUSIONS:
        raise InputError(f'head_fusion is "{head_fusion}"; allowed: {", ".join(HEAD_FUSIONS)}')
