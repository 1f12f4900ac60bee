"""Linear probes: fitted to features that are computed once, and used like other networks."""

import re

import numpy as np
import pytest
import torch

from tests.experiments.tiny import run_quietly, tiny_config
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import InputError, RunsFailed
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.evaluation import Predictions, predict
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.result import StartKind

pytestmark = pytest.mark.slow


def _values(trained_elsewhere, output, **changes):
    values = tiny_config(output, **{"train_sizes": [60, 120]} | changes)
    for name, model in values["models"].items():
        start = {"weights": {"run": str(trained_elsewhere)}, "finetune": "head"}
        values["models"][name] = {"name": model["name"], "options": model["options"]} | start
    return values


@pytest.fixture(scope="module")
def probed(trained_elsewhere, tmp_path_factory):
    experiment = experiment_from_dict(_values(trained_elsewhere, tmp_path_factory.mktemp("probed")))
    run_quietly(experiment)
    return experiment


def test_only_the_head_is_fitted(probed, trained_elsewhere):
    for name in ("vit", "resnet"):
        before = TrainedNetwork.open(trained_elsewhere, model=name).network.state_dict()
        after = TrainedNetwork.open(probed.folder, model=name).network.state_dict()
        assert {key for key in before if not torch.equal(before[key], after[key])} == {"head.weight", "head.bias"}


def test_an_opened_probe_gives_the_recorded_predictions(probed):
    opened = TrainedNetwork.open(probed.folder, model="vit")
    again = predict(opened.network, ExperimentData(probed.data).test(0), opened.normalize)
    stored = Predictions.load(opened.run.predictions)
    torch.testing.assert_close(again.probability, stored.probability, rtol=1e-3, atol=1e-3)
    assert torch.equal(again.correct, stored.correct)


def test_the_result_of_a_probe_records_its_penalty_and_cost(probed):
    for result in read_finished_results(probed.folder).values():
        assert (result.start.start_kind, result.start.finetune) == (StartKind.LINEAR_PROBE, "head")
        assert result.scores.penalty > 0
        assert (result.cost.images_processed, result.cost.passes) == (result.data.training_images, 1)
        assert result.cost.ended_early is False


def test_features_are_computed_once_for_all_sizes_and_seeds(probed, trained_elsewhere, monkeypatch):
    monkeypatch.setattr("vit_vs_cnn.workers.probe.logits_and_features", lambda *_, **__: pytest.fail("computed again"))
    options = {"train_sizes": [120], "seeds": [4], "scored_on": "validation", "name": "again"}
    of_killed = next((probed.folder.parent / "features").iterdir()) / "part.npz.partial"
    of_killed.touch()
    assert len(run_quietly(_values(trained_elsewhere, probed.output, **options))) == 2
    assert not of_killed.exists()


def test_without_validation_images_a_probe_is_refused(trained_elsewhere, tmp_path):
    values = _values(trained_elsewhere, tmp_path)
    values["data"]["validation_fraction"] = 0.0
    with pytest.raises(InputError, match="finetune: head chooses its penalty on validation images"):
        run_quietly(values)


@pytest.mark.parametrize("width", [None, 5])
def test_a_damaged_feature_file_is_reported(probed, trained_elsewhere, width):
    folder = next((probed.folder.parent / "features").iterdir())
    (folder / "damaged.npz").write_bytes(b"no features")
    if width is not None:
        np.savez(folder / "damaged.npz", images=np.arange(3, dtype=np.uint64), features=np.zeros((3, width)))
    values = _values(trained_elsewhere, probed.output, train_sizes=[120], seeds=[5], name="damaged")
    with pytest.raises((InputError, RunsFailed), match=r"damaged.npz: .*delete the file"):
        run_quietly(values)
    (folder / "damaged.npz").unlink()


def test_features_in_bfloat16_are_close_to_those_in_single_precision_and_stored_apart(trained_elsewhere, tmp_path):
    values = _values(trained_elsewhere, tmp_path, train_sizes=[120])
    values["trainer"]["precision"] = "bf16-mixed"
    run_quietly(values)
    values["trainer"]["precision"] = "32-true"
    values["name"] = "single"
    run_quietly(values)
    assert len([*(tmp_path / "features").iterdir()]) == 4  # two networks, two precisions
    for name in ("vit", "resnet"):
        narrow, wide = (
            Predictions.load(TrainedNetwork.open(tmp_path / folder, model=name).run.predictions)
            for folder in (values["name"], "tiny")
        )
        torch.testing.assert_close(narrow.probability, wide.probability, rtol=0.1, atol=0.1)
        assert not torch.equal(narrow.probability, wide.probability)


def test_a_class_with_a_larger_weight_is_predicted_more_often(trained_elsewhere, tmp_path):
    counts = []
    for weight in (1.0, 50.0):
        values = _values(trained_elsewhere, tmp_path / str(weight), train_sizes=[120])
        for model in values["models"].values():
            model["class_weights"] = [weight] + [1.0] * 9
        experiment = experiment_from_dict(values)
        run_quietly(experiment)
        opened = [TrainedNetwork.open(experiment.folder, model=name).run for name in ("vit", "resnet")]
        counts.append(sum(int((Predictions.load(run.predictions).classes == 0).sum()) for run in opened))
    assert counts[0] < counts[1]


def test_features_do_not_depend_on_the_number_of_batches_at_a_time(trained_elsewhere, tmp_path, monkeypatch):
    computed = []
    for count in (1, 3):
        monkeypatch.setattr("vit_vs_cnn.workers.probe.count_parallel_batches", lambda threads, count=count: count)
        run_quietly(_values(trained_elsewhere, tmp_path / str(count), train_sizes=[120]))
        files = sorted((tmp_path / str(count) / "features").rglob("*.npz"))
        computed.append([np.load(file)["features"] for file in files])
    assert len(computed[0]) == 6  # training, validation and test images of two networks
    assert all(np.array_equal(one, other) for one, other in zip(*computed, strict=True))


def test_computing_features_prints_their_number_and_the_time_left(trained_elsewhere, tmp_path, monkeypatch, console):
    monkeypatch.setattr("vit_vs_cnn.console.SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("vit_vs_cnn.workers.probe.CPU_BATCH_SIZE", 37)
    experiment = experiment_from_dict(_values(trained_elsewhere, tmp_path, train_sizes=[120]))
    run_experiment(experiment, console=console)
    lines = [line for line in console.file.getvalue().splitlines() if "vit-n120-s3: features of" in line]
    assert lines[0] == "vit-n120-s3: features of 90 images"
    assert re.fullmatch(r"vit-n120-s3: features of 37 of 90 images, about \d+ (s|min) left", lines[1])
