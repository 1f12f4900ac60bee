from dataclasses import replace

import pytest

from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.experiments import timing
from vit_vs_cnn.experiments.timing import choose_precision
from vit_vs_cnn.files import write_text


@pytest.fixture
def experiment(tmp_path):
    return replace(tiny_experiment(tmp_path), trainer={"precision": "auto", "accelerator": "cpu"})


@pytest.mark.parametrize(("units", "precision"), [([], None), (["AMX"], "bf16-mixed")])
def test_half_precision_is_chosen_where_there_are_units_for_it(experiment, monkeypatch, units, precision):
    monkeypatch.setattr(timing, "bfloat16_units", lambda: units)
    assert choose_precision(experiment).trainer.get("precision") == precision


@pytest.mark.parametrize("folder", [".", "tuning"])
def test_an_experiment_and_its_trials_are_continued_in_their_precision(experiment, monkeypatch, folder):
    monkeypatch.setattr(timing, "bfloat16_units", lambda: [])
    write_text(experiment.folder / folder / "experiment.yaml", "trainer: {precision: bf16-mixed}\n")
    assert choose_precision(experiment).trainer["precision"] == "bf16-mixed"


def test_a_precision_that_is_named_stays(experiment):
    named = replace(experiment, trainer={"precision": "32-true"})
    assert choose_precision(named) is named
