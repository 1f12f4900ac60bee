"""Attention rollout: where what a token holds after the last layer came from, as the weights alone tell it."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.attention.one_head import one_head
from vit_vs_cnn.errors import InputError

#: The weights of one layer.
Weights: TypeAlias = Float[Tensor, "batch heads tokens tokens"]
#: One matrix between tokens for each image.
Matrices: TypeAlias = Float[Tensor, "batch tokens tokens"]
#: Rows that go down through the layers: one for each mix of tokens that is asked for.
Asked: TypeAlias = Float[Tensor, "batch asked tokens"]
#: The share of the residual connection: one number, or for each layer one number per token.
Residual: TypeAlias = float | Sequence[Float[Tensor, "batch tokens"]]
#: The same for one layer: the number, or a column for each image.
Share: TypeAlias = float | Float[Tensor, "batch tokens 1"]
#: Who asks: the class token, the mean of the patches, the token of that number, or any mix of the tokens.
Query: TypeAlias = Literal["class", "mean"] | int | Float[Tensor, "#batch tokens"]


def attention_rollout(
    weights: Sequence[Weights],
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    residual: Residual = 0.5,
    *,
    extra_tokens: int = 0,
) -> Matrices:
    """How much of each token stands in each token after the last layer: rows sum to one.

    ``R = M_L ... M_1``, ``M_l = residual I + (1 - residual) F(A_l)``, with F of ``fuse_heads``. A class token's map is
    the row ``R[0, 1:]``, that of a mean over the patches ``1^T R / N``; ``rollout_map`` gives either without R.

    Rollout is class-agnostic: no class, and nothing of the classifier, enters.

    Reference: Abnar & Zuidema 2020, section 3, equation 1; the residual per token: Kobayashi et al. 2021, section 3.
    Differs: the fused heads are normalised before the identity is added, so that ``residual`` is what it says.

    Arguments:
        weights: of each layer, the first layer first, ``(batch, heads, tokens, tokens)``; rows are queries.
        head_fusion: "mean", "max" or "min" over the heads.
        residual: share of the residual connection, 0 to 1; or for each layer ``(batch, tokens)``, as
            ``residual_shares`` measures it.
        extra_tokens: tokens before the patches, such as the class token; only discarding looks at them.

    Raises:
        InputError: these are no weights, their shapes differ, or an option is outside its range.
    """
    check_layers(weights)
    fused = (_joined(layer, head_fusion, discard_ratio, extra_tokens) for layer in reversed(weights))
    return carry_down(every_token(weights), residual_of_layers(weights, residual), fused)


def rollout_map(
    weights: Sequence[Weights],
    *,
    query: Query,
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    residual: Residual = 0.5,
    extra_tokens: int = 0,
) -> Float[Tensor, "batch patches"]:
    """One row of ``attention_rollout``, or one mix of its rows, over the patches: O(N^2) per layer, not O(N^3).

    ``r^T = q^T M_L ... M_1``, from the left: a vector goes down through the layers.

    Arguments:
        query: q; "class" for the first token, "mean" for the mean over the patches, the number of a token, or
            ``(batch, tokens)``.
        weights, head_fusion, discard_ratio, residual, extra_tokens: see ``attention_rollout``.

    Raises:
        InputError: as ``attention_rollout``; or there is no such token.
    """
    vector = query_vector(query, weights, extra_tokens)
    fused = (_joined(layer, head_fusion, discard_ratio, extra_tokens) for layer in reversed(weights))
    return carry_down(vector, residual_of_layers(weights, residual), fused)[:, 0, extra_tokens:]


def raw_attention_map(
    weights: Sequence[Weights], *, query: Query, layer: int = -1, head_fusion: str = "mean", extra_tokens: int = 0
) -> Float[Tensor, "batch patches"]:
    """What one layer alone attends to: ``q^T F(A_l)`` over the patches.

    Arguments:
        layer: which one, the first being 0; -1 for the last.
    """
    vector = query_vector(query, weights, extra_tokens)
    if not -len(weights) <= layer < len(weights):
        raise InputError(f"layer is {layer}; allowed: 0 to {len(weights) - 1}, or -1 for the last")
    return torch.bmm(vector, fuse_heads(weights[layer], head_fusion))[:, 0, extra_tokens:]


def fuse_heads(
    weights: Weights, head_fusion: str = "mean", discard_ratio: float = 0.0, *, extra_tokens: int = 0
) -> Matrices:
    """One matrix for all heads, its rows summing to one.

    ``F(A)[i, j] = f_h(A[h, i, j]) / sum_k f_h(A[h, i, k])``, and after discarding the same over what is left. A row of
    zeros becomes that of the identity: such a token keeps what it has.

    Reference: Abnar & Zuidema 2020, section 3 (mean).
    Differs: other fusions than the mean; discarding, by row.

    Arguments:
        head_fusion: f, "mean", "max" or "min".
        discard_ratio: fraction of each row's entries that is set to zero, the smallest first; the diagonal and the
            columns of the extra tokens are neither counted nor touched.
        extra_tokens: how many columns, from the first, those are.

    Raises:
        InputError: an unknown fusion, or a ratio that is not in [0, 1).
    """
    joined = _joined(weights, head_fusion, discard_ratio, extra_tokens)
    sums = joined.sum(dim=-1, keepdim=True)  # keepdim: without it the columns are divided
    empty = sums == 0
    return torch.where(empty, torch.eye(joined.shape[-1]).to(joined), joined / sums.masked_fill(empty, 1.0))


def layer_matrix(share: Share, fused: Matrices) -> Matrices:
    """``M = residual I + (1 - residual) F``, row by row."""
    return share * torch.eye(fused.shape[-1]).to(fused) + (1 - share) * fused


def carry_down(asked: Asked, shares: Sequence[Share], fused: Iterable[Matrices]) -> Asked:
    """``V M_L ... M_1`` of ``layer_matrix`` without any M, from the last layer's fused heads on, their rows not yet
    normalised. Quotients of small numbers leave the range of half precision, so all is in single precision at least.
    """
    kind = asked.dtype
    asked = asked.to(wide := torch.promote_types(kind, torch.float32))
    for share, narrow in zip(reversed(shares), fused, strict=True):
        matrices, kept = narrow.to(wide), share.mT if isinstance(share, Tensor) else share
        given, sums = (1 - kept) * asked, matrices.sum(dim=-1)[:, None]
        empty = sums == 0  # such a token keeps what it has, as in ``fuse_heads``
        moved = torch.bmm((given / sums).masked_fill(empty, 0.0), matrices)
        asked = kept * asked + moved + given * empty
    return asked.to(kind)


def every_token(weights: Sequence[Weights]) -> Matrices:
    """Each token asks for itself: the identity, in the type and on the device of the weights."""
    check_layers(weights)
    return torch.eye(weights[0].shape[-1]).to(weights[0]).expand(len(weights[0]), -1, -1)


def query_vector(query: Query, weights: Sequence[Weights], extra_tokens: int) -> Float[Tensor, "batch 1 tokens"]:
    """The mix of tokens that a query stands for, in the type and on the device of the weights."""
    check_layers(weights)
    batch, _, tokens, _ = weights[0].shape
    if not 0 <= extra_tokens < tokens:
        raise InputError(f"extra_tokens is {extra_tokens}; allowed: 0 to {tokens - 1}, as there are {tokens} tokens")
    if isinstance(query, Tensor):
        if query.shape not in ((batch, tokens), (1, tokens)):
            raise InputError(f"query has shape {tuple(query.shape)}; allowed: ({batch}, {tokens}) or (1, {tokens})")
        return query.to(weights[0]).expand(batch, -1)[:, None]
    vector = weights[0].new_zeros(batch, 1, tokens)
    if query == "mean":
        vector[..., extra_tokens:] = 1 / (tokens - extra_tokens)
        return vector
    if query == "class" and not extra_tokens:
        raise InputError('query is "class", but extra_tokens is 0; allowed: "mean", or extra_tokens of 1 or more')
    token = 0 if query == "class" else query
    if not isinstance(token, int) or not 0 <= token < tokens:
        raise InputError(f'query is {query!r}; allowed: "class", "mean", a token from 0 to {tokens - 1}, or a tensor')
    vector[..., token] = 1.0
    return vector


def check_layers(weights: object) -> None:
    """Raises InputError where weights are missing or no tensors, or not square and of one shape in batch and tokens."""
    is_sequence = isinstance(weights, Sequence | Tensor)
    wrong = [(i, layer) for i, layer in enumerate(weights) if not isinstance(layer, Tensor)] if is_sequence else []
    if not is_sequence or wrong:
        what = (
            f"weights[{wrong[0][0]}] is a {type(wrong[0][1]).__name__}"
            if wrong
            else f"weights is a {type(weights).__name__}"
        )
        raise InputError(
            f"{what}; needed: the attention weights of every layer, as in "
            "logits, weights = model(images, return_attention=True); for a model and images there is "
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


def residual_of_layers(weights: Sequence[Weights], residual: Residual) -> Sequence[Share]:
    """The residual's share in each layer: the number, or a column for each image."""
    if isinstance(residual, int | float):
        if not 0.0 <= residual <= 1.0:
            raise InputError(f"residual is {residual}; allowed: 0 to 1")
        return [float(residual)] * len(weights)
    expected = [(layer.shape[0], layer.shape[-1]) for layer in weights]
    if [tuple(share.shape) for share in residual] != expected:
        given = [tuple(share.shape) for share in residual]
        raise InputError(f"residual has shapes {given}; needed: (batch, tokens) for each layer, {expected}")
    if any(bool(((share < 0) | (share > 1)).any()) for share in residual):
        raise InputError("residual has a share outside its range; allowed: 0 to 1")
    return [share.to(layer).unsqueeze(-1) for share, layer in zip(residual, weights, strict=True)]


def _joined(weights: Weights, head_fusion: str, discard_ratio: float, extra_tokens: int) -> Matrices:
    """``fuse_heads`` before its rows are normalised."""
    if not 0.0 <= discard_ratio < 1.0:
        raise InputError(f"discard_ratio is {discard_ratio}; allowed: 0 up to, but not, 1")
    fused = one_head(weights, head_fusion).squeeze(1)
    return _discard(fused, discard_ratio, extra_tokens) if discard_ratio else fused


def _discard(fused: Matrices, ratio: float, extra_tokens: int) -> Matrices:
    """Zeros in place of each row's smallest entries, the protected ones aside; of equal ones the first go first."""
    tokens = fused.shape[-1]
    protected = torch.eye(tokens, dtype=torch.bool, device=fused.device)
    protected[:, :extra_tokens] = True
    count = (ratio * (~protected).sum(dim=-1)).long()  # of each row
    order = fused.masked_fill(protected, torch.inf).argsort(dim=-1, stable=True)
    gone = torch.arange(tokens, device=fused.device) < count[:, None]
    return fused.masked_fill(torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, gone.expand_as(order)), 0.0)
