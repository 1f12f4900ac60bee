"""A pretrained network gets each file at its own size; the images are identified by their stored size."""

import json
import re

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.experiments.tiny import plan_runs, run_quietly, tiny_config
from vit_vs_cnn import compare, inspect, load, report
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.data.options import InputResolution
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.networks.pretrained import MAX_INPUT_SIZE, PretrainedWeights
from vit_vs_cnn.reporting.experiment_tables import models_table
from vit_vs_cnn.workers.fit import scaled_augmentation

pytestmark = pytest.mark.slow

OF_EACH = 14


def _weights(folder, name, **config):
    """A file of randomly initialized weights of timm, with their preprocessing beside it."""
    folder.mkdir()
    torch.manual_seed(3)
    save_file(timm.create_model(name).state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"pretrained_cfg": {"mean": [0.5] * 3, "std": [0.2] * 3, **config}}))
    return {"file": str(folder / "model.safetensors")}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Photographs of three classes, of many sizes and shapes, which differ by their colors and stripes."""
    root, rng = tmp_path_factory.mktemp("resolutions") / "photos", np.random.default_rng(5)
    for number, name in enumerate(("cat", "dog", "eel")):
        (root / name).mkdir(parents=True)
        for index in range(OF_EACH):
            rows, cols = rng.integers(37, 97, 2)
            pixels = rng.integers(0, 90, (rows, cols, 3)).astype(np.uint8)
            pixels[..., number] += 110
            pixels[:: number + 2] //= 2
            Image.fromarray(pixels).save(root / name / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def experiment(photographs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    values = tiny_config(folder, name="resolutions", train_sizes=[20], seeds=[0, 1], budget={"steps": 2})
    values["data"] |= {"source": "folder", "root": str(photographs)}
    values["data"]["folder"] = {"image_size": 16, "cache": str(folder / "cache")}
    values["data"]["augmentation"] = {"crop_padding": 2, "flip": True}
    cnn = _weights(folder / "cnn", "test_resnet", input_size=[3, 24, 24], crop_pct=0.75, interpolation="bilinear")
    vit = _weights(folder / "vit", "test_vit", input_size=[3, 160, 160], crop_pct=1.0)
    values["models"] = {
        "resnet": values["models"]["resnet"],
        "cnn": {"name": "timm/test_resnet", "weights": cnn, "finetune": {"head": True}},
        "vit": {"name": "timm/test_vit", "weights": vit, "options": {"input_size": 48}, "recipe": "none"},
    }
    experiment = experiment_from_dict(values)
    run_quietly(experiment)
    return experiment


def test_each_model_gets_files_at_its_own_size_and_the_same_images(experiment):
    pool = ExperimentData.from_experiment(experiment)
    runs = {run.model: run for run in plan_runs(experiment) if run.seed == 0}
    resolutions = {name: run.resolution for name, run in runs.items()}
    cnn, vit = InputResolution((32, 32), "bilinear"), InputResolution((48, 48))
    assert resolutions == {"resnet": None, "cnn": cnn, "vit": vit}
    drawn = {name: pool.at_resolution(one).draw(20, 0) for name, one in resolutions.items()}
    shapes = {name: images.training.image_shape for name, images in drawn.items()}
    assert shapes == {"resnet": (3, 16, 16), "cnn": (3, 32, 32), "vit": (3, 48, 48)}
    assert len({images.subset_hash for images in drawn.values()}) == 1
    for resolution in resolutions.values():
        same = pool.at_resolution(resolution)
        assert same.source.provenance() == pool.source.provenance()
        assert (same.fingerprint, same.test_set(1)) == (pool.fingerprint, pool.test_set(1))
        assert same.test_hashes(0).tolist() == pool.test_hashes(0).tolist()
        assert same.at_resolution(None) is pool
    assert len({run.folder for run in runs.values()}) == 3


def test_pixels_are_those_of_the_file_and_not_of_an_enlarged_thumbnail(experiment, photographs):
    test = ExperimentData.from_experiment(experiment).at_resolution(InputResolution((32, 32), "bilinear")).test(0)
    for pixels, name in zip(test.images, test.sample_ids, strict=True):
        image = Image.open(photographs / name)
        side = min(image.size)
        box = [(length - side) / 2 for length in image.size]
        box = (*box, *(start + side for start in box))
        expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR, box=box)).transpose(2, 0, 1)
        np.testing.assert_allclose(pixels.numpy().astype(int), expected.astype(int), atol=1)


def test_what_a_network_gets_is_part_of_the_identity_of_its_run(experiment):
    values = experiment.to_dict()
    values["models"]["cnn"]["options"] = {"crop_pct": 0.6}
    changed, before = (next(run for run in plan_runs(one) if run.name == "cnn-n20-s0") for one in (values, experiment))
    assert (changed.resolution, changed.folder == before.folder) == (InputResolution((40, 40), "bilinear"), False)


@pytest.mark.parametrize("model", ["resnet", "cnn", "vit"])
def test_a_loaded_network_predicts_files_as_its_run_did(experiment, photographs, model):
    network = load(experiment.folder, model=model)
    recorded = Predictions.load(network.run.predictions)
    predicted = network.predict([photographs / name for name in recorded.sample_ids])
    temperature = network.calibration.temperature or 1.0
    assert temperature == 1.0, "so few validation images give no temperature"
    assert predicted.classes == [network.class_names[number] for number in recorded.classes]
    np.testing.assert_allclose(predicted.probabilities.max(1), recorded.probability.numpy(), atol=1e-4)


def test_networks_of_different_sizes_are_compared_and_inspected_together(experiment, photographs, tmp_path):
    parts, runs = ("accuracy", "corruptions", "similarity"), [*experiment.folder.glob("*-n20-s*")]
    compared = compare(experiment.folder, parts=parts, count=4, quick=True, quiet=True)
    recorded = {run.name.rpartition("-")[0]: Predictions.load(run / "predictions.npz").accuracy for run in runs}
    frame = compared.frame().set_index("network")["accuracy"].to_dict()
    assert {name.replace("-s", "-n20-s"): value for name, value in frame.items()} == pytest.approx(recorded)
    seeds = [next(experiment.folder.glob(f"{name}-n20-s0-*")) for name in ("cnn", "vit")]
    options = {"images": [photographs / "cat"], "count": 3, "methods": ["rollout", "grad_cam"]}
    page = inspect(*seeds, **options, output=tmp_path, quiet=True)
    assert page.images.data.image_shape == (3, 48, 48)
    assert [tuple(network.methods[0].maps.shape) for network in page.networks][1] == (3, 3, 3)


def test_weights_of_more_than_224_pixels_run_at_224_unless_a_size_is_named():
    weights = PretrainedWeights("it", "here", {}, (518, 518), crop_pct=0.875)
    assert weights.resolution({}) == InputResolution((256, 256)) and weights.input_size({}) == (MAX_INPUT_SIZE,) * 2
    assert weights.resolution({"options": {"input_size": 392, "crop_pct": 1.0}}) == InputResolution((392, 392))
    assert weights.resolution({"options": {"input_size": "data"}}) is None
    assert PretrainedWeights("it", "here", {}).resolution({}) is None


def test_padding_grows_with_the_size_of_the_images(experiment):
    pool = ExperimentData.from_experiment(experiment)
    run = next(run for run in plan_runs(experiment) if run.model == "vit")
    drawn = [pool.at_resolution(resolution).draw(20, 0) for resolution in (None, run.resolution)]
    assert [scaled_augmentation(run, images.training).crop_padding for images in drawn] == [2, 6]


def test_a_file_that_cannot_be_decoded_any_more_is_named(experiment, photographs, tmp_path):
    pool = ExperimentData.from_experiment(experiment)
    path = photographs / pool.test(0).sample_ids[0]
    content = path.read_bytes()
    try:
        path.write_bytes(content[:300])
        with pytest.raises(InputError, match=f"{path.name}: damaged .*they were readable when"):
            _ = pool.at_resolution(InputResolution((21, 21))).images
    finally:
        path.write_bytes(content)


def test_a_resolution_of_an_impossible_size_is_refused():
    for size in ((0, 8), (8, 3000)):
        with pytest.raises(InputError, match="must be a whole number, from 1 to 2048"):
            InputResolution(size)


def test_the_answer_and_the_table_of_models_have_the_size_of_each_model(experiment):
    findings = report(experiment.folder, quiet=True)
    answer, table = " ".join(str(findings.answer).split()), models_table(findings.analysis, findings.results)
    assert re.search(r"Image size in pixels .*\bCNN 24 \([\d.]+M\)", answer) and re.search(r"\bResNet 16 \(", answer)
    pixels = {row[0]: row[table.columns.index("pixels")] for row in table.rows}
    assert pixels == {"CNN": "24", "ResNet": "16", "ViT": "48"}


def test_training_and_test_images_are_recognized_in_files_of_any_size(experiment, photographs):
    pool = ExperimentData.from_experiment(experiment)
    trained = len(pool.draw(20, 0).training)
    for model in ("resnet", "vit"):
        evaluated = load(experiment.folder, model=model).evaluate(photographs)
        assert (evaluated.images, evaluated.training_images) == (3 * OF_EACH, trained)
        text = f"{len(pool.test(0))} of the {3 * OF_EACH} images are test images"
        assert any(text in line for line in evaluated.lines)
    (vit,) = experiment.folder.glob("vit-n20-s0-*")
    page = inspect(vit, images=[photographs], count=99, methods=["random"], output=photographs.parent, quiet=True)
    assert any(f"{trained} of the {3 * OF_EACH} images are from its training set" in line for line in page.lines)
