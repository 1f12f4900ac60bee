"""Any kind of worker executes each run once, with the same weights."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from rich.console import Console

from tests.children import run_python
from tests.experiments.tiny import plan_runs, run_quietly, tiny_config
from tests.results import make_result
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import InputError, ProcessLost, TrainingDiverged
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.files import write_text
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.runs.experiment_folder import FailureKind, read_failure
from vit_vs_cnn.runs.result import RunState, read_result
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.status import LiveStatus
from vit_vs_cnn.workers import supervisor
from vit_vs_cnn.workers.run import WorkRequest
from vit_vs_cnn.workers.supervisor import LocalProcesses, is_multiprocessing_faster, supervise, take_runs

ROOT = Path(__file__).parents[2]


def _values(output, **executor) -> dict[str, Any]:
    """Two models, one of which starts from the other, and two seeds."""
    values = tiny_config(output, seeds=[3, 4], budget={"steps": 9})
    resnet = {**values["models"]["resnet"], "name": "resnet8", "options": {"width": 2}}
    values["models"] = {"later": {**resnet, "starts_from": "resnet"}, "resnet": resnet}
    values["executor"] = executor
    return values


def _weights(folder: Path) -> dict[str, str]:
    return {result.run: result.weights for result in map(read_result, folder.glob("tiny/*/result.json"))}


def _kills_once(values: dict[str, Any], mark: Path) -> dict[str, Any]:
    killer = {"class_path": "tests.workers.killer.KillOnce", "init_args": {"step": 5, "mark": str(mark)}}
    return {**values, "execution": {**values["execution"], "passive_callbacks": [killer]}}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[str, str]:
    """The weights of every run without interruption in this process."""
    root = tmp_path_factory.mktemp("calm")
    run_quietly(_values(root))
    return _weights(root)


@pytest.mark.slow
def test_processes_share_the_runs_and_a_killed_one_is_replaced(tmp_path, uninterrupted):
    experiment = experiment_from_dict(_kills_once(_values(tmp_path, name="processes", workers=2), tmp_path / "struck"))
    with (tmp_path / "printed").open("w") as file:
        run_experiment(experiment, console=Console(file=file, width=200))
    printed = (tmp_path / "printed").read_text()
    assert (tmp_path / "struck").exists()
    assert printed.count("a worker was lost (exit code -9)") == 1
    assert "4 of 4 done" in printed
    assert _weights(tmp_path) == uninterrupted
    assert len(next(tmp_path.glob("test-sets/*.jsonl")).read_text().splitlines()) == 4  # no run was evaluated twice
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("tiny/*/result.json")}
    run_quietly(experiment)
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.glob("tiny/*/result.json")}


@pytest.mark.slow
def test_a_script_that_trains_with_processes_needs_no_main_guard(tmp_path):
    values = _values(tmp_path, name="processes", workers=2)
    values["protocol"]["seeds"] = [3]
    script = tmp_path / "script.py"
    script.write_text(f"import vit_vs_cnn as vc\nprint(len(vc.train({values!r}).results))\n")
    done = run_python(script, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout.splitlines()[-1] == "2", done.stderr
    assert "leaked" not in done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tested 2 times")  # a kill may fall between the test and the result
def test_a_killed_command_with_processes_resumes_without_repeating_runs(tmp_path, uninterrupted):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(_values(tmp_path, name="processes", workers=2)))
    command = [sys.executable, str(ROOT / "train.py"), "--config", str(tmp_path / "config.yaml")]
    program = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 200
    while len(_weights(tmp_path)) < 1 and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("tiny/*/result.json")}
    assert before
    run_quietly(_values(tmp_path))
    assert before.items() <= {p: p.stat().st_mtime_ns for p in tmp_path.glob("tiny/*/result.json")}.items()
    assert _weights(tmp_path) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize(("address", "nodes"), [("local", 1), ("auto", 2)])
def test_a_command_with_ray_survives_the_death_of_a_worker(tmp_path, uninterrupted, address, nodes):
    """With its own cluster, and beside a cluster of two nodes that it joins."""
    pytest.importorskip("ray")
    values = _kills_once(_values(tmp_path), tmp_path / "struck")
    noting = {"class_path": "tests.workers.ray_cluster.NoteNode", "init_args": {"folder": str(tmp_path)}}
    values["execution"]["passive_callbacks"].append(noting)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    options = ["--executor", "ray", "--executor.address", address, "--executor.resources", "{CPU: 1}"]
    command = ["train.py", "--config", tmp_path / "config.yaml", *options]
    beside = [] if address == "local" else ["-m", "tests.workers.ray_cluster", sys.executable]
    environment = os.environ | {"RAY_memory_monitor_refresh_ms": "0"}
    done = run_python(*beside, *command, cwd=ROOT, env=environment, timeout=500)
    assert (tmp_path / "struck").exists()
    assert done.stderr.count("a worker was lost (WorkerCrashedError)") == 1
    assert len(list(tmp_path.glob("*.node"))) == nodes
    assert _weights(tmp_path) == uninterrupted


@pytest.mark.slow
def test_tasks_of_the_documented_slurm_array_share_the_runs(tmp_path, uninterrupted):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(_values(tmp_path)))
    program = tmp_path / "vit-vs-cnn"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m vit_vs_cnn "$@"\n')
    program.chmod(0o755)
    script = (ROOT / "docs/howto/cluster.md").read_text().partition("```sh\n")[2].partition("```")[0]
    script = script.replace("/shared/project", str(tmp_path)).replace("cifar10", "tiny.yaml")
    slurm = {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "7"}
    slurm |= {"SLURM_NODELIST": "localhost", "SLURM_JOB_NAME": "tiny", "SLURM_NNODES": "1"}
    slurm |= {"SLURM_NTASKS_PER_NODE": "1"}
    environment = {**os.environ, **slurm, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environments = [environment | {"SLURM_ARRAY_TASK_ID": task} for task in "12"]
    tasks = [subprocess.Popen(["bash", "-c", script], env=one, stderr=subprocess.PIPE) for one in environments]
    errors = [task.communicate()[1].decode() for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], errors
    assert _weights(tmp_path) == uninterrupted
    (log,) = tmp_path.glob("test-sets/*.jsonl")
    assert len(log.read_text().splitlines()) == 4  # no run was evaluated twice


def _retry_forever(**_):
    """As Ray, which goes on after any ``Exception``."""
    while True:
        with contextlib.suppress(Exception):
            time.sleep(60)


def test_waiting_for_a_ray_cluster_has_a_time_limit(monkeypatch, console):
    monkeypatch.setattr(supervisor, "START_SECONDS", 0.1)
    with pytest.raises(InputError, match=r"executor.address local: a Ray cluster .* did not start within 0.1 s; see"):
        supervisor._connect(Mock(init=_retry_forever), "local", console)
    assert "Waiting for a Ray cluster on this machine, for 0.1 s at most" in console.file.getvalue()
    with pytest.raises(InputError, match=r"address auto: no connection to the Ray cluster at auto: nobody$"):
        supervisor._connect(Mock(init=Mock(side_effect=ConnectionError("nobody"))), "auto", Console(quiet=True))


def test_ray_is_started_in_the_thread_that_uses_it():
    """Its processes end with the thread that started them."""
    threads = []
    ray = Mock(init=lambda **_: threads.append(threading.current_thread()))
    supervisor._connect(ray, "local", Console(quiet=True))
    assert threads == [threading.current_thread()]


class _Stub(LocalProcesses):
    """Workers that execute runs in this process and end as scripted."""

    def __init__(self, script):
        self.size = 2
        self.script = script
        self.queue = []
        self.taken = []
        self.stopped = 0

    def start(self, request, count):
        self.queue += [request] * count

    def count(self):
        return len(self.queue)

    def collect_exits(self, seconds):
        for planned_run in self.queue.pop(0).unfinished():
            if isinstance(planned_run.start, Run) and not planned_run.start.is_finished:
                continue
            self.taken.append(planned_run.name)
            return [self.script(planned_run)]
        return [None]

    def stop(self):
        self.stopped, self.queue = len(self.queue), []


def _request(tmp_path) -> WorkRequest:
    return WorkRequest(plan_runs(_values(tmp_path)), retries=2, folder=tmp_path)


def _finish(planned_run):
    place = {name: getattr(planned_run, name) for name in ("model", "train_size", "seed")}
    planned_run.folder.mkdir(parents=True, exist_ok=True)
    planned_run.write_result(make_result(run=planned_run.folder.name, **place))
    return RunState.FINISHED


def test_progress_of_the_experiment_is_printed_after_each_run(tmp_path, monkeypatch, console):
    monkeypatch.setattr(supervisor, "run_one", lambda run, *_, **__: _finish(run))
    request = _request(tmp_path)
    take_runs(request, ExperimentData(request.runs[0].experiment.data), console=console)
    lines = [line.split(", about")[0] for line in console.file.getvalue().splitlines()]
    assert lines == [f"{count} of 4 runs done" for count in (1, 2, 3)]


def test_the_time_left_follows_the_later_half_of_the_runs(monkeypatch):
    clock = iter([0.0, 100.0, 110.0, 120.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    estimate = supervisor.TimeLeft(7)
    texts = [estimate.update(left, is_probe=left == 6) for left in (6, 5, 4)]
    assert texts == ["", ", about 50 s left", ", about 40 s left"]


def test_lost_workers_are_replaced_up_to_a_limit(tmp_path):
    def dying(deaths):
        return _Stub(lambda planned_run: ProcessLost("signal 9") if next(deaths) else _finish(planned_run) and None)

    view, stub = Mock(spec=LiveStatus), dying(iter([True, False, False, False, False]))
    supervise(_request(tmp_path / "once"), stub, view)
    assert stub.taken.count("resnet-n120-s3") == 2
    view.note.assert_called_once_with("a worker was lost (signal 9); another one resumes its run")
    stub = dying(itertools.cycle([True] * 4 + [False]))  # 16 losses, over the limit, but four for each finished run
    supervise(_request(tmp_path / "often"), stub, view)
    assert len(stub.taken) == 4 * 5
    with pytest.raises(InputError, match="executor: 9 workers ended without finishing a run, the last one: signal 9"):
        supervise(_request(tmp_path / "always"), dying(itertools.repeat(True)), view)


def test_workers_are_stopped_when_the_time_is_over(tmp_path):
    stub = _Stub(lambda planned_run: _finish(planned_run) and None)
    supervise(_request(tmp_path), stub, Mock(spec=LiveStatus), lambda: len(stub.taken) >= 1)
    assert (len(stub.taken), stub.stopped) == (1, 1)


def test_a_run_that_keeps_losing_its_process_fails_with_its_dependents(tmp_path, monkeypatch):
    request, attempts = _request(tmp_path), []
    first = request.runs[0]

    def prepare(run, data):
        if run.folder == first.folder:
            attempts.append(run.attempts.read_text())
            raise KeyboardInterrupt
        raise TrainingDiverged("no")

    monkeypatch.setattr("vit_vs_cnn.workers.run.prepare", prepare)
    monkeypatch.setattr("vit_vs_cnn.workers.supervisor.POLL_SECONDS", 0)
    data = ExperimentData(first.experiment.data)
    while not first.failure.exists():
        try:
            take_runs(request, data, console=Console(quiet=True))
        except KeyboardInterrupt:  # a killed process does not remove the record of its attempt
            write_text(first.attempts, attempts[-1])
    assert len(attempts) == 3  # the first one and two retries
    failures = {run.name: read_failure(run.folder) for run in request.runs}
    assert {name: failure.kind for name, failure in failures.items()} == {
        "resnet-n120-s3": FailureKind.PROCESS_LOST,
        "later-n120-s3": FailureKind.PARENT_FAILED,
        "resnet-n120-s4": FailureKind.DIVERGED,
        "later-n120-s4": FailureKind.PARENT_FAILED,
    }
    assert str(failures["later-n120-s3"]) == "later-n120-s3: not run: resnet-n120-s3, which it starts from, failed"


@pytest.mark.parametrize(
    ("steps", "seeds", "threads", "apart"),
    [(10, [1, 2], 1, False), (20_000, [1, 2], 1, True), (20_000, [1], 1, False), (20_000, [1, 2], 2, False)],
    ids=["short", "long", "one run", "no room"],
)
def test_auto_uses_processes_if_they_are_faster(tmp_path, monkeypatch, steps, seeds, threads, apart):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    values = tiny_config(tmp_path, only="resnet", budget={"steps": steps}, seeds=seeds, threads=threads)
    experiment = experiment_from_dict(values)
    pool = ExperimentData(experiment.data)
    assert experiment.executor.name == "auto"
    assert is_multiprocessing_faster(plan_runs(experiment), pool) == apart
    values["models"]["probe"] = {**values["models"]["resnet"], "starts_from": "resnet", "finetune": "head"}
    probes = [run for run in plan_runs(values) if run.model == "probe"]
    assert not is_multiprocessing_faster(probes, pool)  # the features of 120 images are computed once
