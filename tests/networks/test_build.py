"""A checkpoint restores the evaluated network."""

import errno
import json
import os

import pytest
import timm
import torch
from safetensors import SafetensorError

from tests.experiments.tiny import tiny_config, tiny_experiment
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.schema import Budget
from vit_vs_cnn.conversion import export
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.models import presets, register_model
from vit_vs_cnn.models.resnet import ResNet
from vit_vs_cnn.networks.build import build_network
from vit_vs_cnn.networks.evaluation import Predictions, hash_weights, predict
from vit_vs_cnn.networks.preparation import prepare_network
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.training.checkpoints import read_checkpoint


@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_a_loaded_network_gives_the_logits_of_the_result(trained_once, model):
    (run,) = trained_once.glob(f"{model}-*-s3-*")
    loaded = TrainedNetwork.open(run / "checkpoints" / "last.ckpt")
    assert hash_weights(loaded.network) == json.loads((run / "result.json").read_text())["weights"]
    config = timm.data.resolve_data_config(model=loaded.network)
    assert (config["input_size"], config["crop_pct"], config["crop_mode"]) == (loaded.image_shape, 1.0, "center")
    assert (config["mean"], config["std"]) == (tuple(loaded.about.mean), tuple(loaded.about.std))
    predictions = predict(loaded.network, ExperimentData(tiny_experiment(trained_once).data).test(0), loaded.normalize)
    stored = Predictions.load(run / "predictions.npz")
    torch.testing.assert_close(predictions.label_log_probability, stored.label_log_probability, atol=1e-6, rtol=1e-5)
    assert torch.equal(predictions.classes, stored.classes)
    assert len(loaded.about.class_names) == predictions.logits.shape[1]


def test_options_of_timm_models_are_given_to_timm_and_those_of_presets_are_checked():
    shape = {"num_classes": 7, "image_shape": (3, 32, 32), "location": "model"}
    network = build_network({"name": "timm/resnet10t", "options": {"drop_rate": 0.3, "act_layer": "gelu"}}, **shape)
    assert network.drop_rate == 0.3
    with pytest.raises(InputError, match=r"model\.options\.drop_rate: there is no such setting"):
        build_network({"name": "resnet8", "options": {"drop_rate": 0.3}}, **shape)


def test_balanced_class_weights_are_inverse_to_the_numbers_of_training_images(tmp_path):
    values = tiny_config(tmp_path)
    values["models"]["vit"]["class_weights"] = "balanced"
    experiment = experiment_from_dict(values)
    pool = ExperimentData(experiment.data)
    run = Run(experiment, "vit", 61, experiment.protocol.budget, 3, pool.fingerprint)
    images = pool.draw(61, 3)
    counts = torch.bincount(images.training.labels).double()
    weights = torch.tensor(prepare_network(run, images).class_weights, dtype=torch.float64)
    assert counts.unique().numel() > 1
    torch.testing.assert_close(weights * counts, (weights * counts)[0].expand(10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": {"vit": 3}}, "weights must be a mapping from models to plain values"),
        ({"model": "cnn"}, "'cnn' is not a model of tiny"),
        ({"train_size": 0}, "train_size and world_size must be at least 1"),
        ({"budget": Budget(steps=[3, 5])}, "budget a single one"),
    ],
)
def test_an_impossible_run_is_refused(tmp_path, change, message):
    experiment = tiny_experiment(tmp_path)
    values = {"model": "vit", "train_size": 7, "budget": Budget(steps=3), "seed": 0, "fingerprint": "f"}
    with pytest.raises(InputError, match=message):
        Run(experiment, **values | change)


def test_a_checkpoint_of_a_registered_model_opens_once_the_model_is_registered(trained_once, tmp_path, monkeypatch):
    monkeypatch.setattr(presets, "REGISTERED", {})
    original = next(trained_once.glob("resnet-*/checkpoints/last.ckpt"))
    contents = read_checkpoint(original)
    contents["vit_vs_cnn"] |= {"architecture": {"name": "mine"}, "origin": TrainedNetwork.open(original).run.to_dict()}
    torch.save(contents, tmp_path / "mine.ckpt")
    with pytest.raises(InputError, match=r'mine.ckpt: there is no model "mine"; .*register_model\(name, factory\)'):
        TrainedNetwork.open(tmp_path / "mine.ckpt")
    register_model("mine", lambda num_classes, in_channels: ResNet(8, 4, num_classes, in_channels))
    assert hash_weights(TrainedNetwork.open(tmp_path / "mine.ckpt").network) == hash_weights(
        TrainedNetwork.open(original).network
    )


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), SafetensorError("No space left on device")]
)
def test_an_export_to_a_full_disk_is_refused_with_the_reason(trained_once, tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    (run,) = trained_once.glob("resnet-*-s3-*")
    monkeypatch.setattr(export, "save_file", fail)
    with pytest.raises(InputError, match=r"the export cannot be written there \(No space left on device\)"):
        export.export(TrainedNetwork.open(run), ["safetensors"], tmp_path)
