"""How results are laid out, and what is refused."""

import numpy as np
import pytest
import torch

from tests.regimes.tables import seeded
from tests.results import changed, make_result
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes import load_answers
from vit_vs_cnn.regimes.measurements import in_order, measurements_of
from vit_vs_cnn.runs.evaluation import Predictions

IMAGES = 53


def with_predictions(results, rng):
    """The results, and predictions that give their accuracies."""
    correct = {r.run: rng.permutation(IMAGES) < round(r.accuracy * IMAGES) for r in results}
    return [changed(r, accuracy=float(correct[r.run].mean()), scored_images=IMAGES) for r in results], correct


def test_each_accuracy_and_its_predictions_lie_at_their_contender_size_and_seed():
    table = {"b": {7: 0.2, 11: 0.3, 13: 0.4}, "a": {7: 0.5, 11: 0.6}}
    results, correct = with_predictions(seeded(table, seeds=2), np.random.default_rng(0))
    measured = measurements_of(in_order(results[::-1]), correct)
    assert (measured.contenders, measured.sizes, measured.seeds) == (("a", "b"), (7, 11, 13), (0, 1))
    assert measured.correct is not None
    for result in results:
        name, size, seed = result.coordinates
        place = measured.contenders.index(name), measured.sizes.index(size), seed
        assert measured.accuracy[place] == result.accuracy
        np.testing.assert_array_equal(measured.correct[place], correct[result.run])
    assert measured.present.sum() == len(results) == 10


def test_the_same_run_twice_and_no_runs_are_refused():
    with pytest.raises(InputError, match="a 7 0 is there twice"):
        measurements_of(in_order(seeded({"a": {7: 0.5}}) + seeded({"a": {7: 0.5}})))
    with pytest.raises(InputError, match="there are none"):
        in_order([])


def test_predictions_of_other_runs_are_refused():
    results, correct = with_predictions(seeded({"a": {7: 0.5}}, seeds=2), np.random.default_rng(0))
    with pytest.raises(InputError, match="there are none"):
        measurements_of(results, {})
    correct["a-n7-s1"] = ~correct["a-n7-s1"]
    with pytest.raises(InputError, match="predictions of a-n7-s1 are not those that gave its accuracy"):
        measurements_of(results, correct)


def _save(folder, cell, ids):
    (folder / "cells" / cell).mkdir(parents=True)
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    Predictions(logits, torch.tensor([0, 0, 1]), ids).save(folder / "cells" / cell / "predictions.npz")


def test_predictions_on_disk_become_right_and_wrong(tmp_path):
    for cell in ("x", "y"):
        _save(tmp_path, cell, ["i", "j", "k"])
    loaded = load_answers(tmp_path, [make_result(run="x"), make_result(run="y")]).correct
    assert loaded is not None
    assert {cell: hits.tolist() for cell, hits in loaded.items()} == {
        "x": [True, False, True],
        "y": [True, False, True],
    }


def test_predictions_on_different_images_are_not_mixed(tmp_path):
    _save(tmp_path, "x", ["i", "j", "k"])
    _save(tmp_path, "y", ["i", "j", "l"])
    assert load_answers(tmp_path, [make_result(run="x"), make_result(run="y")]).correct is None
