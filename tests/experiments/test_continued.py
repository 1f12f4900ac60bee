"""Continuing an experiment: allowed changes, and the order of runs."""

import os
import platform
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import torch
from filelock import FileLock
from rich.console import Console

import vit_vs_cnn as vc
from tests.experiments.tiny import plan_runs, run_quietly, tiny_config, tiny_experiment
from tests.refused import refused
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.reading import override
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import machine_settings, runner
from vit_vs_cnn.experiments.machine_settings import choose_precision, choose_settings
from vit_vs_cnn.files import write_text
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.workers import supervisor
from vit_vs_cnn.workers.run import WorkRequest


@pytest.fixture
def values(trained_once, tmp_path):
    """The config of an experiment with finished runs."""
    shutil.copytree(trained_once, tmp_path / "tiny")
    return tiny_config(tmp_path, seeds=[3, 4], budget={"steps": 2})


@pytest.mark.parametrize(
    ("name", "value", "difference"),
    [
        ("models.vit.options.depth", 1, "models.vit.options.depth 2 then, 1 now"),
        ("models.resnet.optimizer.lr", 0.07, "models.resnet.optimizer.lr 0.05 then, 0.07 now"),
        ("protocol.batch_size", 16, "batch_size 14 then, 16 now"),
        ("trainer.precision", "bf16-mixed", "trainer.precision 32-true then, bf16-mixed now"),
        ("data.synthetic.seed", 5, "other images"),
    ],
)
def test_settings_that_differ_from_finished_runs_need_force(values, name, value, difference, monkeypatch):
    override(values, name, value)
    values["protocol"] |= {"seeds": [3, 5]}
    experiment = experiment_from_dict(values)
    with refused("has finished runs of", difference, "--name", "--force"):
        run_quietly(experiment)
    monkeypatch.setattr(runner, "execute", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(pytest.fail.Exception, match="trained"):
        runner.run_experiment(experiment, console=Console(quiet=True), force=True)


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": {"seeds": [3, 4, 5]}},
        {"protocol": {"train_sizes": [60, 120]}},
        {"protocol": {"budget": {"steps": 3}}},
        {"models": {"third": {"name": "resnet8", "options": {"width": 8}}}},
    ],
)
def test_more_seeds_sizes_models_or_another_budget_continue_an_experiment(values, change, monkeypatch):
    for block, changed in change.items():
        values[block] |= changed
    asked = []
    monkeypatch.setattr(runner, "execute", lambda runs, *_, **__: asked.extend(runs))
    monkeypatch.setattr(runner, "raise_failures", lambda runs: None)
    run_quietly(values)
    assert asked


def test_the_primary_comparison_runs_first(values):
    values["protocol"] |= {"train_sizes": [40, 60, 120], "seeds": [3, 4], "budget": {"steps": [2, 4]}}
    experiment = experiment_from_dict(values)
    plan = runner.make_analysis_plan(experiment, {size: size for size in (40, 60, 120)})
    later = replace(experiment, protocol=replace(experiment.protocol, seeds=[3, 4, 5]))
    runs = runner._primary_first(plan_runs(later), plan)
    first = [(run.model, run.train_size, run.budget.short, run.seed) for run in runs[:4]]
    assert first == [(name, 120, "4 steps", seed) for seed in (3, 4) for name in ("vit", "resnet")]
    assert [run.train_size for run in runs[4:]] == sorted(run.train_size for run in runs[4:])


def test_a_second_command_in_a_folder_reports_the_first(values, monkeypatch, console):
    values["protocol"] |= {"seeds": [5]}
    experiment = experiment_from_dict(values)
    pool, runs = ExperimentData.from_experiment(experiment), plan_runs(experiment)
    monkeypatch.setattr(supervisor, "take_runs", lambda *_, **__: None)
    supervisor.execute(runs, pool, console=console)
    assert "Another command" not in console.file.getvalue()
    runs[0].folder.mkdir(parents=True)
    WorkRequest([], 1, datetime(2026, 3, 5, 7, 11, tzinfo=UTC)).count_attempt(runs[0])
    with FileLock(runs[0].lock):
        supervisor.execute(runs, pool, console=console)
    who = f"(process {os.getpid()} on {platform.node()}, since 2026-03-05 07:11 UTC)"
    assert f"Another command is training in {experiment.folder} {who}" in console.file.getvalue()


def test_a_missing_folder_is_reported_before_weights_are_searched(monkeypatch):
    from vit_vs_cnn.networks import pretrained

    monkeypatch.setattr(pretrained, "read_pretrained", lambda *_: pytest.fail("weights were searched"))
    with pytest.raises(InputError, match=r"data\.root nowhere: no such folder"):
        vc.train("decide", {"data.root": "nowhere"}, quiet=True)


@pytest.fixture
def experiment(tmp_path):
    return replace(tiny_experiment(tmp_path), trainer={"precision": "auto", "accelerator": "cpu"})


@pytest.mark.parametrize("folder", [".", "tuning"])
def test_half_precision_is_chosen_for_supporting_hardware_and_kept_if_continued(experiment, monkeypatch, folder):
    for units, precision in (["AMX"], "bf16-mixed"), ([], None):
        monkeypatch.setattr(machine_settings, "bfloat16_units", lambda units=units: units)
        assert choose_precision(experiment).trainer.get("precision") == precision
    write_text(experiment.folder / folder / "experiment.yaml", "trainer: {precision: bf16-mixed}\n")
    assert choose_precision(experiment).trainer["precision"] == "bf16-mixed"
    named = replace(experiment, trainer={"precision": "32-true"})
    assert choose_precision(named) is named


@pytest.mark.parametrize(
    ("steps", "compiled_seconds", "chosen", "text"),
    [
        (2_000, 0.5, False, ""),  # takes less time than compiling
        (10**6, 0.5, True, "resnet 1, compiled 0.5. Compilation is used: it takes"),
        (10**6, 1.1, False, "Compilation is not used: it takes"),
        (10**6, None, False, "Compilation is not used, as it fails: no compiler"),
    ],
)
def test_training_is_compiled_if_that_saves_time_and_a_started_experiment_keeps_the_choice(
    tmp_path, monkeypatch, console, steps, compiled_seconds, chosen, text
):
    def seconds_per_step(experiment, *_):
        if experiment.protocol.compile is True and compiled_seconds is None:
            raise InputError("no compiler")
        return compiled_seconds if experiment.protocol.compile is True else 1.0

    monkeypatch.setattr(machine_settings, "seconds_per_step", seconds_per_step)
    experiment = tiny_experiment(tmp_path, protocol={"train_sizes": [120], "budget": {"steps": steps}})
    pool = ExperimentData.from_experiment(experiment)
    assert choose_settings(experiment, pool, Console(quiet=True), is_planned=False).protocol.compile == "auto"
    assert choose_settings(experiment, pool, console).protocol.compile is chosen
    printed = console.file.getvalue()
    assert text in printed
    # Another task of an array.
    assert choose_settings(experiment, pool, console).protocol.compile is chosen
    assert console.file.getvalue() == printed
    write_text(experiment.folder / "experiment.yaml", f"protocol: {{compile: {str(not chosen).lower()}}}\n")
    assert choose_settings(experiment, pool, Console(quiet=True)).protocol.compile is not chosen


@pytest.mark.parametrize(
    ("steps", "seeds", "executor", "threads"),
    [
        (1_000, 1, {}, 1),  # short runs
        (2_000, 1, {}, 3),  # two runs on six cores
        (10**6, 2, {}, 1),
        (10**6, 4, {}, 1),
        (10**6, 1, {"name": "local"}, 3),
        (10**6, 1, {"name": "ray"}, 1),
    ],
)
def test_long_runs_share_all_cores_and_started_ones_keep_theirs(tmp_path, monkeypatch, steps, seeds, executor, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    protocol = {"train_sizes": [120], "seeds": [*range(seeds)], "budget": {"steps": steps}, "compile": False}
    experiment = tiny_experiment(tmp_path, protocol=protocol, executor=executor)
    pool = ExperimentData.from_experiment(experiment)
    assert choose_settings(experiment, pool, Console(quiet=True)).protocol.threads == threads
    for stored, kept in ("protocol: {threads: 2}", 2), ("name: tiny", 1):
        write_text(experiment.folder / "experiment.yaml", stored)
        assert choose_settings(experiment, pool, Console(quiet=True)).protocol.threads == kept
