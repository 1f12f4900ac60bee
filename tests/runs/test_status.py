"""The status of an experiment is read from its folders, during and after its runs."""

import io
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from rich.console import Console

from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from tests.results import make_result
from vit_vs_cnn.config.schema import Budget
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs import status
from vit_vs_cnn.runs.experiment_folder import read_finished_results, select_results
from vit_vs_cnn.runs.result import RunState
from vit_vs_cnn.runs.run import read_run
from vit_vs_cnn.runs.status import LiveStatus, RunStatus, read_status, seconds_left, status_line

STEPS = Budget(steps=23)
NAMES = [f"{model}-n{size}-s0-0123456789" for size in (50, 100) for model in ("vit", "resnet")]


@pytest.fixture
def folder(tmp_path):
    """A grid of four: one done in 30 s, one failed, two not started."""
    root = tmp_path / "tiny"
    root.mkdir()
    (root / "runs.json").write_text(json.dumps({key: {"steps": 23} for key in NAMES}))
    (root / "experiment.yaml").write_text(yaml.safe_dump(tiny_config(tmp_path)))
    for name in NAMES[:3]:
        (root / name).mkdir()
    result = make_result(run=NAMES[0], train_size=50, steps=23, train_seconds=30.0)
    (root / NAMES[0] / "result.json").write_text(result.to_json())
    failure = {"run": "resnet-n50-s0", "kind": "out of memory", "message": "no room", "step": 4, "time": "2020"}
    (root / NAMES[1] / "failed.json").write_text(json.dumps(failure))
    return root


def test_a_name_of_a_run_ends_with_size_seed_and_the_budget_if_there_are_several(folder):
    name = "vit-n50-s9-n100-s-2-0123456789"
    (folder / "runs.json").write_text(json.dumps({key: {"steps": 23} for key in [NAMES[0], name]}))
    run = read_status(folder).runs[1]
    assert (run.model, run.train_size, run.seed) == ("vit-n50-s9", 100, -2)
    assert {result.train_size for result in select_results(read_finished_results(folder)).values()} == {50}
    (folder / "runs.json").write_text(json.dumps({NAMES[0]: {"steps": 23}, NAMES[2]: {"steps": 1700}}))
    runs = [(run.name, run.steps) for run in read_status(folder).runs]
    assert runs == [("vit-n50-s0 of 23 steps", 23), ("vit-n100-s0 of 1,700 steps", 1700)]


def test_the_state_of_a_run_is_read_from_its_folder(folder):
    status = read_status(folder)
    assert [run.state for run in status.runs] == ["done", "failed", "waiting", "waiting"]
    assert [run.name for run in status.runs[:2]] == ["vit-n50-s0", "resnet-n50-s0"]
    assert status.runs[1].reason == "out of memory at step 4: no room"
    assert status.seconds_left is None  # no finished or running resnet shows its duration
    for seconds, text in ((None, "; time left not known yet"), (90.0, "; about 90 s left"), (0.5, "; finishing")):
        assert status_line(replace(status, seconds_left=seconds)) == f"1 of 4 done, 1 failed, 2 waiting{text}"


def test_a_run_is_running_while_its_lock_is_held(folder):
    run = folder / NAMES[2]
    (run / "metrics.csv").write_text("step,metric,value\n4,train/loss,2.0\n9,train/loss,1.5\n")
    with FileLock(run / ".lock"):
        (running,) = (c for c in read_status(folder).runs if c.state == "running")
        assert (running.step, running.steps) == (9, 23)
        (run / "progress.json").write_text('{"step": 11, "steps": 23, "steps_per_second": 0.5}')
        (running,) = (c for c in read_status(folder).runs if c.state == "running")
        assert (running.step, running.steps_per_second) == (11, 0.5)
    left = read_status(folder).runs[2]
    assert (left.state, left.step) == ("waiting", 11)


def test_a_line_is_printed_for_each_run_that_ends_during_the_block(folder, console, monkeypatch):
    view = LiveStatus(folder, console)
    monkeypatch.setattr(status, "REFRESH_SECONDS", 60.0)
    view._refreshed = -60.0
    failed = folder / NAMES[1] / "failed.json"
    reason = failed.read_text()
    with view.shown():
        failed.unlink()  # the run is repeated
        view.refresh()
        failed.write_text(reason)
        result = make_result(run=NAMES[2], train_size=100, steps=23, train_seconds=60.0)
        (folder / NAMES[2] / "result.json").write_text(result.to_json())
        view.refresh()  # too early
        assert console.file.getvalue().splitlines() == ["1 of 4 runs finished before"]
    _, again, line = console.file.getvalue().splitlines()
    assert again == "resnet-n50-s0  failed: out of memory at step 4: no room"
    assert line.startswith("vit-n100-s0  50.0 % in 60 s  (2 of 4 done, 1 failed, 1 waiting")


def test_running_runs_are_printed_when_no_run_has_ended_for_some_seconds(folder, console, monkeypatch):
    view = LiveStatus(folder, console)
    monkeypatch.setattr(status, "REFRESH_SECONDS", -1.0)
    (folder / NAMES[2] / "progress.json").write_text('{"step": 11, "steps": 23, "unit": "image"}')
    with FileLock(folder / NAMES[2] / ".lock"), view.shown():
        view.refresh()  # too early
        monkeypatch.setattr(status, "MAX_SILENT_SECONDS", -1.0)
        view.refresh()
    _, line = console.file.getvalue().splitlines()
    assert line.startswith("vit-n100-s0 features of image 11/23  (1 of 4 done, 1 running")


def test_a_terminal_shows_running_and_failed_runs_during_the_block_only(folder):
    output = io.StringIO()
    view = LiveStatus(folder, Console(file=output, width=200, force_terminal=True))
    threads = threading.active_count()
    with FileLock(folder / NAMES[2] / ".lock"), view.shown():
        view.refresh()
        assert threading.active_count() == threads  # it is refreshed by the caller alone
    text = output.getvalue()
    rows = ("1 of 4 done, 1 running", "resnet-n50-s0 failed ", "vit-n100-s0   running")
    assert all(row in text for row in rows) and "vit-n50-s0" not in text
    assert text.endswith("\r" + 4 * "\x1b[1A\x1b[2K")  # up and erased, each line


def test_the_command_prints_a_table_or_json(folder, run_command):
    printed = run_command("status", folder).out
    for word in ("vit-n50-s0", "50.0 % in 30 s", "out of memory", "1 of 4 done"):
        assert word in printed
    runs = json.loads(run_command("status", folder, "--json").out)["runs"]
    assert [run["state"] for run in runs][:2] == ["done", "failed"]


def test_a_folder_without_an_experiment_is_named_and_a_folder_in_it_suggested(folder):
    with pytest.raises(InputError, match=r"is not the folder of an experiment.*json$"):
        read_status(folder / NAMES[0])
    with pytest.raises(InputError, match=f"did you mean {folder}[?]"):
        read_status(folder.parent)


def _run_folder(model, size, state, budget=STEPS, **more):
    return RunStatus(f"{model}-{size}", model, size, 0, budget, RunState(state), **more)


def test_time_left_depends_on_model_workers_and_under_a_budget_in_epochs_on_the_size():
    done = [("vit", 50, 30.0), ("vit", 100, 50.0), ("resnet", 50, 40.0)]
    runs = [_run_folder(model, size, "done", seconds=seconds) for model, size, seconds in done]
    runs += [_run_folder("resnet", 50, "running", step=10, steps=20), _run_folder("vit", 100, "waiting")]
    runs += [_run_folder("vit", 50, "waiting", step=5, steps=20), _run_folder("resnet", 100, "waiting")]
    runs += [_run_folder("resnet", 100, "failed")]
    # half of the 40 s; 40 s, the mean of 30 and 50; three quarters of that; 40 s
    assert seconds_left(runs, workers=1) == 20 + 40 + 30 + 40
    assert seconds_left(runs, workers=2) == (20 + 40 + 30 + 40) / 2
    assert seconds_left(runs, workers=9) == 40  # one run each; the longest is a lower bound
    for budget, left in ((Budget(epochs=3.0), 120), (STEPS, 30)):
        runs = [_run_folder("vit", 50, "done", budget, seconds=30.0), _run_folder("vit", 200, "waiting", budget)]
        assert seconds_left(runs, workers=1) == left


def test_time_left_of_a_model_without_a_finished_run_is_estimated_from_the_speed_of_its_running_one():
    running = _run_folder("vit", 50, "running", step=10, steps=20, steps_per_second=0.5)
    assert seconds_left([running, _run_folder("vit", 100, "waiting")], workers=1) == 20 + 40
    finished = _run_folder("vit", 100, "done", seconds=60.0)
    assert seconds_left([running, finished, _run_folder("vit", 100, "waiting")], workers=1) == 30 + 60


def test_an_added_budget_keeps_finished_runs(tmp_path):
    models = {"resnet": tiny_config(tmp_path)["models"]["resnet"]}

    def run(steps):
        protocol = tiny_config(tmp_path)["protocol"] | {"budget": {"steps": steps}}
        return run_quietly(tiny_experiment(tmp_path, models=models, protocol=protocol))

    (first,) = run(2)
    same, longer = run([3, 2])
    assert (same, longer.budget, longer.cost.steps) == (first, "3 steps", 3)
    assert {path.name for path in (tmp_path / "tiny").glob("*-s3-*")} == {same.run, longer.run}
    names = [f"resnet-n120-s3 of {steps} steps" for steps in (2, 3)]
    assert [run.name for run in read_status(tmp_path / "tiny").runs] == names
    assert read_run(tmp_path / "tiny" / longer.run).budget == Budget(steps=3)


def test_runs_of_the_longest_budget_and_the_largest_size_of_all_or_named_models_are_selected():
    places = [("vit", 50, 9), ("cnn", 50, 9), ("vit", 100, 9), ("vit", 200, 2), ("cnn", 200, 2)]
    results = {
        Path("exp") / str(place): make_result(model=place[0], train_size=place[1], budget=f"{place[2]} steps")
        for place in places
    }
    selected = [[run.name for run in select_results(results, train_size=size)] for size in (None, 100)]
    assert selected == [[*map(str, places[:2])], [str(places[2])]]
    with pytest.raises(InputError, match=r"exp: no finished run of 200 images; there are \[50, 100\]"):
        select_results(results, train_size=200)
    few = {path: result for path, result in results.items() if path.name in map(str, (places[1], places[3]))}
    assert [run.name for run in select_results(few, model="vit")] == [str(places[3])]  # the CNN has a longer budget
    with pytest.raises(InputError, match="exp has no finished run of model 'vit2'; there are vit, cnn"):
        select_results(results, model="vit2")
