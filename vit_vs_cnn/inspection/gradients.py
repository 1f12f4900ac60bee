"""Attention weighed by the gradient of a class: gradient rollout, and relevance."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.rollout import (
    Asked,
    Matrices,
    Query,
    Residual,
    Weights,
    carry_down,
    every_token,
    query_vector,
    residual_of_layers,
)


def positive_contribution(weights: Weights, gradients: Weights) -> Matrices:
    """The part of a layer's attention that speaks for the class: ``E_h[(dy/dA * A)+]``.

    Reference: Chefer et al. 2021b, equation 5.
    Differs: none.
    """
    return (gradients * weights).clamp_min(0.0).mean(dim=1)


def gradient_rollout(weights: Sequence[Weights], gradients: Sequence[Weights], residual: Residual = 0.5) -> Matrices:
    """Rollout of what speaks for a class; rows sum to one.

    ``R = M_L ... M_1``, ``M_l = residual I + (1 - residual) G_l``, with G_l the ``positive_contribution`` of layer l,
    its rows normalised; a row of zeros becomes that of the identity.

    Reference: Chefer et al. 2021b, equation 5, within Abnar & Zuidema 2020, equation 1.
    Differs: rows are normalised, so that ``residual`` is what it says.

    Arguments:
        weights: of each layer, the first layer first, ``(batch, heads, tokens, tokens)``.
        gradients: of the class's logit with respect to each of them, in the same order.
    """
    return _rolled_out(every_token(weights), weights, gradients, residual)


def gradient_rollout_map(
    weights: Sequence[Weights],
    gradients: Sequence[Weights],
    *,
    query: Query,
    residual: Residual = 0.5,
    extra_tokens: int = 0,
) -> Float[Tensor, "batch patches"]:
    """``q^T R`` of ``gradient_rollout`` over the patches, without R; see ``rollout_map``."""
    return _rolled_out(query_vector(query, weights, extra_tokens), weights, gradients, residual)[:, 0, extra_tokens:]


def relevance(weights: Sequence[Weights], gradients: Sequence[Weights]) -> Matrices:
    """Relevance of each token to each token after the last layer, for a class.

    ``R_0 = I``, ``R_l = R_{l-1} + E_h[(dy/dA_l * A_l)+] R_{l-1}``.

    Reference: Chefer et al. 2021b ("Generic attention-model explainability"), equations 5 and 6.
    Differs: none; no relevance is propagated within a layer, so no rule is needed for it.

    Arguments and Raises: as ``gradient_rollout``.
    """
    start = every_token(weights)
    return start + _gained(start, weights, gradients)


def relevance_map(
    weights: Sequence[Weights], gradients: Sequence[Weights], *, query: Query, extra_tokens: int = 0
) -> Float[Tensor, "batch patches"]:
    """``q^T (R - I)`` of ``relevance`` over the patches, without R; see ``rollout_map``.

    The identity is each token's starting share in itself: the same for every patch under a mean, and nothing of a
    patch's under the class token.
    """
    start = query_vector(query, weights, extra_tokens)
    return _gained(start, weights, gradients)[:, 0, extra_tokens:]


def _rolled_out(asked: Asked, weights: Sequence[Weights], gradients: Sequence[Weights], residual: Residual) -> Asked:
    _check_pairs(weights, gradients)
    contributions = map(positive_contribution, reversed(weights), reversed(gradients))
    return carry_down(asked, residual_of_layers(weights, residual), contributions)


def _gained(asked: Asked, weights: Sequence[Weights], gradients: Sequence[Weights]) -> Asked:
    """What comes to the starting share: by itself, as it is far smaller and half precision would lose it in the sum."""
    _check_pairs(weights, gradients)
    gained = torch.zeros_like(asked)
    for layer, gradient in zip(reversed(weights), reversed(gradients), strict=True):
        gained = gained + torch.bmm(asked + gained, positive_contribution(layer, gradient))
    return gained


def _check_pairs(weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    if [layer.shape for layer in weights] != [gradient.shape for gradient in gradients]:
        shapes = [[tuple(layer.shape) for layer in layers] for layers in (weights, gradients)]
        raise InputError(f"gradients have shapes {shapes[1]}; needed: those of the weights, {shapes[0]}")
