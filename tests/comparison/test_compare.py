"""A whole comparison: what it refuses before it begins, and what it leaves in the ledger."""

import pytest

from tests.comparison.entries import entry
from vit_vs_cnn.comparison import compare as module
from vit_vs_cnn.comparison import entries
from vit_vs_cnn.comparison.compare import Settings, compare
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.external import OnnxNetwork

SOME = {"robustness_images": 10, "attack_images": 5}


@pytest.mark.filterwarnings("ignore:.*have now been tested")
def test_every_look_is_in_the_ledger_with_the_networks_own_accuracy_though_the_attack_fails(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "attack", fails)
    entries = [entry(tmp_path, seed=seed) for seed in (0, 1)]
    settings = Settings(parts=("robustness",), **SOME)
    comparison, _ = compare(entries, settings)
    with pytest.raises(RuntimeError, match="out of memory"):
        compare(entries, Settings(parts=("robustness",), **SOME, attack=True))
    said = [one.said for one in entries[0].ledger.read().entries]
    own = comparison.robustness.corruptions.by_network
    assert [one["accuracy"] for one in said] == [own["cnn-s0"], own["cnn-s1"]] * 2
    assert own["cnn-s0"] != own["cnn-s1"]
    assert sum(own.values()) / 2 == pytest.approx(comparison.robustness.corruptions.mean["cnn"].value)
    assert ["attacked copies of 5" in one["what"] for one in said] == [False, False, True, True]


def test_a_network_without_gradients_is_not_attacked_and_no_image_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(OnnxNetwork, "__init__", lambda self: super(OnnxNetwork, self).__init__())
    entries = [entry(tmp_path), entry(tmp_path, "out/model", network=OnnxNetwork())]
    with pytest.raises(InputError, match="--attack needs gradients, which ONNX has not: out/model"):
        compare(entries, Settings(attack=True))
    assert not entries[0].ledger.read().is_there


def test_a_network_whose_validation_images_were_used_can_be_tested(tmp_path):
    one = entry(tmp_path)
    assert one.held_out.temperature is None  # a cached property, which vars() has and the constructor does not take
    assert entries.tested(one).name == one.name
