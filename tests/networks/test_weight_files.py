"""A weight file of another network is refused before any image is read, with the name of the right network."""

import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

import vit_vs_cnn as vc
from tests.experiments.tiny import run_quietly, tiny_config
from tests.refused import refused
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.inspection.attention_weights import attention_maps
from vit_vs_cnn.inspection.rollout import rollout_map
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.timm_interface import register_with_timm
from vit_vs_cnn.networks.pretrained import drop_missing_weights, read_pretrained
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.networks.weight_files import find_networks

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "fine_tune.md"
#: Network, its options, and part of the message if it is given in place of the model test_vit.
OTHERS = [
    ("deit_tiny_patch16_224", {}, "use a network such as timm/deit_tiny_patch16_224 or timm/vit_tiny_patch16_224"),
    ("convnext_atto", {"num_classes": 3}, "(width 40, 2 + 2 + 6 + 2 blocks, stem of 4 x 4), not of timm/test_vit; use"),
    (
        "test_vit",
        {"depth": 5},
        "a ViT (width 64, 5 blocks, patches of 16), not of timm/test_vit; no other network fits",
    ),
]


def _save(network, path):
    save_file({key: torch.ones_like(v, device="cpu") for key, v in network.state_dict().items()}, path)
    return path


def _without_values(name, **options):
    with torch.device("meta"):
        return timm.create_model(name, **options)


def _experiment(tmp_path, model, file, **settings):
    return experiment_from_dict(tiny_config(tmp_path, models={"cnn": {"name": f"{model}={file}", **settings}}))


@pytest.mark.parametrize(("name", "options", "part"), OTHERS)
def test_weights_of_another_network_are_refused_with_its_sizes_and_name(name, options, part, tmp_path):
    path = _save(_without_values(name, **options), tmp_path / "other.safetensors")
    with refused(f"models.cnn.weights: {path} has the tensors of a ", part):
        drop_missing_weights(_experiment(tmp_path, "timm/test_vit", path))


def test_tensors_of_no_known_network_are_listed(tmp_path):
    torch.save({"state_dict": {"a": torch.zeros(2, 3), "b.c": torch.zeros(5)}}, tmp_path / "other.pth")
    with refused("has 2 tensors of an unknown network (a [2, 3], b.c [5], ...), not of timm/resnet18"):
        drop_missing_weights(_experiment(tmp_path, "timm/resnet18", tmp_path / "other.pth"))


@pytest.mark.parametrize("command", [vc.train, vc.tune])
def test_weights_are_checked_before_images_are_decoded(command, tmp_path):
    for number in range(6):
        (tmp_path / f"photos/{number % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"photos/{number % 2}/{number}.png").write_bytes(b"no image")
    path = _save(_without_values("convnext_atto"), tmp_path / "other.safetensors")
    settings = {"data.root": str(tmp_path / "photos"), "output": str(tmp_path / "runs"), "minutes": None}
    with refused("not of timm/resnet18; use timm/convnext_atto"):
        command("decide", {**settings, "models.vit_pretrained": None, "models.cnn_pretrained": f"timm/resnet18={path}"})
    assert not (tmp_path / "runs").exists()


def test_weights_with_another_head_or_image_size_and_changed_options_fit(tmp_path):
    head = _save(_without_values("test_vit", num_classes=3, img_size=96), tmp_path / "head.safetensors")
    patches = _save(_without_values("test_vit", patch_size=8), tmp_path / "patches.safetensors")
    for path, options in ((head, {}), (patches, {"patch_size": 8}), (head, {"input_size": "data"})):
        experiment = _experiment(tmp_path, "timm/test_vit", path, options=options)
        assert drop_missing_weights(experiment) == (experiment, {})


def test_a_folder_downloaded_from_the_hub_is_a_weight_file(tmp_path):
    _save(_without_values("test_convnext"), tmp_path / "model.safetensors")
    config = {"pretrained_cfg": {"input_size": [3, 128, 128], "mean": [0.25] * 3, "std": [0.5] * 3}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    experiment, _ = drop_missing_weights(_experiment(tmp_path, "timm/test_convnext", tmp_path))
    weights = read_pretrained(experiment, "cnn")
    assert (weights.image_size, weights.mean) == ((128, 128), [0.25] * 3)


@pytest.mark.parametrize("name", ["timm/swin_tiny_patch4_window7_224", "timm/efficientnet_b1", "resnet20"])
def test_a_network_is_found_by_the_shapes_of_its_tensors(name):
    register_with_timm()  # whose copies are no candidates
    with torch.device("meta"):
        shapes = {key: tuple(v.shape) for key, v in create_model(name, image_size=224).state_dict().items()}
    assert find_networks(shapes, "timm/resnet18")[0] == name


def test_the_documented_pair_with_the_same_pretraining_is_fine_tuned_and_its_attention_is_shown(tmp_path):
    vit = ("timm/vit_small_patch16_dinov3.lvd1689m", {"embed_dim": 48, "depth": 2, "num_heads": 3})
    cnn = ("timm/convnext_tiny.dinov3_lvd1689m", {"depths": [1, 1, 1, 1], "dims": [8, 8, 8, 8]})
    values = tiny_config(tmp_path, models={})
    values["protocol"]["budget"] = {"steps": 2}
    for key, (name, options) in {"vit": vit, "cnn": cnn}.items():
        assert f"--models.{key}_pretrained.name {name}" in GUIDE.read_text(encoding="utf-8")
        path = _save(_without_values(name.removeprefix("timm/"), **options), tmp_path / f"{key}.safetensors")
        values["models"][key] = {"name": f"{name}={path}", "options": {**options, "input_size": 80}}
    experiment, _ = drop_missing_weights(experiment_from_dict(values))
    text = "Pretraining of CNN and ViT, by the names of their weights: same data (lvd1689m), same method (dinov3)."
    assert text in analyze(run_quietly(experiment)).warnings()
    maps = attention_maps(TrainedNetwork.open(experiment.folder, model="vit").network, torch.rand(2, 3, 32, 32))
    rollout = rollout_map(maps.weights, query=maps.query, num_prefix_tokens=maps.num_prefix_tokens)
    assert maps.to_grid(rollout).shape == (2, 5, 5)
