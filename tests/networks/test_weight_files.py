"""A weight file of another network is refused before any image is read, with the name of the right network."""

import json
import re

import pytest
import timm
import torch
from safetensors.torch import save_file

import vit_vs_cnn as vc
from tests.experiments.tiny import tiny_config
from tests.refused import refused
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.experiments.analysis_plan import missing_weights_texts
from vit_vs_cnn.models import create_model
from vit_vs_cnn.networks.pretrained import drop_missing_weights, read_pretrained
from vit_vs_cnn.networks.weight_files import find_networks


def _save(network, path):
    save_file({name: torch.zeros(value.shape, dtype=value.dtype) for name, value in network.state_dict().items()}, path)
    return path


def _without_values(name, **options):
    with torch.device("meta"):
        return timm.create_model(name, **options)


def _experiment(tmp_path, model, file, **settings):
    values = {"name": f"{model}={file}", **settings}
    return experiment_from_dict({**tiny_config(tmp_path), "models": {"cnn": values}})


@pytest.mark.parametrize(
    ("name", "options", "named", "description"),
    [
        (
            "deit_tiny_patch16_224",
            {"num_classes": 3},
            "convnext_atto",
            "a ViT (width 192, 12 blocks, patches of 16), not of timm/convnext_atto; "
            "use a network such as timm/deit_tiny_patch16_224 or timm/vit_tiny_patch16_224",
        ),
        (
            "convnext_atto",
            {},
            "resnet18",
            "a ConvNeXt (width 40, 2 + 2 + 6 + 2 blocks, stem of 4 x 4), not of timm/resnet18; use timm/convnext_atto",
        ),
        ("mobilenetv3_small_050", {}, "resnet18", "an EfficientNet or MobileNet (width 16, 1 + 2 + 3 + 2 + 3 + 1 blo"),
        ("test_vit", {"depth": 5}, "test_vit", "a ViT (width 64, 5 blocks, patches of 16), not of timm/test_vit; no "),
    ],
)
def test_weights_of_another_network_are_refused_with_its_sizes_and_name(name, options, named, description, tmp_path):
    path = _save(_without_values(name, **options), tmp_path / "other.safetensors")
    with refused(f"models.cnn.weights: {path} has the tensors of {description}"):
        drop_missing_weights(_experiment(tmp_path, f"timm/{named}", path))


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
    experiment = _experiment(tmp_path, "timm/test_convnext", tmp_path)
    assert drop_missing_weights(experiment)[1] == {}
    weights = read_pretrained(experiment, "cnn")
    assert (weights.image_size, weights.mean) == ((128, 128), [0.25] * 3)


def test_unknown_names_and_missing_files_are_refused_before_images_are_read(tmp_path):
    path = _save(_without_values("test_convnext"), tmp_path / "model.safetensors")
    for name, message in (("nothing", 'there is no timm model "nothing"'), ("resnet18.nothing", "Invalid pretrained")):
        with refused(f"models.cnn: {message}"):
            drop_missing_weights(_experiment(tmp_path, f"timm/{name}", path))
    with refused("models.cnn.weights.file: nowhere.safetensors: no such file"):
        drop_missing_weights(_experiment(tmp_path, "timm/resnet18", "nowhere.safetensors"))


@pytest.mark.parametrize("name", ["timm/swin_tiny_patch4_window7_224", "timm/vit_small_patch16_dinov3", "resnet20"])
def test_a_network_is_found_by_the_shapes_of_its_tensors(name):
    with torch.device("meta"):
        network = create_model(name, image_size=256 if "dinov3" in name else 224)
    shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    assert find_networks(shapes, "timm/resnet18") == [name]


def test_advice_on_missing_weights_is_one_word_for_each_model():
    *_, option = missing_weights_texts({"vit": "timm/vit_tiny_patch16_224.augreg_in21k", "own": "resnet8"})
    assert re.findall(r"--\S+ \S+", option) == ["--models.vit timm/vit_tiny_patch16_224.augreg_in21k=FILE"]
