"""The audit of images: problems of a folder are listed by name, with remedies."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

import vit_vs_cnn as vc
from tests.browser import DESK, PHONE, assert_readable, open_browser, render_page
from tests.pictures import write_images
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.near_duplicates import find_copies
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.audit import Audit, _find_pairs
from vit_vs_cnn.reporting.page import read_asset

pytestmark = pytest.mark.filterwarnings("always:.*are ignored. 2, such as loose:UserWarning")
NASTY = "copy <script>alert(1)<_script>\n\x1b[31m.png"
RNG = np.random.default_rng(5)


def _image(size: tuple[int, int] = (48, 40)) -> Image.Image:
    """A smooth random image, another one in each call."""
    return Image.fromarray(RNG.integers(0, 256, (7, 7, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)


def _fill(folder: Path, count: int, size: tuple[int, int] = (48, 40)) -> list[Path]:
    folder.mkdir(parents=True)
    for number in range(count):
        _image(size).save(folder / f"{number:03}.png")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Two classes and a tiny one, in train/ and test/, with a problem of every kind."""
    root = tmp_path_factory.mktemp("audit") / "photos"
    ants, bees = _fill(root / "train" / "ant", 20), _fill(root / "train" / "bee", 20)
    for name, count in {"ant": 6, "bee": 6, "rare": 1}.items():
        _fill(root / "test" / name, count)
    _fill(root / "train" / "rare", 3)
    (root / "train" / "ant" / "cut.png").write_bytes(ants[0].read_bytes()[:200])
    (root / "train" / "ant" / "notes.txt").write_text("what we did")
    (root / "loose.png").write_bytes(b"beside train/, and ignored")
    (root / "train" / "loose.png").write_bytes(b"in the folder of no class")
    shutil.copy(ants[1], root / "train" / "bee" / NASTY)
    darker = ImageEnhance.Brightness(Image.open(bees[2])).enhance(0.8)
    darker.resize((96, 80)).save(root / "test" / "bee" / "again.jpg", quality=80)
    Image.new("RGB", (40, 40), (9, 90, 200)).save(root / "train" / "ant" / "blank.png")
    return root


@pytest.fixture(scope="module")
def given(root) -> dict[str, str]:
    return {"data.root": str(root), "data.folder.cache": str(root.parent / "cache")}


@pytest.fixture(scope="module")
def audited(root, given):
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    with pytest.warns(UserWarning, match="images outside of the class folders are ignored: 2, such as loose.png"):
        found = vc.audit(overrides=given, output=root.parent / "out", quiet=True)
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    return found


def _description(audited, title: str) -> str:
    (found,) = [finding.description for finding in audited.findings if finding.title == title]
    return found


def _titles_with_files(audited, small: int) -> list[str]:
    """Titles of the findings if only so many of the 60 images are smaller than the images for training."""
    large = [file._replace(width=64, height=64) for file in audited.files[small:]]
    return [finding.title for finding in replace(audited, files=(*audited.files[:small], *large)).findings]


def test_every_problem_is_named_and_those_that_stop_training_come_first(audited):
    assert audited.findings[0].title == "Unusable files"
    assert "1 file (damaged: 1), such as train/ant/cut.png" in _description(audited, "Unusable files")
    assert _description(audited, "Small classes") == "1 of 3 classes have fewer than 15 images: rare (4)"
    similar = _description(audited, "Test images similar to training images")
    assert similar.startswith("1 of the 14 test images look like")
    assert "train/ant/001.png (ant) and train/bee/copy <script>" in _description(audited, "Same image in two classes")
    assert audited.blank == ("train/ant/blank.png",)
    assert _description(audited, "Blank images") == "1 image of a single color, such as train/ant/blank.png"
    (blank,) = (finding for finding in audited.findings if finding.title == "Blank images")
    assert "--data.folder.resize pad" in blank.advice
    imbalance, few = _description(audited, "Class imbalance"), _description(audited, "Few test images")
    assert imbalance.startswith("bee has 28 images and rare 4; always predicting bee gives 50.0 % accuracy")
    assert few.startswith("with 14 test images, an accuracy of 50 % is uncertain by ±2")


def test_pairs_have_names_classes_and_splits(audited):
    conflict, straddling = audited.pairs
    assert (conflict.kind, conflict.classes, conflict.similarity) == ("two classes", ("ant", "bee"), 1.0)
    assert conflict.same_pixels
    assert (straddling.kind, straddling.splits) == ("two splits", ("train", "test"))
    assert (straddling.first, straddling.second) == ("train/bee/002.png", "test/bee/again.jpg")
    assert not straddling.same_pixels
    assert straddling.similarity > 0.95
    assert [picture.shape for picture in audited.pictures] == [(64, 64 + 4 + 64, 3)] * 2
    assert (audited.pictures[0][:, 64:68] == 255).all()  # white between the two images


def test_images_that_occur_twice_in_a_class_are_reported(audited):
    found = replace(audited, pairs=(replace(audited.pairs[1], splits=("train", "train")),)).findings
    assert "Repeated images" in [finding.title for finding in found]


def test_numbers_in_the_explanation_of_duplicates_are_the_measured_ones():
    record = (Path(__file__).parents[1] / "results" / "near_duplicates" / "near_duplicates.txt").read_text()
    counts = re.findall(r"judged pairs that are flagged: .*, (\d+) of (\d+)", record)
    same, judged = (sum(map(int, column)) for column in zip(*counts, strict=True))
    assert f"of {judged} pairs of photographs (CIFAR), {same} show the same image" in read_asset("about_audit.html")


def test_the_command_prints_what_the_function_returns(audited, given, tmp_path, run_command):
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    printed = json.loads(run_command("audit", *words, "--output", tmp_path, "--json").out)
    expected = json.loads(json.dumps(audited.to_dict(), default=str))
    assert printed.pop("written") != expected.pop("written") and printed == expected
    assert (tmp_path / "index.html").read_bytes() == audited.page.read_bytes()
    shown = run_command("audit", *words, "--output", tmp_path)
    assert "Unusable files (stops training): 1 file (damaged: 1)" in shown.out
    assert "\x1b[31m" not in shown.out and f"The report is {tmp_path / 'index.html'}" in shown.out
    assert "searching for duplicates ..." in shown.err
    assert "images outside of the class folders are ignored: 2, such as loose.png" in shown.err


def test_names_are_escaped_and_pairs_are_shown_as_table_and_images(audited):
    html = audited.page.read_text(encoding="utf-8")
    assert "<script>" not in html
    assert "copy &lt;script&gt;alert(1)&lt;_script&gt;\\n\\x1b[31m.png" in html
    assert html.count("data:image/png") == 2 + sum(len(finding.examples) for finding in audited.findings)
    with (audited.page.parent / "tables" / "pairs.csv").open(encoding="utf-8", newline="") as file:
        assert [row[0] for row in csv.reader(file)] == ["kind", "two classes", "two splits"]


def test_each_finding_about_images_shows_two_or_three_and_the_most_serious_comes_first(audited):
    html = audited.page.read_text(encoding="utf-8")
    assert {finding.title: finding.examples for finding in audited.findings if finding.examples} == {
        "Test images similar to training images": ("train/bee/002.png", "test/bee/again.jpg"),
        "Same image in two classes": ("train/ant/001.png", f"train/bee/{NASTY}"),
        "Blank images": ("train/ant/blank.png",),
        "Enlarged images": ("train/ant/000.png", "train/ant/001.png", "train/ant/002.png"),
    }
    assert (audited.examples["train/ant/blank.png"] == (9, 90, 200)).all()
    titles = [html.index(f"<li>{finding.title}") for finding in audited.findings]
    assert titles == sorted(titles)
    sections = dict(re.findall(r"<li>([^(]+) \([^<]*</li></ul>(.*?)(?=<ul>|<h2)", html, re.DOTALL))
    pair = sections["Test images similar to training images"]
    assert pair.count("<figure") == 2 and "test/bee/again.jpg (bee)" in pair
    assert "<figure" not in sections["Few test images"]


def test_the_page_is_readable_in_dark_mode_and_on_a_phone(audited, tmp_path):
    with open_browser(tmp_path) as browser:
        for width, dark in ((DESK, True), (PHONE, False)):
            assert_readable(render_page(browser, audited.page, width=width, dark=dark))


def test_results_have_a_table_and_an_html_repr(audited):
    assert audited.frame().set_index("class")[["train", "test", "images"]].loc["bee"].tolist() == [21, 7, 28]
    assert "Small classes" in repr(audited)
    assert "<table" in audited._repr_html_()


def _audit_photos(tmp_path, **folder) -> Audit:
    given = {"data.root": str(tmp_path / "photos"), "data.folder": {"cache": str(tmp_path / "cache"), **folder}}
    return vc.audit(overrides=given, output=tmp_path / "out", quiet=True)


def test_a_folder_without_test_images_is_audited_with_its_folds(tmp_path):
    """A darker copy of every image: a test image is also a training image unless its copy is in the same fold."""
    for name in ("ant", "bee"):
        for path in _fill(tmp_path / "photos" / name, 20):
            ImageEnhance.Brightness(Image.open(path)).enhance(0.8).save(path.with_name(f"copy {path.name}"))
    found = _audit_photos(tmp_path)
    assert found.counts["test"] == {"ant": 8, "bee": 8}
    assert (found.folds, len(found.pairs)) == (5, 40)
    assert found.leaked == 2 * sum(pair.is_across_splits for pair in found.pairs) > 40


def test_copies_of_copies_make_as_many_pairs_as_there_are_copies():
    """30 copies of one image: a pair for each copy within a class and split, and one between the two classes."""
    one = torch.from_numpy(np.array(_image((32, 32)))).permute(2, 0, 1)
    labels, splits = torch.tensor([0] * 15 + [1] * 15), ["train"] * 30
    images = LabelledImages(one.expand(30, -1, -1, -1).contiguous(), labels, ("a", "b"), [str(i) for i in range(30)])
    found, exact = find_copies(images, splits, torch.zeros(30, dtype=torch.bool))
    assert len(found.test) == 29
    assert exact.all()
    assert sorted(zip(found.test.tolist(), found.train.tolist(), strict=True))[14] == (0, 15)


def test_pairs_that_mislead_most_come_first():
    """Pairs of two classes, then of two splits; of one kind, those of two splits and the most similar ones."""
    rows = [(0, 0, "train"), (1, 0, "train"), (2, 0, "train"), (3, 0, "train"), (4, 0, "train")]
    rows += [(0, 0, "train"), (1, 0, "train"), (2, 0, "test"), (3, 1, "train"), (4, 1, "test")]
    pixels = torch.stack([torch.from_numpy(np.array(_image((32, 32)))).permute(2, 0, 1) for _ in range(5)])
    pixels = pixels[[number for number, _, _ in rows]]
    pixels[1] ^= 15  # one pair is less similar
    images = LabelledImages(pixels, torch.tensor([label for _, label, _ in rows]), ("a", "b"))
    pairs, _ = _find_pairs(images, [split for *_, split in rows], torch.zeros(10, dtype=torch.bool), lambda _: None)
    assert [pair.first for pair in pairs] == [*"43201"]


def test_formats_that_predict_the_class_and_enlarged_or_cropped_images_are_reported(tmp_path):
    for number in range(60):
        path = tmp_path / "photos" / ("ant" if number % 2 else "bee") / f"{number}.{'png' if number % 2 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        _image((24, 90)).save(path)
    found = _audit_photos(tmp_path)
    formats = _description(found, "File format depends on the class")
    assert "predict the class of 100 % of the images (always predicting the largest class: 50 %)" in formats
    assert "60 of 60 images are smaller than the training size of 64 x 64" in _description(found, "Enlarged images")
    assert "removes more than 40 % of 60 of the 60 images" in _description(found, "Cropped images")
    assert not {"Enlarged images", "Cropped images"} & set(_titles_with_files(found, 3))
    assert {"Enlarged images", "Cropped images"} <= set(_titles_with_files(found, 4))
    upright = _audit_photos(tmp_path, image_size=[90, 24])
    assert not {"Enlarged images", "Cropped images"} & {finding.title for finding in upright.findings}


def test_a_folder_without_readable_images_is_reported(tmp_path):
    for name in ("ant", "bee"):
        for path in _fill(tmp_path / "photos" / name, 4):
            path.write_text("no image")
    found = _audit_photos(tmp_path)
    assert [finding.title for finding in found.findings[:2]] == ["Unusable classes", "Unusable files"]
    assert "8 files (no image: 8), such as" in found.findings[1].description
    assert found.findings[1].description.endswith(" and 5 more")
    assert (found.images, found.pairs) == (0, ())


def test_an_audit_counts_synthetic_images_and_does_not_search_for_pairs(tmp_path):
    few = {"data.source": "synthetic", "data.synthetic.train_images": 40, "data.synthetic.test_images": 20}
    found = vc.audit(overrides=few, output=tmp_path, quiet=True)
    assert (found.pairs, found.files, found.images) == (None, (), 60)


def test_impossible_audits_are_refused_with_the_reason(root, given, tmp_path):
    with pytest.raises(InputError, match=r"no such folder; --data\.root PATH"):
        vc.audit(overrides={"data.root": str(tmp_path / "none")}, output=tmp_path / "out", quiet=True)
    with pytest.raises(InputError, match="is inside the folder of images; choose another place with --output"):
        vc.audit(overrides=given, output=root / "audit", quiet=True)


def test_classes_that_differ_only_in_case_or_unicode_form_are_reported():
    names = ("Cat", "cat", "Caf\u00e9", "Cafe\u0301", "dog")
    audit = Audit(
        source="table", root="", folds=0, image_size=(5, 7), resize=None, skips_unreadable=False,
        counts={"train": dict.fromkeys(names, 40), "test": dict.fromkeys(names, 40)}, files=(), class_of={},
        problems=(), blank=(), pairs=None, pictures=(),
    )  # fmt: skip
    (finding,) = [one for one in audit.findings if one.title == "Similar class names"]
    assert finding.description.startswith(r"'Cat' and 'cat', 'Caf\xe9' and 'Cafe\u0301' differ only in case")


def test_audits_of_different_images_have_different_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("a/photos", "b/photos"):
        write_images(Path(place), (f"{name}/{number}.png" for name in ("ant", "bee") for number in range(3)))
    cache = {"data.folder.cache": "cache"}
    pages = [vc.audit(overrides={"data.root": place, **cache}, quiet=True).page for place in ("a/photos", "b/photos")]
    given = {"data.root": str(tmp_path / "a/photos"), "name": "mine", **cache}
    pages.append(vc.audit(overrides=given, quiet=True).page)
    assert pages == [Path("audit", name, "index.html") for name in ("a-photos", "b-photos", "mine")]
