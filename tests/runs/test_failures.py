"""A cell that fails says why and is tried again; the others run all the same."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from rich.console import Console

from tests.experiments.tiny import run_quietly, tiny_config
from vit_vs_cnn.cli import main
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import RunsFailed
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.experiment_folder import FailureKind, has_failed_since, is_locked, write_failure
from vit_vs_cnn.runs.preparation import grid
from vit_vs_cnn.runs.result import RunState
from vit_vs_cnn.runs.status import read_status
from vit_vs_cnn.workers import run
from vit_vs_cnn.workers.run import WorkRequest, run_one

FRAGILE = "tests.workers.killer.Fragile"


def _values(output, mended, **contenders):
    values = tiny_config(output)
    values["protocol"] |= {"budget": {"steps": 3}}
    values["data"]["augmentation"] = {}
    values["contenders"] = {
        "own": {"model": {"class_path": FRAGILE, "init_args": {"mended": str(mended)}}},
        "resnet": values["contenders"]["resnet"],
        **contenders,
    }
    return values


def test_a_network_that_fails_is_named_with_its_reason_and_tried_again(tmp_path, capsys):
    values = _values(tmp_path, tmp_path / "mended")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    words = ["train", "--config", str(tmp_path / "config.yaml")]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert "failed: own-n120-s3: error at step 0: RuntimeError: out of luck" in printed.err
    assert "Traceback" not in printed.err
    assert "ResNet" in printed.out  # the table of what is finished
    (cell,) = tmp_path.glob("tiny/cells/own-*")
    assert json.loads((cell / "failed.json").read_text())["message"] == "RuntimeError: out of luck"
    (tmp_path / "mended").touch()
    assert main(words) == 0
    assert not (cell / "failed.json").exists()


def test_a_worker_that_looked_before_a_cell_failed_leaves_it_alone(tmp_path, monkeypatch):
    """Its list of what is left is older than the failure; and until that is written, the cell is locked."""
    experiment = experiment_from_dict(_values(tmp_path, tmp_path / "mended"))
    pool, began = ExperimentData(experiment.data), datetime.now(UTC)
    (cell,) = [one for one in grid(experiment, pool, world_size=1) if one.contender == "own"]
    locked, write = [], write_failure
    monkeypatch.setattr(run, "write_failure", lambda *told: (locked.append(is_locked(cell.folder)), write(*told)))
    console, request = Console(quiet=True), WorkRequest([cell], 0, began)
    assert run_one(cell, pool, console=console, request=request) is RunState.FAILED
    assert locked == [True]
    failed = cell.failure.read_text()
    (tmp_path / "mended").touch()
    assert run_one(cell, pool, console=console, request=request) is RunState.FAILED
    assert (cell.failure.read_text(), cell.is_finished) == (failed, False)
    request = WorkRequest([cell], 0)  # of the next command, which tries again
    assert run_one(cell, pool, console=console, request=request) is RunState.FINISHED
    assert cell.is_finished


def test_a_worker_does_not_repeat_a_run_that_another_one_finished(tmp_path):
    experiment = experiment_from_dict(_values(tmp_path, tmp_path / "mended"))
    data, request = ExperimentData(experiment.data), WorkRequest([], 0)
    (resnet,) = [run for run in grid(experiment, data, world_size=1) if run.contender == "resnet"]
    assert run_one(resnet, data, console=Console(quiet=True), request=request) is RunState.FINISHED
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file() and path != resnet.lock}
    assert run_one(resnet, data, console=Console(quiet=True), request=request) is RunState.FINISHED
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_a_diverged_cell_does_not_stop_the_others(tmp_path):
    values = _values(tmp_path, tmp_path)
    values["protocol"] |= {"seeds": [3, 4]}
    values["contenders"].pop("own")
    values["contenders"] = {
        "wild": {**values["contenders"]["resnet"], "optimizer": {"name": "sgd", "lr": 1e30}, "schedule": {"warmup": 0}},
        **values["contenders"],
    }
    values["trainer"].pop("gradient_clip_val")
    with pytest.raises(RunsFailed) as caught:
        run_quietly(experiment_from_dict(values))
    assert [line.split(":")[0] for line in caught.value.failures] == ["wild-n120-s3", "wild-n120-s4"]
    assert "not a number at step" in caught.value.failures[0]
    status = read_status(tmp_path / "tiny")
    assert (status.count(RunState.FINISHED), status.count(RunState.FAILED), status.seconds_left) == (2, 2, 0.0)
    assert "training diverged at step" in next(cell.reason for cell in status.cells if cell.state == "failed")


def test_what_starts_from_a_failed_cell_is_not_run(tmp_path):
    mended = tmp_path / "mended"
    values = _values(tmp_path, mended)
    values["contenders"]["later"] = {**values["contenders"]["own"], "starts_from": "own"}
    with pytest.raises(RunsFailed) as caught:
        run_quietly(experiment_from_dict(values))
    assert len(caught.value.failures) == 2
    assert "later-n120-s3: not run: own-n120-s3, which it starts from, failed" in caught.value.failures


def test_a_clock_that_was_set_back_makes_no_failure_older_than_its_command(tmp_path):
    experiment = experiment_from_dict(_values(tmp_path, tmp_path / "mended"))
    cell, began = (
        grid(experiment, ExperimentData(experiment.data), world_size=1)[0],
        datetime.now(UTC) + timedelta(hours=1),
    )
    cell.folder.mkdir(parents=True)
    write_failure(cell, FailureKind.DIVERGED, "no", began)
    assert has_failed_since(cell, began)
    assert not has_failed_since(cell, began + timedelta(hours=1))
