"""Test images of an experiment with near-duplicates among the training and validation images of its runs."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from vit_vs_cnn.bounds import AT_LEAST_1, Bounds, check_numbers
from vit_vs_cnn.data.near_duplicates import ALGORITHM_VERSION, near_duplicate_pairs, resize_for_comparison
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.images.experiment_data import ExperimentData, open_experiment_data
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.runs.result import RunResult, ScoredOn, fold_name
from vit_vs_cnn.typed_values import build

FILE_NAME = "near_duplicates.json"


#: Test image, training image, similarity, and the class of each.
PairRow = tuple[str, str, float, str, str]


@dataclass(frozen=True)
class NearDuplicates:
    """Near-duplicates between the test images and the images that runs used, validation images included.

    Arguments:
        fingerprint: hash of all images.
        test_images: number of test images of a run. If the test folds differ in size, the largest number.
        by_subset: indices of the test images that have a near-duplicate. Each key is the hash of the images that a run
            used, with the number of its test fold if there are folds.
        method: version of the search.
        pairs: near-duplicates that were found.
    """

    fingerprint: str
    test_images: int
    by_subset: dict[str, list[int]]
    method: int
    pairs: list[PairRow]

    def __post_init__(self) -> None:
        """Raises InputError: an index that is not one of the test images."""
        check_numbers(vars(self), test_images=AT_LEAST_1)
        places = Bounds(at_least=0, below=self.test_images, is_whole=True)
        for name, indices in self.by_subset.items():
            for index in indices:
                check_numbers({name: index}, **{name: places})

    def clean(self, result: RunResult) -> Bool[np.ndarray, "test_images"]:
        """Mask of the test images of a run without a near-duplicate in its subset."""
        mask = np.ones(result.scores.scored_images, dtype=bool)
        mask[self.by_subset[_subset_name(result)]] = False
        return mask


def find_near_duplicates(
    folder: Path, results: Sequence[RunResult], pool: ExperimentData | None = None
) -> NearDuplicates:
    """Search for near-duplicates, or read what an earlier search stored in the folder of the experiment.

    Raises:
        InputError: missing or different images, or runs that were not scored on test images.
    """
    if (reason := reason_not_searched(results)) is not None:
        raise InputError(reason)
    if (stored := read_near_duplicates(folder, results)) is not None:
        return stored
    pool = open_experiment_data(folder, results[0].data) if pool is None else pool
    by_subset: dict[str, list[int]] = {}
    pair_rows: list[PairRow] = []
    groups = [*group_by(results, lambda result: result.test_set).values()]
    for group in groups:
        different = {_subset_name(result): result for result in group}
        test, subsets = pool.test(group[0].seed), {name: _subset(pool, result) for name, result in different.items()}
        used = torch.cat(list(subsets.values())).unique()
        parts = (test, pool.images.subset(used))
        queries, others = (
            resize_for_comparison(p.batches(p.limit_batch(500))) if p.is_large else p.images for p in parts
        )
        near = near_duplicate_pairs(queries, others)
        train = used[near.train]
        for name, indices in subsets.items():
            by_subset[name] = near.test[torch.isin(train, indices)].unique().tolist()
        for first, second, similarity in zip(near.test.tolist(), train.tolist(), near.similarity.tolist(), strict=True):
            names = str(test.sample_ids[first]), str(pool.images.sample_ids[second])
            classes = [test.class_names[int(part.labels[row])] for part, row in ((test, first), (pool.images, second))]
            pair_rows.append((*names, round(float(similarity), 3), classes[0], classes[1]))
    near_duplicates = NearDuplicates(
        fingerprint=pool.fingerprint,
        test_images=max(len(pool.test(group[0].seed)) for group in groups),
        by_subset=dict(sorted(by_subset.items())),
        method=ALGORITHM_VERSION,
        pairs=pair_rows,
    )
    with contextlib.suppress(OSError):  # a read-only disk
        write_text(folder / FILE_NAME, json.dumps(asdict(near_duplicates)) + "\n")
    return near_duplicates


def reason_not_searched(results: Sequence[RunResult]) -> str | None:
    """Reason why there cannot be near-duplicates, without a full stop; None if there may be some."""
    if any(result.scores.scored_on is not ScoredOn.TEST for result in results):
        return "No test image has been used, so near-duplicates were not searched for"
    if any(result.data.source == "synthetic" for result in results):
        return "All images are synthetic, so there are no near-duplicates"
    return None


def read_near_duplicates(folder: Path, results: Sequence[RunResult]) -> NearDuplicates | None:
    """Stored result of an earlier search for these images and all these subsets; None if it is missing or unusable."""
    try:
        stored = build(NearDuplicates, read_mapping(folder / FILE_NAME))
    except InputError:
        return None
    is_same = stored.method == ALGORITHM_VERSION and {r.data.fingerprint for r in results} == {stored.fingerprint}
    is_same &= max(result.scores.scored_images for result in results) == stored.test_images
    names = {_subset_name(result): result.scores.scored_images for result in results}
    is_whole = all(max(stored.by_subset.get(name, [count]), default=-1) < count for name, count in names.items())
    return stored if is_same and is_whole else None


def _subset_name(result: RunResult) -> str:
    """Hash of the subset of a run, with its fold: few images may be the same in two folds."""
    subset, fold = result.data.subset, result.data.fold
    return subset if fold is None else fold_name(subset, fold)


def _subset(pool: ExperimentData, result: RunResult) -> Int64[Tensor, "used"]:
    """Indices of the images that a run used. Raises InputError: they differ from the recorded ones."""
    images = pool.draw(result.train_size, result.seed)
    if images.subset_hash != result.data.subset:
        raise InputError(
            f"the runs were trained on another subset of {result.train_size} images with seed {result.seed}"
        )
    return images.places
