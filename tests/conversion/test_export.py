"""Export of a trained network in formats that other programs read."""

import contextlib
import json
import sys
from statistics import fmean

import pytest
import torch

import vit_vs_cnn as vc
from vit_vs_cnn.cli import main
from vit_vs_cnn.conversion.export import FORMATS, export
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.experiment_folder import read_finished_results


@pytest.fixture(scope="module")
def runs(trained_once):
    return {path.name.split("-")[0]: path for path in trained_once.glob("*-s3-*")}


@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_exported_weights_open_as_the_same_network(runs, model, tmp_path, capsys):
    formats = ["safetensors", *(["timm"] if model == "vit" else [])]
    experiment = runs[model].parent
    command = ["export", str(experiment), "--output", str(tmp_path), "--format", *formats]
    assert main([*command, "--model", model]) == 0
    assert "largest difference of a logit" in capsys.readouterr().out
    before, after = TrainedNetwork.open(runs[model]), TrainedNetwork.open(tmp_path / "model.safetensors")
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        expected = before.network(before.normalize(images))
        torch.testing.assert_close(after.network(after.normalize(images)), expected, rtol=0, atol=0)
    assert (after.class_names, after.run.identity) == (before.class_names, before.run.identity)
    assert isinstance(before.pool().test(before.run.seed), LabelledImages)
    assert main([*command, "--model", model]) == 0  # again, into the same folder


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
def test_onnx_gives_the_networks_logits_from_pixels(runs, model, tmp_path, capsys):
    runtime = pytest.importorskip("onnxruntime")
    assert main(["export", str(runs[model]), "--output", str(tmp_path), "--format", "onnx"]) == 0
    loaded = TrainedNetwork.open(runs[model] / "checkpoints" / "last.ckpt")
    images = torch.randint(0, 256, (7, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        expected = loaded.network(loaded.normalize(images))
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"images": (images.float() / 255).numpy()})
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=0, atol=1e-4)
    about = json.loads((tmp_path / "config.json").read_text())["vit_vs_cnn"]
    assert about["class_names"] == list(loaded.class_names)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("caffe", "format 'caffe' is not one of safetensors, onnx, timm"),
        (",", "format: none is given; there are safetensors, onnx, timm"),
        ("timm", "format timm supports VisionTransformer and timm models, not ResNet"),
    ],
)
def test_unknown_missing_and_unsupported_formats_are_refused(runs, name, message, tmp_path, error_line):
    assert message in error_line("export", runs["resnet"], "--output", tmp_path, "--format", name)


@pytest.mark.parametrize(("error", "is_refused"), [(1e-6, False), (0.01, True), (float("nan"), True)])
def test_a_file_with_other_logits_than_the_network_is_refused(runs, error, is_refused, tmp_path, monkeypatch):
    def write_inexactly(normalized, images, folder):
        with torch.no_grad():
            return folder / "model.bin", normalized(images) + error

    monkeypatch.setitem(FORMATS, "safetensors", write_inexactly)
    with pytest.raises(InputError, match="do not use it") if is_refused else contextlib.nullcontext():
        export(TrainedNetwork.open(runs["vit"]), ["safetensors"], tmp_path)


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
