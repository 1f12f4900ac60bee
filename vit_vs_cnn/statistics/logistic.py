"""Multinomial logistic regression with a quadratic penalty that is chosen on held-out examples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

#: From the strongest to the weakest, two a decade.
PENALTIES = tuple(float(10 ** (power / 2)) for power in range(4, -11, -1))
#: Iterations of a fit, and the largest entry of the gradient at which it ends.
ITERATIONS, GRADIENT = 1000, 1e-6


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted regression: logits are ``features @ weight.T + bias``.

    Arguments:
        penalty: the lambda that was chosen.
        losses: mean cross entropy of the held-out examples in nats, for each penalty that was tried.
    """

    weight: Float[np.ndarray, "classes features"]
    bias: Float[np.ndarray, "classes"]
    penalty: float
    losses: dict[float, float]


def fit_logistic(
    features: Float[np.ndarray, "examples features"],
    labels: Int[np.ndarray, "examples"],
    held_out: tuple[Float[np.ndarray, "held features"], Int[np.ndarray, "held"]],
    *,
    num_classes: int,
    penalties: Sequence[float] = PENALTIES,
) -> Logistic:
    """The W, b with the least ``mean_i -log softmax(W z_i + b)[y_i] + lambda / 2 |W|^2``, for the lambda with the least
    cross entropy on held-out examples.

    ``z`` are the features less their mean, over their standard deviation; mean and deviation are those of the examples,
    and are taken into W and b that are given, so that these belong to the features as they are. A feature that does not
    vary counts for nothing. Where there are more features than examples the minimum is looked for in the span of the
    examples, in which it lies.

    Raises:
        ValueError: no examples, or none held out.
    """
    held_features, held_labels = held_out
    if not len(features) or not len(held_features):
        raise ValueError(f"{len(features)} examples and {len(held_features)} held out; both must be at least 1")
    mean, std = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
    varies = std > np.maximum(1e-6 * np.abs(features).max(0), 1e-12)  # float32 rounds at 6e-8 of what is averaged
    scale = np.where(varies, 1 / np.where(varies, std, 1), 0.0)
    standard = (features - mean) * scale
    basis = np.linalg.svd(standard, full_matrices=False)[2] if standard.shape[1] > len(standard) else None
    inputs = standard if basis is None else standard @ basis.T
    found = np.zeros((num_classes, inputs.shape[1] + 1))
    fits: dict[float, np.ndarray] = {}
    losses: dict[float, float] = {}
    for penalty in sorted(penalties, reverse=True):
        found = _minimum(inputs, labels, penalty, found)
        weight = (found[:, :-1] if basis is None else found[:, :-1] @ basis) * scale
        fits[penalty] = np.column_stack([weight, found[:, -1] - weight @ mean])
        losses[penalty] = cross_entropy(held_features @ weight.T + fits[penalty][:, -1], held_labels)
    best = min(losses, key=lambda penalty: (losses[penalty], -penalty))
    return Logistic(fits[best][:, :-1], fits[best][:, -1], best, losses)


def cross_entropy(logits: Float[np.ndarray, "examples classes"], labels: Int[np.ndarray, "examples"]) -> float:
    """``mean_i -log softmax(logits_i)[y_i]``, in nats."""
    return float(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean())


def _minimum(inputs: np.ndarray, labels: np.ndarray, penalty: float, start: np.ndarray) -> np.ndarray:
    """The penalised minimum by L-BFGS, ``(classes, inputs + 1)`` with the bias last; it is convex."""
    shape, rows = start.shape, np.arange(len(labels))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        both = flat.reshape(shape)
        logits = inputs @ both[:, :-1].T + both[:, -1]
        error = softmax(logits, axis=1)
        error[rows, labels] -= 1
        error /= len(labels)
        gradient = np.column_stack([error.T @ inputs + penalty * both[:, :-1], error.sum(0)])
        return cross_entropy(logits, labels) + penalty / 2 * float((both[:, :-1] ** 2).sum()), gradient.ravel()

    options = {"maxiter": ITERATIONS, "gtol": GRADIENT, "ftol": 0.0}
    return minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(shape)
