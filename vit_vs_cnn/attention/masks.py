"""Who may attend to whom: masks are boolean, True = may attend, and broadcast against (batch, heads, queries, keys)."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vit_vs_cnn.attention.shapes import AnyMask


def valid_length_mask(
    lengths: Int[Tensor, "batch"] | Int[Tensor, "batch queries"], tokens: int
) -> Bool[Tensor, "batch 1 rows tokens"]:
    """Only the first tokens of a sequence are real, the rest is padding.

    ``mask[b, 0, i, j] = j < lengths[b]``, or ``j < lengths[b, i]`` with a length for each query.

    Reference: Zhang et al., Dive into Deep Learning, section 11.3.
    Differs: a boolean mask, not scores of -1e6, under which an empty row would attend to all its padding alike.

    Arguments:
        lengths: ``(batch,)``, or ``(batch, queries)``. A length of 0 masks the whole row, which then gets zeros; one
            above ``tokens`` masks nothing.
        tokens: number of keys, padding included.

    Returns:
        ``(batch, 1, 1, tokens)`` or ``(batch, 1, queries, tokens)``.
    """
    lengths = lengths[:, None] if lengths.ndim == 1 else lengths
    return torch.arange(tokens, device=lengths.device) < lengths[:, None, :, None]


def causal_mask(tokens: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "tokens tokens"]:
    """A token attends to itself and to those before it.

    ``mask[i, j] = j <= i``.

    Reference: Vaswani et al. 2017, section 3.2.3.
    Differs: none.
    """
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()


def combine_masks(*masks: AnyMask | None) -> AnyMask | None:
    """What every mask allows; None allows all, and only None gives None."""
    combined: Tensor | None = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined
