"""An experiment that is continued: what may change, and in which order its runs come."""

import io
import os
import platform
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from filelock import FileLock
from rich.console import Console

import vit_vs_cnn as vc
from tests.experiments.tiny import run_quietly, tiny_config
from tests.results import make_result
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.reading import override
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import runner
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.preparation import grid
from vit_vs_cnn.workers import supervisor
from vit_vs_cnn.workers.run import WorkRequest


@pytest.fixture
def values(trained_once, tmp_path):
    """Of an experiment with finished runs."""
    shutil.copytree(trained_once, tmp_path / "tiny")
    protocol = {"train_sizes": [120], "seeds": [3, 4], "budget": {"steps": 2}, "batch_size": 14}
    return tiny_config(tmp_path, protocol=protocol)


@pytest.mark.parametrize(
    ("name", "value", "difference"),
    [
        ("contenders.vit.model.depth", 1, "contenders.vit.model.depth 2 then, 1 now"),
        ("contenders.resnet.optimizer.lr", 0.07, "contenders.resnet.optimizer.lr 0.05 then, 0.07 now"),
        ("protocol.batch_size", 16, "batch_size 14 then, 16 now"),
        ("trainer.precision", "bf16-mixed", "trainer.precision default then, bf16-mixed now"),
        ("data.synthetic.seed", 5, "other images"),
    ],
)
def test_other_settings_than_those_of_finished_runs_are_refused_unless_forced(
    values, name, value, difference, monkeypatch
):
    override(values, name, value)
    values["protocol"] |= {"seeds": [3, 5]}
    experiment = experiment_from_dict(values)
    with pytest.raises(InputError) as caught:
        run_quietly(experiment)
    for text in ("has finished runs of", difference, "--name", "--force"):
        assert text in str(caught.value)
    monkeypatch.setattr(runner, "execute", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(pytest.fail.Exception, match="trained"):
        runner.run_experiment(experiment, console=Console(quiet=True), force=True)


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": {"seeds": [3, 4, 5]}},
        {"protocol": {"train_sizes": [60, 120]}},
        {"protocol": {"budget": {"steps": 3}}},
        {"contenders": {"third": {"model": {"name": "resnet8", "width": 8}}}},
    ],
)
def test_more_seeds_sizes_contenders_or_another_budget_continue_an_experiment(values, change, monkeypatch):
    for block, changed in change.items():
        values[block] |= changed
    asked = []
    monkeypatch.setattr(runner, "execute", lambda cells, *_, **__: asked.extend(cells))
    monkeypatch.setattr(runner, "raise_failures", lambda cells: None)
    monkeypatch.setattr(runner, "read_result", lambda path: make_result())
    run_quietly(experiment_from_dict(values))
    assert asked


def test_the_primary_comparison_runs_first(values):
    values["protocol"] |= {"train_sizes": [40, 60, 120], "seeds": [3, 4], "budget": {"steps": [2, 4]}}
    experiment = experiment_from_dict(values)
    pool = ExperimentData.from_experiment(experiment)
    plan = runner.make_analysis_plan(experiment, {size: size for size in (40, 60, 120)})
    later = replace(experiment, protocol=replace(experiment.protocol, seeds=[3, 4, 5]))
    cells = runner._primary_first(grid(later, pool, world_size=1), plan)
    first = [(cell.contender, cell.train_size, cell.budget.short, cell.seed) for cell in cells[:4]]
    assert first == [(name, 120, "4 steps", seed) for seed in (3, 4) for name in ("vit", "resnet")]
    assert [cell.train_size for cell in cells[4:]] == sorted(cell.train_size for cell in cells[4:])


def test_a_second_command_in_a_folder_says_that_another_one_works_there(values, monkeypatch):
    values["protocol"] |= {"seeds": [5]}
    experiment = experiment_from_dict(values)
    pool, told = ExperimentData.from_experiment(experiment), io.StringIO()
    cells = grid(experiment, pool, world_size=1)
    monkeypatch.setattr(supervisor, "take_runs", lambda *_, **__: None)
    supervisor.execute(cells, pool, console=Console(file=told, width=500))
    assert "Another command" not in told.getvalue()
    cells[0].folder.mkdir(parents=True)
    WorkRequest([], 1, datetime(2026, 3, 5, 7, 11, tzinfo=UTC)).count_attempt(cells[0])
    with FileLock(cells[0].lock):
        supervisor.execute(cells, pool, console=Console(file=told, width=500))
    who = f"process {os.getpid()} on {platform.node()}, since 2026-03-05 07:11 UTC"
    assert (
        f"Another command is training in {experiment.folder} ({who}); both share the remaining runs" in told.getvalue()
    )


def test_a_folder_that_is_not_there_is_reported_before_weights_are_looked_for(monkeypatch):
    from vit_vs_cnn.runs import pretrained

    monkeypatch.setattr(pretrained, "read_pretrained", lambda *_: pytest.fail("weights were looked for"))
    with pytest.raises(InputError, match=r"data\.root nowhere: no such folder"):
        vc.train("decide", {"data.root": "nowhere"}, quiet=True)
