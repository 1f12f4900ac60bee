"""The network to use is trained on all images, those of the test folds included."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import vit_vs_cnn as vc
from tests.experiments.tiny import run_quietly, tiny_config
from tests.pictures import write_images
from tests.refused import refused
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.experiments.runner import train_on_all_images
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.test_set_log import output_folder


def _photos(root: Path) -> Path:
    return write_images(root, (f"{name}/{number}.png" for name in ("cat", "dog") for number in range(10)), (16, 16))


def _experiment(tmp_path: Path, photos: Path):
    folder = {"image_size": 16, "test_fraction": 0.25, "cache": str(tmp_path / "cache")}
    data = {"source": "folder", "root": str(photos), "folder": folder, "validation_fraction": 0.25}
    values = tiny_config(tmp_path, data=data, train_sizes=[12], seeds=[0, 3], budget={"steps": 2}, batch_size=4)
    return experiment_from_dict(values)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all")
    experiment, output = _experiment(folder, _photos(folder / "photos")), io.StringIO()
    console = Console(file=output, width=500)
    run_quietly(experiment)
    with refused("several models; name one"):
        TrainedNetwork.open(experiment.folder)
    for _ in range(2):  # the second call finds it finished
        train_on_all_images(experiment.folder, "vit", "recommended", trusted=True, console=console)
    return experiment, output.getvalue()


def test_it_is_trained_or_validated_on_every_image_and_tested_on_none(finished):
    experiment, _ = finished
    (result,) = read_finished_results(experiment.folder / "final").values()
    assert result.data.training_images + result.data.validation_images == 20
    assert (result.model, result.test_set, result.data.fold) == ("vit", None, None)
    pool = ExperimentData.from_experiment(experiment)
    network = TrainedNetwork.open(experiment.folder)
    validation = network.pool().draw(20, result.seed).validation.hashes()
    known = network.training_hashes
    assert known.count_in(pool.test_hashes(0)) + sum(one in pool.test_hashes(0) for one in validation) == 5
    assert output_folder(experiment.folder / "final") == output_folder(experiment.folder)  # features are shared
    assert result.run not in {path.name for path in read_finished_results(experiment.folder)}


def test_commands_use_it_unless_a_model_is_named(finished):
    experiment, text = finished
    assert vc.load(experiment.folder).run.experiment.name == "final"
    assert TrainedNetwork.open(experiment.folder, model="vit").run.experiment.name == "tiny"
    (line,) = [line for line in text.splitlines() if line.startswith("Last:")]
    assert line == "Last: vit is trained on all 20 images, test images included ..."
    assert f"Network to use: vit (recommended) in {experiment.folder / 'final'}" in text


def test_images_with_their_own_test_images_keep_these_apart(tmp_path):
    for split in ("train", "test"):
        _photos(tmp_path / "photos" / split)
    experiment = _experiment(tmp_path, tmp_path / "photos")
    run_quietly(experiment)
    train_on_all_images(experiment.folder, "vit", "recommended", trusted=True, console=Console(quiet=True))
    assert not (experiment.folder / "final").exists()
