"""Networks are saved as timm's models are, opened from a folder or a repository, and uploaded with a model card."""

import shutil
from pathlib import Path

import huggingface_hub
import pytest
import timm
import torch

import vit_vs_cnn as vc
from tests.refused import refused
from vit_vs_cnn.loaded_network import LoadedNetwork
from vit_vs_cnn.models.timm_interface import register_with_timm
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.training.checkpoints import read_checkpoint

IMAGES = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def runs(trained_once):
    return {path.name.split("-")[0]: path for path in trained_once.glob("*-s3-*")}


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


@pytest.mark.parametrize("format", ["safetensors", pytest.param("onnx", marks=pytest.mark.slow), "timm"])
def test_load_opens_every_folder_that_export_writes(runs, format, tmp_path):
    vc.export(runs["vit"], format=format, output=tmp_path, quiet=True)
    torch.testing.assert_close(vc.load(tmp_path)(IMAGES), vc.load(runs["vit"])(IMAGES), rtol=0, atol=0)


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
