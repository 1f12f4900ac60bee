"""Untrusted files are data: opening them imports no module and creates no object that they name."""

import contextlib
import copy
import json
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from tests.experiments.tiny import run_quietly, tiny_config
from tests.refused import Evil, refused
from vit_vs_cnn.cli import main
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.run import read_run
from vit_vs_cnn.training.checkpoints import read_checkpoint

KINDS = ("call", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("import", "text", "name")))
COMMANDS = ("inspect", "compare", "locality", "export", "to-attention")
#: Settings of an experiment for which jsonargparse would create an object.
PLACES = (
    *("models.vit", "models.vit.init_args", "models.vit.options.position", "models.vit.optimizer", "models.resnet"),
    *(f"models.vit.optimizer.{name}" for name in ("name", "options", "options.fused")),
    *(f"models.vit.{name}" for name in ("loss", "loss.init_args", "class_weights", "schedule", "augmentation")),
    *("models.vit.by_size.120", "models.vit.by_size.120.loss", "models.vit.by_size.120.options"),
    *("data", "data.augmentation", "data.synthetic", "data.folder", "protocol", "protocol.budget", "execution"),
    *("execution.passive_callbacks", "execution.metrics", "execution.metrics.f1", "executor.resources", "tuning"),
    *("trainer", *(f"trainer.{name}" for name in ("callbacks", "logger", "plugins", "profiler", "strategy"))),
)


@pytest.fixture
def specs(tmp_path, monkeypatch) -> Iterator[dict[str, Any]]:
    """By kind: a call, an import, and both as the texts that YAML would read as such. At the end none was executed."""
    mark = tmp_path / "executed"
    (tmp_path / "evil_module.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Evil: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    call = {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", str(mark)]}}
    importing = {"class_path": "evil_module.Evil"}
    yield {"call": call, "import": importing, "text": json.dumps(call), "name": "evil_module.Evil"}
    assert not mark.exists()
    assert "evil_module" not in sys.modules


@pytest.fixture(scope="module")
def trained(trained_once) -> Path:
    """The folder of a finished run of a ViT."""
    (run,) = trained_once.glob("vit-n120-s3-*")
    return run


def _put(values: dict[str, Any], place: str, spec: Any) -> dict[str, Any]:
    """Values with a spec at a dotted name, in a list if the setting takes several."""
    values = copy.deepcopy(values)
    *levels, last = place.split(".")
    here = values
    for level in levels:
        if not isinstance(here.get(level), dict):
            here[level] = {}
        here = here[level]
    here[last] = [spec] if last in ("passive_callbacks", "callbacks") else spec
    return values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_classes_named_in_a_checkpoint_or_config_are_not_instantiated(trained, specs, tmp_path, place, kind):
    contents = read_checkpoint(trained / "checkpoints" / "last.ckpt")
    values = yaml.safe_load((trained / "config.yaml").read_text())
    for origin in (contents["vit_vs_cnn"]["origin"], values):
        origin["experiment"] = _put(origin["experiment"], place, specs[kind])
    torch.save(contents, tmp_path / "changed.ckpt")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    with contextlib.suppress(InputError):
        assert TrainedNetwork.open(tmp_path / "changed.ckpt").run.recipe is not None
    with contextlib.suppress(InputError):
        assert read_run(tmp_path).model == "vit"


@pytest.mark.parametrize("command", [*COMMANDS, "run"])
@pytest.mark.parametrize("file", ["checkpoint", "safetensors"])
@pytest.mark.parametrize("kind", ["call", "import"])
def test_no_command_instantiates_a_model_named_in_a_file(trained, specs, tmp_path, error_line, command, file, kind):
    run = tmp_path / trained.name
    shutil.copytree(trained, run)
    path = _with_model(run, file, specs[kind])
    if command == "run":
        (run / "result.json").unlink()
        path = run
    assert "--trust" in error_line(command, path)


def _with_model(run: Path, file: str, spec: Any) -> Path:
    """A checkpoint or an exported file with metadata that name a class."""
    checkpoint = run / "checkpoints" / "last.ckpt"
    contents = read_checkpoint(checkpoint)
    contents["vit_vs_cnn"]["architecture"] = spec
    contents["vit_vs_cnn"]["origin"]["experiment"]["models"]["vit"] = spec
    values = yaml.safe_load((run / "config.yaml").read_text())
    values["experiment"]["models"]["vit"] = spec
    (run / "config.yaml").write_text(yaml.safe_dump(values))
    if file == "checkpoint":
        torch.save(contents, checkpoint)
        return checkpoint
    weights = {key.removeprefix("network."): v for key, v in contents["state_dict"].items() if key[:8] == "network."}
    save_file(weights, run / "model.safetensors")
    about = contents["vit_vs_cnn"]
    metadata = {key: about[key] for key in ("architecture", "class_names", "image_shape", "mean", "std", "origin")}
    (run / "config.json").write_text(json.dumps({"vit_vs_cnn": metadata}))
    return run / "model.safetensors"


@pytest.mark.parametrize("place", ["trainer.callbacks", "trainer.logger", "execution.passive_callbacks"])
def test_classes_named_in_a_run_folder_are_refused_without_trust(trained, specs, tmp_path, error_line, place):
    run = tmp_path / trained.name
    shutil.copytree(trained, run)
    (run / "result.json").unlink()
    values = yaml.safe_load((run / "config.yaml").read_text())
    values["experiment"] = _put(values["experiment"], place, specs["import"])
    (run / "config.yaml").write_text(yaml.safe_dump(values))
    assert "--trust" in error_line("run", run)


@pytest.mark.parametrize(
    ("place", "kind"),
    [("models.vit.loss", "import"), ("models.vit.optimizer.name", "name"), ("execution.metrics.f1", "import")],
)
def test_a_network_opens_without_its_training_classes(trained, specs, tmp_path, place, kind):
    contents = read_checkpoint(trained / "checkpoints" / "last.ckpt")
    origin = contents["vit_vs_cnn"]["origin"]
    for name, value in {"models.vit.label_smoothing": 0.0, place: specs[kind]}.items():
        origin["experiment"] = _put(origin["experiment"], name, value)
    torch.save(contents, tmp_path / "changed.ckpt")
    wanted = ["--format", "safetensors", "--output", str(tmp_path / "out")]
    assert main(["export", str(tmp_path / "changed.ckpt"), *wanted]) == 0
    assert TrainedNetwork.open(tmp_path / "out" / "model.safetensors").run.recipe is not None


@pytest.mark.parametrize("place", PLACES)
def test_print_config_creates_no_objects(specs, tmp_path, capsys, place):
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(_put(tiny_config(tmp_path), place, specs["call"])))
    assert main(["train", "--config", str(tmp_path / "own.yaml"), "--print-config"]) in (0, 2)
    assert capsys.readouterr().err.count("\n") <= 1


def test_a_model_may_start_from_one_with_a_custom_model_whose_file_opens_if_trusted(tmp_path):
    values = tiny_config(tmp_path, protocol={"budget": {"steps": 1}, "batch_size": 14})
    own = {"class_path": "vit_vs_cnn.models.ResNet", "init_args": {"depth": 8, "num_classes": 10}}
    values["models"] = {"first": own, "second": {**own, "starts_from": "first"}}
    assert len(run_quietly(values)) == 2
    checkpoint, _ = tmp_path.rglob("last.ckpt")
    with pytest.raises(InputError, match=r"vit_vs_cnn\.models\.ResNet is not imported without --trust"):
        TrainedNetwork.open(checkpoint)
    assert type(TrainedNetwork.open(checkpoint, trust=True).network).__name__ == "ResNet"


def test_a_file_cannot_choose_where_to_write_or_what_to_download(trained, tmp_path, monkeypatch):
    contents = read_checkpoint(trained / "checkpoints" / "last.ckpt")
    experiment = contents["vit_vs_cnn"]["origin"]["experiment"]
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "tiny").mkdir(parents=True)
    experiment |= {"output": str(elsewhere)}
    experiment["data"]["cifar"] |= {"download": True, "mirror": f"file://{tmp_path}"}
    experiment["data"]["folder"] |= {"cache": str(elsewhere / "cache")}
    (tmp_path / "here").mkdir()
    torch.save(contents, tmp_path / "here" / "changed.ckpt")
    trained = TrainedNetwork.open(tmp_path / "here" / "changed.ckpt")
    data = trained.pool().data
    assert (data.cifar.download, data.cifar.mirror, data.folder.cache) == (False, None, None)
    assert main(["compare", str(tmp_path / "here" / "changed.ckpt"), "--parts", "accuracy"]) == 0
    assert not list((elsewhere / "tiny").iterdir())
    assert len(list((tmp_path / "here" / "test-sets").glob("*.jsonl"))) == 1


RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_shape": [3, 10**9, 10**9]}, "image_shape"),
        ({"image_shape": [0, 32, 32]}, "image_shape"),
        ({"image_shape": "abc"}, "its network cannot be rebuilt"),
        ({"class_names": []}, "class_names"),
        ({"class_names": ["a", "b"]}, "does not fit its own model"),
        ({"architecture": {"name": "resnet20"}}, "does not fit its own model"),
        ({"architecture": {"name": "vit_giga"}}, "there is no model"),
        ({"image_shape": [3, 33, 32]}, "patch_size"),
        ({"class_names": [1] * 10}, "class_names"),
        ({"class_names": RECURSIVE}, "leads back into itself"),
        ({"class_names": ["a", "\ud800"]}, "half of a surrogate pair"),
        ({"std": [0.0, 1.0, 1.0]}, "mean and std must be"),
        ({"mean": [float("nan")] * 3}, "not a finite number"),
        ({"architecture": {"name": ["vit_nano"]}}, "the name of the model"),
        ({"architecture": {"name": "vit_nano", "options": {"pretrained": True}}}, "for pretrained weights set weights"),
        ({"architecture": {"name": "vit_nano", "options": {"depth": 10**6}}}, "depth: 1000000 must be at most 2000"),
        ({"architecture": {"name": "vit_nano", "options": {"embed_dim": 2**20, "num_heads": 1}}}, "file contains only"),
        ({"architecture": {"name": "resnet8", "options": {"width": 10**7}}}, "the file contains only"),
        ({"origin": 3}, "is not the config of a run"),
        ({"origin": {"experiment": {}, "run": {}}}, "run"),
    ],
)
def test_malformed_or_huge_metadata_of_a_checkpoint_give_a_one_line_error(trained, tmp_path, change, message):
    contents = read_checkpoint(trained / "checkpoints" / "last.ckpt")
    contents["vit_vs_cnn"] |= change
    torch.save(contents, tmp_path / "changed.ckpt")
    with refused("changed.ckpt", message):
        TrainedNetwork.open(tmp_path / "changed.ckpt")


def _changed_head(change):
    """A function that changes the weights of the head in a checkpoint."""

    def write(path):
        contents = read_checkpoint(path)
        state = contents["state_dict"]
        contents["state_dict"] = {name: change(v) if name.endswith("head.weight") else v for name, v in state.items()}
        torch.save(contents, path)

    return write


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: torch.save({"vit_vs_cnn": {}, "state_dict": Evil()}, path), "objects other than tensors"),
        (lambda path: path.write_bytes(pickle.dumps(Evil())), "objects other than tensors and plain values"),
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "is damaged or not a checkpoint"),
        (lambda path: path.write_bytes(b""), "is damaged or not a checkpoint: EOFError"),
        (lambda path: path.write_text("not a checkpoint"), "checkpoint"),
        (lambda path: torch.save({"weights": torch.zeros(3)}, path), "was not written by vit_vs_cnn"),
        (lambda path: torch.save({"vit_vs_cnn": {}, "state_dict": {"a": 1}}, path), ""),
        (lambda path: torch.save({"vit_vs_cnn": 3}, path), ""),
        (lambda path: torch.save([1], path), ""),
        (lambda path: torch.save(None, path), ""),
        (_changed_head(lambda value: value.to("meta")), "has no values"),
        (_changed_head(lambda value: value.to(torch.complex64)), "has torch.complex64 values"),
        (_changed_head(lambda value: value.to_sparse()), "has torch.float32 values (torch.sparse_coo)"),
        (_changed_head(lambda value: value.to(torch.int8)), "head.weight has type torch.int8, and the network has"),
    ],
)
def test_a_damaged_or_malicious_checkpoint_is_refused(trained, specs, tmp_path, monkeypatch, damage, message):
    monkeypatch.chdir(tmp_path)  # where nothing may be executed
    path = Path(shutil.copy(trained / "checkpoints" / "last.ckpt", tmp_path / "changed.ckpt"))
    damage(path)
    with refused("changed.ckpt", message) as caught:
        TrainedNetwork.open(path)
    assert len(str(caught.value)) < 500, "a line that nobody reads to its end"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", ["a weight of another kind", "an unknown model", "weights of NaN"])
def test_every_command_refuses_an_altered_checkpoint_by_name(trained, tmp_path, error_line, command, how):
    contents = read_checkpoint(trained / "checkpoints" / "last.ckpt")
    state = contents["state_dict"]
    if how == "an unknown model":
        contents["vit_vs_cnn"]["origin"]["run"]["model"] = "nobody"
    elif how == "a weight of another kind":
        name = next(name for name in state if name.startswith("average.network."))
        state[name] = state[name].to(torch.int64)[..., :1]
    else:
        values = {name: value * float("nan") for name, value in state.items() if value.is_floating_point()}
        contents["state_dict"] = {**state, **values}
    (tmp_path / "run").mkdir()
    torch.save(contents, tmp_path / "run" / "altered.ckpt")
    assert "altered.ckpt" in error_line(command, tmp_path / "run" / "altered.ckpt")
