"""Forecast of accuracy with more training images, from a power law fitted to the measured sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vit_vs_cnn.analysis.measurements import AccuracyPoint, failed_to_learn
from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.runs.result import RunResult, StartKind
from vit_vs_cnn.statistics.intervals import Z_975, Estimate

#: Smallest number of training-set sizes to which the law, with three parameters, is fitted.
MIN_SIZES_FOR_FORECAST = 4
#: Size of the forecast relative to the largest measured size.
FORECAST_FACTOR = 2
#: Number of samples of the measured accuracies that are fitted for the interval.
SAMPLES = 400
#: Exponents b that are tried first, and number of refinements of the best one between its neighbours.
_EXPONENTS, _REFINEMENTS = np.geomspace(0.01, 3.0, 60), 2


class PowerLaw(NamedTuple):
    """``error(n) = scale n^-exponent + floor``."""

    scale: float
    exponent: float
    floor: float

    def error_at(self, size: int | float) -> float:
        return self.scale * size**-self.exponent + self.floor


@dataclass(frozen=True)
class Forecast:
    """Expected accuracy of a model with more training images than were measured."""

    model: str
    train_size: int
    accuracy: Estimate
    law: PowerLaw


def reason_not_forecast(
    point: AccuracyPoint, runs: Sequence[RunResult], chance: float | None, test_images: int
) -> str | None:
    """Reason why a curve with this last point has no forecast: its network is hardly trained. None if it has one."""
    if chance is not None and failed_to_learn(np.array([point.accuracy.value]), chance, test_images).all():
        return (
            f"with {point.train_size:,} images the accuracy is not clearly better than always predicting the most "
            "frequent class"
        )
    epochs = [run.epochs for run in runs if run.start.start_kind is StartKind.SCRATCH]
    if epochs and min(epochs) < 1:
        return f"training had only {min(epochs):.2g} epochs with {point.train_size:,} images"
    return None


def extrapolate(points: Sequence[AccuracyPoint], train_size: int) -> Forecast:
    """Extrapolate the accuracies of one model, by ascending size, to a larger training-set size.

    The interval combines two errors. The error of the measured accuracies comes from fits to ``SAMPLES`` normal samples
    of them. The error of the law is estimated by a fit without the largest size: its error at that size, scaled with
    the logarithm of the distance. The interval includes the accuracy at the largest measured size, because accuracy may
    not rise further: with equal steps at all sizes it flattens earlier than any power law.

    Reference: Hestness et al., "Deep learning scaling is predictable, empirically", 2017 (power law with a floor).
    Differs: the interval. ``python -m benchmarks.forecast`` checks it on recorded experiments: it forecasts the
    accuracy at the largest size from the smaller ones, and counts the intervals that contain the measured value.
    """
    sizes = np.array([point.train_size for point in points], dtype=float)
    errors = np.array([1 - point.accuracy.value for point in points])
    deviations = np.array([(p.accuracy.high - p.accuracy.low) / (2 * Z_975) for p in points]).clip(1e-4)
    rng = np.random.default_rng(derive_seed("forecast", train_size))
    samples = (errors + deviations * rng.standard_normal((SAMPLES, len(points)))).clip(0, 1)
    fits = _fit(sizes, np.vstack([errors, samples]), deviations)
    law = PowerLaw(*(float(values[0]) for values in fits))
    predicted = fits[0] * train_size ** -fits[1] + fits[2]
    low, high = np.quantile(predicted[1:], [0.025, 0.975])
    shorter = PowerLaw(*(float(v[0]) for v in _fit(sizes[:-1], errors[None, :-1], deviations[:-1])))
    distance = np.log(train_size / sizes[-1]) / np.log(sizes[-1] / sizes[-2])
    drift = abs(shorter.error_at(sizes[-1]) - errors[-1]) * float(distance)
    expected = 1 - law.error_at(train_size)
    below, above = np.hypot(max(0.0, expected - (1 - high)), drift), np.hypot(max(0.0, 1 - low - expected), drift)
    lowest = min(float(expected - below), points[-1].accuracy.value)
    accuracy = Estimate(expected, max(0.0, lowest), min(1.0, float(expected + above)))
    return Forecast(points[0].model, train_size, accuracy, law)


def _fit(
    sizes: Float[np.ndarray, "sizes"],
    errors: Float[np.ndarray, "samples sizes"],
    deviations: Float[np.ndarray, "sizes"],
) -> tuple[Float[np.ndarray, "samples"], Float[np.ndarray, "samples"], Float[np.ndarray, "samples"]]:
    """Scale, exponent and floor by weighted least squares, 0 <= floor <= min(errors), for each sample."""
    exponents = np.tile(_EXPONENTS, (len(errors), 1))
    rows = np.arange(len(errors))
    for step in range(_REFINEMENTS + 1):
        scale, floor, loss = _linear_fit(sizes, errors, 1 / deviations**2, exponents)
        best = loss.argmin(1)
        if step < _REFINEMENTS:
            ends = [exponents[rows, np.clip(best + side, 0, exponents.shape[1] - 1)] for side in (-1, 1)]
            exponents = np.linspace(ends[0], ends[1], 30, axis=1)
    return scale[rows, best], exponents[rows, best], floor[rows, best]


def _linear_fit(
    sizes: Float[np.ndarray, "sizes"],
    errors: Float[np.ndarray, "samples sizes"],
    weights: Float[np.ndarray, "sizes"],
    exponents: Float[np.ndarray, "samples exponents"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale, floor and loss for each sample and exponent."""
    x, y = sizes ** -exponents[..., None], errors[:, None, :]  # (samples, exponents, sizes)
    total = weights.sum()
    mean_x, mean_y = (x * weights).sum(-1) / total, (y * weights).sum(-1) / total
    centred = x - mean_x[..., None]
    slope = (weights * centred * y).sum(-1) / (weights * centred**2).sum(-1)
    floor = np.clip(mean_y - slope * mean_x, 0, errors.min(-1)[:, None])
    scale = np.maximum(0, (weights * x * (y - floor[..., None])).sum(-1) / (weights * x**2).sum(-1))
    loss = (weights * (y - scale[..., None] * x - floor[..., None]) ** 2).sum(-1)
    return scale, floor, loss
