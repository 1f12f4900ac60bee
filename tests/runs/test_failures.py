"""A failed run records its reason and is retried. The others are executed."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from rich.console import Console

from tests.experiments.tiny import plan_runs, run_quietly, tiny_config
from vit_vs_cnn.cli import describe_error, main
from vit_vs_cnn.errors import RunsFailed
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.runs.experiment_folder import FailureKind, has_failed_since, is_locked, raise_failures, write_failure
from vit_vs_cnn.runs.result import RunState
from vit_vs_cnn.runs.status import read_status
from vit_vs_cnn.workers import run
from vit_vs_cnn.workers.run import WorkRequest, run_one


def _values(output, fixed, **models):
    values = tiny_config(output, budget={"steps": 3})
    values["data"]["augmentation"] = {}
    own = {"class_path": "tests.workers.killer.Fragile", "init_args": {"fixed": str(fixed)}}
    values["models"] = {"own": own, "resnet": values["models"]["resnet"], **models}
    return values


def _own_run(folder):
    """The run of the model that fails until the file "fixed" exists."""
    return next(one for one in plan_runs(_values(folder, folder / "fixed")) if one.model == "own")


def test_a_failed_run_is_reported_with_its_reason_and_retried(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(_values(tmp_path, tmp_path / "fixed")))
    words = ["train", "--config", str(tmp_path / "config.yaml")]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert "failed: own-n120-s3: error at step 0: RuntimeError: out of luck" in printed.err
    assert "Traceback" not in printed.err
    assert "ResNet" in printed.out  # the table of finished runs
    (planned_run,) = tmp_path.glob("tiny/own-*")
    assert json.loads((planned_run / "failed.json").read_text())["message"] == "RuntimeError: out of luck"
    (tmp_path / "fixed").touch()
    assert main(words) == 0
    assert not (planned_run / "failed.json").exists()


def test_a_worker_does_not_repeat_a_run_that_has_just_failed_or_is_finished(tmp_path, monkeypatch):
    """The list of remaining runs is older than the failure, and the run is locked until the failure is written."""
    planned_run = _own_run(tmp_path)
    pool, console, locked = ExperimentData(planned_run.experiment.data), Console(quiet=True), []

    def write_failure_and_note_lock(*arguments):
        locked.append(is_locked(planned_run.folder))
        write_failure(*arguments)

    monkeypatch.setattr(run, "write_failure", write_failure_and_note_lock)
    request = WorkRequest([planned_run], 0, datetime.now(UTC))
    assert run_one(planned_run, pool, console=console, request=request) is RunState.FAILED
    assert locked == [True]
    failed = planned_run.failure.read_text()
    (tmp_path / "fixed").touch()
    assert run_one(planned_run, pool, console=console, request=request) is RunState.FAILED
    assert (planned_run.failure.read_text(), planned_run.is_finished) == (failed, False)
    request = WorkRequest([planned_run], 0)  # of the next command, which tries again
    assert run_one(planned_run, pool, console=console, request=request) is RunState.FINISHED
    files = {path: path.stat().st_mtime_ns for path in planned_run.folder.rglob("*.*") if path != planned_run.lock}
    assert run_one(planned_run, pool, console=console, request=request) is RunState.FINISHED
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_a_diverged_run_does_not_stop_the_others(tmp_path):
    values = _values(tmp_path, tmp_path)
    values["protocol"] |= {"seeds": [3, 4]}
    resnet = values["models"]["resnet"]
    wild = {"optimizer": {"name": "sgd", "lr": 1e30}, "schedule": {"warmup": 0}}
    values["models"] = {"wild": resnet | wild, "resnet": resnet}
    values["trainer"].pop("gradient_clip_val")
    with pytest.raises(RunsFailed) as caught:
        run_quietly(values)
    assert [line.split(":")[0] for line in caught.value.failures] == ["wild-n120-s3", "wild-n120-s4"]
    assert "not a number at step" in caught.value.failures[0]
    status = read_status(tmp_path / "tiny")
    assert (status.count(RunState.FINISHED), status.count(RunState.FAILED), status.seconds_left) == (2, 2, 0.0)
    assert "training diverged at step" in next(run.reason for run in status.runs if run.state == "failed")


@pytest.mark.parametrize("kind", FailureKind)
def test_a_retry_is_advised_only_for_failures_that_may_not_occur_again(tmp_path, kind):
    planned_run = _own_run(tmp_path)
    planned_run.folder.mkdir(parents=True)
    write_failure(planned_run, kind, "lost")
    with pytest.raises(RunsFailed) as caught:
        raise_failures([planned_run])
    advice = describe_error(caught.value, ["train"])[1][-1]
    is_transient = kind in (FailureKind.PROCESS_LOST, FailureKind.OUT_OF_MEMORY)
    assert advice.startswith("Run the same command again" if is_transient else "Fix the cause first")


def test_failures_are_attributed_to_their_command_if_the_clock_is_set_back(tmp_path):
    planned_run = _own_run(tmp_path)
    began = datetime.now(UTC) + timedelta(hours=1)
    planned_run.folder.mkdir(parents=True)
    write_failure(planned_run, FailureKind.DIVERGED, "no", began)
    assert has_failed_since(planned_run, began)
    assert not has_failed_since(planned_run, began + timedelta(hours=1))
