"""What an analysis stands on: accuracies by contender, training size and seed, and which images were right."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.answers import Answers
from vit_vs_cnn.runs.record import load_run_predictions
from vit_vs_cnn.statistics.measurements import Measurements


def in_order(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Results by contender, size and seed, each checked to have what an analysis needs.

    Raises:
        InputError: no result, or one that lacks a value.
    """
    if not results:
        raise InputError("results: there are none to analyse")
    for result in results:
        name = result.get("cell", result.get("contender", "?"))
        if missing := [k for k in ("contender", "train_size", "accuracy", "scored_images") if k not in result]:
            raise InputError(f"result {name}: it has no {missing[0]}")
        if not 0 <= result["accuracy"] <= 1:
            raise InputError(f"result {name}: accuracy {result['accuracy']} must be from 0 to 1")
    return sorted(results, key=coordinates)


def by_network(results: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    """The results of each contender and size, in the order in which they come."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for result in results:
        found.setdefault(coordinates(result)[:2], []).append(result)
    return found


def measurements_of(
    results: Sequence[Mapping[str, Any]], correct: Mapping[str, np.ndarray] | None = None
) -> Measurements:
    """Results laid out by contender, size and seed.

    Arguments:
        results: each with contender, train_size, accuracy, scored_images, and seed (0 if absent).
        correct: by the result's ``cell``, whether each test image is classified rightly.

    Raises:
        InputError: two results of one cell, or ``correct`` that does not fit.
    """
    contenders = tuple(dict.fromkeys(str(r["contender"]) for r in results))
    sizes = tuple(sorted({int(r["train_size"]) for r in results}))
    seeds = tuple(sorted({int(r.get("seed", 0)) for r in results}))
    accuracy = np.full((len(contenders), len(sizes), len(seeds)), np.nan)
    images = np.full_like(accuracy, np.nan)
    hits = _empty_hits(results, correct, accuracy.shape)
    for result in results:
        place = (
            contenders.index(str(result["contender"])),
            sizes.index(int(result["train_size"])),
            seeds.index(int(result.get("seed", 0))),
        )
        if not np.isnan(accuracy[place]):
            raise InputError(f"results: {' '.join(map(str, coordinates(result)))} is there twice")
        accuracy[place], images[place] = result["accuracy"], result["scored_images"]
        if hits is not None and correct is not None:
            hits[place] = correct[result["cell"]]
    return Measurements(contenders, sizes, seeds, accuracy, images, hits)


def coordinates(result: Mapping[str, Any]) -> tuple[str, int, int]:
    """Contender, training size and seed of a result."""
    return str(result["contender"]), int(result["train_size"]), int(result.get("seed", 0))


def _empty_hits(
    results: Sequence[Mapping[str, Any]], correct: Mapping[str, np.ndarray] | None, shape: tuple[int, ...]
) -> np.ndarray | None:
    """Room for all predictions, or None where they are unknown."""
    if correct is None:
        return None
    for result in results:
        hits, cell = correct.get(result.get("cell", "")), result.get("cell", coordinates(result))
        if hits is None:
            raise InputError(f"predictions of {cell}: there are none; give those of every result, or none at all")
        if hits.shape != (result["scored_images"],) or abs(float(hits.mean()) - result["accuracy"]) > 1e-6:
            raise InputError(f"predictions of {cell} are not those that gave its accuracy")
    counts = {int(r["scored_images"]) for r in results}
    if len(counts) > 1:
        raise InputError(f"predictions: all cells must have the same test images, but there are {sorted(counts)}")
    return np.zeros((*shape, counts.pop()), dtype=bool)


def results_of_table(accuracies: Mapping[str, Mapping[int, float]], *, scored_images: int) -> list[dict[str, Any]]:
    """Results of a published table with one run per place: ``{contender: {train size: accuracy from 0 to 1}}``.

    Arguments:
        scored_images: test images, for their share of the error.
    """
    return [
        {"contender": contender, "train_size": size, "seed": 0, "accuracy": value, "scored_images": scored_images}
        for contender, row in accuracies.items()
        for size, value in row.items()
    ]


def load_answers(folder: Path, results: Sequence[Mapping[str, Any]]) -> Answers:
    """Read the predictions of finished cells.

    Raises:
        InputError: a file that can't be read, or cells with other numbers of classes.
    """
    first, correct, counts, named, same = None, {}, [], {}, True
    for result in results:
        said = load_run_predictions(folder, result["cell"])
        first = first or said
        same = same and all(np.array_equal(said[name], first[name]) for name in ("labels", "sample_ids"))
        classes = int(said["num_classes"])
        if classes != first["num_classes"]:
            raise InputError(f"predictions of {result['cell']} are of another number of classes than the others")
        correct[result["cell"]] = said["classes"] == said["labels"]
        counts.append(np.bincount(said["labels"], minlength=classes))
        named[result["cell"].rpartition("-")[0] or result["cell"]] = len(np.unique(said["classes"]))  # without its hash
    return Answers(counts[0] if same else np.sum(counts, axis=0), named, correct if same else None)
