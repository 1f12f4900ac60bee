"""Multinomial logistic regression with an L2 penalty chosen on held-out examples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

#: Penalties that are tried, from the strongest to the weakest: 100 to 1e-5, two for each power of ten.
PENALTIES = tuple(float(10 ** (power / 2)) for power in range(4, -11, -1))
#: Number of penalties without a lower held-out loss after which no weaker one is tried: two powers of ten.
MAX_WORSE = 4
#: Largest number of iterations of a fit. It stops earlier if no entry of the gradient is above the tolerance.
MAX_ITERATIONS, GRADIENT_TOLERANCE = 1000, 1e-6


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """A fitted regression: logits are ``features @ weight.T + bias``.

    Arguments:
        penalty: chosen lambda.
        losses: mean cross entropy of the held-out examples in nats, for each penalty that was tried.
    """

    weight: Float[np.ndarray, "classes features"]
    bias: Float[np.ndarray, "classes"]
    penalty: float
    losses: dict[float, float]


def fit_logistic_regression(
    features: Float[np.ndarray, "examples features"],
    labels: Int[np.ndarray, "examples"],
    held_out: tuple[Float[np.ndarray, "held features"], Int[np.ndarray, "held"]],
    *,
    num_classes: int,
    class_weights: Sequence[float] | None = None,
    penalties: Sequence[float] = PENALTIES,
    report_progress: Callable[[str], None] = lambda text: None,
) -> LogisticRegression:
    """Minimize ``mean_i -log softmax(W z_i + b)[y_i] + lambda / 2 |W|^2``, with the lambda of the lowest held-out loss.

    ``z`` are the standardized features. The returned W and b apply to the original features. Constant features have no
    weight. Weaker penalties, which take longest, are not tried after ``MAX_WORSE`` without a lower held-out loss. With
    more features than examples, the minimum is searched for in the span of the examples, which contains it.

    Arguments:
        class_weights: weight of the examples of each class in all means; None for equal weights.
    """
    held_features, held_labels = held_out
    by_class = np.ones(num_classes) if class_weights is None else np.asarray(class_weights, dtype=np.float64)
    mean, std = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
    varies = std > np.maximum(1e-6 * np.abs(features).max(0), 1e-12)  # float32 rounds at 6e-8
    scale = np.divide(1, std, out=np.zeros_like(std), where=varies)
    standard = (features - mean) * scale
    basis = np.linalg.svd(standard, full_matrices=False)[2] if standard.shape[1] > len(standard) else None
    inputs = standard if basis is None else standard @ basis.T
    solution = np.zeros((num_classes, inputs.shape[1] + 1))
    fits: dict[float, np.ndarray] = {}
    losses: dict[float, float] = {}
    for number, penalty in enumerate(sorted(penalties, reverse=True), 1):
        report_progress(f"penalty {number} of at most {len(penalties)}")
        solution = _minimum(inputs, labels, by_class[labels], penalty, solution)
        weight = (solution[:, :-1] if basis is None else solution[:, :-1] @ basis) * scale
        fits[penalty] = np.column_stack([weight, solution[:, -1] - weight @ mean])
        held_logits = held_features @ weight.T + fits[penalty][:, -1]
        losses[penalty] = cross_entropy(held_logits, held_labels, by_class[held_labels])
        if min([*losses.values()][-MAX_WORSE:]) > min(losses.values()):
            break
    best = min(losses, key=lambda penalty: (losses[penalty], -penalty))
    return LogisticRegression(fits[best][:, :-1], fits[best][:, -1], best, losses)


def cross_entropy(
    logits: Float[np.ndarray, "examples classes"],
    labels: Int[np.ndarray, "examples"],
    weights: Float[np.ndarray, "examples"],
) -> float:
    """Weighted mean over i of ``-log softmax(logits_i)[y_i]``, in nats."""
    return float(-(weights * log_softmax(logits, axis=1)[np.arange(len(labels)), labels]).sum() / weights.sum())


def _minimum(
    inputs: np.ndarray, labels: np.ndarray, weights: np.ndarray, penalty: float, start: np.ndarray
) -> np.ndarray:
    """Minimum of the convex loss by L-BFGS, ``(classes, inputs + 1)`` with the bias last."""
    shape, rows = start.shape, np.arange(len(labels))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        both = flat.reshape(shape)
        logits = inputs @ both[:, :-1].T + both[:, -1]
        error = softmax(logits, axis=1)
        error[rows, labels] -= 1
        error *= weights[:, None]
        error /= weights.sum()
        gradient = np.column_stack([error.T @ inputs + penalty * both[:, :-1], error.sum(0)])
        return cross_entropy(logits, labels, weights) + penalty / 2 * float((both[:, :-1] ** 2).sum()), gradient.ravel()

    options = {"maxiter": MAX_ITERATIONS, "gtol": GRADIENT_TOLERANCE, "ftol": 0.0}
    return minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(shape)
