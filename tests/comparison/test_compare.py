"""A whole comparison: what it writes into the log of the test set."""

import pytest

from tests.comparison.entries import entry
from vit_vs_cnn.comparison.compare import Part, compare_entries
from vit_vs_cnn.comparison.entries import predict_once


def test_corrupted_images_are_logged_with_the_accuracy_of_each_network(tmp_path):
    entries = [entry(tmp_path, seed=seed) for seed in (0, 1)]
    comparison, _ = compare_entries(entries, [Part.CORRUPTIONS], count=10)
    logged = [one.values for one in entries[0].log.read()]
    own = comparison.corruptions.by_network
    assert [one["accuracy"] for one in logged] == [own["cnn-s0"], own["cnn-s1"]]
    assert own["cnn-s0"] != own["cnn-s1"]
    assert sum(own.values()) / 2 == pytest.approx(comparison.corruptions.mean["cnn"].value)
    assert all("80 corruptions of 10 test images" in one["what"] for one in logged)


def test_a_network_whose_validation_images_were_used_can_be_tested(tmp_path):
    one = entry(tmp_path)
    assert one.trained.held_out.temperature is None  # a cached property, which vars() of a network contains
    assert predict_once(one).name == one.name
