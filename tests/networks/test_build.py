"""Networks are built, opened from files, folders and timm, and are those that were evaluated."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

import vit_vs_cnn as vc
from tests.experiments.tiny import find_run, plan_runs, tiny_config, tiny_experiment
from tests.refused import refusals
from vit_vs_cnn.config.schema import Budget
from vit_vs_cnn.conversion.export import export
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.models import presets, register_model
from vit_vs_cnn.models.resnet import ResNet
from vit_vs_cnn.networks.build import build_network
from vit_vs_cnn.networks.evaluation import Predictions, hash_weights, predict
from vit_vs_cnn.networks.preparation import prepare_network
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.training.checkpoints import CheckpointInfo, read_checkpoint


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


@pytest.mark.parametrize(
    ("precision", "accelerator", "fused"), [("bf16-mixed", "cpu", 0), ("32-true", "cpu", 2), ("bf16-mixed", "auto", 2)]
)
def test_timms_attention_is_explicit_in_half_precision_on_a_cpu(tmp_path, monkeypatch, precision, accelerator, fused):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    options = {"patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2}
    changes = {"models": {"vit": {"name": "timm/vit_tiny_patch16_224", "options": options}}}
    changes["trainer"] = {"precision": precision, "accelerator": accelerator}
    (run, *_) = plan_runs(tiny_experiment(tmp_path, **changes))
    network = prepare_network(run, ExperimentData(run.experiment.data).draw(run.train_size, run.seed)).network
    assert sum(vars(module).get("fused_attn", False) for module in network.modules()) == fused


def test_balanced_class_weights_are_inverse_to_the_numbers_of_training_images(tmp_path):
    values = tiny_config(tmp_path, only="vit", train_sizes=[61])
    values["models"]["vit"]["class_weights"] = "balanced"
    (run,) = plan_runs(values)
    images = ExperimentData(run.experiment.data).draw(61, 3)
    counts = torch.bincount(images.training.labels).double()
    weights = torch.tensor(prepare_network(run, images).class_weights, dtype=torch.float64)
    assert counts.unique().numel() > 1
    torch.testing.assert_close(weights * counts, (weights * counts)[0].expand(10))


RUN = {"model": "vit", "train_size": 7, "budget": Budget(steps=3), "seed": 0, "fingerprint": "f"}
test_an_impossible_run_is_refused = refusals(
    lambda **changes: Run(tiny_experiment(Path("runs")), **RUN | changes),
    ({"model": "cnn"}, "'cnn' is not a model of tiny"),
    ({"train_size": 0}, "train_size and world_size must be at least 1"),
    ({"budget": Budget(steps=[3, 5])}, "budget a single one"),
)


def test_a_checkpoint_of_a_registered_model_opens_once_the_model_is_registered(trained_once, tmp_path, monkeypatch):
    monkeypatch.setattr(presets, "REGISTERED", {})
    original = next(trained_once.glob("resnet-*/checkpoints/last.ckpt"))
    contents = read_checkpoint(original)
    contents["vit_vs_cnn"] |= {"architecture": {"name": "mine"}, "origin": TrainedNetwork.open(original).run.to_dict()}
    torch.save(contents, tmp_path / "mine.ckpt")
    with pytest.raises(InputError, match=r'mine.ckpt: there is no model "mine"; .*register_model\(name, factory\)'):
        TrainedNetwork.open(tmp_path / "mine.ckpt")
    register_model("mine", lambda num_classes, in_channels: ResNet(8, 4, num_classes, in_channels))
    mine, theirs = (TrainedNetwork.open(path).network for path in (tmp_path / "mine.ckpt", original))
    assert hash_weights(mine) == hash_weights(theirs)


def test_a_network_is_the_same_from_checkpoint_run_experiment_and_export(trained_once, tmp_path):
    run = find_run(trained_once, "vit-n120-s3")
    opened = [TrainedNetwork.open(run), TrainedNetwork.open(str(run / "checkpoints" / "last.ckpt"))]
    opened.append(TrainedNetwork.open(trained_once, model="vit"))
    export(opened[0], ["safetensors"], tmp_path)
    opened.append(TrainedNetwork.open(tmp_path / "model.safetensors"))
    assert len({hash_weights(one.network) for one in opened}) == 1
    assert {one.image_shape for one in opened} == {(3, 32, 32)}
    assert [one.name for one in opened] == ["vit-n120-s3"] * 3 + ["vit-n120-s3 (model)"]
    assert len({json.dumps(one.run.identity) for one in opened}) == 1
    with pytest.raises(InputError, match=r"several models; name one \(--model vit or --model resnet\)"):
        TrainedNetwork.open(trained_once)
    with pytest.raises(InputError, match="is of model 'vit', not of 'resnet'"):
        TrainedNetwork.open(run, model="resnet")


def test_a_timm_model_gets_classes_and_image_shape_from_another_network(trained_once, tmp_path):
    like = TrainedNetwork.open(find_run(trained_once, "vit-n120-s3"))
    untrained = TrainedNetwork.open("timm/resnet10t", classes_from=like)
    torch.save(untrained.network.state_dict(), tmp_path / "mine.pth")
    loaded = vc.load(f"timm/resnet10t={tmp_path / 'mine.pth'}", "vit", classes_from=trained_once)
    assert hash_weights(untrained.network) == hash_weights(loaded.network)
    assert [one.name for one in (untrained, loaded)] == ["timm/resnet10t", "timm/resnet10t (mine)"]
    assert [len(one.warnings) for one in (untrained, loaded)] == [1, 0]
    assert loaded.class_names == like.class_names
    assert len(loaded.predict(torch.zeros(3, 3, 32, 32, dtype=torch.uint8))) == 3
    assert untrained.about.mean == pytest.approx(IMAGENET_DEFAULT_MEAN)
    assert untrained.about.std == pytest.approx(IMAGENET_DEFAULT_STD)
    test = like.pool().test(like.run.seed)
    assert TrainedNetwork.open("timm/resnet10t", classes_from=test).image_shape == (3, 32, 32)
    grey = TrainedNetwork.open("timm/resnet10t", classes_from=replace(test, images=test.images[:, :1]))
    assert (grey.about.mean, grey.about.std) == ([0.5], [0.5])
    with pytest.raises(InputError, match="timm/resnet10t: its classes and image size are not known"):
        TrainedNetwork.open("timm/resnet10t")
    with pytest.raises(InputError, match="no weights were named, so it is untrained; timm/resnet10t=FILE names them"):
        vc.predict("timm/resnet10t", tmp_path, classes_from=trained_once, model="vit")
    with pytest.raises(InputError, match="classes_from: expected a network, its path, or images, got 3"):
        vc.load("timm/resnet10t", classes_from=3)
    with pytest.raises(InputError, match="has its own classes and image size"):
        TrainedNetwork.open(like.path, classes_from=like)


@pytest.mark.parametrize(("source", "hint"), [("folder", "--root DIR names their folder"), ("table", "--root FILE")])
def test_the_error_for_moved_images_names_the_root_option(trained_once, source, hint):
    trained = TrainedNetwork.open(find_run(trained_once, "vit-n120-s3"))
    data = replace(trained.run.experiment.data, source=source, root="gone.csv")
    origin = replace(trained.run, experiment=replace(trained.run.experiment, data=data))
    with pytest.raises(InputError, match=f"its images: .*gone.csv.*; {hint}"):
        replace(trained, origin=origin).pool()


def test_an_impossible_shape_of_images_is_refused_with_the_limits():
    with pytest.raises(InputError, match=r"\(70, 9, 7\) must have 1 to 64 channels and sides of 1 to 16384"):
        CheckpointInfo({"name": "vit_nano"}, ("a", "b"), (70, 9, 7), [0.5] * 70, [0.5] * 70)
