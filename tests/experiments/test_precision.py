import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.experiments import timing
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.experiments.timing import choose_precision, reuse_saved_precision
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.strict_yaml import Plain


@pytest.fixture
def experiment(tmp_path):
    return replace(tiny_experiment(tmp_path), trainer=Plain({"precision": "auto", "accelerator": "cpu"}))


@pytest.fixture
def speeds(monkeypatch):
    """What steps take: as told here, in the order of the turns."""
    asked = {}

    class Steps:
        def __init__(self, experiment, contender, *_):
            self.key = contender, experiment.trainer.get("precision", "32-true")

        def seconds(self, position: int) -> float:
            return asked[self.key] * (100 if position == 0 else 1)  # the first one warms up

    monkeypatch.setattr(timing, "Steps", Steps)
    return asked


def _asked(experiment) -> tuple[str | None, str]:
    console = Console(file=io.StringIO(), width=200)
    chosen = choose_precision(experiment, ExperimentData(experiment.data), console=console)
    return chosen.trainer.get("precision"), console.file.getvalue()


def test_the_fastest_for_all_contenders_together_is_taken_and_told(experiment, speeds):
    speeds |= {("vit", "32-true"): 3.0, ("vit", "bf16-mixed"): 4.0}
    speeds |= {("resnet", "32-true"): 5.0, ("resnet", "bf16-mixed"): 2.0}
    assert _asked(experiment) == (
        "bf16-mixed",
        "Precision: bf16-mixed, 0.75 (vit) and 2.5 (resnet) times as fast as 32-true here\n",
    )
    speeds["resnet", "bf16-mixed"] = 3.5
    chosen, told = _asked(experiment)
    assert chosen is None  # the cells are those of an experiment that names no precision
    assert told == "Precision: 32-true; bf16-mixed is 0.75 (vit) and 1.4 (resnet) times as fast here\n"


def test_what_was_begun_goes_on_in_its_precision(experiment, speeds, monkeypatch):
    console = Console(quiet=True)
    begun = replace(experiment, trainer=Plain({"precision": "bf16-mixed", "accelerator": "cpu"}))
    run_experiment(begun, console=console)
    assert _asked(experiment) == ("bf16-mixed", "")  # nothing is timed, and nothing told
    assert reuse_saved_precision(experiment).trainer == begun.trainer


def test_trials_that_were_begun_go_on_in_their_precision(experiment, speeds):
    write_text(experiment.folder / "tuning" / "experiment.yaml", "trainer: {precision: bf16-mixed}\n")
    assert _asked(experiment) == ("bf16-mixed", "")


def test_a_precision_that_is_named_stays(experiment):
    named = replace(experiment, trainer=Plain({"precision": "32-true"}))
    assert reuse_saved_precision(named) is named


def test_real_steps_are_timed(experiment):
    chosen, told = _asked(experiment)
    assert chosen in (None, "bf16-mixed")
    assert "(vit) and" in told
    times = timing._precision_seconds(experiment, "vit", ExperimentData(experiment.data))
    assert set(times) == {"32-true", "bf16-mixed"}
    assert all(0 < seconds < 60 for seconds in times.values())
