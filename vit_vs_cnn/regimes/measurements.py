"""What an analysis stands on: accuracies by contender, training size and seed, and which images were right."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.answers import Answers
from vit_vs_cnn.runs.record import load_run_predictions
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.statistics.measurements import Measurements


def in_order(results: Sequence[RunResult]) -> list[RunResult]:
    """Results by contender, size and seed.

    Raises:
        InputError: there are none.
    """
    if not results:
        raise InputError("results: there are none to analyse")
    return sorted(results, key=lambda result: result.coordinates)


def measurements_of(results: Sequence[RunResult], correct: Mapping[str, np.ndarray] | None = None) -> Measurements:
    """Results laid out by contender, size and seed.

    Arguments:
        correct: by name of the run, whether each test image is classified rightly.

    Raises:
        InputError: two results of one cell, or ``correct`` that does not fit.
    """
    contenders = tuple(dict.fromkeys(r.contender for r in results))
    sizes = tuple(sorted({r.train_size for r in results}))
    seeds = tuple(sorted({r.seed for r in results}))
    accuracy = np.full((len(contenders), len(sizes), len(seeds)), np.nan)
    images = np.full_like(accuracy, np.nan)
    hits = _empty_hits(results, correct, accuracy.shape)
    for result in results:
        place = (
            contenders.index(result.contender),
            sizes.index(result.train_size),
            seeds.index(result.seed),
        )
        if not np.isnan(accuracy[place]):
            raise InputError(f"results: {' '.join(map(str, result.coordinates))} is there twice")
        accuracy[place], images[place] = result.accuracy, result.scores.scored_images
        if hits is not None and correct is not None:
            hits[place] = correct[result.run]
    return Measurements(contenders, sizes, seeds, accuracy, images, hits)


def _empty_hits(
    results: Sequence[RunResult], correct: Mapping[str, np.ndarray] | None, shape: tuple[int, ...]
) -> np.ndarray | None:
    """Room for all predictions, or None where they are unknown."""
    if correct is None:
        return None
    for result in results:
        hits = correct.get(result.run)
        if hits is None:
            raise InputError(f"predictions of {result.run}: there are none; give those of every result, or none at all")
        if hits.shape != (result.scores.scored_images,) or abs(float(hits.mean()) - result.accuracy) > 1e-6:
            raise InputError(f"predictions of {result.run} are not those that gave its accuracy")
    counts = {r.scores.scored_images for r in results}
    if len(counts) > 1:
        raise InputError(f"predictions: all cells must have the same test images, but there are {sorted(counts)}")
    return np.zeros((*shape, counts.pop()), dtype=bool)


def load_answers(folder: Path, results: Sequence[RunResult]) -> Answers:
    """Read the predictions of finished cells.

    Raises:
        InputError: a file that can't be read, or cells with other numbers of classes.
    """
    first, correct, counts, named, same = None, {}, [], {}, True
    for result in results:
        said = load_run_predictions(folder, result.run)
        first = first or said
        same = same and all(np.array_equal(said[name], first[name]) for name in ("labels", "sample_ids"))
        classes = int(said["num_classes"])
        if classes != first["num_classes"]:
            raise InputError(f"predictions of {result.run} are of another number of classes than the others")
        correct[result.run] = said["classes"] == said["labels"]
        counts.append(np.bincount(said["labels"], minlength=classes))
        named[result.run.rpartition("-")[0] or result.run] = len(np.unique(said["classes"]))  # without its hash
    return Answers(counts[0] if same else np.sum(counts, axis=0), named, correct if same else None)
