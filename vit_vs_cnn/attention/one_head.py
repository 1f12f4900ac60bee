"""Attention whose heads are fused to one as soon as they are computed: for those who read weights and train nothing."""

import torch
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.attention.shapes import Keys, Queries, Values, Weights
from vit_vs_cnn.errors import InputError

#: How two heads become one, entry by entry; the mean is divided by their number in the end.
_JOINED = {"mean": torch.add, "max": torch.maximum, "min": torch.minimum}
HEAD_FUSIONS = tuple(_JOINED)
#: Weights of one head that are at hand at once on a processor: about what its cache holds.
AT_ONCE = 2**18

OneHead = Float[Tensor, "batch 1 queries keys"]


def one_head(weights: Weights, head_fusion: str = "mean") -> OneHead:
    """``f_h(A[h, i, j])``, f being "mean", "max" or "min". Fused once more in whatever way, the one head stays.

    Raises:
        InputError: an unknown fusion.
    """
    check_head_fusion(head_fusion)
    if weights.shape[1] == 1:
        return weights
    if head_fusion == "mean":
        return weights.mean(dim=1, keepdim=True)
    return weights.amax(dim=1, keepdim=True) if head_fusion == "max" else weights.amin(dim=1, keepdim=True)


def attend_as_one_head(
    queries: Queries, keys: Keys, values: Values, head_fusion: str = "mean", *, scale: float | None = None
) -> tuple[Float[Tensor, "batch heads queries value_head_dim"], OneHead]:
    """What ``scaled_dot_product_attention`` gives without mask and bias, and ``one_head`` of its weights.

    About as fast as the fused kernels: the weights of one head of a few images are at hand at a time, and serve both.
    There are no gradients.

    Arguments:
        queries, keys, values: see ``scaled_dot_product_attention``.
        head_fusion: see ``one_head``.
        scale: what the scores are multiplied by; ``1 / sqrt(head_dim)`` if None.

    Raises:
        InputError: an unknown fusion.
    """
    check_head_fusion(head_fusion)
    batch, heads, tokens, width = queries.shape
    size = batch if queries.is_cuda else min(batch, max(1, AT_ONCE // (tokens * keys.shape[2]))) or 1
    output = queries.new_empty(batch, tokens, heads, values.shape[-1])  # as the fused kernels lay it out
    fused = queries.new_empty(batch, tokens, keys.shape[2])
    of_others, zero = queries.new_empty(size, *fused.shape[1:]), queries.new_zeros(())
    factor = width**-0.5 if scale is None else scale
    for first in range(0, batch, size):
        part = slice(first, first + size)
        for head in range(heads):
            weights = of_others[: batch - first] if head else fused[part]
            torch.baddbmm(zero, queries[part, head], keys[part, head].mT, beta=0.0, alpha=factor, out=weights)
            torch.softmax(weights, dim=-1, out=weights)
            torch.bmm(weights, values[part, head], out=output[part, :, head])
            if head:
                _JOINED[head_fusion](fused[part], weights, out=fused[part])
    if head_fusion == "mean":
        fused /= heads
    return output.transpose(1, 2), fused.unsqueeze(1)


def check_head_fusion(head_fusion: str) -> None:
    """Raises InputError where there is no such fusion."""
    if head_fusion not in HEAD_FUSIONS:
        raise InputError(f'head_fusion is "{head_fusion}"; allowed: {", ".join(HEAD_FUSIONS)}')
