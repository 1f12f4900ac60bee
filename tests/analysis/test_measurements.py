"""Results are arranged by model, training-set size and seed. Contradictory ones are an error."""

import math

import numpy as np
import pytest
import torch

from tests.analysis.tables import seeded, with_predictions
from tests.results import changed, make_result
from vit_vs_cnn.analysis.comparisons import compare_all
from vit_vs_cnn.analysis.measurements import failed_to_learn, far_below_others, measure
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.runs.record import load_predictions
from vit_vs_cnn.statistics.mean_distribution import SeedScores, accuracy_interval, mean_over_seeds


def test_accuracies_and_predictions_are_found_by_model_size_and_seed():
    table = {"b": {7: 0.2, 11: 0.3, 13: 0.4}, "a": {7: 0.5, 11: 0.6}}
    results, correct = with_predictions(seeded(table, seeds=2, images=53))
    measured = measure(results[::-1], correct)
    assert (measured.models, measured.sizes, measured.seeds) == (("a", "b"), (7, 11, 13), (0, 1))
    for result in results:
        scores = measured.scores(*result.coordinates[:2], [result.seed])
        assert scores.accuracy == result.accuracy
        np.testing.assert_array_equal(scores.correct[0], correct[result.run])
    assert len(measured.runs) == len(results) == 10
    assert measured.shared_seeds(13, "a", "b") == []


def test_failed_runs_are_listed_with_points():
    results = seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.4}}, spread=0.01)
    results[0] = changed(results[0], accuracy=0.1)
    measured = measure(results, chance=0.1)
    points = {(p.model, p.train_size): p for p in measured.points("")}
    assert points.keys() == {("a", 7), ("a", 11), ("b", 7)}
    assert points["a", 7].by_seed == tuple(r.accuracy for r in results[:3])
    assert points["a", 11].accuracy == accuracy_interval(measured.scores("a", 11, [0, 1, 2]))
    assert [measured.failed_seeds("a", size) for size in (7, 11)] == [[0], []]


def test_differences_include_failed_runs_unless_all_runs_of_a_model_failed():
    results = seeded({"a": {7: 0.5, 11: 0.1}, "b": {7: 0.4, 11: 0.4}})
    results[1] = changed(results[1], accuracy=0.1)
    found = measure(results, chance=0.1).differences("a", "b", [0, 1, 2])
    assert found.keys() == {7}
    assert found[7] == pytest.approx([results[i].accuracy - results[6 + i].accuracy for i in range(3)])


@pytest.mark.parametrize(
    ("validation", "images", "failed"),
    [
        ((0.70, 0.50, 0.71), 1000, [1]),  # the limit is 12 points + 2.5 x 2.1 points
        ((0.70, 0.55, 0.71), 1000, []),
        ((0.70, 0.50, 0.71), 100, []),  # the standard error is 6.7 points
        ((0.50, 0.71, 0.50), 1000, [0, 2]),
        ((0.95, 0.60, 0.30), 1000, [1, 2]),
        ((0.70, None, 0.20), 1000, []),
    ],
)
def test_runs_with_validation_accuracies_far_below_others_failed(validation, images, failed):
    """Test accuracies have no influence."""
    results = [
        changed(r, validation_accuracy=validation[r.seed], validation_images=images, accuracy=0.9 - 0.3 * r.seed)
        for r in seeded({"a": {7: 0.5}})
    ]
    assert measure(results).failed_seeds("a", 7) == failed


def test_stable_training_is_rarely_called_unstable():
    """Two models, four sizes and three seeds, with a standard deviation of 3.2 points over the seeds of each model."""
    rng = np.random.default_rng(0)
    flags = 0
    for _ in range(2000):
        images = np.full(3, rng.choice([20, 200, 5000]))
        accuracies = rng.binomial(images, 0.7 + 0.032 * rng.standard_normal((8, 3))) / images
        flags += any(far_below_others(row, images).any() for row in accuracies)
    assert flags <= 20


@pytest.mark.parametrize(
    ("accuracies", "chance", "images", "failed"),
    [
        ((0.1, 0.118, 0.7), 0.1, 1000, (True, True, False)),  # the standard error is 0.0095
        ((0.12, 0.7), 0.1, 1000, (False, False)),
        ((7 / 8, 1.0), 0.75, 8, (False, False)),  # with eight images no gap is five standard errors
        ((7 / 8,), 0.75, 8, (True,)),
        ((0.118, 0.125, 0.13), 0.1, 1000, (False, False, False)),  # a hard task, not unstable training
        ((0.1, 0.11), 0.1, 1000, (True, True)),
    ],
)
def test_runs_close_to_chance_learned_nothing(accuracies, chance, images, failed):
    assert failed_to_learn(np.array(accuracies), chance, images).tolist() == [*failed]


def test_contradictory_results_are_refused():
    with pytest.raises(InputError, match="results: a 7 0 occurs twice"):
        measure(seeded({"a": {7: 0.5}}) * 2)
    with pytest.raises(InputError, match="results: empty, so there is nothing to analyse"):
        measure([])
    results, correct = with_predictions(seeded({"a": {7: 0.5}}, seeds=2, images=53))
    with pytest.raises(InputError, match="predictions of a-n7-s1 do not agree with its recorded accuracy"):
        measure(results, correct | {"a-n7-s1": ~correct["a-n7-s1"]})
    other = [results[0], changed(results[1], scored_images=52, accuracy=0.5)]
    with pytest.raises(InputError, match=r"all runs must have the same test images, got \[52, 53\]"):
        measure(other, correct | {"a-n7-s1": np.arange(52) % 2 == 0})


def test_seeds_on_different_folds_may_have_different_test_images():
    results, _ = with_predictions(seeded({"a": {48: 0.5}}, seeds=2, images=12))
    folds = [changed(r, fold=r.seed, scored_images=12 + r.seed, accuracy=(6 + r.seed) / (12 + r.seed)) for r in results]
    assert measure(folds, {r.run: np.arange(12 + r.seed) < 6 + r.seed for r in folds}).fold_train_size(48) == 48
    assert measure(results).fold_train_size(48) is None


def test_the_variance_of_folds_at_each_size_is_that_of_its_own_training_images():
    accuracies = (0.5, 0.75, 0.625)
    results = seeded({name: {37: 0.5, 148: 0.5} for name in "ab"}, images=16)
    results = [changed(r, fold=r.seed, accuracy=accuracies[r.seed]) for r in results]
    measured = measure([changed(r, accuracy=0.25) if r.model == "b" else r for r in results])
    scores = SeedScores(np.array(accuracies), np.full(3, 16))
    expected = [mean_over_seeds(scores, fold_train_size=size).interval(bounds=(0.0, 1.0)) for size in (37, 148)]
    assert [point.accuracy for point in measured.points("") if point.model == "a"] == expected
    smaller, larger = (compared.distribution.seed_parts[0][0] for compared in compare_all(measured))
    assert smaller / larger == pytest.approx(math.sqrt((1 / 3 + 16 / 37) / (1 / 3 + 16 / 148)))


def save(folder, run, ids):
    (folder / run).mkdir(parents=True)
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    Predictions.from_logits(logits, torch.tensor([0, 0, 1]), ids).save(folder / run / "predictions.npz")


def test_stored_predictions_become_answers_and_those_on_different_images_are_used_for_folds_only(tmp_path):
    for run, ids in {"x": "ijk", "y": "ijk", "other": "lmn"}.items():
        save(tmp_path, run, [*ids])
    answers = load_predictions(tmp_path, [make_result(run=run) for run in "xy"])
    assert [answers.correct[run].tolist() for run in "xy"] == [[True, False, True]] * 2
    assert answers.class_counts.tolist() == [2, 1]
    for folds, is_known in (((None, None), False), ((0, 1), True)):
        results = [make_result(run=run, fold=fold) for run, fold in zip(("x", "other"), folds, strict=True)]
        assert (load_predictions(tmp_path, results).correct is not None) == is_known
