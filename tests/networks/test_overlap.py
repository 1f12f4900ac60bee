"""Weights record their training images, and do not start a run that is scored on these."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.data.synthetic.source import SyntheticSource
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.networks.training_hashes import (
    CHECKPOINT_KEY_TRAINING_HASHES,
    UNKNOWN_TRAINING_IMAGES,
    TrainingImageHashes,
    read_training_hashes,
)
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.training.checkpoints import read_checkpoint

IMAGES = {"source": "synthetic", "synthetic": {"train_images": 60, "test_images": 60}, "validation_fraction": 0.25}


def _run(
    output: Path, *, start: Path | None = None, teacher: Path | None = None, fraction: float = 0.25, seed: int = 0
) -> Path:
    """The checkpoint of one small network after one step."""
    data = {**IMAGES, "synthetic": {**IMAGES["synthetic"], "seed": seed}, "validation_fraction": fraction}
    model = {"name": "resnet8", "options": {"width": 2}, "optimizer": {"name": "sgd", "lr": 0.01}}
    model |= {} if start is None else {"weights": {"run": str(start)}}
    model |= {} if teacher is None else {"distill": {"teacher": str(teacher)}}
    values = tiny_config(output, data=data, models={"cnn": model}, train_sizes=[60], budget={"steps": 1})
    (result,) = run_quietly(values)
    return output / "tiny" / result.run / "checkpoints" / "last.ckpt"


@pytest.fixture(scope="module")
def swapped(tmp_path_factory) -> Path:
    """A checkpoint trained with training and test images swapped, so on images that are test images here."""
    train, test = SyntheticSource.train, SyntheticSource.test
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SyntheticSource, "train", test)
        patch.setattr(SyntheticSource, "test", train)
        return _run(tmp_path_factory.mktemp("swapped"), fraction=0.0)


def test_a_checkpoint_contains_hashes_of_its_training_images(swapped):
    recorded_hashes = TrainedNetwork.open(swapped).training_hashes
    assert recorded_hashes.is_whole
    pool = ExperimentData(tiny_experiment(Path("nowhere"), data=IMAGES).data)
    assert np.array_equal(recorded_hashes.hashes, np.unique(pool.test_hashes(0)))


def test_weights_and_teachers_trained_on_test_images_are_refused_also_through_other_weights(swapped, tmp_path):
    with pytest.raises(InputError, match=r"models\.cnn\.weights: .* 60 of the 60 images that .* is tested on"):
        _run(tmp_path, start=swapped)
    assert not list(tmp_path.rglob("*-s3-*"))
    with pytest.raises(InputError, match=r"models\.cnn\.distill\.teacher: .* 60 of the 60 images that .* is tested on"):
        _run(tmp_path, teacher=swapped)
    between = _run(tmp_path / "between", start=swapped, seed=9)  # on images that occur nowhere else
    assert TrainedNetwork.open(between).training_hashes.is_whole
    with pytest.raises(InputError, match=r"60 of the 60 images that .* is tested on"):
        _run(tmp_path, start=between)


def test_weights_trained_on_validation_images_are_refused(tmp_path):
    start = _run(tmp_path / "start", fraction=0.0)
    with pytest.raises(InputError, match=r"images that .* is validated with"):
        _run(tmp_path, start=start)


def test_weights_with_unknown_training_images_are_warned_of(swapped, tmp_path):
    contents = read_checkpoint(swapped)
    del contents["vit_vs_cnn"][CHECKPOINT_KEY_TRAINING_HASHES]
    torch.save(contents, tmp_path / "older.ckpt")
    after = _run(tmp_path, start=tmp_path / "older.ckpt")
    assert not TrainedNetwork.open(after).training_hashes.is_whole
    result = read_result(after.parents[1] / "result.json")
    assert result.start.start_history_known is False
    assert any("that CNN started from are not recorded" in text for text in analyze([result]).warnings())


@pytest.mark.parametrize("stored", [None, 3, {}, {"images": "?", "whole": True}, {"images": "AAA=", "whole": True}])
def test_damaged_hashes_of_training_images_count_as_unknown(stored):
    assert read_training_hashes({CHECKPOINT_KEY_TRAINING_HASHES: stored}) is UNKNOWN_TRAINING_IMAGES


def test_images_that_the_new_run_may_train_on_do_not_count_as_overlap():
    scored, own = np.array([1, 2, 3], dtype=np.uint64), np.array([3, 4], dtype=np.uint64)
    assert TrainingImageHashes(scored).count_in(scored) == 3
    assert TrainingImageHashes(scored).count_in(scored, except_for=own) == 2
    assert (TrainingImageHashes(scored) | TrainingImageHashes(own)).is_whole
    assert not (TrainingImageHashes(scored) | UNKNOWN_TRAINING_IMAGES).is_whole
    stored = {CHECKPOINT_KEY_TRAINING_HASHES: TrainingImageHashes(scored).to_dict()}
    assert np.array_equal(read_training_hashes(stored).hashes, scored)
