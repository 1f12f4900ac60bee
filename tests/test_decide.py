"""From a folder of images to an answer with one command."""

from pathlib import Path

import pytest
import yaml

from benchmarks.draw_photographs import draw_photographs
from vit_vs_cnn.cli import main
from vit_vs_cnn.data.image_cache import CachedImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import time_plan
from vit_vs_cnn.networks import pretrained

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).parents[1] / "configs" / "decide.yaml"
SMALL = (
    "--data.folder.image_size 16 --models.vit.options.patch_size 4 --protocol.batch_size 6 --trainer.logger false "
    "--protocol.budget.steps 3 --protocol.seeds [5] --trainer.accelerator cpu --tuning.trials 2 --tuning.splits 1"
).split()


def _decide(tmp_path: Path, *words: str) -> int:
    given = ["--data.root", str(tmp_path / "photos"), "--data.folder.cache", str(tmp_path / "cache")]
    output = ["--output", str(tmp_path / "runs")]
    return main(["train", "--config", str(CONFIG), "--executor", "local", *given, *output, *words])


def _without_network(name: str, where: str):
    raise InputError(f"{where}.hub: the weights of {name} cannot be loaded")


def test_a_folder_gets_a_report_and_a_repeated_command_keeps_its_plan(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pretrained, "_read_hub", _without_network)
    draw_photographs(tmp_path / "photos", classes=(0, 3), of_each=31, side=32)
    assert _decide(tmp_path, "--minutes", "9", *SMALL) == 0
    captured = capsys.readouterr()
    assert "Few test images (weaker results): with 13 test images" in captured.err
    first, second, *_ = captured.err.splitlines()
    folder = tmp_path / "runs" / "decide"
    assert first.startswith(f"Starting the experiment in {folder}: vit, resnet, vit_pretrained and cnn_pretrained")
    assert second.startswith("Pretrained models are missing, because their weights could not be loaded.")
    assert f"Found in {tmp_path / 'photos'}: 62 usable images of 2 classes" in captured.err
    assert "s for a step of 6 images" in captured.err
    assert "1 seed, 3 steps each." in captured.err
    chosen = yaml.safe_load((folder / "experiment.yaml").read_text())["protocol"]
    assert chosen["seeds"] == [5] and chosen["train_sizes"] == [20, 31, 49]  # ten of each class to all but test images
    html = (folder / "report" / "index.html").read_text()
    assert " on your images: " in html and '<a href="../audit/index.html">' in html
    assert "A pretrained model would probably be better than one trained from scratch." in html.split("Details")[0]
    assert f"Report on the images: {folder / 'audit' / 'index.html'}" in captured.err
    assert str(folder / "report" / "index.html") in captured.out.replace("\n", "")
    assert _decide(tmp_path, "--minutes", "99", *SMALL) == 0
    again = capsys.readouterr().err
    assert "Continuing with the earlier plan" in again
    assert "6 of 6 runs finished before" in again and "More on the images" not in again
    assert (folder / "report" / "index.html").read_text() == html
    assert _decide(tmp_path, "--minutes", "99", *SMALL[2:]) == 2  # another image size
    assert "with other settings (other images" in capsys.readouterr().err.replace("\n", " ")


def test_a_folder_that_cannot_be_read_in_half_of_the_minutes_is_sampled_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pretrained, "_read_hub", _without_network)
    monkeypatch.setattr(CachedImages, "seconds_per_file", lambda *_: 0.21)
    monkeypatch.setattr(time_plan, "_MIN_SAMPLE", 40)
    draw_photographs(tmp_path / "photos", classes=(0, 3), of_each=60, side=16)
    assert _decide(tmp_path, "--minutes", "0.5", *SMALL, "--protocol.train_sizes", "[20]") == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "Using a sample of 71 of 120 images: reading all and computing their features takes about 25 s" in printed
    assert "start again with another --name, --data.folder.max_images 120 and --minutes 1" in printed
    assert "71 usable images" in printed
    monkeypatch.setattr(CachedImages, "seconds_per_file", lambda *_: 9.0)
    assert _decide(tmp_path, "--minutes", "0.5", *SMALL, "--protocol.train_sizes", "[20]") == 0
    printed = capsys.readouterr().err
    assert "2 of 2 runs finished before" in printed and "Continuing with the sample of 71 images" in printed
