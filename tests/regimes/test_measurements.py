"""How results are laid out, and what is refused."""

import numpy as np
import pytest
import torch

from tests.regimes.tables import seeded
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes import load_answers, results_of_table
from vit_vs_cnn.regimes.measurements import in_order, measurements_of
from vit_vs_cnn.runs.evaluation import Predictions

IMAGES = 53


def with_cells(results, rng):
    """The results with cells and predictions that give their accuracies."""
    correct = {}
    for result in results:
        hits = rng.permutation(IMAGES) < round(result["accuracy"] * IMAGES)
        result |= {"cell": f"{result['contender']}-{result['train_size']}-{result['seed']}"}
        result |= {"accuracy": float(hits.mean()), "scored_images": IMAGES}
        correct[result["cell"]] = hits
    return results, correct


def test_each_accuracy_and_its_predictions_lie_at_their_contender_size_and_seed():
    table = {"b": {7: 0.2, 11: 0.3, 13: 0.4}, "a": {7: 0.5, 11: 0.6}}
    results, correct = with_cells(seeded(table, seeds=2), np.random.default_rng(0))
    measured = measurements_of(in_order(results[::-1]), correct)
    assert (measured.contenders, measured.sizes, measured.seeds) == (("a", "b"), (7, 11, 13), (0, 1))
    assert measured.correct is not None
    for result in results:
        place = (
            measured.contenders.index(result["contender"]),
            measured.sizes.index(result["train_size"]),
            result["seed"],
        )
        assert measured.accuracy[place] == result["accuracy"]
        np.testing.assert_array_equal(measured.correct[place], correct[result["cell"]])
    assert measured.present.sum() == len(results) == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accuracy": 79.8}, "accuracy 79.8 must be from 0 to 1"),
        ({"seed": 1}, "a 7 1 is there twice"),
    ],
)
def test_impossible_results_are_refused(change, message):
    results = seeded({"a": {7: 0.5}}, seeds=2)
    results[0] |= change
    with pytest.raises(InputError, match=message):
        measurements_of(in_order(results))


def test_a_result_without_its_accuracy_is_named():
    with pytest.raises(InputError, match="result a: it has no accuracy"):
        in_order([{"contender": "a", "train_size": 7, "scored_images": 3}])
    with pytest.raises(InputError, match="there are none"):
        in_order([])


def test_predictions_of_other_runs_are_refused():
    results, correct = with_cells(seeded({"a": {7: 0.5}}, seeds=2), np.random.default_rng(0))
    with pytest.raises(InputError, match="there are none"):
        measurements_of(results, {})
    correct["a-7-1"] = ~correct["a-7-1"]
    with pytest.raises(InputError, match="predictions of a-7-1 are not those that gave its accuracy"):
        measurements_of(results, correct)


def test_a_table_becomes_results_of_one_seed():
    (result,) = results_of_table({"a": {7: 0.5}}, scored_images=11)
    assert result == {"contender": "a", "train_size": 7, "seed": 0, "accuracy": 0.5, "scored_images": 11}


def _save(folder, cell, ids):
    (folder / "cells" / cell).mkdir(parents=True)
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    Predictions(logits, torch.tensor([0, 0, 1]), ids).save(folder / "cells" / cell / "predictions.npz")


def test_predictions_on_disk_become_right_and_wrong(tmp_path):
    for cell in ("x", "y"):
        _save(tmp_path, cell, ["i", "j", "k"])
    loaded = load_answers(tmp_path, [{"cell": "x"}, {"cell": "y"}]).correct
    assert loaded is not None
    assert {cell: hits.tolist() for cell, hits in loaded.items()} == {
        "x": [True, False, True],
        "y": [True, False, True],
    }


def test_predictions_on_different_images_are_not_mixed(tmp_path):
    _save(tmp_path, "x", ["i", "j", "k"])
    _save(tmp_path, "y", ["i", "j", "l"])
    assert load_answers(tmp_path, [{"cell": "x"}, {"cell": "y"}]).correct is None
