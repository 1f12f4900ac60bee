"""``predict`` preprocesses images as in training, and writes calibrated probabilities to files."""

import csv
import io
import json
import os
import shutil
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

import vit_vs_cnn as vc
from tests.experiments.tiny import tiny_experiment
from tests.pictures import write_images
from tests.results import changed
from vit_vs_cnn.analysis.analysis import read_analysis
from vit_vs_cnn.cli import main
from vit_vs_cnn.data.decoding import decode_batches, decode_image, find_input_files
from vit_vs_cnn.data.options import Decoding
from vit_vs_cnn.networks.evaluation import predict
from vit_vs_cnn.networks.temperature import fit_temperature, read_calibration
from vit_vs_cnn.networks.trained_network import ImagePredictions
from vit_vs_cnn.runs.result import read_result

#: The command prints this warning, which must not fail a test.
pytestmark = pytest.mark.filterwarnings("always:.*could not be read:UserWarning")


@pytest.fixture(scope="module")
def run(trained_once):
    return next((trained_once).glob("vit-n120-s3-*"))


@pytest.fixture(scope="module")
def vit(run):
    return vc.load(run)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Seven image files, two of them in subfolders and one damaged, and other files."""
    names = ("a.png", "b/c.PNG", "b/d.jpg", "e.bmp", "f.png", "g.png", "h.png")
    folder = write_images(tmp_path_factory.mktemp("photos"), names)
    (folder / "broken.jpg").write_text("none")
    for name in ("notes.md", ".hidden.png"):
        (folder / name).write_text("none")
    return folder


ORDER = ["a.png", "b/c.PNG", "b/d.jpg", "broken.jpg", "e.bmp", "f.png", "g.png", "h.png"]


def _read_csv(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_a_finished_run_has_the_temperature_of_its_validation_images(run, vit):
    temperature = read_result(run / "result.json").scores.temperature
    held = vit.pool().draw(120, 3).validation
    predictions = predict(vit.network, held, vit.normalize)
    assert temperature == pytest.approx(fit_temperature(predictions.logits, held.labels), rel=1e-3)
    assert vit.calibration.to_dict() == {"temperature": temperature, "validation_images": 30}


@pytest.mark.parametrize("other", ["checkpoint", "result", "damaged"])
def test_temperatures_of_other_weights_or_damaged_files_are_not_used(run, tmp_path, other):
    shutil.copytree(run, tmp_path / "copy")
    path, stored = tmp_path / "copy" / "checkpoints" / "last.ckpt", tmp_path / "copy" / "result.json"
    if other == "checkpoint":
        contents = torch.load(path, weights_only=True)
        for name, value in contents["state_dict"].items():
            if name.endswith("head.bias"):
                value.add_(1)
        torch.save(contents, path)
    elif other == "result":  # too few validation images to fit one
        stored.write_text(changed(read_result(stored), temperature=None).to_json())
    else:
        stored.write_bytes(stored.read_bytes()[:500])
    network = vc.load(path)
    assert network.calibration.temperature is None
    assert "not calibrated" in network.predict(np.zeros((32, 32, 3), np.uint8)).lines[-1]


@pytest.mark.parametrize("text", ["null", "[]", '{"vit_vs_cnn": null}', '{"vit_vs_cnn": {"temperature": []}}', "{"])
def test_a_config_json_of_another_form_is_ignored(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert read_calibration(tmp_path / "model.safetensors", torch.nn.Linear(2, 3)).temperature is None


def test_file_names_that_are_not_utf_8_are_read_and_written(photos, tmp_path, vit):
    name = os.fsencode(tmp_path) + b"/caf\xe9.png"
    try:
        shutil.copy(photos / "a.png", name)
    except OSError:
        pytest.skip("names are UTF-8 here")
    assert len(vc.predict(vit.path, tmp_path, output=tmp_path / "out.csv", quiet=True)) == 1
    assert _read_csv(tmp_path / "out.csv")[0]["image"].endswith("caf\\xe9.png")
    inspection = vc.inspect(vit.path, images=[tmp_path], output=tmp_path / "seen", quiet=True)
    assert "\\xe9.png" in (tmp_path / "seen" / "index.html").read_text(encoding="utf-8"), inspection


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "I;16"])
def test_predict_preprocesses_images_as_in_training_also_in_gray(mode, tmp_path):
    values = np.random.default_rng(7).integers(0, 256, (29, 41, 3), dtype=np.uint8)
    deep = Image.fromarray(values[..., 0].astype(np.uint16) * 257)
    (deep if mode == "I;16" else Image.fromarray(values).convert(mode)).save(tmp_path / "one.tiff")
    files = find_input_files([tmp_path])
    for resize in ("crop", "squash", "pad"):
        trained = torch.from_numpy(decode_image(tmp_path / "one.tiff", 13, Decoding(resize)))
        ((_, decoded),) = next(decode_batches(files, (3, 13, 13), Decoding(resize)))
        assert torch.equal(decoded, trained)
        ((_, grey),) = next(decode_batches(files, (1, 13, 13), Decoding(resize)))
        expected = Image.fromarray(trained.permute(1, 2, 0).numpy()).convert("L")
        np.testing.assert_array_equal(grey[0], np.asarray(expected))


def _train_on_photos(tmp_path):
    data = {"source": "folder", "root": str(tmp_path / "photos"), "validation_fraction": 0.2}
    data["folder"] = {"image_size": 16, "cache": str(tmp_path / "cache")}
    protocol = {"train_sizes": ["all"], "seeds": [0], "budget": {"steps": 2}, "batch_size": 4}
    return vc.train(tiny_experiment(tmp_path / "runs", data=data, protocol=protocol), quiet=True)


def test_a_network_reads_12_bit_files_as_in_training_and_the_audit_reports_their_scale(tmp_path):
    """Images of one class are so dark that their own largest values would need 10 bits."""
    rng = np.random.default_rng(3)
    for name, limit in (("dark", 1000), ("light", 4096)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            values = rng.integers(0, limit, (16, 16), dtype=np.uint16)
            Image.fromarray(values).save(tmp_path / "photos" / name / f"{number}.png")
    network = vc.load(next(_train_on_photos(tmp_path).folder.glob("resnet-*")))
    images = network.pool().images
    assert network.about.gray_bits == 12 and images.images.max() > 250
    from_files = network.predict([tmp_path / "photos" / name for name in images.sample_ids])
    np.testing.assert_allclose(from_files.probabilities, network.predict(images.images).probabilities, rtol=1e-5)
    audit = vc.audit(data=tmp_path / "photos", output=tmp_path / "audit", quiet=True)
    note = "no value in 20 gray files of 16 bits is above 4,095, so 4,095 is read as white (12 bits)"
    assert note in [finding.description for finding in audit.findings] and not audit.blank


def test_class_names_in_any_script_are_printed_and_shown_on_pages_as_they_are(tmp_path, capsys):
    """Chinese, Persian with a joiner, a combining accent, Hindi, and an emoji of several characters."""
    names = ["猫", "گل\u200cسرخ", "cafe\u0301", "हिन्दी", "👨\u200d👧 family"]
    write_images(tmp_path / "photos", (f"{name}/图 {number}.png" for name in names for number in range(6)))
    found = _train_on_photos(tmp_path)
    folder = str(next(found.folder.glob("resnet-*")))
    assert main(["predict", folder, str(tmp_path / "photos"), "--output", str(tmp_path / "answers.csv")]) == 0
    assert main(["inspect", folder, "--output", str(tmp_path / "maps"), "--count", "2"]) == 0
    assert main(["audit", "--data.root", str(tmp_path / "photos"), "--output", str(tmp_path / "audit")]) == 0
    printed = capsys.readouterr()
    assert "warning" not in printed.err and all(name in printed.out for name in names)
    assert {row["predicted"] for row in _read_csv(tmp_path / "answers.csv")} <= {*names}
    for page in (found.page, tmp_path / "audit" / "index.html"):
        assert all(name in page.read_text(encoding="utf-8") for name in names)


def test_the_command_writes_one_row_for_each_image_and_reports_unreadable_ones(vit, photos, tmp_path, run_command):
    printed = run_command("predict", vit.path, photos, "--output", tmp_path / "new" / "out.csv", "--top", 3)
    rows = _read_csv(tmp_path / "new" / "out.csv")
    assert [row["image"] for row in rows] == [str(photos / name) for name in ORDER]
    classes = "predicted probability class_2 probability_2 class_3 probability_3".split()
    assert [*rows[0]] == ["image", *classes, "error"]
    for row, expected in zip(rows, vit.predict(photos, top=3).rows(), strict=True):
        if row["error"]:
            assert (row["predicted"], row["class_3"]) == ("", "") and "no image" in row["error"]
            continue
        assert [row["predicted"], row["class_3"]] == [expected["predicted"], expected["class_3"]]
        assert float(row["probability_2"]) == pytest.approx(expected["probability_2"], rel=1e-5)
    assert sum(bool(row["error"]) for row in rows) == 1
    assert "warning: 1 of 8 images could not be read" in printed.err
    assert printed.out.startswith("\n7 images: ") and "temperature" in printed.out
    assert os.listdir(tmp_path / "new") == ["out.csv"]


def test_a_file_of_json_lines_has_the_same_rows(vit, photos, tmp_path):
    expected = vc.predict(vit.path, photos / "b", top=2, quiet=True).to_dict()["pictures"]
    found = vc.predict(vit.path, photos / "b", output=tmp_path / "out.jsonl", top=2, quiet=True)
    assert [*map(json.loads, found.written[0].read_text().splitlines())] == expected
    assert sum(found.by_class.values()) == len(found) == 2


def test_without_an_output_the_table_and_the_json_are_printed(vit, photos, run_command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    printed = run_command("predict", vit.path, photos, "--quiet").out
    assert "broken.jpg" in printed and "calibrated for images like the 30 validation images" in printed
    assert f"in {photos}/" in printed and f"{photos}/a.png" not in printed
    predictions = json.loads(run_command("predict", vit.path, photos / "a.png", "--json", "--quiet").out)
    assert predictions["temperature"] == vit.calibration.temperature and len(predictions["pictures"]) == 1


def test_a_summary_reports_that_all_of_ten_or_more_images_get_one_class():
    def lines(*classes):
        return ImagePredictions([""] * len(classes), ("cat", "dog"), np.eye(2)[[*classes]]).lines

    assert "The network predicts dog for all 10 images. Try images of other classes, too." in lines(*[1] * 10)
    assert not any("for all" in line for line in lines(*[1] * 9) + lines(*[1] * 10, 0))


def test_most_accurate_model_of_an_experiment_predicts_unless_one_is_named(trained_once, photos, run_command):
    analysis, *_ = read_analysis(trained_once)
    accuracy = {name: analysis.curve(name)[-1].accuracy.value for name in ("vit", "resnet")}
    best, other = ("resnet", "vit") if accuracy["resnet"] >= accuracy["vit"] else ("vit", "resnet")
    printed = run_command("predict", trained_once, photos / "a.png", "--json")
    size = f"{analysis.sizes[-1]} training images ({100 * accuracy[best]:.1f} %)"
    assert f"Model: {best}, " in printed.err and f"{size}; --model names another ({other})" in printed.err
    assert json.loads(printed.out)["pictures"] == [*vc.load(trained_once, best).predict(photos / "a.png").rows()]
    assert "Model: " not in run_command("predict", trained_once, photos / "a.png", "--model", other).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "PATH is missing"),
        (["{photos}/nowhere.png"], "nowhere.png: no such file or folder"),
        (["{photos}/broken.jpg"], "broken.jpg: no image"),
        (["{photos}/notes.md"], "notes.md: no image"),
        (["{photos}", "--top", "0"], "top must be a whole number, at least 1, but is 0"),
        (["{photos}", "--output", "out.xls"], "out.xls: it must end in .csv or .jsonl"),
    ],
)
def test_impossible_requests_are_refused_in_one_line(vit, photos, words, message, tmp_path, monkeypatch, error_line):
    monkeypatch.chdir(tmp_path)
    assert message in error_line("predict", vit.path, *(word.format(photos=photos) for word in words), "--quiet")
    assert os.listdir(tmp_path) == []


def test_an_interrupted_command_leaves_no_file_and_prints_one_line(vit, photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ImagePredictions, "rows", Mock(side_effect=KeyboardInterrupt))
    assert main(["predict", str(vit.path), str(photos), "--output", str(tmp_path / "out.csv"), "--quiet"]) == 130
    assert (os.listdir(tmp_path), capsys.readouterr().err) == ([], "stopped\n")
