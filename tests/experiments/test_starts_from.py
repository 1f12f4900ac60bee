"""A model that begins with the weights of another one, or of a checkpoint."""

import pytest
import torch

from tests.experiments.tiny import plan_runs, run_quietly, tiny_config
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.result import StartKind, read_result


def _values(output, **more):
    values = tiny_config(output, budget={"steps": 4})
    resnet = values["models"]["resnet"]
    values["models"] = {"longer": {**resnet, "starts_from": "resnet"}, "resnet": resnet} | more
    return values


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    experiment = experiment_from_dict(_values(tmp_path_factory.mktemp("starts")))
    run_quietly(experiment)
    return experiment


def _run_folders(experiment):
    return {run.model: run for run in plan_runs(experiment)}


def test_a_start_runs_before_the_one_that_starts_from_it_which_records_it(finished):
    runs = _run_folders(finished)
    assert list(runs) == ["resnet", "longer"]
    starts = [read_result(run.folder / "result.json").start for run in runs.values()]
    expected = [(StartKind.SCRATCH, None), (StartKind.CONTINUED, "resnet-n120-s3")]
    assert [(start.start_kind, start.start_name) for start in starts] == expected


def test_with_a_learning_rate_of_zero_the_weights_are_those_of_the_start(tmp_path):
    values = _values(tmp_path)
    values["models"]["longer"]["optimizer"] = {"name": "sgd", "lr": 1e-30, "weight_decay": 0.0}
    experiment = experiment_from_dict(values)
    run_quietly(experiment)
    runs = _run_folders(experiment)
    before, after = (TrainedNetwork.open(runs[name].checkpoint).network for name in ("resnet", "longer"))
    for (name, a), b in zip(before.named_parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-20, msg=name)


def test_a_changed_recipe_of_the_start_renames_the_run_that_starts_from_it(finished, tmp_path):
    values = _values(finished.output)
    values["models"]["resnet"] = {**values["models"]["resnet"], "label_smoothing": 0.2}
    assert _run_folders(experiment_from_dict(values))["longer"].folder != _run_folders(finished)["longer"].folder


def test_a_start_whose_weights_do_not_fit_is_refused(finished):
    values = _values(finished.output)
    values["models"]["vit"] = tiny_config(finished.output)["models"]["vit"] | {"starts_from": "resnet"}
    del values["models"]["longer"]
    with pytest.raises(InputError, match=r"models.vit.starts_from: the weights do not fit"):
        run_quietly(values)
