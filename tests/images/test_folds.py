"""Without a test set, each seed is tested on another fold of the images."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vit_vs_cnn as vc
from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.config.experiment import Data
from vit_vs_cnn.config.schema import Tuning
from vit_vs_cnn.data.options import FolderOptions
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.images.near_duplicates import find_near_duplicates
from vit_vs_cnn.reporting.findings import read_findings
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import load_run_predictions
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.test_set_log import TestSetLog, summarize_log

CLASSES = {"ant": 31, "bee": 23, "cat": 17}
SEEDS = (0, 1, 7)


def _photos(root: Path) -> Path:
    """Images of noise; one of every class is there twice."""
    draw = np.random.default_rng(3)
    for name, count in CLASSES.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            image = Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            image.save(root / name / f"{name}{number % 9}_{number}.png")
        image.save(root / name / f"{name}8_copy.png")
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return _photos(tmp_path_factory.mktemp("folds") / "photos")


def _data(photos: Path, **options) -> Data:
    folder = FolderOptions(image_size=16, cache=photos.parent / "cache", **options)
    return Data(source="folder", root=str(photos), folder=folder, validation_fraction=0.2)


def _names(*parts) -> set[str]:
    return {str(name) for part in parts for name in part.sample_ids}


@pytest.mark.parametrize("group", [None, "^([a-z]+[0-9]+)_"])
def test_every_image_is_in_one_fold_which_a_seed_uses_for_testing_only(photos, group):
    pool = ExperimentData(_data(photos, group=group))
    assert [pool.fold(seed) for seed in (*range(7), -1)] == [0, 1, 2, 3, 4, 0, 1, 4]
    tests = [_names(pool.test(fold)) for fold in range(5)]
    assert sum(map(len, tests)) == len(set.union(*tests)) == len(pool.images) == 74
    for seed in SEEDS:
        smaller: tuple[set[str], set[str]] = set(), set()
        for size in (25, 40, pool.largest):
            run_images = pool.draw(size, seed)
            used = _names(run_images.training), _names(run_images.validation)
            assert len(used[0]) + len(used[1]) == size and not used[0] & used[1]
            assert abs(len(used[1]) / size - 0.2) < 0.05
            assert not (used[0] | used[1]) & tests[seed % 5]
            assert smaller[0] <= used[0] and smaller[1] <= used[1]
            smaller = used
            if group is not None:
                parts = [{*part.groups} for part in (run_images.training, run_images.validation, pool.test(seed))]
                assert sum(map(len, parts)) == len(set.union(*parts))
    first, second = (_names(pool.draw(pool.largest, seed).validation) for seed in (0, 5))  # on the same folds
    assert first != second


@pytest.mark.parametrize("group", [None, "^([a-z]+[0-9]+)_"])
def test_copies_of_an_image_are_in_one_fold_and_not_in_training_and_validation_images(tmp_path, group):
    """Equal bytes in one class and in two classes, and equal pixels in files of two formats."""
    photos = _photos(tmp_path / "photos")
    for number in range(6):
        shutil.copy(photos / "bee" / "bee1_1.png", photos / "bee" / f"bee{number}_100.png")
        shutil.copy(photos / "bee" / "bee2_2.png", photos / "cat" / f"cat{number}_100.png")
        Image.open(photos / "ant" / "ant3_3.png").save(photos / "bee" / f"bee{number}_101.bmp")
    pool = ExperimentData(_data(photos, group=group))
    assert len({value for fold in range(5) for value in pool.test(fold).hashes()}) == sum(CLASSES.values())
    for seed in SEEDS:
        run_images = pool.draw(pool.largest, seed)
        parts = [{*part.hashes().tolist()} for part in (run_images.training, run_images.validation, pool.test(seed))]
        assert sum(map(len, parts)) == len(set.union(*parts))
    if group is None:
        assert max(len(pool.test(fold)) for fold in range(5)) - min(len(pool.test(fold)) for fold in range(5)) < 5


def test_a_class_of_copies_of_one_image_is_refused(tmp_path):
    photos = _photos(tmp_path / "photos")
    for path in (photos / "ant").iterdir():
        shutil.copy(photos / "bee" / "bee1_1.png", path)
    with pytest.raises(InputError, match="class 'ant' has only copies of one image or group, and needs at least 2"):
        ExperimentData(_data(photos)).test(0)


def test_each_fold_has_a_name_and_the_fingerprint_depends_on_split_options(photos):
    pool = ExperimentData(_data(photos))
    assert len({pool.test_set(seed) for seed in range(10)}) == 5
    assert all(pool.test_set(seed).startswith(pool.fingerprint) for seed in range(5))
    changes = {"split_seed": 1}, {"test_fraction": 0.25}, {"group": "^([a-z]+[0-9]+)_"}
    others = {ExperimentData(_data(photos, **change)).fingerprint for change in changes}
    assert len({pool.fingerprint, *others}) == 4


def test_all_seeds_use_the_first_fold_if_recipes_are_searched_or_validation_images_scored(photos):
    data = _data(photos)
    experiment = replace(tiny_experiment(Path("runs")), data=data)
    searched = ExperimentData.from_experiment(replace(experiment, tuning=Tuning(trials=2)))
    validated = ExperimentData(data, "validation")
    assert ExperimentData.from_experiment(experiment).rotates
    for pool in (searched, validated):
        assert [pool.fold(seed) for seed in SEEDS] == [None] * 3
        for seed in SEEDS:
            run_images = pool.draw(pool.largest, seed)
            assert _names(pool.test(seed)) == _names(ExperimentData(data).test(0))
            assert not _names(run_images.training, run_images.validation) & _names(pool.test(seed))
    assert searched.fingerprint == f"{validated.fingerprint}-{searched.test(0).fingerprint()}"


def test_a_fold_without_readable_images_is_named(tmp_path):
    photos = _photos(tmp_path / "photos")
    for copy in photos.rglob("*_copy.png"):
        copy.unlink()
    listing = ExperimentData(_data(photos)).source.listing
    for name, fold in zip(listing.names, listing.folds, strict=True):
        if fold == 3:
            (photos / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"photos: .*no image of test fold 3 can be read"):
        ExperimentData(_data(photos, skip_unreadable=True)).test(0)


# An experiment with three seeds


@pytest.fixture(scope="module")
def trained(photos):
    """The folder of an experiment of two models with seeds on folds 0, 1 and 2."""
    experiment = tiny_experiment(photos.parent / "runs", train_sizes=["all"], seeds=list(SEEDS), budget={"steps": 2})
    found = vc.train(replace(experiment, data=_data(photos)), quiet=True)
    assert found is not None and found.page is not None
    return found.folder


def _results(folder: Path) -> list[RunResult]:
    return list(read_finished_results(folder).values())


def test_runs_of_one_seed_share_a_fold_and_all_share_a_fingerprint(trained, photos):
    results, pool = _results(trained), ExperimentData(_data(photos))
    assert {(result.seed, result.data.fold) for result in results} == {(0, 0), (1, 1), (7, 2)}
    assert {result.data.fingerprint for result in results} == {pool.fingerprint}
    assert {(result.seed, result.test_set) for result in results} == {(seed, pool.test_set(seed)) for seed in SEEDS}
    for result in results:
        assert load_run_predictions(trained, result.run)["sample_ids"].tolist() == pool.test(result.seed).sample_ids
        assert RunResult.from_row(result.to_row(), "row") == result


def test_each_fold_has_a_log_and_the_report_counts_all(trained):
    for result in _results(trained):
        log = TestSetLog(trained.parent, str(result.test_set)).read()
        assert len(log) == 2 and result.scores.log_entry in {entry.hash for entry in log}
    account = summarize_log(trained, _results(trained)[0].test_set)
    assert account.problem is None
    assert account.text == "Logs of the 3 test folds: 6 evaluations of 6 networks, each once."
    page = (trained / "report" / "index.html").read_text()
    assert account.text in page and "Accuracy by class" in page


def test_networks_are_compared_on_the_folds_of_their_seeds(trained, tmp_path):
    parts = ["accuracy", "similarity", "differences"]
    found = vc.compare(trained, parts=parts, output=tmp_path / "compared", quiet=True)
    by_run = {(result.model, result.seed): result for result in _results(trained)}
    rows = found.frame().to_dict("records")
    expected = {f"{name}-s{seed}": result.accuracy for (name, seed), result in by_run.items()}
    assert {row["network"]: row["accuracy"] for row in rows} == expected
    assert found.images == 45
    (pair,) = found.accuracy.pairs
    report = read_findings(trained).analysis.comparisons[0]
    assert pair.caveat == report.caveat and pair.seeds == 3
    assert pair.p_value == pytest.approx(report.p_value)
    assert found.similarity_images == 15
    (note,) = (note for note in found.notes if "tested on" in note)
    assert "tested on 3 folds" in note and "of one fold: 15 images, vit-s0 and resnet-s0" in note
    assert note in (tmp_path / "compared" / "index.html").read_text()


def test_networks_without_a_common_fold_are_not_compared(trained):
    runs = {(result.model, result.seed): run for run, result in read_finished_results(trained).items()}
    with pytest.raises(InputError, match="are tested on different folds of the images and cannot be compared; take ne"):
        vc.compare(runs["vit", 0], runs["resnet", 1], parts=["accuracy"], quiet=True)
    with pytest.raises(InputError, match="are tested on different folds of the images; take networks of the same seed"):
        vc.inspect(runs["vit", 0], runs["resnet", 1], quiet=True)
    found = vc.compare(runs["vit", 0], runs["resnet", 0], parts=["accuracy"], quiet=True)
    assert found.images == 15 and not any("tested on" in note for note in found.notes)


def test_near_duplicates_are_searched_in_the_fold_of_each_run(trained, photos):
    results, pool = _results(trained), ExperimentData(_data(photos))
    found = find_near_duplicates(trained, results)
    assert set(found.by_subset) == {f"{result.data.subset}fold{result.data.fold}" for result in results}
    for result in results:
        run_images = pool.draw(result.train_size, result.seed)
        used = {*run_images.training.hashes().tolist(), *run_images.validation.hashes().tolist()}
        is_used = [value in used for value in pool.test(result.seed).hashes().tolist()]
        assert (~found.clean(result)).tolist() == is_used
    assert json.loads((trained / "near_duplicates.json").read_text())["test_images"] == 15
