"""``evaluate`` measures a network on labelled images, and reports which of these are not new to it."""

import csv
import json
import shutil
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pandas
import pytest
import torch
from netcal.metrics import ECE
from scipy import stats
from sklearn import metrics
from torch import nn

import vit_vs_cnn as vc
from tests.experiments.tiny import run_quietly, tiny_experiment
from tests.pictures import write_images
from vit_vs_cnn.errors import InputError

#: Files, in which the class of an image is the name of its outermost folder.
FILES = {
    "disc": ("a.png", "b.jpg", "deep/star/c.png"),
    "star": ("d.png", "e.bmp", "f.png", "g.png", "h.png"),
    "ring": ("@eaDir/thumbnail.png", "i.png"),
}


@pytest.fixture(scope="module")
def vit(trained_once):
    return vc.load(next(trained_once.glob("vit-n120-s3-*")))


@pytest.fixture
def copied(trained_once, tmp_path):
    """A network of a copy of the experiment, whose test-set log may change, and the function that reads the log."""
    shutil.copytree(trained_once.parent, tmp_path / "copy")
    (path,) = (tmp_path / "copy" / "test-sets").glob("*.jsonl")
    network = vc.load(next((tmp_path / "copy" / trained_once.name).glob("resnet-n120-s3-*")))
    return network, lambda: [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    names = [f"{name}/{file}" for name, files in FILES.items() for file in files]
    return write_images(tmp_path_factory.mktemp("new") / "photos", names)


@pytest.fixture(scope="module")
def outside(vit):
    """A network with many different predictions, and labelled images of another shape than its input."""
    generator = torch.Generator().manual_seed(7)
    linear = nn.Linear(3 * 32 * 32, 10, bias=False)
    linear.weight.data = torch.randn(10, 3 * 32 * 32, generator=generator) / 20
    network = replace(vit, network=nn.Sequential(nn.Flatten(), linear).eval())
    # 15 bins have equal numbers of images, so that netcal divides them in the same way.
    images = torch.randint(0, 256, (195, 3, 29, 41), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 7, (195,), generator=generator)  # the last three classes do not occur
    best = torch.from_numpy(network.predict(images).probabilities.argmax(1))
    return network, images, torch.where(torch.rand(195, generator=generator) < 0.4, best % 7, labels)


def test_all_measures_equal_sklearn_scipy_and_netcal(outside):
    network, images, labels = outside
    found, probabilities = network.evaluate(images, labels), network.predict(images).probabilities
    truth, predicted = labels.numpy(), probabilities.argmax(1)
    interval = stats.binomtest(int((predicted == truth).sum()), 195).proportion_ci(method="wilson")
    accuracy = metrics.accuracy_score(truth, predicted)
    assert vars(found.accuracy) == pytest.approx({"value": accuracy, "low": interval.low, "high": interval.high})
    recalls = metrics.recall_score(truth, predicted, labels=range(7), average=None)
    assert found.balanced_accuracy == pytest.approx(recalls.mean()) and abs(recalls.mean() - accuracy) > 1e-4
    top5 = metrics.top_k_accuracy_score(truth, probabilities, k=5, labels=range(10))
    assert found.top5 is not None and found.top5.value == pytest.approx(top5)
    assert (found.confusion.to_numpy() == metrics.confusion_matrix(truth, predicted, labels=range(10))).all()
    assert found.mean_probability == pytest.approx(probabilities.max(1).mean())
    ece = ECE(bins=15, equal_intervals=False).measure(probabilities, truth)
    assert found.calibration_error == pytest.approx(float(ece), abs=1e-6)


def test_the_table_has_a_row_for_each_class_and_names_classes_without_images(outside):
    network, images, labels = outside
    found = network.evaluate(images, [network.class_names[label] for label in labels.tolist()])
    table = found.frame().set_index("class")
    assert table["images"].tolist() == torch.bincount(labels, minlength=10).tolist()
    assert table["recall"].isna().tolist() == [False] * 7 + [True] * 3
    row = table.loc[network.class_names[2]]
    assert row[f"predicted_{row.name}"] == pytest.approx(row["recall"] * row["images"])
    assert f"Classes without images: {', '.join(network.class_names[7:])}" in found.lines
    assert "195 images of 7 of 10 classes" in found.lines[0]


def test_probabilities_are_calibrated_by_the_temperature_of_the_run(vit):
    images = torch.randint(0, 256, (17, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    found, temperature = vit.evaluate(images, [3] * 17), vit.calibration.temperature
    with torch.no_grad():
        expected = (vit.network(vit.normalize(images)) / temperature).softmax(1).amax(1).mean()
    assert found.to_dict()["temperature"] == temperature and abs(temperature - 1) > 0.1
    assert found.mean_probability == pytest.approx(float(expected), rel=1e-5)


def test_training_images_are_counted_in_a_warning(vit):
    run_images = vit.pool().draw(120, 3)
    parts = (run_images.training, run_images.validation)
    images, labels = (torch.cat([getattr(part, name)[:17] for part in parts]) for name in ("images", "labels"))
    found = vit.evaluate(images, labels)
    assert found.training_images == 17
    assert [line for line in found.lines if line.startswith("warning: 17 of the 34 images are training images of vit")]
    assert vit.evaluate(parts[1].images, parts[1].labels).remarks == []


def test_test_images_of_the_experiment_are_entered_in_its_log_with_their_accuracy(copied, folder):
    network, read_log = copied
    test, before = network.pool().test(3), read_log()
    network.evaluate(folder)
    assert read_log() == before  # none of them is a test image
    predicted = torch.from_numpy(network.predict(test.images).probabilities.argmax(1))
    wrong = (predicted + 1) % 10  # of other images, so that the accuracy of all images is another one
    others = torch.zeros(13, 3, 32, 32, dtype=torch.uint8) + torch.arange(13, dtype=torch.uint8)[:, None, None, None]
    found = network.evaluate(torch.cat([others, test.images[:47]]), torch.cat([wrong[:13], test.labels[:47]]))
    *rest, entry = read_log()
    assert rest == before and entry["what"] == f"{network.name} (evaluate)"
    assert entry["accuracy"] == pytest.approx((predicted == test.labels)[:47].double().mean().item())
    (remark,) = found.remarks
    assert remark.startswith("note: 47 of the 60 images are test images of tiny") and "has 2 evaluations" in remark


def test_unused_test_images_are_not_evaluated(tmp_path):
    run_quietly(tiny_experiment(tmp_path, only="vit", budget={"steps": 2}, scored_on="validation"))
    network = vc.load(tmp_path / "tiny")
    test = network.pool().test(3)
    with pytest.raises(InputError, match="60 of the 60 images are test images of tiny, which is scored on validation"):
        network.evaluate(test.images, test.labels)


def test_missing_images_of_the_experiment_are_a_note(vit, folder, monkeypatch):
    monkeypatch.setattr(type(vit), "pool", Mock(side_effect=InputError("they have moved")))
    (remark,) = vit.evaluate(folder).remarks
    assert remark.startswith("note: test images of the experiment are not recognized") and "they have moved" in remark


def test_class_folders_and_a_table_of_their_files_give_the_same_result(vit, folder):
    rows = [{"image": f"photos/{name}/{file}", "label": name} for name, files in FILES.items() for file in files]
    pandas.DataFrame(rows[::-1]).query("~image.str.contains('@')").to_csv(folder.parent / "table.csv", index=False)
    found = vit.evaluate(folder)
    assert found.frame().query("images > 0").set_index("class")["images"].to_dict() == {"disc": 3, "star": 5, "ring": 1}
    pandas.testing.assert_frame_equal(found.frame(), vit.evaluate(folder.parent / "table.csv").frame())
    parts = vc.evaluate(vit.path, folder / "star", folder / "ring", quiet=True)  # folders that are themselves classes
    assert parts.confusion.loc["star"].tolist() == found.confusion.loc["star"].tolist()
    assert parts.frame().query("images > 0")["class"].tolist() == ["star", "ring"]


@pytest.mark.filterwarnings("always::UserWarning")
def test_the_command_prints_and_writes_the_result_and_leaves_out_unreadable_images(vit, folder, tmp_path, run_command):
    shutil.copytree(folder, tmp_path / "photos")
    (tmp_path / "photos" / "ring" / "broken.jpg").write_text("none")
    shutil.copy(folder / "disc" / "a.png", tmp_path / "photos" / "contact sheet.png")
    printed = run_command("evaluate", vit.path, tmp_path / "photos", "--output", tmp_path / "new" / "classes.csv")
    expected = vit.evaluate(folder)
    assert expected.lines[0] in printed.out and "9 images of 3 of 10 classes" in printed.out
    assert "warning: 1 of 10 images could not be read, the first" in printed.err
    assert "warning: images outside of class folders are left out: 1, such as " in printed.err
    rows = [*csv.DictReader((tmp_path / "new" / "classes.csv").read_text().splitlines())]
    assert [row["class"] for row in rows] == [*vit.class_names]
    assert [row["images"] for row in rows] == [str(count) for count in expected.frame()["images"]]
    assert {row["recall"] for row in rows if row["images"] == "0"} == {""}


def test_folders_that_are_no_class_are_named_with_close_classes(error_line, vit, folder, tmp_path):
    for name, new in {"disc": "disk", "star": "plum"}.items():
        shutil.copytree(folder / name, tmp_path / "test" / new, ignore=shutil.ignore_patterns("deep"))
    line = error_line("evaluate", vit.path, tmp_path, "--quiet")
    assert f"no class of {vit.name}: disk (did you mean disc?), plum; the classes are disc, hourglass, " in line
    line = error_line("evaluate", vit.path, tmp_path / "test" / "plum" / "d.png", "--quiet")
    assert "no image is in a folder that is named like a class" in line
    assert "out.txt: it must end in .csv" in error_line("evaluate", vit.path, folder, "--output", "out.txt", "--quiet")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 8, 8, 3), np.uint8), ["disc"], "labels: 1 for 2 images"),
        (np.zeros((2, 8, 8, 3), np.uint8), ["disc", "rign"], r"labels: no class of .*: rign \(did you mean ring\?\)"),
        (np.zeros((2, 8, 8, 3), np.uint8), np.array([3, 10]), "no class of .*: 10; the classes are"),
        (np.zeros((2, 8, 8, 3), np.uint8), None, "images in memory need labels"),
        ("nowhere", None, "nowhere: no such file or folder"),
    ],
)
def test_images_without_usable_labels_are_refused(vit, images, labels, message):
    with pytest.raises(InputError, match=message):
        vit.evaluate(images, labels)


def test_predict_refers_to_evaluate_if_all_images_are_in_class_folders(vit, folder, tmp_path, run_command):
    assert f"vit-vs-cnn evaluate {vit.path} {folder}" in run_command("predict", vit.path, folder).err
    shutil.copy(folder / "disc" / "a.png", tmp_path / "a.png")
    assert "evaluate" not in run_command("predict", vit.path, folder, tmp_path / "a.png").err
