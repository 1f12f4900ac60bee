from dataclasses import replace

import pytest
from rich.console import Console

from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.experiments import timing
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.experiments.timing import choose_precision
from vit_vs_cnn.files import write_text


@pytest.fixture
def experiment(tmp_path):
    return replace(tiny_experiment(tmp_path), trainer={"precision": "auto", "accelerator": "cpu"})


@pytest.mark.parametrize(("units", "precision"), [([], None), (["AMX"], "bf16-mixed")])
def test_half_precision_is_chosen_where_there_are_units_for_it(experiment, monkeypatch, units, precision):
    monkeypatch.setattr(timing, "bfloat16_units", lambda: units)
    assert choose_precision(experiment).trainer.get("precision") == precision


def test_an_experiment_is_continued_in_its_precision(experiment, monkeypatch):
    monkeypatch.setattr(timing, "bfloat16_units", lambda: [])
    started = replace(experiment, trainer={"precision": "bf16-mixed", "accelerator": "cpu"})
    run_experiment(started, console=Console(quiet=True))
    assert choose_precision(experiment).trainer == started.trainer


def test_trials_are_continued_in_their_precision(experiment, monkeypatch):
    monkeypatch.setattr(timing, "bfloat16_units", lambda: [])
    write_text(experiment.folder / "tuning" / "experiment.yaml", "trainer: {precision: bf16-mixed}\n")
    assert choose_precision(experiment).trainer["precision"] == "bf16-mixed"


def test_a_precision_that_is_named_stays(experiment):
    named = replace(experiment, trainer={"precision": "32-true"})
    assert choose_precision(named) is named
