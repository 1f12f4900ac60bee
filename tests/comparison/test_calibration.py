"""Calibration against torchmetrics, sklearn and netcal."""

import pytest
import torch
from netcal.metrics import ECE
from scipy import optimize
from sklearn.metrics import brier_score_loss, log_loss
from torch.nn import functional as F

from vit_vs_cnn.comparison.compare import calibration_scores
from vit_vs_cnn.networks.evaluation import calibration_error, equal_mass_bins, reliability
from vit_vs_cnn.networks.temperature import fit_temperature


def _random(count: int = 1005, classes: int = 7, sharp: float = 2.0, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = (logits / sharp / 1.7).softmax(1).multinomial(1, generator=generator)[:, 0]
    return logits, labels


def test_nll_and_brier_equal_sklearn():
    logits, labels = _random()
    ours = calibration_scores(logits, labels)
    probabilities = logits.softmax(1).numpy()
    assert ours.nll == pytest.approx(log_loss(labels, probabilities, labels=range(7)), abs=1e-6)
    brier = brier_score_loss(labels, probabilities, labels=range(7), scale_by_half=False)
    assert ours.brier == pytest.approx(brier, abs=1e-6)


@pytest.mark.parametrize("count", [15 * 67, 30])
def test_reported_ece_equals_netcal_with_bins_of_equal_mass(count):
    logits, labels = _random(count)
    theirs = ECE(bins=15, equal_intervals=False).measure(logits.softmax(1).numpy(), labels.numpy())
    assert calibration_scores(logits, labels).ece == pytest.approx(float(theirs), abs=1e-6)


def test_temperature_equals_scipys_minimizer_and_is_finite_if_all_images_are_right_or_wrong():
    logits, labels = _random(sharp=3.0)
    options = {"bounds": (0.1, 20), "method": "bounded", "options": {"xatol": 1e-9}}
    found = optimize.minimize_scalar(lambda t: float(F.cross_entropy(logits / t, labels)), **options)
    assert fit_temperature(logits, labels) == pytest.approx(found.x, rel=1e-5)
    logits = torch.eye(5).double()
    assert fit_temperature(logits, torch.arange(5)) == pytest.approx(1e-3)
    assert fit_temperature(logits, (torch.arange(5) + 1) % 5) == pytest.approx(1e3)


def test_calibration_error_with_ties_equals_a_hand_calculation_and_no_bin_is_empty():
    """Confidences 0.5 (four times), 0.7, 0.8, 0.9 in bins of ranks 0-2, 3-4, 5-6. Ties share a bin, here the first."""
    confidence = torch.tensor([0.9, 0.5, 0.7, 0.5, 0.8, 0.5, 0.5], dtype=torch.float64)
    assert equal_mass_bins(confidence, 3).tolist() == [2, 0, 1, 0, 2, 0, 0]
    is_correct = torch.tensor([True, True, False, False, True, False, False])  # 0.9, one 0.5 and 0.8
    by_hand = (4 * abs(0.25 - 0.5) + 1 * abs(0 - 0.7) + 2 * abs(1 - 0.85)) / 7
    assert calibration_error(confidence, is_correct, bins=3) == pytest.approx(by_hand)
    logits, labels = _random(count=11)
    confidence, predicted = logits.softmax(1).max(1)
    assert reliability(confidence, predicted.eq(labels))[2] == [1] * 11


def test_logits_are_divided_by_the_temperature():
    logits = torch.randn(97, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(97) % 5
    found, expected = calibration_scores(logits, labels, 3.0, 11), calibration_scores(logits / 3, labels)
    assert (found.ece, found.nll, found.brier) == pytest.approx((expected.ece, expected.nll, expected.brier))
    assert (found.temperature, found.fitted_on) == (3.0, 11)
