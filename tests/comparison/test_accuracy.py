"""Accuracy of groups and pairs of networks, and calibration against torchmetrics, sklearn and netcal."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from netcal.metrics import ECE
from scipy import optimize
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, top_k_accuracy_score
from torch.nn import functional as F

from tests.comparison.entries import CLASSES, given_answers
from vit_vs_cnn.comparison.accuracy import choose_examples, compare_accuracy
from vit_vs_cnn.comparison.compare import calibration_scores
from vit_vs_cnn.networks.evaluation import Predictions, calibration_error, equal_mass_bins, reliability
from vit_vs_cnn.networks.temperature import fit_temperature
from vit_vs_cnn.statistics.pair_comparison import Conclusion
from vit_vs_cnn.statistics.significance import mcnemar_exact


def _right(share: float, seed: int, count: int = 997) -> np.ndarray:
    """Correct on a share of the images, mostly the same for all seeds."""
    ease = np.random.default_rng(0).normal(0, 1.0, count)
    noise = np.random.default_rng(seed).normal(0, 0.5, count)
    return ease + noise > np.quantile(ease + noise, 1 - share)


def test_single_networks_are_compared_by_mcnemar_without_a_conclusion_about_models():
    first, second = _right(0.8, 1), _right(0.6, 2)
    accuracy = compare_accuracy([given_answers(second, "weak"), given_answers(first, "strong")], CLASSES)
    (comparison,) = accuracy.pairs
    assert (comparison.first, comparison.second) == ("strong", "weak")
    assert comparison.p_value == comparison.adjusted_p_value == mcnemar_exact(first, second)
    assert accuracy.only_one_correct == [((first & ~second).sum(), (second & ~first).sum())]
    assert comparison.p_value < 0.05
    assert comparison.conclusion is Conclusion.NO_CONCLUSION
    assert "1 seed was run" in str(comparison.caveat)


BETTER, NONE = Conclusion.SIGNIFICANTLY_BETTER, Conclusion.NO_CONCLUSION


@pytest.mark.parametrize(
    ("seeds", "trials", "subset", "conclusion", "caveat"),
    [
        ((0, 1, 2), (1, 1), "same", BETTER, "None"),
        ((0, 1), (1, 1), "same", NONE, "2 seeds were run"),
        ((0, 1, 2), (1, 4), "same", NONE, "unequal care (a one trial; b best of 4 trials)"),
        ((0, 1, 2), (1, 1), None, NONE, "seeds or training subsets differ"),
    ],
)
def test_a_conclusion_needs_three_paired_seeds_and_equal_trials(seeds, trials, subset, conclusion, caveat):
    tested = [
        given_answers(_right(share, 10 * s + n), name, seed=s, trials=t, subset=subset)
        for n, (name, share, t) in enumerate((("a", 0.85, trials[0]), ("b", 0.55, trials[1])))
        for s in seeds
    ]
    (pair,) = compare_accuracy(tested, CLASSES).pairs
    assert pair.conclusion is conclusion
    assert caveat in str(pair.caveat)
    assert pair.is_primary
    assert pair.difference.low > 0 or len(seeds) == 2


def test_networks_that_learned_nothing_allow_no_conclusion():
    tested = [given_answers(_right(1 / 7, 10 * s + n), "ab"[n], seed=s) for n in range(2) for s in range(3)]
    (pair,) = compare_accuracy(tested, CLASSES).pairs
    assert pair.conclusion is NONE
    assert str(pair.caveat) == "neither is clearly better than always predicting the most frequent class"


def test_confusion_and_top5_equal_sklearn():
    one = given_answers(_right(0.6, 3), "a")
    labels, logits = one.predictions.labels, one.predictions.logits
    noisy = logits + 1e-3 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(4))
    predictions = Predictions.from_logits(noisy, labels, one.predictions.sample_ids)
    found = compare_accuracy([replace(one, predictions=predictions)], CLASSES)
    assert found.confusion["a"] == confusion_matrix(labels, noisy.argmax(1), labels=range(7)).tolist()
    assert found.top5["a"].value == pytest.approx(top_k_accuracy_score(labels, noisy.numpy(), k=5))


def test_classes_are_compared_separately_with_p_values_adjusted_for_all_of_them():
    """By McNemar's test, k images that only the first classifies correctly have p = 2^(1 - k); Holm's method then."""
    first, second = np.ones(997, bool), np.ones(997, bool)
    second[3 : 3 + 7 * 8 : 7] = second[5 : 5 + 7 * 6 : 7] = False  # 8 images of class 3 and 6 of class 5
    accuracy = compare_accuracy([given_answers(first, "a"), given_answers(second, "b")], CLASSES)
    by_name = {one.name: one for one in accuracy.classes}
    assert by_name["dog"].accuracy == {"a": 1.0, "b": pytest.approx(1 - 8 / 142)}
    expected = dict.fromkeys(CLASSES, 1) | {"dog": 7 * 2**-7, "fox": 6 * 2**-5}
    assert {name: one.p_corrected for name, one in by_name.items()} == pytest.approx(expected)
    assert sum(one.images for one in accuracy.classes) == 997


def test_example_images_of_each_outcome_are_determined_by_the_seed():
    tested = [given_answers(_right(0.5, 1), "a"), given_answers(_right(0.5, 2), "b")]
    chosen = choose_examples(tested, seed=1)
    assert list(chosen) == ["only a right", "only b right", "all wrong"]
    a, b = (one.predictions.correct.numpy() for one in tested)
    assert all(a[i] and not b[i] for i in chosen["only a right"])
    assert not any(a[i] or b[i] for i in chosen["all wrong"])
    assert chosen == choose_examples(tested, seed=1) != choose_examples(tested, seed=2)


def _random(count: int = 1005, classes: int = 7, sharp: float = 2.0, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = (logits / sharp / 1.7).softmax(1).multinomial(1, generator=generator)[:, 0]
    return logits, labels


@pytest.mark.parametrize("count", [15 * 67, 30])
def test_nll_and_brier_equal_sklearn_and_ece_equals_netcal_with_bins_of_equal_mass(count):
    logits, labels = _random(count)
    ours = calibration_scores(logits, labels)
    probabilities = logits.softmax(1).numpy()
    assert ours.nll == pytest.approx(log_loss(labels, probabilities, labels=range(7)), abs=1e-6)
    brier = brier_score_loss(labels, probabilities, labels=range(7), scale_by_half=False)
    assert ours.brier == pytest.approx(brier, abs=1e-6)
    theirs = ECE(bins=15, equal_intervals=False).measure(probabilities, labels.numpy())
    assert ours.ece == pytest.approx(float(theirs), abs=1e-6)


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
