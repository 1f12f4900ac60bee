"""Runs are executed in the order of what they tell, and those that do not fit into the minutes are left out."""

import io
import time

import pytest
from rich.console import Console

from tests.experiments.tiny import plan_runs, run_quietly, tiny_config
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.experiments.analysis_plan import make_analysis_plan
from vit_vs_cnn.experiments.runner import _stages, run_experiment
from vit_vs_cnn.runs.experiment_folder import read_finished_results

pytestmark = pytest.mark.slow


def _values(output, **protocol):
    values = tiny_config(output, **{"train_sizes": [40, 60], "seeds": [3, 4], "budget": {"steps": 2}} | protocol)
    values["data"]["synthetic"] |= {"train_images": 60, "test_images": 30}
    return values


def _execute(values, **options):
    output = io.StringIO()
    results = run_experiment(experiment_from_dict(values), console=Console(file=output, width=300), **options)
    return sorted(result.coordinates for result in results), output.getvalue()


@pytest.mark.parametrize("executor", ["local", "processes"])
def test_after_the_minutes_only_the_runs_of_the_first_answer_are_completed(tmp_path, executor):
    values = _values(tmp_path) | {"executor": executor}
    primary = [(model, 60, seed) for model in ("resnet", "vit") for seed in (3, 4)]
    others = [(model, 40, seed) for model, _, seed in primary]
    found, text = _execute(values, deadline=time.monotonic())
    assert {*primary} <= {*found} <= {*primary, *others}
    if executor == "local":
        assert (found, "4 of 8 runs are not finished" in text) == (sorted(primary), True)
    found, text = _execute(values, deadline=time.monotonic() + 900)
    assert (found, "not finished" in text) == (sorted([*primary, *others]), False)


def test_probes_come_before_fine_tuned_networks_and_those_before_networks_from_scratch(tmp_path):
    given = experiment_from_dict(_values(tmp_path, train_sizes=[60], seeds=[3]) | {"name": "given"})
    run_quietly(given)
    values = _values(tmp_path, seeds=[5, 6])
    values["data"]["synthetic"]["seed"] = 7
    start = {**values["models"]["vit"], "weights": {"run": str(given.folder), "model": "vit"}}
    values["models"]["probe"] = {key: start[key] for key in ("name", "options", "weights")} | {"finetune": "head"}
    values["models"]["tuned"] = start
    values["models"]["longer"] = {**values["models"]["resnet"], "starts_from": "resnet"}
    values["protocol"]["pairs"] = [["probe", "resnet"]]
    experiment = experiment_from_dict(values)
    plan = make_analysis_plan(experiment, {40: 40, 60: 60})
    stages = [[(run.model, run.train_size) for run in stage] for stage in _stages(plan_runs(experiment), plan)]
    assert [{model for model, _ in stage} for stage in stages] == [{"probe"}, {"tuned"}, {"vit", "resnet", "longer"}]
    assert all(stage == sorted(stage, key=lambda place: -place[1]) for stage in stages)

    said = []

    def report(next_stage):
        finished = read_finished_results(experiment.folder, some=False).values()
        said.append(({result.model for result in finished}, next_stage))

    _, text = _execute(values, deadline=time.monotonic() + 900, report_stage=report)
    assert [done for done, _ in said] == [{"probe"}, {"probe", "tuned"}]
    assert said[0][1].startswith("Next: tuned, vit, resnet and longer (16 runs, 1") and "not finished" not in text
    _execute(values, deadline=time.monotonic() + 900, report_stage=report)
    assert len(said) == 2  # no stage had new results
