"""What any accuracy must be measured against."""

import numpy as np
import pytest
import torch

from vit_vs_cnn.runs.evaluation import Predictions
from vit_vs_cnn.runs.record import Answers


def _naming(named: list[int], labels: list[int], classes: int = 7) -> Predictions:
    logits = torch.nn.functional.one_hot(torch.tensor(named), classes).float()
    return Predictions.from_logits(logits, torch.tensor(labels), [str(i) for i in range(len(labels))])


def test_naming_the_most_frequent_class_has_the_accuracy_of_its_share():
    predictions = _naming([2] * 5, [2, 2, 5, 2, 0])
    assert predictions.class_counts.tolist() == [1, 0, 3, 0, 0, 1, 0]
    assert Answers(predictions.class_counts, {}).majority == predictions.accuracy == pytest.approx(0.6)
    assert predictions.num_predicted_classes == 1
    assert Answers(np.array([31, 31, 38]), {}).majority == 0.38


def told_of_few(named: dict[str, int], there: int) -> list[str]:
    """Of images of seven classes, of which some occur."""
    return Answers((np.arange(7) < there).astype(np.int64), named).few_classes


def test_one_class_or_fewer_than_half_of_those_that_occur_are_told_of():
    named = {"one": 1, "two": 2, "three": 3, "four": 4, "seven": 7}
    assert told_of_few(named, 7) == ["one, two, three predict 1 to 3 of the 7 classes that occur"]
    assert told_of_few({"one": 1}, 2) == ["one predicts 1 of the 2 classes that occur"]
    assert told_of_few({"one": 1}, 1) == []
    assert told_of_few(dict.fromkeys("abcde", 1), 7) == ["a, b, c and 2 more predict 1 of the 7 classes that occur"]
