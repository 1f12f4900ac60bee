"""Only differences are listed, and unfair ones are warned of."""

import pytest

from tests.comparison.entries import entry
from tests.results import make_result
from vit_vs_cnn.comparison.differences import (
    differing_settings,
    list_differences,
    repeated_evaluations,
    unfair_differences,
)

MODEL = {"name": "resnet8", "ema_half_life": None, "augmentation": {"flip": True, "mixup": 0.0}}
BASE = {"train_size": 500, "seed": 0, "budget": {"steps": 400, "epochs": None}, "model": MODEL, "trainer": {}}


def _with(**changes):
    return {**BASE, **changes}


def test_only_settings_that_differ_are_listed_and_another_model_is_no_warning(tmp_path):
    found = differing_settings({"a": BASE, "b": _with(budget={"steps": 400, "epochs": 3}, extra=1)})
    assert found == {"budget.epochs": {"a": None, "b": 3}, "extra": {"a": "-", "b": 1}}
    other = _with(model={**BASE["model"], "name": "vit_nano"})
    entries = [entry(tmp_path, "a", config=BASE), entry(tmp_path, "b", config=other)]
    assert unfair_differences(entries) == []
    assert list(list_differences(entries)) == ["model.name", "recipe"]
    entries = [entry(tmp_path, "a"), entry(tmp_path, "b", config={})]
    assert "it is not known how b was trained" in unfair_differences(entries)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_size": 1000}, "their training differs in train_size (a 500, b 1000)"),
        ({"budget": {"steps": 800, "epochs": None}}, "budget.steps (a 400, b 800)"),
        ({"trainer": {"precision": "bf16-mixed"}}, "trainer.precision (a -, b bf16-mixed)"),
        ({"model": {**BASE["model"], "ema_half_life": 0.02}}, "ema_half_life (a None, b 0.02)"),
        ({"model": {**BASE["model"], "augmentation": {"flip": True, "mixup": 0.8}}}, "mixup (a 0.0, b 0.8)"),
    ],
)
def test_unfair_differences_are_warned_of(tmp_path, changes, message):
    entries = [entry(tmp_path, "a", config=BASE), entry(tmp_path, "b", config=_with(**changes))]
    assert message in "; ".join(unfair_differences(entries))


def test_unequal_trials_and_repeated_evaluations_are_warned_of(tmp_path):
    entries = [entry(tmp_path, "a"), entry(tmp_path, "b", result=make_result(trials=7), subset="other")]
    assert "unequal care (a one trial; b best of 7 trials), so the models" in "; ".join(unfair_differences(entries))
    (repeated,) = repeated_evaluations({"a-s0": 1, "b-s0": 3})
    assert repeated.endswith("included: b-s0 3 times")
