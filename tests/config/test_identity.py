"""The identity of a run is fixed for good: by stored hashes, by stored defaults, and however a setting is written."""

import json
from pathlib import Path

import pytest

from tests.experiments.tiny import tiny_config
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.identity import default_options, default_settings, hash_settings, run_identity
from vit_vs_cnn.config.reading import override
from vit_vs_cnn.models.presets import PRESETS

STORED = json.loads(Path(__file__).with_name("identity.json").read_text(encoding="utf-8"))


def identity_with(values, model="vit", **changes):
    values = json.loads(json.dumps(values))
    for name, value in changes.items():
        override(values, name.replace("__", "."), value)
    return run_identity(experiment_from_dict(values).run_settings(model, 120, 3, fingerprint="f"))


@pytest.fixture
def values(tmp_path):
    return tiny_config(tmp_path) | {"trainer": {}}


def test_runs_keep_their_hashes(values):
    """A change of these values renames all existing runs. It needs another ``IDENTITY_VERSION`` and a conversion."""
    assert {name: hash_settings(identity_with(values, name)) for name in ("vit", "resnet")} == STORED["hashes"]


def test_defaults_equal_the_stored_ones():
    """A default that changes would keep the names of runs and change their results: raise ``IDENTITY_VERSION``.

    A default that was added is entered in identity.json.
    """
    assert json.loads(json.dumps(default_settings())) == STORED["defaults"]
    assert json.loads(json.dumps({name: dict(default_options(name)) for name in PRESETS})) == STORED["options"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"trainer__gradient_clip_val": 1}, {"trainer__gradient_clip_val": 1.0}),
        ({"trainer__precision": 16}, {"trainer__precision": "16-mixed"}),
        ({"trainer__precision": "bf16"}, {"trainer__precision": "bf16-mixed"}),
        ({"models__vit__options__mlp_ratio": 3}, {"models__vit__options__mlp_ratio": 3.0}),
        ({"protocol__budget": {"epochs": 3}}, {"protocol__budget": {"epochs": 3.0}}),
    ],
)
def test_one_value_in_two_spellings_is_one_run(values, first, second):
    assert identity_with(values, **first) == identity_with(values, **second)
    assert identity_with(values, **first) != identity_with(values)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("trainer.precision", value) for value in (32, "32", "32-true")),
        *(("trainer.gradient_clip_val", value) for value in (None, 0.0)),
        *[("trainer.accumulate_grad_batches", 1), ("trainer.sync_batchnorm", False), ("protocol.threads", 1)],
        *[("models.vit.loss", None), ("models.vit.finetune", "full"), ("models.vit.options.dropout", 0.0)],
        *(("models.vit.options.patch_size", value) for value in (4, [4, 4])),
        *[("models.vit.options.position", "learned"), ("models.vit.options.permutation_seed", 0)],
        ("models.vit.options.crop_pct", 1.0),
    ],
)
def test_a_default_that_is_written_out_is_the_same_run(values, setting, value):
    values["models"]["vit"]["options"] = {}
    changes = {setting.replace(".", "__"): value}
    assert identity_with(values, **changes) == identity_with(values)


def test_values_equal_to_shared_or_default_ones_are_the_same_run_and_a_crop_that_weights_may_set_is_not(values):
    values["data"]["augmentation"] = {}
    other = {"flip": False, "crop_padding": 3}
    mine, shared = {"models__vit__augmentation": other}, {"data__augmentation": other}
    assert identity_with(values, **mine) == identity_with(values, **shared) != identity_with(values)
    settings = experiment_from_dict(values).run_settings("vit", 120, 3, fingerprint="f", weights={"hash": "w"})
    written = {**settings, "model": {**settings["model"], "options": {**settings["model"]["options"], "crop_pct": 1.0}}}
    assert run_identity(written) != run_identity(settings)
    values["models"]["vit"] = {"name": "attention/resnet8", "recipe": "none"}
    plain = identity_with(values)
    assert identity_with(values, models__vit__options__released=False, models__vit__options__form="window") == plain
    assert identity_with(values, models__vit__options__released=True) != plain
