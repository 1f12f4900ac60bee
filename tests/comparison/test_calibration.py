"""Calibration against torchmetrics, sklearn and netcal."""

import pytest
import torch
from netcal.metrics import ECE
from scipy import optimize
from sklearn.metrics import brier_score_loss, log_loss
from torch.nn import functional as F

from vit_vs_cnn.comparison.compare import calibration_scores
from vit_vs_cnn.runs.evaluation import fit_temperature, reliability


def _random(count: int = 1005, classes: int = 7, sharp: float = 2.0, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = (logits / sharp / 1.7).softmax(1).multinomial(1, generator=generator)[:, 0]
    return logits, labels


def test_nll_and_brier_are_those_of_sklearn():
    logits, labels = _random()
    ours = calibration_scores(logits, labels)
    probabilities = logits.softmax(1).numpy()
    assert ours.nll == pytest.approx(log_loss(labels, probabilities, labels=range(7)), abs=1e-6)
    assert ours.brier == pytest.approx(
        brier_score_loss(labels, probabilities, labels=range(7), scale_by_half=False), abs=1e-6
    )


def test_the_calibration_error_is_that_of_netcal_with_bins_of_equal_mass():
    logits, labels = _random(count=15 * 67)
    probabilities = logits.softmax(1)
    theirs = ECE(bins=15, equal_intervals=False).measure(probabilities.numpy(), labels.numpy())
    assert calibration_scores(logits, labels).ece == pytest.approx(float(theirs), abs=1e-6)


def test_fewer_images_than_bins_make_no_empty_bins():
    logits, labels = _random(count=11)
    confidence, predicted = logits.softmax(1).max(1)
    assert reliability(confidence, predicted.eq(labels))[2] == [1] * 11


def test_the_temperature_is_where_scipys_minimiser_finds_it():
    logits, labels = _random(sharp=3.0)
    found = optimize.minimize_scalar(
        lambda t: float(F.cross_entropy(logits / t, labels)),
        bounds=(0.1, 20),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert fit_temperature(logits, labels) == pytest.approx(found.x, rel=1e-5)


def test_where_all_is_right_or_all_is_wrong_the_temperature_stays_finite():
    logits = torch.eye(5).double()
    assert fit_temperature(logits, torch.arange(5)) == pytest.approx(1e-3)
    assert fit_temperature(logits, (torch.arange(5) + 1) % 5) == pytest.approx(1e3)
