"""Trained networks are exported, saved as timm's models are, and uploaded to the hub with a model card."""

import contextlib
import errno
import json
import os
import shutil
import sys
from pathlib import Path
from statistics import fmean
from unittest.mock import Mock

import huggingface_hub
import pytest
import timm
import torch
from safetensors import SafetensorError

import vit_vs_cnn as vc
from tests.refused import refused
from vit_vs_cnn.cli import main
from vit_vs_cnn.conversion.export import FORMATS, export
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.loaded_network import LoadedNetwork
from vit_vs_cnn.models.timm_interface import register_with_timm
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.training.checkpoints import read_checkpoint


@pytest.fixture(scope="module")
def runs(trained_once):
    return {path.name.split("-")[0]: path for path in trained_once.glob("*-s3-*")}


IMAGES = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "formats"),
    [
        *[("resnet", ["safetensors"]), ("vit", ["safetensors", "timm"]), ("vit", ["timm"])],
        pytest.param("vit", ["onnx"], marks=pytest.mark.slow),
    ],
)
def test_load_opens_every_folder_that_export_writes_as_the_same_network(runs, model, formats, tmp_path, run_command):
    command = ["export", runs[model].parent, "--model", model, "--output", tmp_path, "--format", *formats]
    assert "largest difference of a logit" in run_command(*command).out
    exported, network = vc.load(tmp_path), vc.load(runs[model])
    torch.testing.assert_close(exported(IMAGES), network(IMAGES), rtol=0, atol=0)
    for name in ("calibration", "class_names"):
        assert getattr(exported, name) == getattr(network, name)
    assert exported.run.identity == network.run.identity
    assert len(exported.pool().test(exported.run.seed)) == 60
    run_command(*command)  # again, into the same folder


def test_the_most_accurate_model_of_an_experiment_is_exported_and_named(runs, tmp_path, capsys):
    experiment = runs["vit"].parent
    means = {
        name: fmean(r.accuracy for r in read_finished_results(experiment).values() if r.model == name) for name in runs
    }
    best = max(means, key=means.__getitem__)
    (file,) = vc.export(experiment, output=tmp_path)
    assert f"Model: {best}, the most accurate one of {experiment}" in capsys.readouterr().err
    assert TrainedNetwork.open(file.path).run.model == best


def test_export_refuses_a_folder_with_the_config_of_another_network(runs, tmp_path, error_line):
    vc.export(runs["vit"], output=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert "config.json is not the one of this network" in error_line("export", runs["resnet"], "--output", tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_onnx_gives_the_networks_logits_from_pixels(runs, model, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    assert main(["export", str(runs[model]), "--output", str(tmp_path), "--format", "onnx"]) == 0
    loaded = TrainedNetwork.open(runs[model] / "checkpoints" / "last.ckpt")
    images = torch.randint(0, 256, (7, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        expected = loaded.network(loaded.normalize(images))
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"images": (images.float() / 255).numpy()})
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=0, atol=1e-4)
    assert json.loads((tmp_path / "config.json").read_text())["vit_vs_cnn"]["class_names"] == list(loaded.class_names)


def test_unknown_missing_and_unsupported_formats_are_refused(runs, tmp_path, error_line):
    for name, message in (
        ("caffe", "format 'caffe' is not one of safetensors, onnx, timm"),
        (",", "format: none is given; there are safetensors, onnx, timm"),
        ("timm", "format timm supports VisionTransformer and timm models, not ResNet"),
    ):
        assert message in error_line("export", runs["resnet"], "--output", tmp_path, "--format", name)


@pytest.mark.parametrize(("error", "is_refused"), [(1e-6, False), (0.01, True), (float("nan"), True)])
def test_a_file_with_other_logits_than_the_network_is_refused(runs, error, is_refused, tmp_path, monkeypatch):
    def write_inexactly(normalized, images, folder):
        with torch.no_grad():
            return folder / "model.bin", normalized(images) + error

    monkeypatch.setitem(FORMATS, "safetensors", write_inexactly)
    with pytest.raises(InputError, match="do not use it") if is_refused else contextlib.nullcontext():
        export(TrainedNetwork.open(runs["vit"]), ["safetensors"], tmp_path)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), SafetensorError("No space left on device")]
)
def test_an_export_to_a_full_disk_is_refused_with_the_reason(runs, tmp_path, monkeypatch, error):
    monkeypatch.setattr("vit_vs_cnn.conversion.export.save_file", Mock(side_effect=error))
    with pytest.raises(InputError, match=r"the export cannot be written there \(No space left on device\)"):
        export(TrainedNetwork.open(runs["resnet"]), ["safetensors"], tmp_path)


def test_damaged_weights_and_weights_without_a_config_are_refused(runs, tmp_path, error_line):
    vc.export(runs["resnet"], output=tmp_path)
    weights = tmp_path / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    assert "damaged or from another program" in error_line("export", weights)
    weights.write_bytes(content)
    (tmp_path / "config.json").unlink()
    assert "config.json" in error_line("export", weights)


def test_nothing_is_written_if_the_library_of_a_format_is_missing(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match="format onnx needs onnxscript, which is not installed"):
        export(TrainedNetwork.open(runs["vit"]), ["safetensors", "onnx"], tmp_path / "export")
    assert not (tmp_path / "export").exists()


def _changed(run: Path, folder: Path, name: str, options) -> LoadedNetwork:
    """The network of a checkpoint in which the model and its weights are others."""
    shutil.copytree(run, folder)
    path = folder / "checkpoints" / "last.ckpt"
    contents = read_checkpoint(path)
    built, prefix = {"num_classes": 10, "image_size": 32, **options}, "network."
    if "input_size" in built:
        built["image_size"], prefix = built.pop("input_size"), "network.network."
    contents["vit_vs_cnn"]["architecture"] = {"name": name, "options": options}
    state = vc.create_model(name, **built).state_dict()
    contents["state_dict"] = {f"{prefix}{key}": value for key, value in state.items()}
    torch.save(contents, path)
    return vc.load(folder)


@pytest.mark.parametrize(
    ("name", "options", "architecture"),
    [
        ("vit", None, "vit_tiny_patch16_224"),
        ("resnet", None, "resnet8_vit_vs_cnn"),
        ("vit_nano", {"position": "sincos", "registers": 2, "depth": 1, "pool": "class"}, "vit_tiny_patch16_224"),
        ("vit_nano", {"position": "relative", "depth": 1}, "vit_nano_vit_vs_cnn"),
        ("vit_nano", {"input_size": [16, 24], "depth": 1}, "vit_tiny_patch16_224"),
        ("timm/test_resnet", {"input_size": [16, 24]}, "test_resnet"),
        ("attention/resnet8", {"width": 4}, None),
    ],
)
def test_a_saved_network_opens_here_and_in_timm_with_the_same_logits(runs, name, options, architecture, tmp_path):
    net = vc.load(runs[name]) if options is None else _changed(runs["vit"], tmp_path / "run", name, options)
    net.save_pretrained(tmp_path / "saved")
    again = vc.load(tmp_path / "saved")
    torch.testing.assert_close(again(IMAGES), net(IMAGES), rtol=0, atol=0)
    assert (again.about, again.calibration, again.decoding) == (net.about, net.calibration, net.decoding)
    if architecture is None:
        return
    register_with_timm()
    theirs = timm.create_model(f"local-dir:{tmp_path / 'saved'}", pretrained=True).eval()
    assert theirs.pretrained_cfg["architecture"] == architecture and theirs.pretrained_cfg["mean"] == net.about.mean
    pixels = net.normalize(IMAGES)
    pixels = net.network.resize(pixels) if options and "input_size" in options else pixels
    assert [*theirs.pretrained_cfg["input_size"]] == [*pixels.shape[1:]]
    with torch.no_grad():
        torch.testing.assert_close(theirs(pixels), net(IMAGES), rtol=1e-4, atol=1e-5)


def test_the_card_has_the_result_with_interval_and_the_input_and_no_license(runs, tmp_path):
    net, place = vc.load(runs["vit"]), tmp_path / "README.md"
    net.save_pretrained(tmp_path)
    card, scores = place.read_text(), read_result(runs["vit"] / "result.json").scores
    ends = f"{100 * scores.accuracy_interval.low:.1f} to {100 * scores.accuracy_interval.high:.1f} %"
    assert f"Accuracy: {100 * scores.accuracy:.1f} % (95 % interval {ends}) on 60 test images." in card
    assert f"temperature {net.calibration.temperature:.3g}" in card and f"mean {net.about.mean}" in card
    assert huggingface_hub.ModelCard(card).data.license is None and ", ".join(net.class_names) in card
    place.write_text("mine")
    vc.load(tmp_path).save_pretrained(tmp_path)
    assert place.read_text() == "mine"
    place.unlink()
    vc.load(tmp_path).save_pretrained(tmp_path)
    assert "The accuracy of these weights is not recorded" in place.read_text()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder with a folder for each repository, in place of the Hugging Face Hub."""
    root = tmp_path / "hub"

    def create_repo(api, repository, *, private, exist_ok):
        (root / repository).mkdir(parents=True, exist_ok=exist_ok)
        return f"https://example.org/{repository}"

    def upload_folder(api, *, repo_id, folder_path, ignore_patterns):
        ignored = shutil.ignore_patterns(*ignore_patterns or ())
        shutil.copytree(folder_path, root / repo_id, ignore=ignored, dirs_exist_ok=True)

    def snapshot_download(repository, *, revision, allow_patterns):
        ignored = shutil.ignore_patterns("README.md")
        return shutil.copytree(root / repository, tmp_path / f"download {revision} {allow_patterns}", ignore=ignored)

    api = {"create_repo": create_repo, "upload_folder": upload_folder}
    api["file_exists"] = lambda api, repository, name: (root / repository / name).exists()
    for name, function in api.items():
        monkeypatch.setattr(huggingface_hub.HfApi, name, function)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return root


@pytest.mark.parametrize("open_repository", [lambda name: vc.load(f"hf-hub:{name}"), LoadedNetwork.from_pretrained])
def test_a_network_is_uploaded_and_opened_from_the_hub(runs, hub, open_repository):
    net, folder = vc.load(runs["resnet"]), hub / "user" / "net"
    assert net.push_to_hub("user/net") == "https://example.org/user/net"
    assert {path.name for path in folder.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    (folder / "README.md").write_text("license: mit")
    net.push_to_hub("user/net", private=True)
    assert (folder / "README.md").read_text() == "license: mit"
    torch.testing.assert_close(open_repository("user/net")(IMAGES), net(IMAGES), rtol=0, atol=0)
    with refused("user/none@v2: no such folder, and not downloaded: "):
        open_repository("user/none@v2")
