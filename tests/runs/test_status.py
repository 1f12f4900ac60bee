"""The status of an experiment is what its folders show, while it runs and after."""

import json

import pytest
import yaml
from filelock import FileLock

from tests.experiments.tiny import tiny_config
from tests.results import make_result
from vit_vs_cnn.cli import main
from vit_vs_cnn.config.schema import Budget
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.experiment_folder import read_finished_results, select_results
from vit_vs_cnn.runs.result import RunState
from vit_vs_cnn.runs.status import RunStatus, read_status, seconds_left, status_line

STEPS = Budget(steps=23)
NAMES = [f"{contender}-n{size}-s0-0123456789" for size in (50, 100) for contender in ("vit", "resnet")]


@pytest.fixture
def folder(tmp_path):
    """A grid of four: one done in 30 s, one failed, two not begun."""
    root = tmp_path / "tiny"
    (root / "cells").mkdir(parents=True)
    (root / "grid.json").write_text(json.dumps({key: {"steps": 23} for key in NAMES}))
    (root / "experiment.yaml").write_text(yaml.safe_dump(tiny_config(tmp_path)))
    for name in NAMES[:3]:
        (root / "cells" / name).mkdir()
    result = make_result(run=NAMES[0], train_size=50, steps=23, train_seconds=30.0)
    (root / "cells" / NAMES[0] / "result.json").write_text(result.to_json())
    failure = {"run": "resnet-n50-s0", "kind": "out of memory", "message": "no room", "step": 4, "time": "2020"}
    (root / "cells" / NAMES[1] / "failed.json").write_text(json.dumps(failure))
    return root


def test_a_contender_that_is_named_like_a_size_is_not_taken_for_one(folder):
    name = "vit-n50-s9-n100-s-2-0123456789"
    (folder / "grid.json").write_text(json.dumps({key: {"steps": 23} for key in [NAMES[0], name]}))
    cell = read_status(folder).cells[1]
    assert (cell.contender, cell.train_size, cell.seed) == ("vit-n50-s9", 100, -2)
    assert {result.train_size for result in select_results(read_finished_results(folder)).values()} == {50}


def test_each_cell_is_in_the_state_that_its_folder_shows(folder):
    status = read_status(folder)
    assert [cell.state for cell in status.cells] == ["done", "failed", "waiting", "waiting"]
    assert [cell.name for cell in status.cells[:2]] == ["vit-n50-s0", "resnet-n50-s0"]
    assert status.cells[1].reason == "out of memory at step 4: no room"
    assert status.seconds_left is None  # no resnet has shown how long it takes
    assert status_line(status) == "1 of 4 done, 1 failed, 2 waiting; time left not known yet"


def test_a_cell_runs_as_long_as_its_lock_is_held(folder):
    cell = folder / "cells" / NAMES[2]
    (cell / "metrics.csv").write_text("step,metric,value\n4,train/loss,2.0\n9,train/loss,1.5\n")
    with FileLock(cell / ".lock"):
        (running,) = (c for c in read_status(folder).cells if c.state == "running")
        assert (running.step, running.steps) == (9, 23)
        (cell / "progress.json").write_text('{"step": 11, "steps": 23, "steps_per_second": 0.5}')
        (running,) = (c for c in read_status(folder).cells if c.state == "running")
        assert (running.step, running.steps_per_second) == (11, 0.5)
    left = read_status(folder).cells[2]
    assert (left.state, left.step) == ("waiting", 11)


def test_the_command_prints_a_table_or_json(folder, capsys):
    assert main(["status", str(folder)]) == 0
    printed = capsys.readouterr().out
    for word in ("vit-n50-s0", "50.0 % in 30 s", "out of memory", "1 of 4 done"):
        assert word in printed
    assert main(["status", str(folder), "--json"]) == 0
    assert [cell["state"] for cell in json.loads(capsys.readouterr().out)["cells"]][:2] == ["done", "failed"]


def test_a_folder_that_is_no_experiment_is_named(tmp_path):
    with pytest.raises(InputError, match=r"is not the folder of an experiment.*json$"):
        read_status(tmp_path)


def test_the_folder_around_experiments_is_asked_whether_one_of_them_was_meant(folder):
    with pytest.raises(InputError, match=f"did you mean {folder}[?]"):
        read_status(folder.parent)


def _cell(contender, size, state, budget=STEPS, **more):
    return RunStatus(f"{contender}-{size}", contender, size, 0, budget, RunState(state), **more)


def test_time_left_goes_by_contender_and_workers():
    cells = [
        _cell("vit", 50, "done", seconds=30.0),
        _cell("vit", 100, "done", seconds=50.0),
        _cell("resnet", 50, "done", seconds=40.0),
        _cell("resnet", 50, "running", step=10, steps=20),
        _cell("vit", 100, "waiting"),
        _cell("vit", 50, "waiting", step=5, steps=20),
        _cell("resnet", 100, "waiting"),
        _cell("resnet", 100, "failed"),
    ]
    # half of the 40 s; 40 s, the mean of 30 and 50; three quarters of that; 40 s
    assert seconds_left(cells, workers=1) == 20 + 40 + 30 + 40
    assert seconds_left(cells, workers=2) == (20 + 40 + 30 + 40) / 2
    assert seconds_left(cells, workers=9) == 40  # a cell for each, and the longest bounds it


def test_under_a_budget_in_epochs_the_time_grows_with_the_size():
    for budget, left in ((Budget(epochs=3.0), 120), (STEPS, 30)):
        cells = [_cell("vit", 50, "done", budget, seconds=30.0), _cell("vit", 200, "waiting", budget)]
        assert seconds_left(cells, workers=1) == left


def test_several_budgets_are_told_apart(folder):
    (folder / "grid.json").write_text(json.dumps({NAMES[0]: {"steps": 23}, NAMES[2]: {"steps": 1700}}))
    cells = read_status(folder).cells
    assert [cell.name for cell in cells] == ["vit-n50-s0 of 23 steps", "vit-n100-s0 of 1,700 steps"]
    assert cells[1].steps == 1700
