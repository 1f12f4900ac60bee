"""A run that is killed at any time and resumed ends like an uninterrupted one."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from tests import children
from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from vit_vs_cnn.errors import Interrupted
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.test_set_log import TestSetLog
from vit_vs_cnn.training.checkpoints import read_checkpoint


def _run(values: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    run_quietly(values)


def _two_outputs(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A config of a run that is not interrupted, and of an equal one that is."""
    return (values | {"output": str(Path(values["output"]) / name)} for name in ("calm", "killed"))


def _run_and_die(values: dict[str, Any], *, step: int, hook: str) -> int | None:
    killer = {"class_path": "tests.workers.killer.KillAtStep", "init_args": {"step": step, "hook": hook}}
    values = values | {"execution": values["execution"] | {"passive_callbacks": [killer]}}
    return _in_child(values)


def _in_child(values: dict[str, Any]) -> int | None:
    return children.exit_code(children.start(_run, values))


def _final_state(folder: Path, model: str) -> tuple[dict[str, Any], str]:
    (run,) = folder.glob(f"tiny/{model}-*")
    return read_checkpoint(run / "checkpoints" / "last.ckpt"), (run / "metrics.csv").read_text()


def _as_text(state: Any) -> str:
    """JSON of nested values; of a tensor its type and its exact values."""
    return json.dumps(state, default=lambda tensor: [str(tensor.dtype), tensor.tolist()])


def _assert_ends_alike(root: Path, model: str) -> None:
    (uninterrupted, uninterrupted_metrics), (killed, killed_metrics) = (
        _final_state(root / kind, model) for kind in ("calm", "killed")
    )
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "global_step"):
        assert _as_text(uninterrupted[part]) == _as_text(killed[part]), part
    assert uninterrupted_metrics == killed_metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "optimizer", "is_compiled"), [("32-true", "adamw", True), ("bf16-mixed", "muon", False)]
)
def test_killed_runs_resume_bit_for_bit(tmp_path, precision, optimizer, is_compiled):
    values = tiny_config(tmp_path, budget={"steps": 11}, compile=is_compiled)
    values["trainer"]["precision"] = precision
    values["models"]["vit"]["optimizer"] = {"name": optimizer}
    uninterrupted, killed = _two_outputs(values)
    assert _in_child(uninterrupted) == 0
    for model, step, hook in (("resnet", 4, "on_train_batch_end"), ("vit", 8, "on_before_optimizer_step")):
        alone = {**killed, "models": {model: killed["models"][model]}}
        assert _run_and_die(alone, step=step, hook=hook) == -signal.SIGKILL
    assert len(list(tmp_path.glob("killed/tiny/*/checkpoints/last.ckpt"))) == 2
    assert not list(tmp_path.glob("killed/tiny/*/result.json"))
    assert _in_child(killed) == 0
    for model in ("vit", "resnet"):
        _assert_ends_alike(tmp_path, model)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [15, 17])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_a_validation_interrupted_by_a_kill_is_logged(tmp_path, precision, steps):
    """Step 15 has a checkpoint, unless it is the last step."""
    values = tiny_config(tmp_path, budget={"steps": steps})
    values["models"] = {"vit": values["models"]["vit"] | {"ema_half_life": None}}
    values["trainer"] |= {"precision": precision}
    uninterrupted, killed = _two_outputs(values)
    assert _in_child(uninterrupted) == 0
    assert _run_and_die(killed, step=15, hook="on_validation_batch_end") == -signal.SIGKILL
    assert _in_child(killed) == 0
    _assert_ends_alike(tmp_path, "vit")


@pytest.mark.slow
@pytest.mark.parametrize(("hook", "patience", "ends"), [("on_train_batch_start", 3, 20), ("on_validation_end", 2, 15)])
def test_callback_state_from_validation_survives_an_interruption(tmp_path, hook, patience, ends):
    """The checkpoint of step 15 is older than the validation of step 15."""
    stopping = {"monitor": "val/accuracy", "mode": "max", "patience": patience, "min_delta": 2.0}
    values = tiny_config(tmp_path, only="resnet")
    values["trainer"] |= {"callbacks": {"class_path": "EarlyStopping", "init_args": stopping}}
    uninterrupted, killed = _two_outputs(values)
    _run(uninterrupted)
    breaker = {"class_path": "tests.workers.killer.RaiseAtStep", "init_args": {"step": 15, "hook": hook}}
    with pytest.raises(Interrupted):
        _run(killed | {"execution": killed["execution"] | {"passive_callbacks": [breaker]}})
    _run(killed)
    _assert_ends_alike(tmp_path, "resnet")
    assert _final_state(tmp_path / "killed", "resnet")[0]["global_step"] == ends


@pytest.mark.parametrize(
    ("precision", "hook", "step"),
    [
        ("64-true", "on_train_batch_start", 4),
        ("32-true", "on_train_batch_start", 6),  # of the last step, which a validation follows
        ("32-true", "on_validation_batch_end", 7),  # of the last validation
        ("32-true", "on_save_checkpoint", 7),  # while the last checkpoint is written
    ],
)
def test_a_stopped_run_resumes_bit_for_bit_and_calls_callbacks_for_every_batch(tmp_path, precision, hook, step):
    values = tiny_config(tmp_path, only="resnet", budget={"steps": 7})
    values["trainer"] |= {"precision": precision, "callbacks": {"class_path": "tests.workers.killer.CountBatches"}}
    values["execution"] |= {"validation_interval": 7}
    uninterrupted, killed = _two_outputs(values)
    _run(uninterrupted)
    asking = {"class_path": "tests.workers.killer.AskToStop", "init_args": {"step": step, "hook": hook}}
    with pytest.raises(Interrupted, match=f"at step {min(step + 1, 7)} of 7"):
        _run(killed | {"execution": killed["execution"] | {"passive_callbacks": [asking]}})
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not list(tmp_path.glob("killed/tiny/*/result.json"))
    _run(killed)
    _assert_ends_alike(tmp_path, "resnet")
    for name in ("calm", "killed"):
        counts = _final_state(tmp_path / name, "resnet")[0]["callbacks"]["CountBatches"]
        assert counts == {"begun": 14, "ended": 14}, "two batches for each step"


@pytest.mark.parametrize("moment", [(TestSetLog, "record"), (Run, "write_result")], ids=lambda moment: moment[1])
def test_a_run_interrupted_after_its_evaluation_is_not_evaluated_again(tmp_path, moment):
    experiment = tiny_experiment(tmp_path, only="resnet", budget={"steps": 2})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*moment, Mock(side_effect=KeyboardInterrupt))
        run_quietly(experiment)
    (predictions,) = tmp_path.glob("tiny/*/predictions.npz")
    before = predictions.read_bytes(), predictions.stat().st_mtime_ns
    (result,) = run_quietly(experiment)  # a second test would warn
    assert (predictions.read_bytes(), predictions.stat().st_mtime_ns) == before
    assert result.scores.test_evaluations == 1
    assert len(next(tmp_path.glob("test-sets/*.jsonl")).read_text().splitlines()) == 1


def test_stored_predictions_of_other_weights_are_not_used(tmp_path):
    experiment = tiny_experiment(tmp_path, only="resnet", budget={"steps": 2})
    run_quietly(experiment)
    (folder,) = tmp_path.glob("tiny/*-s*-*")
    stale = Predictions.load(folder / "predictions.npz")
    zeros = Predictions.from_logits(torch.zeros(60, 10), stale.labels, stale.sample_ids)
    zeros.save(folder / "predictions.npz", of="other")
    (folder / "result.json").unlink()
    with pytest.warns(UserWarning, match="tested 2 times"):
        (result,) = run_quietly(experiment)
    assert torch.equal(Predictions.load(folder / "predictions.npz").probability, stale.probability)
    assert result.scores.test_evaluations == 2


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, 8])
def test_a_killed_pretraining_with_a_run_that_it_teaches_resumes_bit_for_bit(tmp_path, step):
    """Step 8 is in the run that starts from the pretraining of 7 steps."""
    values = tiny_config(tmp_path, train_sizes=[60], batch_size=16, budget={"steps": 11})
    values["data"] |= {"unlabelled": "rest"}
    resnet = values["models"]["resnet"]
    taught = resnet | {"pretrain": {"steps": 7}, "distill": {"teacher": "teacher"}}
    values["models"] = {"taught": taught, "teacher": resnet}
    uninterrupted, killed = _two_outputs(values)
    assert _in_child(uninterrupted) == 0
    assert _run_and_die(killed, step=step, hook="on_train_batch_end") == -signal.SIGKILL
    assert _in_child(killed) == 0
    for model in ("pretraining/resnet8_pretraining", "taught"):
        _assert_ends_alike(tmp_path, model)
    paths = [next((tmp_path / name / "tiny" / "pretraining").glob("*/pretraining.json")) for name in ("calm", "killed")]
    first, second = (json.loads(path.read_text()) for path in paths)
    assert all(first[name] == second[name] for name in ("weights", "loss", "interpolation_loss", "images"))
