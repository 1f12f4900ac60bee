"""Networks are compared on new labelled images, and give logits, features and explanations of any images."""

import shutil
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vit_vs_cnn as vc
from tests.refused import refused
from vit_vs_cnn.comparison.accuracy import ExperimentComparisons, find_experiment_comparisons
from vit_vs_cnn.comparison.entries import load_entries
from vit_vs_cnn.data.images import LabelledImages

COUNT = 23
PIXELS = torch.randint(0, 256, (COUNT, 3, 19, 25), dtype=torch.uint8, generator=torch.Generator().manual_seed(4))
LABELS = torch.arange(COUNT) % 4


@pytest.fixture(scope="module")
def experiment(trained_once, tmp_path_factory):
    """A copy, whose test-set logs may change."""
    shutil.copytree(trained_once.parent, root := tmp_path_factory.mktemp("copy") / "runs")
    return root / trained_once.name


@pytest.fixture(scope="module")
def nets(experiment):
    return [vc.load(path) for path in sorted(experiment.glob("*-s3-*"))]


@pytest.fixture(scope="module")
def folder(nets, tmp_path_factory):
    root = tmp_path_factory.mktemp("images") / "new"
    for number, (pixels, label) in enumerate(zip(PIXELS, LABELS, strict=True)):
        place = root / nets[0].class_names[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place / f"{number:02}.png")
    return root


@pytest.mark.parametrize("form", ["folder", "table", "arrays", "names", "dataset", "loader", "labelled images"])
def test_new_images_in_every_form_give_the_accuracies_of_evaluate(nets, folder, form):
    class_names, table, dataset = nets[0].class_names, folder.with_name("table.csv"), TensorDataset(PIXELS, LABELS)
    names = [class_names[label] for label in LABELS]
    paths = [f"new/{name}/{number:02}.png" for number, name in enumerate(names)]
    pandas.DataFrame({"image": paths, "label": names}).to_csv(table, index=False)
    forms = {"folder": folder, "table": table, "arrays": (PIXELS.numpy(), LABELS.numpy()), "dataset": dataset}
    forms |= {"names": {"images": PIXELS, "labels": names}, "loader": DataLoader(dataset, 5)}
    data = (forms | {"labelled images": LabelledImages(PIXELS, LABELS, class_names)})[form]
    compared = vc.compare(*nets, data=data, parts=["accuracy", "calibration"], quiet=True)
    expected = {f"{net.run.model}-s3": net.evaluate(PIXELS, LABELS) for net in nets}
    frame = compared.frame().set_index("network")
    assert frame["accuracy"].to_dict() == {name: found.accuracy.value for name, found in expected.items()}
    assert compared.images == COUNT
    assert nets[0].evaluate(data).lines == expected[f"{nets[0].run.model}-s3"].lines


def test_evaluations_on_new_images_have_their_own_log_and_pair_the_seeds_of_an_experiment(experiment):
    logs = {path: path.read_bytes() for path in (experiment.parent / "test-sets").glob("*.jsonl")}
    for times in (1, 2):
        data = (PIXELS.flip(2), LABELS)
        compared = vc.compare(experiment, data=data, parts=["accuracy", "differences"], quiet=True)
        assert compared.networks["test_evaluations"].unique().tolist() == [times]
    assert {path: path.read_bytes() for path in logs} == logs
    log = experiment.parent / "test-sets" / f"{compared.fingerprint}.jsonl"
    assert log not in logs and log.read_bytes().count(b"\n") == 8
    assert compared.accuracy.pairs[0].seeds == 2
    entries, _ = load_entries([str(experiment)], data=data)  # the plan of the experiment is for its test images
    assert find_experiment_comparisons(entries) == ExperimentComparisons()


def test_training_and_test_images_are_not_new_and_several_splits_are_refused(nets):
    pool = nets[0].pool()
    training, test = pool.draw(120, 3).training, pool.test(3)
    for known, message in (
        (training, "was trained on 7 of the 30 test images"),
        (test, "data: 7 of the images are test"),
    ):
        pixels = torch.nn.functional.interpolate(PIXELS, size=(32, 32))
        data = (torch.cat([pixels, known.images[:7]]), torch.cat([LABELS, known.labels[:7]]))
        with refused(message):
            vc.compare(*nets, data=data, quiet=True)
    with refused("data: splits train, test; give one of them"):
        vc.compare(*nets, data=(TensorDataset(PIXELS, LABELS), TensorDataset(PIXELS, LABELS)), quiet=True)


def test_a_number_is_the_name_of_its_class_if_all_names_are_numbers(nets):
    names = tuple("9140732856")
    net = replace(nets[0], about=replace(nets[0].about, class_names=names))
    by_number, by_name = (net.evaluate(PIXELS, [kind(names[label]) for label in LABELS]) for kind in (int, str))
    assert by_number.confusion.equals(by_name.confusion) and by_name.confusion.loc["9"].sum() == 6


def test_calls_give_logits_and_features_from_which_the_head_computes_them(nets, folder):
    for net in nets:
        logits, features = net(PIXELS), net.features(PIXELS)
        expected = net.predict(PIXELS).probabilities
        np.testing.assert_allclose((logits / net.calibration.temperature).double().softmax(1), expected, atol=1e-6)
        torch.testing.assert_close(net.network.head(features), logits)
        torch.testing.assert_close(net(sorted(folder.rglob("*.png"), key=lambda path: path.name)), logits)
        assert not logits.requires_grad and not net.network.training
    (folder.parent / "broken.png").write_text("none")
    with refused("broken.png: no image"):
        net([folder, folder.parent / "broken.png"])
    without = replace(net, network=nn.Sequential(nn.Conv2d(3, 10, 32), nn.Flatten()))
    with refused("no linear layer computes the logits"):
        without.features(PIXELS)


@pytest.mark.parametrize("method", ["relevance", "rollout"])
def test_a_batch_is_explained_as_its_images_one_by_one(nets, method):
    net = next(net for net in nets if "vit" in net.name)
    for explanation, pixels in zip(net.explain(PIXELS[:3], method=method), PIXELS[:3], strict=True):
        alone = net.explain(pixels, method=method)
        assert (explanation.class_name, explanation.method) == (alone.class_name, method)
        np.testing.assert_allclose(explanation.map, alone.map, rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(explanation.image, alone.image)
        assert explanation.probability == pytest.approx(alone.probability)
    assert {one.class_name for one in net.explain(PIXELS[:3], class_name=net.class_names[2])} == {net.class_names[2]}
