"""Pretraining without labels and teachers as parts of an experiment."""

import json

import pytest
from PIL import Image

from tests.experiments.tiny import plan_runs, run_quietly, tiny_config
from tests.pictures import write_images
from tests.refused import refused
from vit_vs_cnn.analysis.model_summaries import summarize_models
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.result import PRETRAINING_FILE, PretrainingResult, StartKind, read_result
from vit_vs_cnn.runs.status import read_status

PRETRAIN = {"steps": 5, "mask": 0.5, "patch": 8}


def _values(output, *, data=None, budget=None, **models):
    """Images of 16 x 16 pixels, two sizes and one seed; each model is a tiny ResNet with other settings."""
    values = tiny_config(output, train_sizes=[60, 80], batch_size=16, budget=budget or {"steps": 4})
    values["data"]["synthetic"] |= {"image_size": 16}
    values["data"] |= data or {}
    values["executor"] = {"name": "local"}
    resnet = values["models"]["resnet"] | {"options": {"width": 2}}
    values["models"] = {name: resnet | settings for name, settings in models.items()}
    return values


def _runs(values):
    return plan_runs(experiment_from_dict(values))


def _result(run):
    return read_result(run.folder / "result.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two models that are pretrained on all images, one of which is taught, and the teacher."""
    taught = {"pretrain": PRETRAIN, "distill": {"teacher": "teacher"}}
    output = tmp_path_factory.mktemp("pretrained")
    values = _values(output, data={"unlabelled": "rest"}, taught=taught, own={"pretrain": PRETRAIN}, teacher={})
    run_quietly(experiment_from_dict(values))
    return values


def test_one_pretraining_without_test_and_validation_images_is_the_start_of_all_sizes_and_models(finished):
    runs = _runs(finished)
    (folder,) = [path.parent for path in runs[0].experiment.folder.glob(f"pretraining/*/{PRETRAINING_FILE}")]
    starts = {run.start.folder for run in runs if run.start}
    assert starts == {folder} and folder.name.startswith("resnet8_pretraining-n80-s3-")
    pool = ExperimentData(runs[0].experiment.data)
    hashes = TrainedNetwork.open(folder / "checkpoints" / "pretrained.ckpt").training_hashes
    validation = pool.draw(80, 3).validation.hashes()
    assert hashes.is_whole and len(hashes.hashes) == 120 - len(validation)
    assert hashes.count_in(pool.test_hashes(3)) == hashes.count_in(validation) == 0
    for run in runs:
        result = _result(run)
        expected = (StartKind.SCRATCH, None) if run.start is None else (StartKind.PRETRAINED, True)
        assert (result.start.start_kind, result.start.start_history_known) == expected


def test_the_cost_contains_the_pretraining_and_the_teacher_with_its_training(finished):
    by_model = {run.model: run for run in _runs(finished) if run.train_size == 80}
    pretraining = read_result(by_model["own"].start.result_file, PretrainingResult)
    costs = {name: _result(run).cost for name, run in by_model.items()}
    assert (costs["own"].images_processed, pretraining.cost.images_processed) == (4 * 16, 5 * 16)
    own = 3 * 2 * costs["teacher"].macs * 4 * 16
    assert costs["teacher"].flops == own
    assert costs["own"].flops == own + pretraining.cost.flops
    assert pretraining.cost.flops > 3 * 2 * costs["teacher"].macs * 5 * 16  # with the map to pixels
    assert costs["taught"].flops == costs["own"].flops + 2 * costs["teacher"].macs * 4 * 16 + own
    texts = {model.key: model.start for model in summarize_models([_result(run) for run in by_model.values()])}
    assert texts["own"] == "pretrained on masked patches"
    assert texts["taught"] == "pretrained on masked patches, taught by teacher"


def test_status_counts_the_pretraining(finished):
    status = read_status(_runs(finished)[0].experiment.folder)
    assert status.runs[0].name == "resnet8_pretraining-n80-s3"
    assert "loss of masked pixels" in str(status)
    assert str(status).endswith("tiny: 7 of 7 done")


def test_a_budget_of_flops_contains_the_pretraining_and_the_forward_passes_of_the_teacher(finished, tmp_path):
    by_model = {run.model: _result(run).cost for run in _runs(finished) if run.train_size == 80}
    budget = {"flops": float(by_model["taught"].flops - by_model["teacher"].flops)}
    models = {"taught": finished["models"]["taught"], "teacher": finished["models"]["teacher"]}
    values = finished | {"models": models, "output": str(tmp_path)}
    values["protocol"] = finished["protocol"] | {"budget": budget, "train_sizes": [80]}
    costs = {result.model: result.cost for result in run_quietly(experiment_from_dict(values))}
    assert costs["taught"].steps == 4 and costs["taught"].flops == budget["flops"] + costs["teacher"].flops
    assert costs["teacher"].steps > 4
    values["protocol"] |= {"budget": {"flops": 1e6}}
    with refused("protocol.budget: 1e+06 training FLOPs are less than the", "of models.taught.pretrain"):
        run_quietly(experiment_from_dict(values))


def test_settings_of_the_pretraining_rename_the_runs_that_start_from_it_and_no_others(tmp_path):
    def folders(data=None, **changes):
        values = _values(tmp_path, data=data, own={"pretrain": PRETRAIN | changes}, plain={})
        return {run.model: run.folder.name for run in _runs(values)}

    base = folders()
    for changed in (folders(mask=0.6), folders(steps=6), folders(data={"unlabelled": "rest"})):
        assert changed["own"] != base["own"] and changed["plain"] == base["plain"]


def test_a_teacher_by_path_teaches_like_the_model(finished, tmp_path):
    runs = {run.model: run for run in _runs(finished) if run.train_size == 80}
    own = finished["models"]["taught"] | {"distill": {"teacher": str(runs["teacher"].folder)}}
    values = finished | {"models": {"taught": own}, "output": str(tmp_path)}
    values["protocol"] = values["protocol"] | {"train_sizes": [80]}
    (result,) = run_quietly(experiment_from_dict(values))
    assert result.weights == _result(runs["taught"]).weights
    assert result.cost.teacher_training_flops is None


def test_copies_of_test_images_in_a_folder_without_labels_are_left_out(tmp_path):
    labelled = [f"images/{name}/{number}.png" for name in "ab" for number in range(20)]
    write_images(tmp_path, labelled + [f"more/deep/{number}.png" for number in range(5)], size=(8, 8))
    data = {"source": "folder", "root": str(tmp_path / "images"), "unlabelled": str(tmp_path / "more")}
    data |= {"folder": {"image_size": 8, "cache": str(tmp_path / "cache")}}
    values = _values(tmp_path, data=data, own={"pretrain": PRETRAIN | {"patch": 4}})
    values["protocol"] |= {"train_sizes": [20]}
    experiment = experiment_from_dict(values)
    pool = ExperimentData(experiment.data)
    Image.fromarray(pool.test(3).images[0].permute(1, 2, 0).numpy()).save(tmp_path / "more" / "copy.png")
    with pytest.warns(UserWarning, match="more: seed 3 is trained without 1 image with the pixels of test"):
        run_quietly(experiment)
    (path,) = experiment.folder.glob(f"pretraining/*/{PRETRAINING_FILE}")
    assert json.loads(path.read_text())["images"] == len(pool.draw(20, 3).training) + 5


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        ({"pretrain": {"mask": 1}}, ["models.own.pretrain: mask must be above 0 and below 1, but is 1.0"]),
        ({"pretrain": {"patch": 5}}, ["models.own.pretrain: patch 5 must cut images of 16 x 16 pixels"]),
        ({"pretrain": {}, "starts_from": "plain"}, ["starts_from and pretrain cannot be combined"]),
        ({"distill": {}}, ["models.own.distill", "teacher"]),
        ({"distill": {"teacher": "own"}}, ["own starts from or is taught by own", "none of them can be trained first"]),
        ({"distill": {"teacher": "nobody"}}, ["models.own.distill.teacher: 'nobody' is neither another model (plain)"]),
        ({"distill": {"teacher": "plain", "weight": 1.5}}, ["models.own.distill: weight must be from 0 to 1"]),
    ],
)
def test_settings_that_cannot_be_used_are_refused(tmp_path, settings, messages):
    with refused(*messages):
        run_quietly(experiment_from_dict(_values(tmp_path, own=settings, plain={})))
