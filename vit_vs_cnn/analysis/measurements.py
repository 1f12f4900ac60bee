"""Results of an experiment as arrays over model, training-set size and seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    """Results with one budget, as arrays over (model, training-set size, seed).

    Arguments:
        sizes: training-set sizes, validation images included, ascending.
        seeds: seeds in ascending order. Runs of different models are paired by seed.
        accuracy: NaN for a missing run.
        images: number of test images; 0 for a missing run.
        correct: mask of correctly classified test images for each (model, size, seed); None if unknown.
        chance: accuracy of always predicting the most frequent class; None if unknown.
        validation: accuracy on validation images, and their number; NaN and 0 if not recorded.
    """

    models: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    accuracy: Float[np.ndarray, "models sizes seeds"]
    images: Float[np.ndarray, "models sizes seeds"]
    correct: Mapping[tuple[int, int, int], np.ndarray] | None
    uses_folds: bool = False
    chance: float | None = None
    validation: tuple[Float[np.ndarray, "models sizes seeds"], Float[np.ndarray, "models sizes seeds"]] | None = None

    def fold_train_size(self, size: int) -> int | None:
        """Number of training images at a size if seeds hold out different folds; None for a fixed test set."""
        return size if self.uses_folds else None

    def shared_seeds(self, size: int, *models: str) -> list[int]:
        """Seeds for which all of these models have a run at a size."""
        at = self.sizes.index(size)
        runs = [~np.isnan(self.accuracy[self.models.index(model), at]) for model in models]
        return [seed for seed, was_run in zip(self.seeds, np.logical_and.reduce(runs), strict=True) if was_run]

    def scores(self, model: str, size: int, seeds: Sequence[int]) -> SeedScores:
        """Results of a model with these seeds, which must all exist."""
        m, n, s = self._at(model, size, seeds)
        accuracies, images = self.accuracy[m, n, s], self.images[m, n, s]
        if self.correct is None:
            return SeedScores(accuracies, images)
        return SeedScores(accuracies, images, [self.correct[m, n, i].astype(np.float64) for i in s])

    def _at(self, model: str, size: int, seeds: Sequence[int]) -> tuple[int, int, list[int]]:
        return self.models.index(model), self.sizes.index(size), [self.seeds.index(seed) for seed in seeds]

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
                    self.accuracy[self._at(first, size, shared)] - self.accuracy[self._at(second, size, shared)]
                )
        return results

    def failed_seeds(self, model: str, size: int, seeds: Sequence[int] | None = None) -> list[int]:
        """Seeds of runs, by default of all, that ``failed_to_learn`` or are ``far_below_others``."""
        if not (seeds := self.shared_seeds(size, model) if seeds is None else seeds):
            return []
        failed, at = np.zeros(len(seeds), dtype=bool), self._at(model, size, seeds)
        if self.chance is not None:
            failed |= failed_to_learn(self.accuracy[at], self.chance, int(self.images[at].min()))
        if self.validation is not None:
            failed |= far_below_others(*(values[at] for values in self.validation))
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

    The gap must exceed 12 points plus 2.5 standard errors of the difference of two runs. None failed if a validation
    accuracy is missing.
    """
    failed, order = np.zeros(len(accuracies), dtype=bool), np.argsort(accuracies)
    if np.isnan(accuracies).any():
        return failed
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
    models = tuple(sorted({r.model for r in results}))
    sizes = tuple(sorted({r.train_size for r in results}))
    seeds = tuple(sorted({r.seed for r in results}))
    accuracy = np.full((len(models), len(sizes), len(seeds)), np.nan)
    images, rows, validation = np.zeros_like(accuracy), {}, (np.full_like(accuracy, np.nan), np.zeros_like(accuracy))
    for result in results:
        index = models.index(result.model), sizes.index(result.train_size), seeds.index(result.seed)
        if not np.isnan(accuracy[index]):
            raise InputError(f"results: {' '.join(map(str, result.coordinates))} occurs twice")
        accuracy[index], images[index] = result.accuracy, result.scores.scored_images
        if result.scores.validation_accuracy is not None:
            validation[0][index], validation[1][index] = (
                result.scores.validation_accuracy,
                result.data.validation_images,
            )
        if correct is not None:
            row = correct[result.run]
            if row.shape != (result.scores.scored_images,) or abs(float(row.mean()) - result.accuracy) > 1e-6:
                raise InputError(f"predictions of {result.run} do not agree with its recorded accuracy")
            rows[index] = row
    uses_folds = len({r.data.fold for r in results}) > 1
    counts = sorted({r.scores.scored_images for r in results})
    if correct is not None and len(counts) > 1 and not uses_folds:
        raise InputError(f"predictions: all runs must have the same test images, got {counts}")
    predictions = None if correct is None else rows
    return Measurements(models, sizes, seeds, accuracy, images, predictions, uses_folds, chance, validation)
