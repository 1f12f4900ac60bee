"""Training budgets: gains of longer budgets, their effect on a difference, and comparisons at equal FLOPs."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

import numpy as np

from vit_vs_cnn.analysis.measurements import Coordinates, measure
from vit_vs_cnn.experiments.analysis_plan import MAX_EQUAL_MACS_RATIO
from vit_vs_cnn.runs.result import RunResult, group_by_budget
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.mean_distribution import MeanDistribution, SeedScores, difference_over_seeds
from vit_vs_cnn.statistics.significance import holm
from vit_vs_cnn.statistics.variance import SeedVariance, binomial_variance, pool_seed_variance

#: Costs whose ratio is at most this are treated as equal.
_MAX_SAME_COST_RATIO = 1.01


@dataclass(frozen=True)
class BudgetEffect:
    """Effect of a longer budget on the accuracy of one model, or on the difference of two models.

    Arguments:
        models: the model, or the two models of the difference (first minus second).
        factor: steps of the longer budget relative to the shorter one.
        change: accuracy or difference with the longer budget minus that with the shorter one, paired by seed and image.
        adjusted_p_value: p-value of no change of a difference, adjusted for the training-set sizes of the pair (Holm).
    """

    models: tuple[str, ...]
    train_size: int
    shorter: str
    longer: str
    factor: float
    change: Estimate
    adjusted_p_value: float | None = None


@dataclass(frozen=True)
class EqualCostDifference:
    """Difference of two models at equal training FLOPs, those of the cheaper model.

    Arguments:
        ratio: FLOPs of ``first`` divided by those of ``second``, with the longest budget.
        difference: accuracy of ``first`` minus accuracy of ``second``; None if no run of the costlier model is short
            enough.
    """

    first: str
    second: str
    train_size: int
    ratio: float
    difference: Estimate | None


class BudgetResults:
    """Results of an experiment by training budget, the longest last. Arguments and errors: see ``measure``."""

    def __init__(
        self, results: Sequence[RunResult], correct: Mapping[str, np.ndarray] | None = None, chance: float | None = None
    ) -> None:
        self.groups = group_by_budget(results)
        self.measured = {text: measure(group, correct, chance=chance) for text, group in self.groups.items()}
        self._runs = {text: {r.coordinates: r for r in group} for text, group in self.groups.items()}
        self._trained = {r.model for r in results if r.follows_budget}
        steps = {n: [max(1, r.cost.steps) for r in g if r.model in self._trained] for n, g in self.groups.items()}
        self._mean_steps = {text: fmean(counts) for text, counts in steps.items() if counts}
        self.names = tuple(self.groups)
        self.longest = self.measured[self.names[-1]]

    def gains(self) -> list[BudgetEffect]:
        """Gain in accuracy of each budget over the next shorter one, for every model and training-set size.

        Models whose training does not have the budget are left out, such as linear probes.
        """
        results = []
        for shorter, longer in pairwise(self.names):
            for model, size in itertools.product(sorted(self._trained), self.measured[longer].sizes):
                if seeds := self._shared_seeds((shorter, longer), size, model):
                    long, short = (self.measured[text].scores(model, size, seeds) for text in (longer, shorter))
                    gain = difference_over_seeds(
                        long, short, fold_train_size=self.longest.fold_train_size(size)
                    ).interval()
                    results.append(BudgetEffect((model,), size, shorter, longer, self._factor(shorter, longer), gain))
        return results

    def interactions(self, first: str, second: str) -> list[BudgetEffect]:
        """Change of the difference of two models from the shortest to the longest budget, by size."""
        ends = self.names[0], self.names[-1]
        gains: dict[int, tuple[SeedScores, SeedScores]] = {}
        for size in self.longest.sizes if len(self.names) > 1 else ():
            if seeds := self._shared_seeds(ends, size, first, second):
                short, long = (
                    [self.measured[text].scores(model, size, seeds) for model in (first, second)] for text in ends
                )
                gains[size] = long[0] - short[0], long[1] - short[1]
        changes = {size: a.accuracies - b.accuracies for size, (a, b) in gains.items()}
        results = {
            size: _interaction(*pair, pool_seed_variance(changes, size), self.longest.fold_train_size(size))
            for size, pair in gains.items()
        }
        adjusted = holm([result.p_value for result in results.values()])
        return [
            BudgetEffect((first, second), size, *ends, self._factor(*ends), result.interval(), p)
            for (size, result), p in zip(results.items(), adjusted, strict=True)
        ]

    def _factor(self, shorter: str, longer: str) -> float:
        return self._mean_steps[longer] / self._mean_steps[shorter]

    def equal_cost(self, first: str, second: str, *, confidence: float = 0.95) -> list[EqualCostDifference]:
        """Compare two models at equal training FLOPs, at every training-set size at which their FLOPs differ.

        Between two budgets, the score of each seed on each image is interpolated linearly in the logarithm of the cost.
        This underestimates the accuracy in between if each doubling of the cost gains less than the one before.
        """
        results, names, runs = [], (first, second), self._runs[self.names[-1]]
        for size in self.longest.sizes:
            shared = self.longest.shared_seeds(size, *names)
            costs = [[float(runs[name, size, seed].cost.flops) for seed in shared] for name in names]
            if not shared or 0 in (*costs[0], *costs[1]):
                continue
            ratio = fmean(costs[0]) / fmean(costs[1])
            limits = [min(pair) for pair in zip(*costs, strict=True)]
            a, b = (self._scores_at_cost(name, size, shared, limits) for name in names)
            is_known = a is not None and b is not None
            if max(ratio, 1 / ratio) <= (_MAX_SAME_COST_RATIO if is_known else MAX_EQUAL_MACS_RATIO):
                continue
            difference = None
            if a is not None and b is not None:
                by_size = self.longest.differences(*names, shared) | {size: a.accuracies - b.accuracies}
                difference = difference_over_seeds(
                    a,
                    b,
                    seed_variance=pool_seed_variance(by_size, size),
                    fold_train_size=self.longest.fold_train_size(size),
                ).interval(confidence)
            results.append(EqualCostDifference(first, second, size, ratio, difference))
        return results

    def _shared_seeds(self, budgets: Sequence[str], size: int, *models: str) -> list[int]:
        """Seeds for which all models have a run at this size with each of these budgets."""
        return sorted(set.intersection(*({*self.measured[text].shared_seeds(size, *models)} for text in budgets)))

    def _scores_at_cost(
        self, model: str, size: int, seeds: Sequence[int], limits: Sequence[float]
    ) -> SeedScores | None:
        """Scores of a model at given FLOPs for each seed; None if no run of a seed is short enough."""
        scores = [self._score_at_cost((model, size, seed), limit) for seed, limit in zip(seeds, limits, strict=True)]
        rows = [score for score in scores if score is not None]
        return None if len(rows) < len(seeds) else SeedScores.concatenate(rows)

    def _score_at_cost(self, run: Coordinates, limit: float) -> SeedScores | None:
        costs = {text: float(runs[run].cost.flops) for text, runs in self._runs.items() if run in runs}
        ordered = sorted((amount, text) for text, amount in costs.items() if amount)
        if ordered[-1][0] <= _MAX_SAME_COST_RATIO * limit:
            return self.measured[ordered[-1][1]].runs[run]
        for (low, shorter), (high, longer) in pairwise(ordered):
            if low <= limit <= high:
                share = math.log(limit / low) / math.log(high / low) if low < high else 1.0
                return _mixture(self.measured[shorter].runs[run], self.measured[longer].runs[run], share)
        return None


def _interaction(
    first: SeedScores, second: SeedScores, variance: SeedVariance | None, fold_train_size: int | None
) -> MeanDistribution:
    """Distribution of the gain of one model minus that of another."""
    over_seeds = difference_over_seeds(first, second, seed_variance=variance, fold_train_size=fold_train_size)
    if fold_train_size is None and (first.correct is None or second.correct is None):
        # Four accuracies, each at most as uncertain as an accuracy of 50 %.
        images = min(first.image_count, second.image_count)
        over_seeds = replace(over_seeds, image_error=math.sqrt(4 * binomial_variance(0.5, images)))
    return replace(over_seeds, accuracies=None)


def _mixture(shorter: SeedScores, longer: SeedScores, share: float) -> SeedScores:
    """Interpolated scores of two runs: ``1 - share`` of the shorter run and ``share`` of the longer one."""
    accuracies = (1 - share) * shorter.accuracies + share * longer.accuracies
    if shorter.correct is None or longer.correct is None:
        return SeedScores(accuracies, longer.images)
    rows = zip(shorter.correct, longer.correct, strict=True)
    return SeedScores(accuracies, longer.images, [(1 - share) * short + share * long for short, long in rows])
