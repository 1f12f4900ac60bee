"""Calibration of a network, as it is and after one temperature fitted on validation images."""

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from vit_vs_cnn.runs.evaluation import MIN_VALIDATION_IMAGES, calibration_error, fit_temperature, reliability


@dataclass(frozen=True)
class CalibrationScores:
    """Distance of confidence from accuracy.

    Arguments:
        ece: expected calibration error over 15 bins of equal mass.
        nll: mean cross entropy in nats.
        brier: mean squared distance of the probabilities from the one-hot label, summed over classes (0 to 2).
        confidence, accuracy, counts: the reliability diagram, of each bin.
        temperature: divisor of the logits; None if they are scored as they are.
        fitted_on: number of validation images that the temperature was fitted on.
    """

    ece: float
    nll: float
    brier: float
    confidence: list[float]
    accuracy: list[float]
    counts: list[int]
    temperature: float | None = None
    fitted_on: int = 0


def calibration_scores(
    logits: Float[Tensor, "count classes"],
    labels: Int64[Tensor, "count"],
    temperature: float | None = None,
    fitted_on: int = 0,
) -> CalibrationScores:
    """All measures of calibration, in float64. Brier score: ``1/N sum_i sum_c (p_ic - [c = y_i])^2``.

    Reference: Brier, "Verification of forecasts expressed in terms of probability", 1950.
    """
    logits = logits.double() / (temperature or 1.0)
    probabilities, truth = logits.softmax(1), F.one_hot(labels, logits.shape[1]).double()
    confidence, predicted = probabilities.max(1)
    right, nll = predicted.eq(labels), float(F.cross_entropy(logits, labels))
    brier = float((probabilities - truth).square().sum(1).mean())
    ece, bins = calibration_error(confidence, right), reliability(confidence, right)
    return CalibrationScores(ece, nll, brier, *bins, temperature, fitted_on)


def compare_calibration(
    logits: Float[Tensor, "count classes"],
    labels: Int64[Tensor, "count"],
    validation_logits: Float[Tensor, "held classes"] | None = None,
    validation_labels: Int64[Tensor, "held"] | None = None,
) -> list[CalibrationScores]:
    """Scores on test images without a temperature, and with one that is fitted on validation images alone.

    Arguments:
        validation_logits, validation_labels: of images that were neither trained nor tested on, or None. Fewer than
            ``MIN_VALIDATION_IMAGES`` fit no temperature, so there is one score only.
    """
    scores = [calibration_scores(logits, labels)]
    if validation_logits is None or validation_labels is None or len(validation_labels) < MIN_VALIDATION_IMAGES:
        return scores
    temperature = fit_temperature(validation_logits, validation_labels)
    return [*scores, calibration_scores(logits, labels, temperature, len(validation_labels))]
