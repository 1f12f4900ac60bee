import json
import shutil

import numpy as np
import pytest
import yaml
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.experiments.tiny import tiny_config
from tests.results import make_result
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.images.near_duplicates import FILE_NAME, find_near_duplicates, read_near_duplicates, reason_not_searched

SIDE, LEAKED = 48, 3
#: Training image of which each leaked test image is a copy.
ORIGINALS = {f"test/{name}/leak{i}.jpg": f"train/{name}/{10 + i}.png" for name in ("china", "flower") for i in range(3)}


@pytest.fixture
def experiment(tmp_path):
    """Two classes of tiles; three test images of each are training images, re-encoded."""
    root = tmp_path / "photos"
    for name, photo in zip(("china", "flower"), load_sample_images().images, strict=True):
        tiles = [photo[r : r + SIDE, c : c + SIDE] for r in range(0, 384, SIDE) for c in range(0, 576, SIDE)]
        tiles = [tile for tile in tiles if tile.std() > 30]
        for number, tile in enumerate(tiles[:23]):
            split = "test" if number < 7 else "train"
            (root / split / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(tile).save(root / split / name / f"{number}.png")
        for number in range(LEAKED):
            Image.fromarray(tiles[10 + number]).save(root / "test" / name / f"leak{number}.jpg", quality=85)
    values = tiny_config(tmp_path / "runs")
    folder = {"image_size": 32, "cache": str(tmp_path / "cache")}
    values["data"] |= {"source": "folder", "root": str(root), "folder": folder}
    made = experiment_from_dict(values)
    made.folder.mkdir(parents=True)
    (made.folder / "experiment.yaml").write_text(yaml.safe_dump(made.to_dict()))
    return made


def _results(pool: ExperimentData, sizes=(8, 32)):
    common = {"source": "folder", "fingerprint": pool.fingerprint}
    places = [(n, seed) for n in sizes for seed in (0, 1)]
    subsets = {place: pool.draw(*place).subset_hash for place in places}
    counts = {seed: len(pool.test(seed)) for seed in (0, 1)}
    return [
        make_result(train_size=n, seed=s, subset=subsets[n, s], scored_images=counts[s], **common) for n, s in places
    ]


def test_only_leaked_images_of_the_subset_are_found_and_named_with_their_labels(experiment):
    pool = ExperimentData(experiment.data)
    results = _results(pool)
    found = find_near_duplicates(experiment.folder, results)
    names = pool.test(0).sample_ids
    for result in results:
        run_images = pool.draw(result.train_size, result.seed)
        used = {*run_images.training.sample_ids, *run_images.validation.sample_ids}
        leaked = [name for name in names if ORIGINALS.get(name) in used]
        assert [name for name, is_clean in zip(names, found.clean(result), strict=True) if not is_clean] == leaked
    assert len(leaked) == len(ORIGINALS)
    assert {test: train for test, train, *_ in found.pairs} == ORIGINALS
    assert all(first == second == test.split("/")[1] for test, _, _, first, second in found.pairs)
    assert all(0.95 <= similarity <= 1 for _, _, similarity, *_ in found.pairs)


def test_the_result_is_stored_and_used_without_the_images(experiment, tmp_path):
    results = _results(ExperimentData(experiment.data))
    first = find_near_duplicates(experiment.folder, results)
    shutil.rmtree(tmp_path / "photos")
    assert find_near_duplicates(experiment.folder, results) == first


def test_a_new_subset_is_searched_and_added_to_the_stored_result(experiment):
    pool = ExperimentData(experiment.data)
    first = find_near_duplicates(experiment.folder, _results(pool, (8,)))
    assert first.by_subset.items() < find_near_duplicates(experiment.folder, _results(pool)).by_subset.items()
    assert json.loads((experiment.folder / FILE_NAME).read_text())["test_images"] == 20


def test_a_stored_result_that_is_unusable_or_of_another_method_version_is_searched_again(experiment):
    results = _results(ExperimentData(experiment.data), (8,))
    first = find_near_duplicates(experiment.folder, results)
    path = experiment.folder / FILE_NAME
    stored = json.loads(path.read_text())
    subsets = [dict.fromkeys(stored["by_subset"], each) for each in ([-1], [20], [0.5], ["0"], "0", None, [[0]])]
    for change in (
        *({"by_subset": indices} for indices in (*subsets, {})),
        *({"test_images": count} for count in (0, 19, 10**400, "20", None, -20)),
        *({"pairs": [pair]} for pair in (["a"], ["a", "b", "c", "d", "e"], [None] * 5, 3)),
        *({"fingerprint": []}, {"method": "1"}, {"method": 1}, {"unknown": 1}),
    ):
        path.write_text(json.dumps(stored | change))
        assert read_near_duplicates(experiment.folder, results) is None, change
    path.write_text("[" * 100_000)
    assert find_near_duplicates(experiment.folder, results) == first


def test_missing_or_different_images_are_reported(experiment, tmp_path):
    results = _results(ExperimentData(experiment.data))
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(next((tmp_path / "photos" / "train" / "china").iterdir()))
    with pytest.raises(InputError, match="are not those that the runs were trained and tested on"):
        find_near_duplicates(experiment.folder, results)
    shutil.rmtree(tmp_path / "photos")
    with pytest.raises(InputError, match="no such folder"):
        find_near_duplicates(experiment.folder, results)


def test_the_reason_for_no_search_is_reported():
    assert "No test image has been used" in reason_not_searched([make_result(scored_on="validation")])
    assert "are synthetic" in reason_not_searched([make_result(source="synthetic")])
    assert reason_not_searched([make_result(source="cifar10")]) is None
