"""Results of an experiment by model, training-set size and seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Shaped

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.mean_distribution import SeedScores, accuracy_interval
from vit_vs_cnn.statistics.variance import binomial_variance

#: A run failed if the validation accuracy of the model's next better run is higher by this share, plus this number of
#: standard errors. ``python -m benchmarks.calibration`` prints how often stable training is called unstable.
FAILURE_GAP, FAILURE_GAP_ERRORS = 0.12, 2.5
#: Model, training-set size and seed of a run.
Coordinates: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True)
class AccuracyPoint:
    """Accuracy of one model at one training-set size with one budget.

    Arguments:
        accuracy: mean over seeds. The interval covers new seeds and new test images; with one seed only new images.
        by_seed: accuracy of each seed.
    """

    model: str
    train_size: int
    budget: str
    accuracy: Estimate
    by_seed: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Measurements:
    """Results with one budget.

    Arguments:
        sizes: training-set sizes, validation images included, ascending.
        seeds: seeds in ascending order. Runs of different models are paired by seed.
        runs: scores of each run, those of one seed.
        validation: accuracy on validation images, and their number, of each run that recorded them.
        chance: accuracy of always predicting the most frequent class; None if unknown.
    """

    models: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    runs: Mapping[Coordinates, SeedScores]
    validation: Mapping[Coordinates, tuple[float, int]]
    uses_folds: bool = False
    chance: float | None = None

    def fold_train_size(self, size: int) -> int | None:
        """Number of training images at a size if seeds hold out different folds; None for a fixed test set."""
        return size if self.uses_folds else None

    def shared_seeds(self, size: int, *models: str) -> list[int]:
        """Seeds for which all of these models have a run at a size."""
        return [seed for seed in self.seeds if all((model, size, seed) in self.runs for model in models)]

    def scores(self, model: str, size: int, seeds: Sequence[int]) -> SeedScores:
        """Results of a model with these seeds, which must all exist."""
        return SeedScores.concatenate([self.runs[model, size, seed] for seed in seeds])

    def differences(self, first: str, second: str, seeds: Sequence[int]) -> dict[int, Float[np.ndarray, "seeds"]]:
        """Paired differences of accuracy by training-set size, for shared seeds.

        Sizes at which all runs of a model failed are left out, as runs at chance hardly vary. Other failed runs are
        included: without them, a model that fails at times would have too small a seed variance.
        """
        results = {}
        for size in self.sizes:
            shared = [seed for seed in self.shared_seeds(size, first, second) if seed in seeds]
            if shared and all(self.failed_seeds(model, size, shared) != shared for model in (first, second)):
                results[size] = (
                    self.scores(first, size, shared).accuracies - self.scores(second, size, shared).accuracies
                )
        return results

    def failed_seeds(self, model: str, size: int, seeds: Sequence[int] | None = None) -> list[int]:
        """Seeds of runs, by default of all, that ``failed_to_learn`` or are ``far_below_others``."""
        if not (seeds := self.shared_seeds(size, model) if seeds is None else seeds):
            return []
        scores, failed = self.scores(model, size, seeds), np.zeros(len(seeds), dtype=bool)
        if self.chance is not None:
            failed |= failed_to_learn(scores.accuracies, self.chance, scores.image_count)
        runs = [(model, size, seed) for seed in seeds]
        if all(run in self.validation for run in runs):
            accuracies, images = np.array([self.validation[run] for run in runs]).T
            failed |= far_below_others(accuracies, images)
        return [seed for seed, has_failed in zip(seeds, failed, strict=True) if has_failed]

    def points(self, budget: str) -> list[AccuracyPoint]:
        """Accuracy of every model at every size that it was trained with."""
        results = []
        for model in self.models:
            for size in self.sizes:
                if seeds := self.shared_seeds(size, model):
                    scores = self.scores(model, size, seeds)
                    interval = accuracy_interval(scores, fold_train_size=self.fold_train_size(size))
                    results.append(AccuracyPoint(model, size, budget, interval, tuple(scores.accuracies.tolist())))
        return results


def failed_to_learn(accuracies: Float[np.ndarray, "seeds"], chance: float, images: int) -> Bool[np.ndarray, "seeds"]:
    """Mask of runs that learned nothing: within two standard errors of always predicting the most frequent class.

    A run failed if its accuracy is at most chance + min(2 standard errors, half the distance from chance to 100 %). If
    the next better run of the model is at most 5 standard errors above these runs, none counts as failed: the task is
    hard, but training is stable.
    """
    error = float(np.sqrt(chance * (1 - chance) / images))
    failed = ~(accuracies > chance + min(2 * error, (1 - chance) / 2))
    if failed.all() or not failed.any():
        return failed
    gap = accuracies[~failed].min() - accuracies[failed].max()
    return failed if gap > 5 * error else np.zeros_like(failed)


def far_below_others(
    accuracies: Float[np.ndarray, "seeds"], images: Shaped[np.ndarray, "seeds"]
) -> Bool[np.ndarray, "seeds"]:
    """Mask of runs with a validation accuracy far below that of the model's next better run.

    The gap must exceed 12 points plus 2.5 standard errors of the difference of two runs.
    """
    failed, order = np.zeros(len(accuracies), dtype=bool), np.argsort(accuracies)
    error = np.sqrt(2 * binomial_variance(float(accuracies.mean()), int(images.min())))
    (large,) = np.nonzero(np.diff(accuracies[order]) > FAILURE_GAP + FAILURE_GAP_ERRORS * error)
    if len(large):
        failed[order[: large[-1] + 1]] = True
    return failed


def nothing_learned(first: SeedScores, second: SeedScores, chance: float | None) -> Caveat | None:
    """Caveat if neither mean accuracy is clearly better than always predicting the most frequent class."""
    means, images = np.array([first.accuracy, second.accuracy]), min(first.image_count, second.image_count)
    if chance is None or not failed_to_learn(means, chance, images).all():
        return None
    text = "neither is clearly better than always predicting the most frequent class"
    return Caveat(CaveatKind.NOTHING_LEARNED, text)


def measure(
    results: Sequence[RunResult],
    correct: Mapping[str, Bool[np.ndarray, "images"]] | None = None,
    *,
    chance: float | None = None,
) -> Measurements:
    """Arrange results by model, size and seed.

    Raises:
        InputError: there are no results or two results of one run, or ``correct`` does not match the results.
    """
    if not results:
        raise InputError("results: empty, so there is nothing to analyse")
    runs: dict[Coordinates, SeedScores] = {}
    validation: dict[Coordinates, tuple[float, int]] = {}
    for result in results:
        run, accuracy, images = result.coordinates, result.accuracy, result.scores.scored_images
        if run in runs:
            raise InputError(f"results: {' '.join(map(str, run))} occurs twice")
        if result.scores.validation_accuracy is not None:
            validation[run] = result.scores.validation_accuracy, result.data.validation_images
        row = None if correct is None else correct[result.run].astype(np.float64)
        if row is not None and (row.shape != (images,) or abs(float(row.mean()) - accuracy) > 1e-6):
            raise InputError(f"predictions of {result.run} do not agree with its recorded accuracy")
        runs[run] = SeedScores(np.array([accuracy]), np.array([images]), None if row is None else [row])
    uses_folds = len({r.data.fold for r in results}) > 1
    counts = sorted({r.scores.scored_images for r in results})
    if correct is not None and len(counts) > 1 and not uses_folds:
        raise InputError(f"predictions: all runs must have the same test images, got {counts}")
    models, sizes, seeds = (tuple(sorted({*values})) for values in zip(*runs, strict=True))
    return Measurements(models, sizes, seeds, runs, validation, uses_folds, chance)
