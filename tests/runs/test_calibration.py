"""Calibration in bins of equal mass, by hand and against torchmetrics, netcal and a loop."""

import pytest
import torch
from netcal.metrics import ECE

from vit_vs_cnn.runs.evaluation import calibration_error, equal_mass_bins


def error_of(probabilities, labels, **options) -> float:
    confidence, predicted = probabilities.max(1)
    return calibration_error(confidence, predicted.eq(labels), **options)


def _random(count: int = 997):
    generator = torch.Generator().manual_seed(4)
    probabilities = torch.randn(count, 7, generator=generator).double().softmax(1)
    return probabilities, torch.randint(0, 7, (count,), generator=generator)


@pytest.mark.parametrize("count", [15 * 67, 30])
def test_where_no_confidence_ties_the_error_is_that_of_netcal(count):
    probabilities, labels = _random(count)
    theirs = ECE(bins=15, equal_intervals=False).measure(probabilities.numpy(), labels.numpy())
    assert error_of(probabilities, labels) == pytest.approx(float(theirs), abs=1e-6)


def test_some_ties_give_the_bins_and_the_error_that_one_finds_by_hand():
    """Confidences .5 (four), .7, .8, .9; three bins of places 0-2, 3-4, 5-6: the four share the bin of the second."""
    confidence = torch.tensor([0.9, 0.5, 0.7, 0.5, 0.8, 0.5, 0.5], dtype=torch.float64)
    assert equal_mass_bins(confidence, 3).tolist() == [2, 0, 1, 0, 2, 0, 0]
    probabilities = torch.stack([confidence, 1 - confidence], dim=1)
    labels = torch.tensor([0, 0, 1, 1, 0, 1, 1])  # right: .9, one of the .5, .8
    by_hand = (4 * abs(0.25 - 0.5) + 1 * abs(0 - 0.7) + 2 * abs(1 - 0.85)) / 7
    assert error_of(probabilities, labels, bins=3) == pytest.approx(by_hand)
