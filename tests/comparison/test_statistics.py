"""Intervals against outside references and by simulation."""

import numpy as np
import pytest
import torch
from scipy import stats
from torchmetrics.functional.classification import multiclass_calibration_error

from vit_vs_cnn.comparison.statistics import (
    accuracy_over_seeds,
    expected_calibration_error,
    paired_difference,
    wilson_interval,
)


def test_wilsons_interval_solves_its_quadratic():
    estimate = wilson_interval(37, 101)
    z = stats.norm.ppf(0.975)
    for bound in (estimate.low, estimate.high):
        assert (37 / 101 - bound) ** 2 == pytest.approx(z**2 * bound * (1 - bound) / 101)


def test_one_seed_gives_wilsons_interval():
    assert accuracy_over_seeds([37 / 101], 101) == wilson_interval(37, 101)


def test_with_endless_test_images_the_interval_is_students():
    values = [0.61, 0.63, 0.66, 0.60, 0.64]
    estimate = accuracy_over_seeds(values, 10**15)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))


def test_with_equal_seeds_the_interval_is_that_of_the_images():
    estimate = accuracy_over_seeds([0.5, 0.5, 0.5], 400)
    assert estimate.high - estimate.value == pytest.approx(1.959964 * 0.5 / 20, rel=1e-6)


def test_the_paired_interval_covers_a_known_difference_in_19_of_20_simulations():
    """Hard and easy images, seeds that differ: truth is .08 by construction."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        ease = rng.uniform(0.2, 0.8, 300)
        shifts = rng.normal(0, 0.02, (2, 5, 1))
        first = rng.random((5, 300)) < ease + 0.08 + shifts[0]
        second = rng.random((5, 300)) < ease + shifts[1]
        estimate = paired_difference(first.tolist(), second.tolist())
        covered += estimate.low <= 0.08 <= estimate.high
    assert covered >= 0.93 * 400


def test_swapping_the_two_turns_the_sign():
    rng = np.random.default_rng(1)
    first, second = (rng.random((3, 53)) < 0.5 for _ in range(2))
    forth, back = paired_difference(first.tolist(), second.tolist()), paired_difference(second.tolist(), first.tolist())
    assert (forth.value, forth.low, forth.high) == pytest.approx((-back.value, -back.high, -back.low))


def test_with_one_bin_calibration_error_is_that_of_torchmetrics():
    generator = torch.Generator().manual_seed(4)
    probabilities = torch.randn(997, 7, generator=generator).double().softmax(1)
    labels = torch.randint(0, 7, (997,), generator=generator)
    theirs = multiclass_calibration_error(probabilities, labels, num_classes=7, n_bins=1)
    assert expected_calibration_error(probabilities, labels, bins=1) == pytest.approx(float(theirs), abs=1e-6)


def test_calibration_error_equals_a_loop_over_sorted_bins():
    generator = torch.Generator().manual_seed(4)
    probabilities = torch.randn(997, 7, generator=generator).double().softmax(1)
    labels = torch.randint(0, 7, (997,), generator=generator)
    confidence, predicted = (x.numpy() for x in probabilities.max(1))
    total = 0.0
    for part in np.array_split(np.argsort(confidence, kind="stable"), 15):
        total += len(part) / 997 * abs((predicted[part] == labels.numpy()[part]).mean() - confidence[part].mean())
    assert expected_calibration_error(probabilities, labels) == pytest.approx(total)
