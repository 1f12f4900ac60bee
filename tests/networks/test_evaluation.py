"""The test set is evaluated in one place, and every evaluation is logged."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from tests.refused import refused
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.networks.evaluation import Predictions, evaluate_once, hash_weights, predict
from vit_vs_cnn.runs.test_set_log import TestSetLog


def _images(count: int = 23) -> LabelledImages:
    images = torch.randint(0, 256, (count, 1, 3, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return LabelledImages(images, torch.arange(count) % 2, ("even", "odd"), [f"test/{i}" for i in range(count)])


def _network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(15, 2), nn.Dropout(0.9)).train()


def _scale(images):
    return images.float() / 255


def test_prediction_is_in_evaluation_mode_in_order_and_restores_the_mode():
    network = _network()
    predictions = predict(network, _images(), _scale, batch_size=7)
    assert network.training
    expected = network.eval()(_scale(_images().images))
    torch.testing.assert_close(predictions.logits, expected.detach())
    assert predictions.accuracy == (expected.argmax(1) == _images().labels).double().mean()


def test_predictions_are_read_as_they_were_written(tmp_path):
    predictions = predict(_network(), _images(), _scale)
    predictions.save(tmp_path / "p.npz")
    again = Predictions.load(tmp_path / "p.npz")
    for name in ("labels", "classes", "probability", "label_log_probability", "label_rank"):
        assert torch.equal(getattr(again, name), getattr(predictions, name))
    for name in "sample_ids num_classes accuracy loss calibration_error num_predicted_classes".split():
        assert np.array_equal(getattr(again, name), getattr(predictions, name))


def test_the_label_rank_is_0_exactly_for_correct_predictions():
    logits = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [3.0, 2.0, 2.0], [0.0, 5.0, -1.0]])
    predictions = Predictions.from_logits(logits, torch.tensor([0, 1, 2, 2]), list("abcd"))
    assert predictions.label_rank.tolist() == [0, 1, 2, 2]
    assert torch.equal(predictions.label_rank == 0, predictions.correct)


def test_unusable_stored_predictions_are_refused(tmp_path):
    predict(_network(), _images(), _scale).save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as file:
        arrays = {**file}
    for change, message in (
        ({"label_rank": np.zeros(3, np.int64)}, "its arrays differ in their numbers of images"),
        ({"classes": np.array([{}] * 23, dtype=object)}, ""),  # a pickle
        ({"probability": np.full(23, np.nan, np.float32)}, "predictions for 23 of 23 images"),
    ):
        np.savez(tmp_path / "q.npz", **{**arrays, **change})
        with refused("q.npz", message):
            Predictions.load(tmp_path / "q.npz")


def _evaluate(network, log, label, path=None):
    def answers(images):
        return predict(network, images, _scale, what=label)

    return evaluate_once(answers, _images(), log, weights=hash_weights(network), label=label, path=path)


def test_the_log_counts_evaluations(tmp_path):
    log, network = TestSetLog(tmp_path, _images().fingerprint()), _network()
    _, entry = _evaluate(network, log, "one")
    assert log.find(weights=hash_weights(network), label="one", run=None) == entry
    _evaluate(network, log, "one")
    assert log.count(hash_weights(network)) == 2
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert {line["weights"] for line in lines} == {hash_weights(network)}
    assert {line["test_set"] for line in lines} == {_images().fingerprint()}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_predictions_that_are_not_finite_are_refused_and_not_logged(tmp_path, value):
    """The argmax of NaN is the first class, whose share would look like an accuracy."""
    network = _network()
    with torch.no_grad():
        network[1].bias[1] = value
    with refused("vit-s3: predictions for 23 of 23 images are not finite"):
        _evaluate(network, TestSetLog(tmp_path, _images().fingerprint()), "vit-s3", path=tmp_path / "p.npz")
    assert not list(tmp_path.iterdir())
