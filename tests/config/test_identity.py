"""The identity of a run is fixed for good: by stored hashes, by stored defaults, and however a setting is written."""

import json
from pathlib import Path

import pytest

from tests.experiments.tiny import tiny_config
from vit_vs_cnn.config import identity
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.identity import default_options, default_settings, hash_settings, run_identity
from vit_vs_cnn.config.reading import override
from vit_vs_cnn.models.presets import PRESETS

STORED = json.loads(Path(__file__).with_name("identity.json").read_text(encoding="utf-8"))


def identity_with(values, contender="vit", **changes):
    values = json.loads(json.dumps(values))
    for name, value in changes.items():
        override(values, name.replace("__", "."), value)
    return run_identity(experiment_from_dict(values).run_settings(contender, 120, 3, fingerprint="f"))


@pytest.fixture
def values(tmp_path):
    return tiny_config(tmp_path) | {"trainer": {}}


def test_runs_keep_their_hashes(values):
    """A change of these values renames all existing runs. It needs another ``IDENTITY_VERSION`` and a conversion."""
    hashes = {name: hash_settings(identity_with(values, name)) for name in ("vit", "resnet")}
    assert hashes == STORED["hashes"]


def test_defaults_equal_the_stored_ones():
    """A default that changes would keep the names of runs and change their results: raise ``IDENTITY_VERSION``.

    A default that was added is entered in identity.json.
    """
    known = {name: dict(default_options(name)) for name in PRESETS}
    assert json.loads(json.dumps(default_settings())) == STORED["defaults"]
    assert json.loads(json.dumps(known)) == STORED["options"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"trainer__gradient_clip_val": 1}, {"trainer__gradient_clip_val": 1.0}),
        ({"trainer__precision": 16}, {"trainer__precision": "16-mixed"}),
        ({"trainer__precision": "bf16"}, {"trainer__precision": "bf16-mixed"}),
        ({"contenders__vit__optimizer__lr": 1}, {"contenders__vit__optimizer__lr": 1.0}),
        ({"contenders__vit__model__mlp_ratio": 3}, {"contenders__vit__model__mlp_ratio": 3.0}),
        ({"protocol__budget": {"epochs": 3}}, {"protocol__budget": {"epochs": 3.0}}),
    ],
)
def test_one_value_in_two_spellings_is_one_run(values, first, second):
    assert identity_with(values, **first) == identity_with(values, **second)
    assert identity_with(values, **first) != identity_with(values)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("trainer.precision", 32),
        ("trainer.precision", "32"),
        ("trainer.precision", "32-true"),
        ("trainer.accumulate_grad_batches", 1),
        ("trainer.gradient_clip_val", None),
        ("trainer.gradient_clip_val", 0.0),
        ("trainer.sync_batchnorm", False),
        ("protocol.threads", 1),
        ("contenders.vit.loss", None),
        ("contenders.vit.model.dropout", 0.0),
        ("contenders.vit.model.position", "learned"),
        ("contenders.vit.model.patch_size", 4),
        ("contenders.vit.finetune", "full"),
    ],
)
def test_a_default_that_is_written_out_is_the_same_run(values, setting, value):
    values["contenders"]["vit"]["model"] = {"name": "vit_nano"}
    changes = {setting.replace(".", "__"): value}
    assert identity_with(values, **changes) == identity_with(values)


def test_an_augmentation_equal_to_the_shared_one_is_the_same_run(values):
    other = {"flip": False, "crop_padding": 3}
    mine, shared = {"contenders__vit__augmentation": other}, {"data__augmentation": other}
    assert identity_with(values, **mine) == identity_with(values, **shared) != identity_with(values)


def test_a_renamed_setting_keeps_its_name_in_the_identity(values, monkeypatch):
    before = identity_with(values, contenders__vit__label_smoothing=0.3)
    renamed = experiment_from_dict(values).run_settings("vit", 120, 3, fingerprint="f")
    renamed["contender"]["smoothing"] = 0.3
    del renamed["contender"]["label_smoothing"]
    monkeypatch.setattr(identity, "FORMER_NAMES", {"contender.smoothing": "label_smoothing"})
    assert run_identity(renamed) == before


def test_a_fine_tuned_run_keeps_the_hash_that_it_had_when_the_setting_was_called_tune(values):
    values["contenders"]["vit"] |= {"weights": {"cell": "runs/other"}, "finetune": {"last": 2}}
    assert hash_settings(identity_with(values)) == "0134785ffd"
