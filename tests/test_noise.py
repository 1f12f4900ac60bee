"""Noise images with random labels: no command reports more than chance."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.pictures import write_images
from vit_vs_cnn.cli import main


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """A config with a folder of noise images, and its results."""
    root = tmp_path_factory.mktemp("noise")
    names = (f"{name}/{number}.png" for name in ("left", "right") for number in range(97))
    write_images(root / "images", names, size=(8, 8), seed=11)
    assert main(["train", "--config", str(_config(root))]) == 0
    return root


def _config(root: Path, *, split: int = 0) -> Path:
    images = {"image_size": 8, "test_fraction": 0.3, "cache": str(root / "cache"), "split_seed": split}
    vit = {"name": "vit_nano", "options": {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}}
    values = {
        "name": "noise",
        "output": str(root / "runs"),
        "data": {"source": "folder", "root": str(root / "images"), "validation_fraction": 0.3, "folder": images},
        "protocol": {"train_sizes": ["all"], "seeds": [0, 1, 2], "budget": {"steps": 12}, "batch_size": 16},
        "models": {"vit": vit, "resnet": {"name": "resnet8", "options": {"width": 2}}},
        "trainer": {"logger": False, "accelerator": "cpu"},
    }
    path = root / f"noise{split}.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _no_more_than_chance(report: Path) -> None:
    analysis = json.loads((report / "analysis.json").read_text())
    for point in analysis["accuracies"]:
        assert point["accuracy"]["low"] < 0.5 < point["accuracy"]["high"]
    assert {one["conclusion"] for one in analysis["comparisons"]} <= {"not enough evidence", "no conclusion"}
    lead = re.search(r'<div class="lead"><p>(.*?)</p>', (report / "index.html").read_text())
    assert lead.group(1).startswith(("None, as no model is clearly better than", "Not enough evidence to prefer"))


def test_training_on_noise_gives_chance_accuracy_and_no_conclusion_in_report_and_compare(noise, capsys):
    _no_more_than_chance(noise / "runs" / "noise" / "report")
    assert main(["compare", str(noise / "runs" / "noise"), "--parts", "accuracy", "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["accuracy"]["pairs"]
    assert pair["conclusion"] in ("not enough evidence", "no conclusion")


PLANNED = "--minutes 30 --protocol.budget.steps 12 --protocol.train_sizes [all] --protocol.seeds [3,4,5]"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), [("tuned", "--tuning.trials 3"), ("planned", PLANNED)])
def test_tuning_and_planning_on_noise_find_no_difference(noise, name, words):
    assert main(["train", "--config", str(_config(noise)), "--name", name, *words.split()]) == 0
    _no_more_than_chance(noise / "runs" / name / "report")


def test_weights_trained_on_test_images_are_refused(noise, error_line):
    """With another split, test images include training images of the start weights, whose labels are memorized."""
    start = next((noise / "runs" / "noise").glob("resnet-*-s0-*/checkpoints/last.ckpt"))
    words = ["--config", str(_config(noise, split=1)), "--name", "started"]
    line = error_line("train", *words, "--models.resnet.weights.run", start)
    assert re.search(r"were trained on \d+ of the \d+ images that resnet-n129-s0 is", line)
