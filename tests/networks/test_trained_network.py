"""Networks from files, folders and timm are opened by one function, which reads each file once."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

import vit_vs_cnn as vc
from vit_vs_cnn.conversion.export import export
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.evaluation import hash_weights
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.training.checkpoints import CheckpointInfo


def run_of(experiment: Path, name: str) -> Path:
    return next(experiment.glob(f"{name}-*"))


def test_a_network_is_the_same_from_checkpoint_run_experiment_and_export(trained_once, tmp_path):
    run = run_of(trained_once, "vit-n120-s3")
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
    like = TrainedNetwork.open(run_of(trained_once, "vit-n120-s3"))
    untrained = TrainedNetwork.open("timm/resnet10t", classes_from=like)
    torch.save(untrained.network.state_dict(), tmp_path / "mine.pth")
    loaded = vc.load(f"timm/resnet10t={tmp_path / 'mine.pth'}", classes_from=like)
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
    with pytest.raises(InputError, match="classes_from: expected a network, its path, or images, got 3"):
        vc.load("timm/resnet10t", classes_from=3)
    with pytest.raises(InputError, match="has its own classes and image size"):
        TrainedNetwork.open(like.path, classes_from=like)


@pytest.mark.parametrize(("source", "hint"), [("folder", "--root DIR names their folder"), ("table", "--root FILE")])
def test_the_error_for_moved_images_names_the_root_option(trained_once, source, hint):
    trained = TrainedNetwork.open(run_of(trained_once, "vit-n120-s3"))
    data = replace(trained.run.experiment.data, source=source, root="gone.csv")
    origin = replace(trained.run, experiment=replace(trained.run.experiment, data=data))
    with pytest.raises(InputError, match=f"its images: .*gone.csv.*; {hint}"):
        replace(trained, origin=origin).pool()


def test_an_impossible_shape_of_images_is_refused_with_the_limits():
    with pytest.raises(InputError, match=r"\(70, 9, 7\) must have 1 to 64 channels and sides of 1 to 16384"):
        CheckpointInfo({"name": "vit_nano"}, ("a", "b"), (70, 9, 7), [0.5] * 70, [0.5] * 70)
