"""The commands ``to-attention`` and ``locality``."""

import json
import re
from pathlib import Path

import pytest
import torch

from tests.experiments.tiny import find_run, run_quietly, tiny_config
from vit_vs_cnn.attention.convolution import head_fit
from vit_vs_cnn.cli import main
from vit_vs_cnn.inspection.locality.study import select_images
from vit_vs_cnn.networks.trained_network import TrainedNetwork

pytestmark = pytest.mark.slow

MEASURED = ["--count", "60", "--held-out", "24"]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Path:
    """A ResNet, a ViT with 4 x 4 patches, and the ResNet converted to trainable attention."""
    root = tmp_path_factory.mktemp("locality")
    values = tiny_config(root, train_sizes=[80], seeds=[3, 4], budget={"steps": 2})
    values["data"]["synthetic"] |= {"image_size": 16}
    values["models"]["vit"]["options"] |= {"patch_size": 4}
    resnet = {**values["models"]["resnet"], "name": "resnet8", "options": {"width": 4, "zero_init_residual": False}}
    released = {**resnet, "name": "attention/resnet8", "options": {**resnet["options"], "released": True}}
    values["models"] |= {"resnet": resnet, "released": {**released, "starts_from": "resnet"}}
    values["data"]["augmentation"] = {}
    run_quietly(values)
    return root / "tiny"


def test_a_converted_network_gives_the_same_logits_and_is_a_checkpoint(experiment, run_command):
    run = find_run(experiment, "resnet-n80-s3")
    printed = run_command("to-attention", run).out
    assert "same class                     100.00 % of 60 images" in printed
    assert float(printed.split("float64")[0].split()[-2]) <= 1e-10
    compiled = TrainedNetwork.open(run / "checkpoints" / "attention.ckpt")
    assert type(compiled.network).__name__ == "AttentionNetwork"
    assert compiled.name == "resnet-n80-s3 (attention)"
    assert main(["export", str(compiled.path), "--format", "safetensors", "--output", str(run / "out")]) == 0


def test_a_network_with_more_heads_is_closer_to_the_cnn(experiment, tmp_path, run_command, monkeypatch):
    monkeypatch.setattr(head_fit, "NUM_REFINING_STEPS", 3)
    monkeypatch.setattr(head_fit, "NUM_STEPS", 60)
    run, errors = find_run(experiment, "resnet-n80-s3"), {}
    for heads in (1, 3):
        path = tmp_path / f"heads_{heads}.ckpt"
        printed = run_command("to-attention", run, "--num-heads", heads, "--output", path).out
        shares = re.search(r"error of the kernels +([\d.]+) % .* \(at least ([\d.]+) %\)", printed).groups()
        error, bound = map(float, shares)
        errors[heads] = float(re.search(r"error of the outputs +([\d.]+) %", printed)[1])
        assert bound - 0.1 <= error <= bound + 12
        assert TrainedNetwork.open(path).network(torch.zeros(1, 3, 16, 16)).shape == (1, 10)
    assert 0 < errors[3] < errors[1]


def test_unsuitable_networks_and_folders_are_refused(experiment, tmp_path, error_line):
    for model, name in {"vit": "vit_nano", "released": "attention/resnet8"}.items():
        line = error_line("to-attention", find_run(experiment, f"{model}-n80-s3"))
        assert f"needs a convolutional network with a name, not {name}" in line
    assert "is not the folder of a trained run" in error_line("locality", tmp_path)


def test_held_out_images_are_neither_training_nor_test_images(experiment):
    trained = TrainedNetwork.open(find_run(experiment, "vit-n80-s3"))
    pool = trained.pool()
    fitted, held_out = select_images(trained.run, pool, count=50, held_out=30)
    trained = set(pool.draw(80, 3).training.sample_ids)
    assert set(fitted.sample_ids) <= trained
    assert not trained & set(held_out.sample_ids)
    assert not set(pool.test(0).sample_ids) & set(held_out.sample_ids)
    assert (len(fitted), len(held_out)) == (50, 30)


def test_locality_of_a_run_gives_a_table_figures_and_a_page(experiment, tmp_path, run_command):
    assert "R² 3" in run_command("locality", find_run(experiment, "vit-n80-s3"), *MEASURED, "--output", tmp_path).out
    for name in ("index.html", "locality.json", "figures/attention_distances.png", "figures/attention_distances.svg"):
        assert (tmp_path / name).is_file()
    assert len(json.loads((tmp_path / "locality.json").read_text())["layers"]) == 2


def test_locality_of_an_experiment_compares_before_and_after_training(experiment, capsys):
    assert main(["locality", str(experiment), *MEASURED]) == 0
    folder = experiment / "report" / "locality"
    assert "vit,80,r2_3" in (folder / "tables" / "before_and_after.csv").read_text()
    assert (folder / "index.html").exists()
    assert (folder / "figures" / "accuracy.png").exists()
    assert len(json.loads((folder / "locality.json").read_text())["layers"]) == 4
    assert re.search(r"vit +80 +r2_3 +0\.\d\d", capsys.readouterr().out)
    assert main(["locality", str(experiment), "--count", "1", "--held-out", "24"]) == 0  # too few for the convolution
    assert re.search(r"vit +80 +r2_3 +- +-", capsys.readouterr().out)
