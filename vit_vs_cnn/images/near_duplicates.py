"""Test images of an experiment with near-duplicates among the training and validation images of its runs."""

import contextlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from vit_vs_cnn.bounds import AT_LEAST_1, Bounded, Bounds, check_numbers
from vit_vs_cnn.data.near_duplicates import ALGORITHM_VERSION, near_duplicate_pairs
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
class NearDuplicates(Bounded):
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
    test_images: Annotated[int, AT_LEAST_1]
    by_subset: dict[str, list[int]]
    method: int
    pairs: list[PairRow]

    def __post_init__(self) -> None:
        """Raises InputError: an index that is not one of the test images."""
        super().__post_init__()
        places = Bounds(at_least=0, below=self.test_images, is_whole=True)
        for index in itertools.chain(*self.by_subset.values()):
            check_numbers({"by_subset": index}, by_subset=places)

    def clean(self, result: RunResult) -> Bool[np.ndarray, "test_images"]:
        """Mask of the test images of a run without a near-duplicate in its subset."""
        mask = np.ones(result.scores.scored_images, dtype=bool)
        mask[self.by_subset[fold_name(result.data.subset, result.data.fold)]] = False
        return mask


def find_near_duplicates(folder: Path, results: Sequence[RunResult]) -> NearDuplicates:
    """Search for near-duplicates, or read what an earlier search stored in the folder of the experiment.

    ``reason_not_searched`` of the results must be None. Raises InputError: images are missing or have changed.
    """
    if (stored := read_near_duplicates(folder, results)) is not None:
        return stored
    pool = open_experiment_data(folder, results[0].data)
    by_subset: dict[str, list[int]] = {}
    pairs: list[PairRow] = []
    for group in group_by(results, lambda result: result.test_set).values():
        test, images = pool.test(group[0].seed), pool.images
        by_name = {fold_name(result.data.subset, result.data.fold): result for result in group}
        subsets = {name: _subset(pool, result) for name, result in by_name.items()}
        all_used = torch.cat(list(subsets.values())).unique()
        near = near_duplicate_pairs(test, images.subset(all_used))
        train = all_used[near.train]
        by_subset |= {name: near.test[torch.isin(train, used)].unique().tolist() for name, used in subsets.items()}
        for first, second, similarity in zip(near.test.tolist(), train.tolist(), near.similarity.tolist(), strict=True):
            names = str(test.sample_ids[first]), str(images.sample_ids[second])
            classes = test.class_names[int(test.labels[first])], test.class_names[int(images.labels[second])]
            pairs.append((*names, round(float(similarity), 3), *classes))
    count, by_subset = max(result.scores.scored_images for result in results), dict(sorted(by_subset.items()))
    near_duplicates = NearDuplicates(pool.fingerprint, count, by_subset, ALGORITHM_VERSION, pairs)
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
    names = {fold_name(result.data.subset, result.data.fold): result.scores.scored_images for result in results}
    is_whole = all(max(stored.by_subset.get(name, [count]), default=-1) < count for name, count in names.items())
    return stored if is_same and is_whole else None


def _subset(pool: ExperimentData, result: RunResult) -> Int64[Tensor, "used"]:
    """Indices of the images that a run used. Raises InputError: they differ from the recorded ones."""
    images = pool.draw(result.train_size, result.seed)
    if images.subset_hash != result.data.subset:
        size, seed = result.train_size, result.seed
        raise InputError(f"the runs were trained on another subset of {size} images with seed {seed}")
    return images.places
