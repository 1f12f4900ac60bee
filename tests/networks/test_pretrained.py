"""Pretrained weights are loaded as by timm, for any image size; a file of another network is refused with its name."""

import json
import shutil
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torchvision.transforms.v2 import functional as reference

import vit_vs_cnn as vc
from tests.experiments.tiny import plan_runs, run_quietly, tiny_config
from tests.refused import refused
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.inspection.attention_weights import attention_maps
from vit_vs_cnn.inspection.rollout import rollout_map
from vit_vs_cnn.models import ResNet, VisionTransformer, create_model
from vit_vs_cnn.models.input_wrappers import ResizedInput
from vit_vs_cnn.models.timm_conversion import convert_to_timm
from vit_vs_cnn.models.timm_interface import register_with_timm
from vit_vs_cnn.networks.build import convert_for_timm, read_weights
from vit_vs_cnn.networks.preparation import prepare_network
from vit_vs_cnn.networks.pretrained import (
    PretrainedWeights,
    drop_missing_weights,
    fit_weights,
    head_weight_names,
    read_pretrained,
)
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.networks.weight_files import find_networks

#: A small model of every family, and its image size.
FAMILIES = {"test_vit": 160, "deit_tiny_patch16_224": 224, "test_resnet": 160, "test_convnext": 160}
VIT = {"patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3}


def _sampled(network):
    """Random weights without constant tensors, so that mix-ups are detected."""
    torch.manual_seed(1)
    for value in [*network.parameters(), *(b for b in network.buffers() if b.is_floating_point())]:
        value.data = torch.rand_like(value) * 0.1 + 0.05
    return network.eval()


def _saved(network, path):
    """Write the weights; ones for a network without values."""
    state = {name: torch.ones_like(v, device="cpu") if v.is_meta else v for name, v in network.state_dict().items()}
    save_file({name: value.contiguous() for name, value in state.items()}, path)
    return path


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("other_size", [False, True])
def test_weight_files_of_timm_give_timms_logits_at_any_image_size(name, other_size, tmp_path):
    size, options = FAMILIES[name], {}
    path = _saved(_sampled(timm.create_model(name)), tmp_path / "weights.safetensors")
    if other_size:
        size = 96
        options = {"img_size": (96, 96)} if "vit" in name or "deit" in name else {}
    theirs = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": str(path)}, **options).eval()
    ours = create_model(f"timm/{name}", num_classes=1000, image_size=size).eval()
    fit_weights(ours, PretrainedWeights("it", "a file", read_weights(path)), num_classes=None)
    images = torch.rand(2, 3, size, size)
    torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=0)


@pytest.mark.parametrize("size", [32, 48])
def test_our_vision_transformer_with_timms_weights_gives_timms_logits(size):
    options = {"patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    theirs = _sampled(timm.create_model("vit_tiny_patch16_224", img_size=32, **options))
    ours = VisionTransformer(size, **options, num_classes=7, mlp_ratio=4.0, pool="class")
    head = ours.head.weight.clone()
    fit_weights(ours, PretrainedWeights("it", "timm", theirs.state_dict(), image_size=(32, 32)), num_classes=7)
    moved = timm.create_model("vit_tiny_patch16_224", img_size=size, **options, num_classes=7).eval()
    state = timm.models.vision_transformer.checkpoint_filter_fn(theirs.state_dict(), moved)
    moved.load_state_dict({k: v for k, v in state.items() if not k.startswith("head.")}, strict=False)
    moved.head.load_state_dict(ours.head.state_dict())
    images = torch.rand(2, 3, size, size)
    torch.testing.assert_close(ours.eval()(images), moved(images), rtol=1e-4, atol=1e-5)
    assert torch.equal(ours.head.weight, head)
    sinusoidal = VisionTransformer(32, **options, num_classes=7, mlp_ratio=4.0, pool="class", position="sincos")
    with refused("learned positions", "use position: learned"):
        given = convert_to_timm(VisionTransformer(32, **options, mlp_ratio=4.0, pool="class")).state_dict()
        fit_weights(sinusoidal, PretrainedWeights("it", "timm", given, image_size=(32, 32)), num_classes=None)


@pytest.mark.parametrize("options", [{}, {"position": "relative"}, {"position": "sincos"}, {"window_size": 3}])
def test_our_weights_are_resized_to_another_grid_as_by_resize(options):
    given = _sampled(VisionTransformer((12, 20), num_classes=5, **VIT, **options))
    network = VisionTransformer((20, 28), num_classes=3, **VIT, **options).eval()
    fit_weights(network, PretrainedWeights("it", "ours", given.state_dict(), image_size=(12, 20)), num_classes=3)
    moved, images = given.resize((20, 28)), torch.rand(2, 3, 20, 28)
    torch.testing.assert_close(network.forward_features(images), moved.forward_features(images))


def test_weights_are_loaded_except_for_the_head_which_timm_declares_or_which_has_the_logits():
    given, network = torchvision.models.resnet18(), torchvision.models.resnet18(num_classes=7)
    fit_weights(network, PretrainedWeights("it", "torchvision", given.state_dict()), num_classes=7)
    assert torch.equal(network.layer4[1].conv2.weight, given.layer4[1].conv2.weight)
    assert network.fc.weight.shape == (7, 512)
    small = {"embed_dim": 24, "depth": 1, "num_heads": 2, "num_classes": 7, "img_size": 32}
    heads = {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}
    assert head_weight_names(timm.create_model("deit_tiny_distilled_patch16_224", **small), 7, "weights") == heads
    assert head_weight_names(given, 1000, "weights") == {"fc.weight", "fc.bias"}
    with refused("weights: ResNet has no linear head of 7 classes to replace"):
        head_weight_names(given, 7, "weights")
    given = PretrainedWeights("it", "here", ResNet(8, 4, num_classes=5).state_dict())
    with refused("size mismatch for stem.0.weight: ", "[4, 3, 3, 3]"):
        fit_weights(ResNet(8, 6, num_classes=3), given, num_classes=3)


def test_images_are_resized_and_cropped_as_timm_prepares_them():
    images = torch.rand(2, 3, 29, 29)
    wanted = reference.center_crop(reference.resize(images, [44, 44], interpolation=3, antialias=True), [40, 40])
    torch.testing.assert_close(ResizedInput(torch.nn.Identity(), 40, "bicubic", crop_pct=0.9).eval()(images), wanted)


@pytest.mark.parametrize(
    ("weights", "values", "expected"),
    [
        ({"image_size": (24, 24)}, {}, {}),
        ({"image_size": (24, 24), "crop_pct": 0.9}, {}, {"input_size": [24, 24], "crop_pct": 0.9}),
        ({"image_size": (24, 24), "crop_pct": 0.9}, {"crop_pct": 1.0}, {}),
        ({"image_size": (40, 24)}, {}, {"input_size": [40, 24], "crop_pct": 1.0}),
        ({"image_size": (40, 24)}, {"input_size": 24, "interpolation": "bilinear"}, {}),
        ({"image_size": (40, 24)}, {"input_size": "data"}, {}),
        ({}, {"input_size": 31}, {"input_size": [31, 31], "crop_pct": 1.0}),
        ({}, {}, {}),
    ],
)
def test_images_are_prepared_unless_they_have_the_size_of_the_weights_and_are_not_cropped(weights, values, expected):
    given = PretrainedWeights("it", "here", {}, **weights)
    architecture = given.adapt_architecture({"name": "resnet8", "options": values}, (24, 24))
    options = {"interpolation": "bicubic"} | expected if expected else {}
    assert architecture == {"name": "resnet8", "options": options}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """An experiment trained on images that no other test uses."""
    values = tiny_config(tmp_path_factory.mktemp("pretrained"), name="before", budget={"steps": 3})
    values["data"]["synthetic"] |= {"seed": 7, "image_size": 24}
    experiment = experiment_from_dict(values)
    run_quietly(experiment)
    return experiment


def _values(pretrained, output, model="resnet", **more):
    values = tiny_config(output, budget={"steps": 3})
    given = {"run": str(pretrained.folder), "model": model}
    values["models"] = {"tuned": {**values["models"][model], "weights": given, **more}}
    return values


@pytest.mark.parametrize("model", ["resnet", pytest.param("vit", marks=pytest.mark.slow)])
def test_fine_tuning_keeps_the_normalization_and_image_size_of_the_weights(pretrained, tmp_path, model):
    experiment = experiment_from_dict(_values(pretrained, tmp_path, model))
    (result,) = run_quietly(experiment)
    given, tuned = TrainedNetwork.open(pretrained.folder, model=model), TrainedNetwork.open(experiment.folder)
    assert (tuned.about.mean, tuned.about.std) == (given.about.mean, given.about.std)
    assert tuned.image_shape == (3, 32, 32)
    assert isinstance(tuned.network, ResizedInput)
    assert tuned.network.image_size == (24, 24)
    assert result.architecture["options"]["input_size"] == [24, 24]
    assert (result.start.start_kind, result.start.start_source) == ("fine-tuned", str(pretrained.folder))
    assert result.start.start_history_known is True


def test_a_network_can_be_built_for_the_size_of_the_images(pretrained, tmp_path):
    values = _values(pretrained, tmp_path, "vit")
    values["models"]["tuned"]["options"] = {**values["models"]["tuned"]["options"], "input_size": "data"}
    run = plan_runs(values)[0]
    plan = prepare_network(run, ExperimentData(run.experiment.data).draw(120, 3))
    assert plan.network.image_size == (32, 32)
    given = read_pretrained(run.experiment, "tuned").state
    assert torch.equal(plan.network.encoder.blocks[1].mlp.expand.weight, given["encoder.blocks.1.mlp.expand.weight"])


def test_the_identity_of_a_run_depends_on_its_weights_and_not_their_path(pretrained, tmp_path):
    values, elsewhere = _values(pretrained, tmp_path), tmp_path / "elsewhere.ckpt"
    elsewhere.write_bytes(TrainedNetwork.open(pretrained.folder, model="resnet").path.read_bytes())
    moved = _values(pretrained, tmp_path, "resnet")
    moved["models"]["tuned"]["weights"] = {"run": str(elsewhere)}
    other = _values(pretrained, tmp_path, "resnet")
    del other["models"]["tuned"]["weights"]
    assert plan_runs(values)[0].folder == plan_runs(moved)[0].folder != plan_runs(other)[0].folder


def test_weights_named_in_an_untrusted_file_are_not_opened(pretrained, tmp_path):
    with refused("weights are not read, as the config comes from a file that is not trusted"):
        read_pretrained(experiment_from_dict(_values(pretrained, tmp_path), trusted=False), "tuned")


def test_a_fine_tuned_network_opens_without_its_pretrained_weights(pretrained, tmp_path):
    stored = tmp_path / "kept"
    shutil.copytree(pretrained.folder, stored)
    values = _values(pretrained, tmp_path / "runs")
    values["models"]["tuned"]["weights"]["run"] = str(stored)
    experiment = experiment_from_dict(values)
    run_quietly(experiment)
    shutil.rmtree(stored)
    opened = TrainedNetwork.open(experiment.folder)
    assert opened.run.identity["weights"]["hash"] == opened.run.weights["tuned"]["hash"]
    assert opened.network(torch.rand(1, 3, 32, 32)).shape == (1, 10)


def test_an_allowed_overlap_is_counted_and_reported(pretrained, tmp_path):
    values, root, images = _values(pretrained, tmp_path), tmp_path / "images", ExperimentData(pretrained.data).images
    for number, (image, label) in enumerate(zip(images.images, images.labels.tolist(), strict=True)):
        (root / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / str(label) / f"{number}.png")
    values["data"] = {"source": "folder", "root": str(root), "folder": {"image_size": 24}, "validation_fraction": 0.25}
    values["protocol"]["train_sizes"] = ["all"]
    values["models"]["tuned"]["weights"]["max_known_overlap"] = 120
    (result,) = run_quietly(values)
    assert 0 < result.start.scored_images_in_start <= result.scores.scored_images
    assert any("Start weights were trained on test images" in text for text in analyze([result]).warnings())


def test_a_wrong_weights_setting_is_refused_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name, weights, message in (
        ("resnet8", {}, "exactly one of run, file, hub; given: none"),
        ("resnet8", {"hub": True, "file": "x"}, "given: file, hub"),
        ("resnet8", {"file": "nowhere.safetensors"}, "nowhere.safetensors: no such file"),
        ("resnet8", {"hub": True}, "needs a model timm/NAME, but the model is 'resnet8'"),
        ("timm/test_resnet", {"hub": True}, "weights.hub: the weights of timm/test_resnet are not in timm's cache"),
    ):
        with refused(message):
            plan_runs(tiny_config(tmp_path, models={"tuned": {"name": name, "weights": weights}}))[0]


def test_weights_that_do_not_fit_and_options_of_timm_that_download_weights_are_refused(pretrained, tmp_path):
    run = plan_runs(_values(pretrained, tmp_path, name="vit_nano", options={}))[0]
    images = ExperimentData(run.experiment.data).draw(120, 3)
    with refused("are of model {", '"name": "resnet8"', "} and do not fit: "):
        prepare_network(run, images)
    for option in ("pretrained", "checkpoint_path", "pretrained_cfg_overlay"):
        models = {"tuned": {"name": "timm/test_resnet", "options": {option: True}}}
        with refused(f"models.tuned.options.{option}: for pretrained weights set weights"):
            prepare_network(plan_runs(tiny_config(tmp_path, models=models))[0], images)


def test_a_model_with_missing_optional_weights_is_left_out(tmp_path):
    values = tiny_config(tmp_path, pairs=[["vit", "resnet"], ["resnet", "tuned"]])
    weights = {"file": str(tmp_path / "nowhere.pth"), "optional": True}
    values["models"]["tuned"] = {**values["models"]["resnet"], "weights": weights}
    experiment, missing = drop_missing_weights(experiment_from_dict(values))
    assert list(experiment.models) == ["vit", "resnet"]
    assert experiment.protocol.pairs == [["vit", "resnet"]]
    assert list(missing) == ["tuned"]
    assert "nowhere.pth: no such file" in str(missing["tuned"])


def test_weights_of_timm_are_read_unchanged_with_their_image_size_and_mean(tmp_path, monkeypatch):
    given = _sampled(timm.create_model("test_resnet"))
    monkeypatch.setattr(timm, "create_model", lambda name, **_: given)
    models = {"tuned": {"name": "timm/test_resnet", "weights": {"hub": True}}}
    found = read_pretrained(experiment_from_dict(tiny_config(tmp_path, models=models)), "tuned")
    assert torch.equal(found.state["conv1.0.weight"], given.state_dict()["conv1.0.weight"])
    assert found.image_size == (160, 160)
    assert found.mean == pytest.approx([0.5] * 3)


def test_a_self_referential_weights_file_and_timm_weights_of_a_wrong_shape_are_refused(tmp_path):
    contents = {"nothing": 1}
    contents["state_dict"] = contents
    torch.save(contents, tmp_path / "round.pth")
    with refused("round.pth contains no named tensors"):
        read_weights(tmp_path / "round.pth")
    network = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=32, patch_size=8)
    with refused("the weights do not fit VisionTransformer: "):
        convert_for_timm(network, network.state_dict() | {"pos_embed": torch.zeros(17, 192)})


GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "fine_tune.md"


def _without_values(name, **options):
    with torch.device("meta"):
        return timm.create_model(name, **options)


def _experiment(tmp_path, model, file, **settings):
    return experiment_from_dict(tiny_config(tmp_path, models={"cnn": {"name": f"{model}={file}", **settings}}))


def test_weights_of_another_network_are_refused_with_its_sizes_and_name(tmp_path):
    for network, part in (
        (_without_values("deit_tiny_patch16_224"), "such as timm/deit_tiny_patch16_224 or timm/vit_tiny_patch16_224"),
        (_without_values("convnext_atto", num_classes=3), "(width 40, 2 + 2 + 6 + 2 blocks, stem of 4 x 4), not of"),
        (_without_values("test_vit", depth=5), "(width 64, 5 blocks, patches of 16), not of timm/test_vit; no other"),
    ):
        path = _saved(network, tmp_path / "other.safetensors")
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
    path = _saved(_without_values("convnext_atto"), tmp_path / "other.safetensors")
    settings = {"data.root": str(tmp_path / "photos"), "output": str(tmp_path / "runs"), "minutes": None}
    with refused("not of timm/resnet18; use timm/convnext_atto"):
        command("decide", {**settings, "models.vit_pretrained": None, "models.cnn_pretrained": f"timm/resnet18={path}"})
    assert not (tmp_path / "runs").exists()


def test_weights_with_another_head_or_image_size_and_changed_options_fit(tmp_path):
    head = _saved(_without_values("test_vit", num_classes=3, img_size=96), tmp_path / "head.safetensors")
    patches = _saved(_without_values("test_vit", patch_size=8), tmp_path / "patches.safetensors")
    for path, options in ((head, {}), (patches, {"patch_size": 8}), (head, {"input_size": "data"})):
        experiment = _experiment(tmp_path, "timm/test_vit", path, options=options)
        assert drop_missing_weights(experiment) == (experiment, {})


def test_a_folder_downloaded_from_the_hub_is_a_weight_file(tmp_path):
    _saved(_without_values("test_convnext"), tmp_path / "model.safetensors")
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
    values = tiny_config(tmp_path, models={}, budget={"steps": 2})
    for key, (name, options) in {"vit": vit, "cnn": cnn}.items():
        assert f"--models.{key}_pretrained.name {name}" in GUIDE.read_text(encoding="utf-8")
        path = _saved(_without_values(name.removeprefix("timm/"), **options), tmp_path / f"{key}.safetensors")
        values["models"][key] = {"name": f"{name}={path}", "options": {**options, "input_size": 80}}
    experiment, _ = drop_missing_weights(experiment_from_dict(values))
    text = "Pretraining of CNN and ViT, by the names of their weights: same data (lvd1689m), same method (dinov3)."
    assert text in analyze(run_quietly(experiment)).warnings()
    maps = attention_maps(TrainedNetwork.open(experiment.folder, model="vit").network, torch.rand(2, 3, 32, 32))
    rollout = rollout_map(maps.weights, query=maps.query, num_prefix_tokens=maps.num_prefix_tokens)
    assert maps.to_grid(rollout).shape == (2, 5, 5)
