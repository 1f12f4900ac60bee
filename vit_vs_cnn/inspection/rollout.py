"""Attention rollout, gradient rollout and relevance."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.errors import InputError

#: The weights of one layer.
Weights: TypeAlias = Float[Tensor, "batch heads tokens tokens"]
#: One matrix between tokens for each image.
Matrices: TypeAlias = Float[Tensor, "batch tokens tokens"]
#: Rows that are multiplied by the layers.
Rows: TypeAlias = Float[Tensor, "batch rows tokens"]
#: Start of a map: the share of each token, such as ``AttentionMaps.query``.
Query: TypeAlias = Float[Tensor, "#batch tokens"]


def attention_rollout(
    weights: Sequence[Weights],
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    residual: float = 0.5,
    *,
    num_prefix_tokens: int = 0,
) -> Matrices:
    """Share of each input token in each token after the last layer; rows sum to one.

    ``R = M_L ... M_1``, ``M_l = residual I + (1 - residual) F(A_l)``. F(A) are the fused heads, with rows that sum to
    one; a row of zeros becomes that of the identity. The map of a class token is the row ``R[0, 1:]``, that of a mean
    over the patches ``1^T R / N``; ``rollout_map`` computes either without R. Rollout is class-agnostic: it uses
    neither a class nor the classifier.

    Reference: Abnar & Zuidema 2020, section 3, equation 1.
    Differs: the fused heads are normalized before the identity is added, so that ``residual`` is exact.

    Arguments:
        weights: of each layer, the first layer first, ``(batch, heads, tokens, tokens)``; rows are queries.
        head_fusion: "mean", "max" or "min" over the heads.
        discard_ratio: fraction of each row's entries that is set to zero, the smallest first. The diagonal and the
            columns of the extra tokens are neither counted nor changed.
        residual: share of the residual connection, 0 to 1.
        num_prefix_tokens: number of tokens before the patches, such as the class token; used for discarding alone.

    Raises:
        InputError: weights are missing, their shapes differ, or an option is outside its range.

    Example:
        >>> weights = [torch.rand(2, 4, 16, 16).softmax(-1) for _ in range(3)]  # three layers, four heads
        >>> rollout = attention_rollout(weights, head_fusion="max", discard_ratio=0.9)
        >>> rollout.shape, torch.allclose(rollout.sum(-1), torch.ones(2, 16))
        (torch.Size([2, 16, 16]), True)
    """
    check_weights(weights)
    fused = _fuse_heads(weights, head_fusion, discard_ratio, num_prefix_tokens)
    identity = torch.eye(weights[0].shape[-1]).to(weights[0]).expand(len(weights[0]), -1, -1)
    return propagate_rows(identity, residual, fused)


def rollout_map(
    weights: Sequence[Weights],
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    residual: float = 0.5,
    *,
    query: Query,
    num_prefix_tokens: int = 0,
) -> Float[Tensor, "batch patches"]:
    """One row of ``attention_rollout``, or one mix of its rows, over the patches.

    ``r^T = q^T M_L ... M_1``, multiplied from the left: O(N^2) per layer, not O(N^3). Other arguments and errors: see
    ``attention_rollout``.

    Arguments:
        query: q, the share of each token, for each image or for all.
    """
    fused = _fuse_heads(weights, head_fusion, discard_ratio, num_prefix_tokens)
    return propagate_rows(_query_row(query, weights), residual, fused)[:, 0, num_prefix_tokens:]


def raw_attention_map(
    weights: Sequence[Weights], *, query: Query, num_prefix_tokens: int = 0
) -> Float[Tensor, "batch patches"]:
    """Attention of the last layer alone: ``q^T F(A_L)`` over the patches."""
    return propagate_rows(_query_row(query, weights), 0.0, [weights[-1].mean(dim=1)])[:, 0, num_prefix_tokens:]


def positive_attention(weights: Weights, gradients: Weights) -> Matrices:
    """The part of a layer's attention that raises the class's logit: ``E_h[(dy/dA * A)+]``.

    Reference: Chefer et al. 2021b, equation 5.
    """
    return (gradients * weights).clamp_min(0.0).mean(dim=1)


def gradient_rollout_map(
    weights: Sequence[Weights],
    gradients: Sequence[Weights],
    *,
    query: Query,
    residual: float = 0.5,
    num_prefix_tokens: int = 0,
) -> Float[Tensor, "batch patches"]:
    """Rollout of the attention that raises a class's logit: ``q^T R`` over the patches, as in ``rollout_map``.

    ``R = M_L ... M_1``, ``M_l = residual I + (1 - residual) G_l``, with G_l the ``positive_attention`` of layer l, its
    rows normalized; a row of zeros becomes the row of the identity.

    Reference: Chefer et al. 2021b, equation 5, within Abnar & Zuidema 2020, equation 1.
    Differs: rows are normalized, so that ``residual`` is exact.
    """
    layers = map(positive_attention, reversed(weights), reversed(gradients))
    return propagate_rows(_query_row(query, weights), residual, layers)[:, 0, num_prefix_tokens:]


def relevance_map(
    weights: Sequence[Weights], gradients: Sequence[Weights], *, query: Query, num_prefix_tokens: int = 0
) -> Float[Tensor, "batch patches"]:
    """Relevance of the patches for a class: ``q^T (R - I)``, as in ``rollout_map``.

    ``R_0 = I``, ``R_l = R_{l-1} + G_l R_{l-1}``, with G_l the ``positive_attention`` of layer l. The identity is each
    token's share in itself at the start: equal for all patches under a mean, and zero for patches under the class
    token.

    Reference: Chefer et al. 2021b ("Generic attention-model explainability"), equations 5 and 6.
    Differs: none; no relevance is propagated within a layer, so no rule is needed for it.
    """
    row = _query_row(query, weights)
    added = torch.zeros_like(row)  # without the row itself, beside which half precision would lose it
    for layer, gradient in zip(reversed(weights), reversed(gradients), strict=True):
        added = added + torch.bmm(row + added, positive_attention(layer, gradient))
    return added[:, 0, num_prefix_tokens:]


def propagate_rows(rows: Rows, residual: float, fused: Iterable[Matrices]) -> Rows:
    """``V M_L ... M_1``, ``M = residual I + (1 - residual) F``. F: ``fused`` heads, the last first, rows normalized."""
    if not 0.0 <= residual <= 1.0:
        raise InputError(f"residual is {residual}; allowed: 0 to 1")
    kind = rows.dtype
    rows = rows.to(wide := torch.promote_types(kind, torch.float32))  # quotients of small numbers leave half precision
    for narrow in fused:
        matrices = narrow.to(wide)
        moving, sums = (1 - residual) * rows, matrices.sum(dim=-1)[:, None]
        empty = sums == 0  # such a token keeps its content
        moved = torch.bmm((moving / sums).masked_fill(empty, 0.0), matrices)
        rows = residual * rows + moved + moving * empty
    return rows.to(kind)


def _query_row(query: Query, weights: Sequence[Weights]) -> Float[Tensor, "batch 1 tokens"]:
    """The query as a row for each image, in the type and on the device of the weights."""
    check_weights(weights)
    return query.to(weights[0]).expand(len(weights[0]), -1)[:, None]


def check_weights(weights: object) -> None:
    """Raises InputError: weights are missing, no tensors, not square, or differ in the number of images or tokens."""
    if not isinstance(weights, Sequence | Tensor) or not all(isinstance(layer, Tensor) for layer in weights):
        raise InputError(
            f"weights is a {type(weights).__name__}; needed: a list of the attention weights of every layer, each a "
            "tensor, as in logits, weights = model(images, return_attention=True); for a model and images there is "
            'vit_vs_cnn.inspection.saliency_maps(model, images, "rollout")'
        )
    if not len(weights):
        raise InputError("weights is empty; needed: the attention weights of every layer, the first layer first")
    batch, tokens = weights[0].shape[0], weights[0].shape[-1]
    for number, layer in enumerate(weights):
        if layer.ndim != 4 or (layer.shape[0], *layer.shape[2:]) != (batch, tokens, tokens):
            raise InputError(
                f"weights[{number}] has shape {tuple(layer.shape)}; "
                f"needed: (batch, heads, tokens, tokens) = ({batch}, any, {tokens}, {tokens})"
            )


def _fuse_heads(
    weights: Sequence[Weights], head_fusion: str, discard_ratio: float, num_prefix_tokens: int
) -> Iterator[Matrices]:
    """The fused heads of each layer, the last layer first, one layer at a time; rows are not normalized."""
    if not 0.0 <= discard_ratio < 1.0:
        raise InputError(f"discard_ratio is {discard_ratio}; allowed: 0 up to, but not, 1")
    fusions = {"mean": torch.mean, "max": torch.amax, "min": torch.amin}
    if head_fusion not in fusions:
        raise InputError(f'head_fusion is "{head_fusion}"; allowed: {", ".join(fusions)}')
    for layer in reversed(weights):
        fused = fusions[head_fusion](layer, dim=1)
        if discard_ratio:
            protected = torch.eye(fused.shape[-1], dtype=torch.bool, device=fused.device)
            protected[:, :num_prefix_tokens] = True
            count = (discard_ratio * (~protected).sum(dim=-1)).long()  # of each row
            order = fused.masked_fill(protected, torch.inf).argsort(dim=-1, stable=True)
            ranks = order.argsort(dim=-1)
            fused = fused.masked_fill(ranks < count[:, None], 0.0)
        yield fused
