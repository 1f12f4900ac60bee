"""User-defined images in an experiment: from Python, a class or a table, and found by later processes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import vit_vs_cnn as vc
from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from tests.refused import refused
from vit_vs_cnn.data.options import ArraysOptions
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.images.experiment_data import set_images
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.training.checkpoints import read_checkpoint

COUNT = 240
HERE = "tests.images.test_own_data"


def images_and_labels(count: int = COUNT, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels from a user-defined function that a config names."""
    return np.random.default_rng(seed).integers(0, 256, (count, 16, 8, 3), dtype=np.uint8), np.arange(count) % 3


class Noise:
    """A transform with an argument and random numbers."""

    def __init__(self, most: int = 9) -> None:
        self.most = most

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image ^ torch.randint(0, self.most, image.shape, dtype=torch.uint8)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vit_vs_cnn"


def _values(output: Path, **data) -> dict:
    return tiny_config(output, train_sizes=[60], budget={"steps": 2}, data={"validation_fraction": 0.25, **data})


@pytest.fixture
def given(tmp_path):
    """The folder of an experiment on images that were given in Python."""
    found = vc.train(_values(tmp_path), data=images_and_labels(), quiet=True)
    assert found is not None and len(found.frame()) == 2
    return tmp_path / "tiny"


def test_later_commands_find_images_given_in_python(given, tmp_path, cache):
    assert len(vc.compare(given, parts=["accuracy"], quiet=True).frame()) == 2
    for use in (vc.compare, vc.locality, vc.inspect):
        with refused(f"root {tmp_path}: ", " was trained and tested on tuple of images ", "; omit"):
            use(given, root=tmp_path, quiet=True)
    (run,) = given.glob("resnet-*")
    assert len(vc.inspect(run, count=2, quiet=True).written)
    assert vc.train(given / "experiment.yaml", quiet=True) is not None  # without data=: nothing is left to run
    data_block = yaml.safe_load((given / "experiment.yaml").read_text())["data"]
    description = "tuple of images and labels (240 images)"
    assert (data_block["source"], data_block["own"]["description"]) == ("given", description)
    cache.rename(tmp_path / "elsewhere")
    assert TrainedNetwork.open(run).pool(tmp_path / "elsewhere").test(3).num_classes == 3
    with pytest.raises(InputError, match=r"these images are no longer in .*; give them again \(data=\)"):
        vc.train(given / "experiment.yaml", quiet=True)
    assert vc.report(given).answer
    assert vc.train(_values(tmp_path), data=images_and_labels(), quiet=True) is not None


def test_stored_images_are_found_without_importing_their_user_defined_source(tmp_path):
    values = _values(tmp_path, source={"class_path": f"{HERE}.images_and_labels", "init_args": {"count": 150}})
    results = run_quietly(values)
    assert {result.data.data_details["counts"]["train"]["0"] for result in results} == {50}
    assert {result.data.data_details["folds"] for result in results} == {5}
    (run,) = tmp_path.glob("tiny/resnet-*")
    untrusted = TrainedNetwork.open(run)
    assert not untrusted.run.experiment.trusted
    assert len(untrusted.pool().test(untrusted.run.seed)) == 30


def test_an_impossible_source_is_refused_in_one_line(tmp_path):
    for source, message in (
        ({"class_path": "nowhere.Images"}, "nowhere.Images cannot be imported: No module named 'nowhere'"),
        ({"class_path": f"{HERE}.COUNT"}, "COUNT is a int, not a class or a function"),
        ({"class_path": f"{HERE}.images_and_labels", "init_args": {"size": 3}}, "takes no size; it takes count, seed"),
        ({"class_path": "images"}, "expected {class_path: package.module.Name"),
        ({"class_path": "a.B", "args": 3}, "source.args: there is no such setting"),
        ("given", "vc.train(config, data=...)"),
    ):
        with refused(message):
            run_quietly(_values(tmp_path, source=source))


def test_a_class_named_in_a_checkpoint_is_not_imported(given, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_own.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\ndef Evil(): pass\n")
    (checkpoint,) = given.glob("resnet-*/checkpoints/last.ckpt")
    evil = {"class_path": "evil_own.Evil"}

    contents = read_checkpoint(checkpoint)
    contents["vit_vs_cnn"]["origin"]["experiment"]["data"]["augmentation"]["transform"] = evil
    torch.save(contents, tmp_path / "transform.ckpt")
    assert len(TrainedNetwork.open(tmp_path / "transform.ckpt").pool().test(3))
    assert not (tmp_path / "executed").exists()

    contents = read_checkpoint(checkpoint)
    contents["vit_vs_cnn"]["origin"]["experiment"]["data"]["source"] = evil
    contents["vit_vs_cnn"]["origin"]["run"]["fingerprint"] = "0" * 16 + "-" + "0" * 16  # these images are not stored
    torch.save(contents, tmp_path / "source.ckpt")
    with pytest.raises(InputError, match=r"the class evil_own\.Evil is not imported without --trust"):
        TrainedNetwork.open(tmp_path / "source.ckpt").pool()
    assert not (tmp_path / "executed").exists()


def test_the_path_of_a_csv_file_is_a_table_and_that_of_a_folder_a_folder_and_a_fingerprint_no_path(tmp_path):
    data = set_images(tiny_experiment(tmp_path).data, tmp_path / "photos.csv")
    assert (data.source, data.root) == ("table", str(tmp_path / "photos.csv"))
    assert set_images(data, str(tmp_path)).source == "folder"
    with pytest.raises(InputError, match=r"fingerprint"):
        ArraysOptions(fingerprint="../../etc")


@pytest.mark.parametrize("step", [1, 4])
def test_a_run_with_a_custom_transform_resumes_exactly(tmp_path, step):
    transform = {"class_path": f"{HERE}.Noise", "init_args": {"most": 90}}
    augmentation = {"resized_crop": [0.3, 1.0], "transform": transform}

    def config(output, **execution):
        values = _values(output, source={"class_path": f"{HERE}.images_and_labels"}, augmentation=augmentation)
        values["protocol"]["budget"] = {"steps": 6}
        values["execution"] = {"checkpoint_interval": 1, **execution}
        return {**values, "models": {"resnet": values["models"]["resnet"]}}

    (whole,) = run_quietly(config(tmp_path / "whole"))
    stop = {"class_path": "tests.workers.killer.RaiseAtStep", "init_args": {"step": step, "hook": "on_train_batch_end"}}
    with pytest.raises(Interrupted):
        run_quietly(config(tmp_path / "killed", passive_callbacks=[stop]))
    (resumed,) = run_quietly(config(tmp_path / "killed"))
    assert resumed.weights == whole.weights
    assert resumed.recipe["augmentation"]["transform"] == transform


def test_the_answer_begins_with_a_warning_of_near_duplicate_test_images(tmp_path, monkeypatch):
    pixels, labels = images_and_labels(90)
    pixels[40:] = np.random.default_rng(7).integers(0, 256, pixels[40:].shape, dtype=np.uint8)
    values = {**_values(tmp_path), "output": tmp_path, "data": {"validation_fraction": 0.2}}
    values["protocol"] |= {"train_sizes": (np.int64(60),), "seeds": range(1)}
    found = vc.train(values, data={"train": (pixels[:60], labels[:60]), "test": (pixels[30:], labels[30:])}, quiet=True)
    warning = "The accuracies cannot be relied on: 30 of 60 test images are near-duplicates of training images."
    assert found.answer.startswith(warning)
    assert " on your images: " in found.answer
    assert repr(found) == found.answer
    unread = property(lambda self: pytest.fail("images are read"))
    monkeypatch.setattr("vit_vs_cnn.images.experiment_data.ExperimentData.images", unread)
    assert repr(replace(found)).startswith(warning) and warning in replace(found)._repr_html_()
    assert found.page.read_text().count(warning) == 1
    json.dumps([found.to_dict(), vc.audit(values, data=(pixels, labels), output=tmp_path / "a").to_dict()])
