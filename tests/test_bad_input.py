"""Wrong input gives one clear line and exit code 2, without a traceback or damage."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pictures import write_images
from vit_vs_cnn.cli import main

FEW = "--data.synthetic.train_images 60 --data.synthetic.test_images 10 --protocol.train_sizes [all]".split()
FEW += ["--trainer.accelerator", "cpu"]
SEVEN_CLASSES = "{class_path: vit_vs_cnn.models.ResNet, init_args: {num_classes: 7}}"
MONITOR_3 = "{class_path: EarlyStopping, init_args: {monitor: 3}}"


@pytest.fixture
def photos(tmp_path) -> Path:
    """Two classes of six images each."""
    return write_images(tmp_path / "photos", (f"{name}/{number}.jpg" for name in ("ant", "bee") for number in range(6)))


def _train_on(root: Path, tmp_path: Path, *more: str) -> list[str]:
    folder = Path(__file__).parents[1] / "configs" / "folder.yaml"
    output = ["--output", str(tmp_path / "runs"), "--data.folder.cache", str(tmp_path / "cache")]
    return ["train", "--config", str(folder), "--data.root", str(root), *output, *more]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "now"], "argument 'now': expected --setting value"),
        (["train", "--config"], "argument --config: expected at least one argument"),
        (["train", "--name", "--quiet"], "argument --name: expected a value"),
        (["train", "--models.vit.optimizer.name", "adamww"], "optimizer name 'adamww'"),
        (["train", "--protocol.budget.epochs", "1e308"], "epochs are more than 1,000,000,000 steps"),
        (["compare", "a.ckpt", "--seed", "-1"], "seed must be a whole number, at least 0, but is -1"),
        (["train", "--trainer.accumulate_grad_batches", "5"], "must be a multiple of trainer.accumulate_grad_batches"),
        (["train", "--trainer.limit_val_batches", "0.5", "--data.validation_fraction", "0.2"], "0.5 of the validation"),
        (["train", "--models.vit", SEVEN_CLASSES], "gives logits of shape (2, 7) for 2 images of 10 classes"),
        (["train", "--trainer.accelerator", "tpu"], "trainer: "),
        (["train", "--trainer.profiler", "simpel"], "it can only be one of ['simple'"),
        (["train", "--trainer.barebones", "true"], "trainer.barebones cannot be set: runs need checkpoints"),
        (["train", "--models.vit.optimizer.name", "adahessian"], "adahessian .* needs second derivatives"),
        (["train", "--trainer.logger", "wandb"], "each the name of a Logger class .*; did you mean WandbLogger"),
        (["train", "--trainer.callbacks", "[EarlyStoping]"], "trainer.callbacks: .*; did you mean EarlyStopping"),
        (["train", "--trainer.callbacks", "EarlyStopping"], "callbacks: EarlyStopping: .* required: monitor$"),
        (["train", "--trainer.callbacks", MONITOR_3], "callbacks: EarlyStopping: monitor: expected str, got 3$"),
        (["train", "--trainer.strategy", "ddp_spawn", "--trainer.devices", "2"], "'ddp_spawn' forks; use ddp"),
        (["train", "--trainer.devices", "2", "--protocol.batch_size", "7"], "batch_size 7 must be a multiple of"),
        (["train", "--trainer.devices", "[[", "--name", "x"], "is not a YAML value"),
        (["report"], "FOLDER is missing"),
        (["audit", "photos"], "argument 'photos': expected --setting value (see --help)"),
        (["audit", "/"], "expected --setting value; did you mean --data.root /?"),
        (["audit", "--root", "photos"], "there is no option --root; did you mean --data.root?"),
        (["train", "--seed", "1"], "there is no option --seed; did you mean --protocol.seeds or "),
        (["train", "--lr", "0.1"], "there is no option --lr; did you mean --models.NAME.optimizer.lr?"),
        (["train", "--model", "vit_nano"], "there is no option --model; did you mean --models.NAME.name?"),
        (["train", "--data.root", "photos"], "data.root photos: it would not be used, as data.source is synthetic"),
        (["train", "--data", "photos"], "expected a mapping, got 'photos'; did you mean --data.root photos?"),
        (["audit", "--data", "cifar10"], "got 'cifar10'; did you mean --data.source cifar10?"),
        (["train", "--protocol", "3 seeds"], "protocol: expected a mapping, got '3 seeds'"),
        (["train", "--protocol.budget.steps", "3", "--protocol.budget.epochs", "2"], "budget.epochs: set only one of"),
        (["audit", "--data.root", __file__], "it is a file; a table of images and labels is --data.source table"),
        (["train", "--protocol.seeds", "0,1"], "protocol.seeds: expected a list, each a whole number, such as '[0,1]'"),
        (["models", "zzz"], "models: none has a name like 'zzz'"),
        (["models", "vit_nano", "vit_tiny"], "one path too many: 'vit_tiny'"),
        (["compare", "a.ckpt", "--quik"], "there is no option --quik; did you mean --quick?"),
        (["inspect", "a.ckpt", "--count", "many"], "--count: expected a whole number, got many"),
        (["to-attention", "a.ckpt", "--form", "round"], "--form: invalid choice: 'round'"),
        (["train", "--data.flip", "true"], "data.flip: there is no such setting; did you mean augmentation.flip?"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(error_line, tmp_path, words, message):
    output = ["--output", str(tmp_path), *FEW] if words[0] == "train" and words != ["train", "--config"] else []
    line = error_line(words[0], *output, *words[1:])
    assert message in line or re.search(message, line), line
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.parametrize("command", ["status", "report"])
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("runs.json", "3", "expected names of runs with budgets"),
        ("runs.json", "[", "has no readable runs.json"),
        ("vit-n3-s1-ab/result.json", "[1]", "expected a mapping, got [1]"),
        ("vit-n3-s1-ab/result.json", '{"seed": 1}', "run: has to be given"),
        ("vit-n3-s1-ab/result.json", "{", "delete it, and the same command makes this run again"),
    ],
)
def test_a_damaged_experiment_is_reported_in_one_line(error_line, tmp_path, command, file, content, message):
    whole = {"runs.json": '{"vit-n3-s1-ab": {"steps": 2}}', "experiment.yaml": "protocol: {budget: {steps: 2}}"}
    for name, text in {**whole, file: content}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if command == "status" and "result" in file:  # status treats an unreadable result as missing
        assert main(["status", str(tmp_path)]) == 0
    else:
        assert message in error_line(command, tmp_path)


def test_problems_with_folders_and_devices_are_found_before_training(error_line, photos, tmp_path):
    words = _train_on(photos, tmp_path, "--minutes", "9", "--trainer.accelerator", "gpu")
    assert "there is no GPU" in error_line(*words)
    assert not (tmp_path / "runs").exists()
    assert f"output {photos}/runs/folder: it is inside the folder of images" in error_line(*_train_on(photos, photos))
    (photos / "bee" / "0.jpg").write_bytes(b"hello")
    message = error_line(*_train_on(photos, tmp_path, "--data.folder.test_fraction", "0.17"))
    assert "not everything can be used: no image: 1 (bee/0.jpg: " in message and "skip_unreadable true" in message
    (tmp_path / "file").write_text("")
    assert "file" in error_line("train", *FEW, "--output", tmp_path / "file")


def test_train_py_exits_with_code_2_and_a_one_line_error(tmp_path):
    root = Path(__file__).parents[1]
    command = [sys.executable, str(root / "train.py"), "--output", str(tmp_path), "--protocol.seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "protocol.seed: there is no such setting; did you mean seeds?" in done.stderr
