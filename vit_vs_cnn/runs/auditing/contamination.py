"""Which test images of an experiment have a near-duplicate among the images that a cell used."""

import contextlib
import functools
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool
from PIL import Image

from vit_vs_cnn.data.images import LabelledImages, concatenate
from vit_vs_cnn.data.near_duplicates import (
    ALGORITHM_VERSION,
    DuplicatePairs,
    near_duplicate_pairs,
    to_comparison_size,
)
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text, written_whole
from vit_vs_cnn.runs.images import Pool, pool_of
from vit_vs_cnn.runs.result import RunResult, ScoredOn, fold_name

RECORD, PICTURE = "duplicates.json", "duplicates.png"
_SHOWN, _COLUMNS, _GAP = 24, 6, 4


@dataclass(frozen=True)
class Contamination:
    """Near-duplicates between the test images and what cells used, training and validation images alike.

    Arguments:
        test_images: number of test images of a run; of several folds, of the largest.
        by_subset: for each subset (its hash, and its fold where there are folds), the places of the test images that
            have a near-duplicate in it.
        pairs: every pair found: names of test image and training image (for CIFAR with the index), the correlation of
            their detail, and their classes.
    """

    fingerprint: str
    test_images: int
    by_subset: dict[str, list[int]]
    method: int = 1
    pairs: list[tuple[str, str, float, str, str]] = field(default_factory=list)

    def covers(self, results: Sequence[RunResult]) -> bool:
        """Whether it speaks of these images and of every subset that the results used."""
        fingerprints = {result.data.fingerprint for result in results}
        return (
            self.method == ALGORITHM_VERSION
            and fingerprints == {self.fingerprint}
            and {_subset_name(r) for r in results} <= self.by_subset.keys()
        )

    def clean(self, result: RunResult) -> Bool[np.ndarray, "test_images"]:
        """Which test images of a run have no near-duplicate in its subset."""
        kept = np.ones(result.scores.scored_images, dtype=bool)
        kept[self.by_subset[_subset_name(result)]] = False
        return kept


def _subset_name(result: RunResult) -> str:
    """Hash of the subset of a run, with its fold: few images may be the same in two folds."""
    subset, fold = result.data.subset, result.data.fold
    return subset if fold is None else fold_name(subset, fold)


def contamination_of(folder: Path, results: Sequence[RunResult], pool: Pool | None = None) -> Contamination:
    """Look for near-duplicates, once: the outcome is kept in the experiment's folder, with a picture of some pairs.

    Arguments:
        pool: its images, where they are at hand already.

    Raises:
        InputError: the outcome is not there yet and neither are the images, or they are others than those of the run;
            or the cells were not scored on test images.
    """
    if (reason := reason_not_searched(results)) is not None:
        raise InputError(reason)
    if (known := stored_contamination(folder, results)) is not None:
        return known
    pool = _open(folder, results) if pool is None else pool
    searches = [_search(pool, of_fold) for of_fold in _by_test_set(results)]
    by_subset = {name: places for search in searches for name, places in search.by_subset.items()}
    test, found = functools.reduce(concatenate, (search.test for search in searches)), _joined(searches)
    contamination = Contamination(
        pool.fingerprint,
        max(len(search.test) for search in searches),
        dict(sorted(by_subset.items())),
        ALGORITHM_VERSION,
        _named(found, test, pool.images),
    )
    with contextlib.suppress(OSError):  # kept where that can be; on a disk that is only read it is found anew
        _draw(found, test, pool.images, folder / PICTURE)
        write_text(folder / RECORD, json.dumps(asdict(contamination)) + "\n")
    return contamination


def reason_not_searched(results: Sequence[RunResult]) -> str | None:
    """Why there are no near-duplicates to search for, a sentence without its end; None where there may be some."""
    if any(result.scores.scored_on is not ScoredOn.TEST for result in results):
        return "No test image has been used, so near-duplicates were not searched for"
    if any(result.data.source == "objects" for result in results):
        return "All images are synthetic, so there are no near-duplicates"
    return None


def stored_contamination(folder: Path, results: Sequence[RunResult]) -> Contamination | None:
    """What an earlier search found for these results; None where none is stored."""
    known = _read(folder / RECORD)
    return known if known is not None and known.covers(results) else None


def _read(path: Path) -> Contamination | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Contamination(**kept | {"pairs": [tuple(pair) for pair in kept.get("pairs", [])]})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _open(folder: Path, results: Sequence[RunResult]) -> Pool:
    """The images of the experiment, if they lie where they lay; nothing is downloaded for it."""
    pool = pool_of(folder, results[0].data)
    if {pool.fingerprint} != {result.data.fingerprint for result in results}:
        raise InputError(f"{pool.data.whence} is not what the cells were trained and tested on")
    return pool


@dataclass(frozen=True, eq=False)
class _Search:
    """Near-duplicates of the runs with one test set.

    Arguments:
        found: the pairs; training images by their places among all images.
    """

    test: LabelledImages
    found: DuplicatePairs
    by_subset: dict[str, list[int]]


def _by_test_set(results: Sequence[RunResult]) -> list[list[RunResult]]:
    groups: dict[str | None, list[RunResult]] = {}
    for result in results:
        groups.setdefault(result.test_set, []).append(result)
    return list(groups.values())


def _search(pool: Pool, results: Sequence[RunResult]) -> _Search:
    """Search the test images of some runs and all images that these used."""
    subsets: dict[str, torch.Tensor] = {}
    for (size, seed, name), result in sorted({(r.train_size, r.seed, r.data.subset): r for r in results}.items()):
        drawn = pool.draw(size, seed)
        if drawn.subset_hash != name:
            raise InputError(f"the subset of {size} images and seed {seed} is not what the cells were trained on")
        subsets[_subset_name(result)] = drawn.places
    used, test = torch.cat(list(subsets.values())).unique(), pool.test(results[0].seed)
    small = [
        to_comparison_size(one.batches()) if one.is_large else one.images for one in (test, pool.images.subset(used))
    ]
    near = near_duplicate_pairs(small[0], small[1])
    found = DuplicatePairs(near.test, used[near.train], near.similarity)
    places = {name: torch.nonzero(found.tests_matching(one, len(test)))[:, 0].tolist() for name, one in subsets.items()}
    return _Search(test, found, places)


def _joined(searches: Sequence[_Search]) -> DuplicatePairs:
    """All pairs, with the places of the test images in all test sets one after the other."""
    starts = itertools.accumulate((len(search.test) for search in searches), initial=0)
    tests = [search.found.test + start for search, start in zip(searches, starts, strict=False)]
    train, similarity = (
        torch.cat([getattr(search.found, name) for search in searches]) for name in ("train", "similarity")
    )
    return DuplicatePairs(torch.cat(tests), train, similarity)


def _named(found: DuplicatePairs, test: LabelledImages, used: LabelledImages) -> list[tuple[str, str, float, str, str]]:
    places = zip(found.test.tolist(), found.train.tolist(), found.similarity.tolist(), strict=True)
    return [
        (
            str(test.sample_ids[one]),
            str(used.sample_ids[other]),
            round(alike, 3),
            test.class_names[int(test.labels[one])],
            used.class_names[int(used.labels[other])],
        )
        for one, other, alike in places
    ]


def _draw(found: DuplicatePairs, test: LabelledImages, used: LabelledImages, path: Path) -> None:
    """Pairs side by side, test image on the left: evenly spread from the least alike to the most, no image twice."""
    path.unlink(missing_ok=True)
    if not len(found.test):
        return
    apart = _apart(found)
    chosen = [apart[round(i)] for i in np.linspace(0, len(apart) - 1, min(_SHOWN, len(apart)))]
    pairs = [torch.cat([test.take(found.test[i : i + 1]), used.take(found.train[i : i + 1])], dim=3)[0] for i in chosen]
    rows, cols = pairs[0].shape[1] + _GAP, pairs[0].shape[2] + 2 * _GAP
    sheet = np.full((-(-len(pairs) // _COLUMNS) * rows, min(_COLUMNS, len(pairs)) * cols, 3), 255, dtype=np.uint8)
    for number, pair in enumerate(pairs):
        top, left = number // _COLUMNS * rows, number % _COLUMNS * cols
        sheet[top : top + rows - _GAP, left : left + cols - 2 * _GAP] = pair.permute(1, 2, 0).numpy()
    with written_whole(path) as partial:
        Image.fromarray(sheet).save(partial, "PNG")


def _apart(found: DuplicatePairs) -> list[int]:
    """Pairs that have no image in common, the most alike chosen first; in ascending order of likeness."""
    seen: tuple[set[int], set[int]] = set(), set()
    kept = []
    for place in torch.argsort(found.similarity, descending=True, stable=True).tolist():
        pair = int(found.test[place]), int(found.train[place])
        if pair[0] not in seen[0] and pair[1] not in seen[1]:
            kept.append(place)
            seen[0].add(pair[0])
            seen[1].add(pair[1])
    return kept[::-1]
