"""Progress, loggers and damaged files of runs."""

import contextlib
import csv
import json
import os
import resource
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import children
from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from tests.refused import Evil
from tests.workers import services
from vit_vs_cnn.cli import main
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import RunsFailed
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.status import read_status
from vit_vs_cnn.training.checkpoints import read_checkpoint
from vit_vs_cnn.training.metrics_csv import MetricsCsv, read_rows
from vit_vs_cnn.workers import fit, run

pytestmark = pytest.mark.slow

SHORT = {"budget": {"steps": 2}, "batch_size": 14}
NEVER_BETTER = {"monitor": "val/accuracy", "mode": "max", "patience": 1, "min_delta": 2.0}
STOPPING = {"class_path": "EarlyStopping", "init_args": NEVER_BETTER}


def _resnet(output: Path, *, steps: int = 12, trainer: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """One ResNet on 120 images."""
    values = tiny_config(output, protocol={"budget": {"steps": steps}, "batch_size": 14}, **changes, only="resnet")
    values["trainer"] = {"accelerator": "cpu", "devices": 1, "logger": False, **(trainer or {})}
    values["execution"] = {"checkpoint_interval": 3, "validation_interval": 3} | values["execution"]
    return values


def _run(values: dict[str, Any]) -> RunResult:
    (result,) = run_quietly(values)
    return result


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> tuple[Path, RunResult]:
    """The folder and the result of a run of twelve steps that stopped early."""
    root = tmp_path_factory.mktemp("stopped")
    with contextlib.chdir(root):
        return root, _run(_resnet(Path("runs"), trainer={"callbacks": STOPPING}))


def test_an_early_stopped_run_records_its_actual_cost(stopped):
    root, result = stopped
    checkpoint = read_checkpoint(root / "runs" / "tiny" / result.run / "checkpoints" / "last.ckpt")
    cost = result.cost
    assert cost.steps == checkpoint["global_step"]
    assert cost.ended_early and cost.planned_steps == 12
    assert (cost.images_processed, cost.passes) == (14 * cost.steps, 3)
    status = read_status(root / "runs" / "tiny")
    assert (status.runs[0].state, status.runs[0].step, status.runs[0].steps) == ("done", cost.steps, 12)


def test_an_early_stopped_run_that_was_killed_is_not_trained_further(stopped, tmp_path, monkeypatch):
    root, result = stopped
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    next(tmp_path.rglob("result.json")).unlink()
    again = _run(_resnet(Path("runs"), trainer={"callbacks": STOPPING}))
    assert (again.run, again.weights) == (result.run, result.weights)
    times = {"train_seconds": 0.0, "image_seconds": None}
    assert result.cost.image_seconds and replace(again.cost, **times) == replace(result.cost, **times)


def test_a_run_that_stopped_between_validations_is_not_trained_further(tmp_path):
    callback = {"class_path": "tests.own_classes.StopAtStep", "init_args": {"step": 5}}
    values = _resnet(tmp_path, trainer={"callbacks": callback})
    first = _run(values)
    next(tmp_path.rglob("result.json")).unlink()
    again = _run(values)
    assert first.cost.steps == again.cost.steps == 5
    assert first.weights == again.weights


@pytest.mark.parametrize(
    "how", [{"execution": {"validation_interval": 2}}, {"trainer": {"limit_val_batches": 1}}], ids=["interval", "share"]
)
def test_validation_settings_are_part_of_the_identity_only_with_callbacks(tmp_path, how):
    def identity(blocks: dict[str, Any], **trainer: Any) -> dict[str, Any]:
        values = _resnet(tmp_path, **{**blocks, "trainer": blocks.get("trainer", {}) | trainer})
        return experiment_from_dict(values).run_settings("resnet", 120, 3, fingerprint="f")

    assert identity(how, callbacks=STOPPING) != identity({}, callbacks=STOPPING)
    assert identity(how) == identity({})


def _damage(path: Path, kind: str) -> None:
    content = {"cut short": path.read_bytes()[:40], "nul": b"\0\xff,\0\n" + path.read_bytes(), "list": b"[1]"}
    path.write_bytes(content[kind])


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """An experiment with two models of two steps."""
    root = tmp_path_factory.mktemp("finished")
    with contextlib.chdir(root):
        run_quietly(tiny_experiment(Path("runs"), protocol=SHORT))
    return root


@pytest.fixture
def pair(finished, tmp_path, monkeypatch) -> dict[str, Any]:
    """The config of a copy of that experiment in a separate folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tiny_config(Path("runs"), protocol=SHORT)


@pytest.mark.parametrize("kind", ["cut short", "list"])
def test_a_damaged_result_fails_its_run_only(tmp_path, pair, kind):
    (damaged,) = tmp_path.glob("runs/tiny/vit-*/result.json")
    _damage(damaged, kind)
    next(tmp_path.glob("runs/tiny/resnet-*/result.json")).unlink()
    before = damaged.read_bytes()
    with pytest.raises(RunsFailed, match=r"result.*result\.json.*delete it, and the same command makes this run again"):
        run_quietly(pair)
    assert damaged.read_bytes() == before
    with pytest.warns(UserWarning, match="delete it, and the same command makes this run again"):
        assert [result.model for result in read_finished_results(tmp_path / "runs" / "tiny").values()] == ["resnet"]
    assert [planned_run.state for planned_run in read_status(tmp_path / "runs" / "tiny").runs] == ["failed", "done"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("foreign", "is of another run"),
        ("weights alone", "lacks optimizer_states"),
        ("cut short", "damaged file"),
        ("code", "damaged file"),
    ],
)
def test_a_damaged_checkpoint_fails_its_run_only_and_executes_nothing(tmp_path, pair, kind, why, capsys):
    vit, resnet = (next(tmp_path.glob(f"runs/tiny/{name}-*")) for name in ("vit", "resnet"))
    for planned_run in (vit, resnet):
        (planned_run / "result.json").unlink()
    checkpoint = vit / "checkpoints" / "last.ckpt"
    if kind == "foreign":
        checkpoint.write_bytes((resnet / "checkpoints" / "last.ckpt").read_bytes())
    elif kind == "weights alone":
        contents = torch.load(checkpoint, weights_only=True)
        torch.save({name: value for name, value in contents.items() if name != "optimizer_states"}, checkpoint)
    elif kind == "code":
        torch.save({"vit_vs_cnn": {}, "state_dict": Evil()}, checkpoint)
    else:
        _damage(checkpoint, kind)
    before = checkpoint.read_bytes()
    write_text(tmp_path / "pair.yaml", json.dumps(pair))
    assert main(["train", "--config", str(tmp_path / "pair.yaml")]) == 1
    _, *printed = capsys.readouterr().err.splitlines()
    assert printed[0].startswith("failed: vit-n120-s0: damaged file: checkpoint")
    assert why in printed[0] and "move it away to start this run again" in printed[0]
    assert (resnet / "result.json").exists()
    assert checkpoint.read_bytes() == before and not (tmp_path / "executed").exists()
    assert [planned_run.state for planned_run in read_status(tmp_path / "runs" / "tiny").runs] == ["failed", "done"]
    checkpoint.unlink()
    assert len(run_quietly(pair)) == 2


@pytest.mark.parametrize("kind", ["cut short", "nul"])
def test_a_damaged_metrics_csv_does_not_stop_a_run(tmp_path, pair, kind):
    (planned_run,) = tmp_path.glob("runs/tiny/vit-*")
    (planned_run / "result.json").unlink()
    _damage(planned_run / "metrics.csv", kind)
    assert len(run_quietly(pair)) == 2
    assert all(float(row[2]) >= 0 for row in read_rows(planned_run / "metrics.csv"))


def test_partial_files_of_killed_writers_are_removed_on_resume(tmp_path, pair):
    (planned_run,) = tmp_path.glob("runs/tiny/vit-*")
    (planned_run / "result.json").unlink()
    for name in ("result.json.4711.partial", "checkpoints/last.ckpt.partial", "metrics.csv.partial"):
        (planned_run / name).write_text("half of it")
    run_quietly(pair)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_file_over_the_size_limit_is_named(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write_text(tmp_path / "table.csv", "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caught.value.filename == str(tmp_path / "table.csv")
    assert not list(tmp_path.iterdir())


def test_each_run_is_logged_separately(tmp_path):
    logger = [{"class_path": "CSVLogger", "init_args": {"save_dir": str(tmp_path / "logs")}}]
    values = tiny_config(tmp_path, protocol=SHORT)
    values["trainer"]["logger"] = [*logger, {"class_path": "tests.workers.services.Service"}]
    for result in run_quietly(values):
        folder = tmp_path / "logs" / "tiny" / result.run
        with (folder / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert float(rows[-1]["result/accuracy"]) == pytest.approx(result.accuracy)
        assert f"model: {result.model}" in (folder / "hparams.yaml").read_text()


@pytest.mark.parametrize("fails", ["never", "after training", "in the test"])
def test_each_run_has_a_named_record_in_a_logging_service_that_ends_with_the_run(tmp_path, monkeypatch, fails):
    for name in ("RUNS", "ACTIVE"):
        monkeypatch.setattr(services, name, [])
    values = tiny_config(tmp_path, protocol=SHORT)
    values["trainer"]["logger"] = {"class_path": "tests.workers.services.WandbLogger"}
    if fails != "never":
        module, function = (fit, "TrainingCost") if fails == "after training" else (run, "evaluate_once")
        monkeypatch.setattr(module, function, lambda *_, **__: 1 / 0)
        with pytest.raises(RunsFailed, match="error at step 2: ZeroDivisionError: division by zero"):
            run_quietly(values)
    else:
        run_quietly(values)
        assert [run.name for run in services.RUNS] == ["vit-n120-s0", "resnet-n120-s0"]
        assert [run.config["model"] for run in services.RUNS] == ["vit", "resnet"]
        assert all("result/accuracy" in run.metrics for run in services.RUNS)
        assert len({run.id for run in services.RUNS}) == 2
    assert services.RUNS
    assert all(run.is_over for run in services.RUNS)


def test_a_failing_logger_does_not_leave_others_open(tmp_path, monkeypatch):
    for name in ("RUNS", "ACTIVE"):
        monkeypatch.setattr(services, name, [])
    monkeypatch.setattr(services.Service, "finalize", lambda *_: 1 / 0)
    values = _resnet(tmp_path, steps=2)
    values["trainer"]["logger"] = [{"class_path": f"tests.workers.services.{n}"} for n in ("Service", "WandbLogger")]
    with pytest.raises(RunsFailed, match="ZeroDivisionError"):
        _run(values)
    assert [run.is_over for run in services.RUNS] == [True]


def _run_and_die_before_it_logs(values: dict[str, Any], step: int) -> None:
    def log_metrics(self: MetricsCsv, metrics: dict[str, float], step_: int | None = None, **named: Any) -> None:
        if named.get("step", step_) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self, metrics, named.get("step", step_))

    plain, MetricsCsv.log_metrics = MetricsCsv.log_metrics, log_metrics
    run_quietly(values)


def test_a_kill_between_checkpoint_and_log_line_loses_no_line(tmp_path):
    (uninterrupted, killed) = (_resnet(tmp_path / name) for name in ("calm", "killed"))
    _run(uninterrupted)
    assert children.exit_code(children.start(_run_and_die_before_it_logs, killed, 5)) == -signal.SIGKILL
    (checkpoint,) = tmp_path.glob("killed/tiny/*/checkpoints/last.ckpt")
    assert read_checkpoint(checkpoint)["global_step"] == 6  # the step that logs as number 5
    _run(killed)
    logs = [sorted(map(tuple, read_rows(next(tmp_path.glob(f"{name}/tiny/*/metrics.csv")))))
            for name in ("calm", "killed")]  # fmt: skip
    assert logs[0] == logs[1]
