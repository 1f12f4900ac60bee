"""What more training changes: the same runs with several budgets, and two contenders that were given equally much."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from types import MappingProxyType
from typing import Literal

import numpy as np

from vit_vs_cnn.runs.design import EQUAL
from vit_vs_cnn.runs.result import RunResult, by_network
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.means import (
    accuracy_interval,
    accuracy_interval_without_images,
    difference_of_accuracies,
    difference_over_seeds,
)

Cost = Literal["steps", "flops", "seconds"]
#: What the costs of a training are called.
COST_NAMES: dict[Cost, str] = {"steps": "steps", "flops": "training FLOPs", "seconds": "training time"}
#: Of which a report speaks: times vary with what else runs.
LASTING: tuple[Cost, ...] = ("steps", "flops")
#: Costs that differ by no more are the same.
_SAME = 1.01
#: That of every interval, whatever the size.
NINETY_FIVE: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True)
class BudgetPoint:
    """One contender at one size with one budget, where there are several.

    Arguments:
        accuracy: mean over its seeds.
        gained: over the next shorter budget, paired by seed; None for the shortest.
    """

    contender: str
    size: int
    budget: str
    accuracy: Estimate
    gained: Estimate | None


@dataclass(frozen=True)
class BudgetGap:
    """Two contenders at one size with one budget.

    Arguments:
        difference: accuracy of the first of their pair minus that of the second.
    """

    size: int
    budget: str
    difference: Estimate


@dataclass(frozen=True)
class EqualCost:
    """Two contenders at one size that were given equally much of a cost: what the one of both that got less was given.

    Arguments:
        ratio: what the first was given with its longest budget for each unit of what the second was given.
        difference: accuracy of the first minus that of the second at equal cost; None where the one that was given more
            has no run that is short enough.
        interpolated: whether that lies between two runs.
    """

    size: int
    cost: Cost
    ratio: float
    difference: Estimate | None
    interpolated: bool

    @property
    def is_uneven(self) -> bool:
        """Whether what both were given counts as unequal: where a shorter run tells, a hundredth is enough for that."""
        return more_than_once(self.ratio) > (_SAME if self.interpolated else EQUAL)


def _are_several(results: Sequence[RunResult]) -> bool:
    """Whether a contender has several budgets at one size: with one seed or, where runs are missing, with different
    seeds.
    """
    if len({r.coordinates for r in results}) < len(results):
        return True
    by_place: dict[tuple[str, int], set[str]] = {}
    for r in results:
        if r.budget is not None:
            by_place.setdefault((r.contender, r.train_size), set()).add(r.budget)
    return any(len(budgets) > 1 for budgets in by_place.values())


class Budgets:
    """The results of a grid by budget, the longest last.

    Arguments:
        results: of finished cells.
        correct: by name of the run, whether each image is classified rightly; None where that is unknown.
        planned: seeds by which pairs are compared where both have some of these; otherwise all.
    """

    def __init__(
        self,
        results: Sequence[RunResult],
        correct: Mapping[str, np.ndarray] | None = None,
        planned: Collection[int] = (),
    ) -> None:
        self._planned = planned
        several = _are_several(results)
        found: dict[tuple[float, str], list[RunResult]] = {}
        for result in results:
            budget = result.parsed_budget if several else None
            key = (0.0, "") if budget is None else (float(budget.amounts[0]), budget.text)
            found.setdefault(key, []).append(result)
        self.groups = {text: found[amount, text] for amount, text in sorted(found)}
        self._correct = correct
        self._by_place = {text: {r.coordinates: r for r in group} for text, group in self.groups.items()}
        self._runs = {
            text: by_network(by_place[key] for key in sorted(by_place)) for text, by_place in self._by_place.items()
        }

    @property
    def longest(self) -> list[RunResult]:
        """The results of the longest budget."""
        return list(self.groups.values())[-1]

    @property
    def texts(self) -> tuple[str, ...]:
        """Every budget for a reader, the longest last; none where there is only one."""
        return tuple(self.groups) if len(self.groups) > 1 else ()

    def points(self) -> list[BudgetPoint]:
        """Every contender and size with every budget, by size and contender."""
        places = sorted({(n, name) for runs in self._runs.values() for name, n in runs})
        return [point for n, name in places for point in self._points(name, n)] if self.texts else []

    def gaps(self, first: str, second: str, confidence: Mapping[int, float] = NINETY_FIVE) -> list[BudgetGap]:
        """A pair at every size and with every budget that both have a seed in common at.

        Arguments:
            confidence: of the intervals, by size, where it is not 95 %.
        """
        found = []
        for text, runs in self._runs.items() if self.texts else ():
            for size in sorted({n for _, n in runs}):
                ours, theirs = self._pair(runs, first, second, size)
                if ours:
                    found.append(BudgetGap(size, text, self._between(ours, theirs, confidence.get(size, 0.95))))
        return found

    def at_equal(
        self, first: str, second: str, cost: Cost, confidence: Mapping[int, float] = NINETY_FIVE
    ) -> list[EqualCost]:
        """A pair at every size at which both have a seed in common.

        Between two budgets b < c of one contender and seed the answers are taken to change evenly with the logarithm of
        the cost: (1 - w) x_b + w x_c, w = log(C / C_b) / log(C_c / C_b). Learning slows down, so that this gives the
        one that is cut short too little rather than too much.

        Arguments:
            confidence: as of ``gaps``.
        """
        longest = list(self._runs.values())[-1]
        found = []
        for size in sorted({n for _, n in longest}):
            ours, theirs = self._pair(longest, first, second, size)
            costs = [(_cost(one, cost), _cost(two, cost)) for one, two in zip(ours, theirs, strict=True)]
            if costs and all(one and two for one, two in costs):
                found.append(self._equal(size, cost, ours, theirs, costs, confidence=confidence.get(size, 0.95)))
        return found

    def _equal(
        self,
        size: int,
        cost: Cost,
        ours: list[RunResult],
        theirs: list[RunResult],
        costs: list[tuple[float, float]],
        *,
        confidence: float,
    ) -> EqualCost:
        ratio = fmean(one for one, _ in costs) / fmean(two for _, two in costs)
        goals = [min(pair) for pair in costs]
        one, two = ([self._cut(r, cost, goal) for r, goal in zip(side, goals, strict=True)] for side in (ours, theirs))
        is_known = all(answers is not None for answers in (*one, *two))
        if not is_known and more_than_once(ratio) > EQUAL:
            return EqualCost(size, cost, ratio, None, interpolated=False)
        difference = self._difference(one, two, confidence) if is_known else self._between(ours, theirs, confidence)
        return EqualCost(size, cost, ratio, difference, is_known and more_than_once(ratio) > _SAME)

    def _pair(
        self, runs: Mapping[tuple[str, int], list[RunResult]], first: str, second: str, size: int
    ) -> tuple[list[RunResult], list[RunResult]]:
        """The runs of two contenders that are compared, seed by seed."""
        both = _both(runs.get((first, size), []), runs.get((second, size), []))
        planned = tuple([r for r in side if r.seed in self._planned] for side in both)
        return (planned[0], planned[1]) if planned[0] else both

    def _points(self, contender: str, size: int) -> list[BudgetPoint]:
        found: list[BudgetPoint] = []
        before: list[RunResult] = []
        for text, by_place in self._runs.items():
            runs = by_place.get((contender, size), [])
            if not runs:
                continue
            now, shorter = _both(runs, before)
            gained = self._between(now, shorter) if now else None
            found.append(BudgetPoint(contender, size, text, self._accuracy(runs), gained))
            before = runs
        return found

    def _accuracy(self, runs: list[RunResult]) -> Estimate:
        if self._correct is not None:
            return accuracy_interval(np.stack([self._correct[r.run] for r in runs]))
        images = min(r.scores.scored_images for r in runs)
        return accuracy_interval_without_images([r.accuracy for r in runs], images)

    def _whole(self, result: RunResult) -> "_Answers":
        row = None if self._correct is None else self._correct[result.run].astype(np.float64)
        return _Answers(result.accuracy, result.scores.scored_images, row)

    def _cut(self, result: RunResult, cost: Cost, goal: float) -> "_Answers | None":
        """What a run would have answered at a cost, out of itself and its shorter budgets."""
        place = result.coordinates
        runs = [by_place[place] for by_place in self._by_place.values() if place in by_place]
        costed = sorted(((c, r) for r in runs if (c := _cost(r, cost))), key=lambda pair: pair[0])
        if costed[-1][0] <= _SAME * goal:
            return self._whole(costed[-1][1])
        for (low, shorter), (high, longer) in pairwise(costed):
            if low <= goal <= high:
                share = math.log(goal / low) / math.log(high / low) if low < high else 1.0
                return self._whole(shorter).towards(self._whole(longer), share)
        return None

    def _between(self, first: list[RunResult], second: list[RunResult], confidence: float = 0.95) -> Estimate:
        return self._difference(list(map(self._whole, first)), list(map(self._whole, second)), confidence)

    @staticmethod
    def _difference(
        first: Sequence["_Answers | None"], second: Sequence["_Answers | None"], confidence: float
    ) -> Estimate:
        one, two = ([answers for answers in side if answers is not None] for side in (first, second))
        rows = [[answers.row for answers in side if answers.row is not None] for side in (one, two)]
        if all(rows):
            return difference_over_seeds(np.stack(rows[0]), np.stack(rows[1]), paired_seeds=True).interval(confidence)
        images = (min(answers.images for answers in one), min(answers.images for answers in two))
        ours, theirs = (np.array([answers.accuracy for answers in side]) for side in (one, two))
        return difference_of_accuracies(ours, theirs, images).interval(confidence)


@dataclass(frozen=True, eq=False)
class _Answers:
    """What one network does: its accuracy and, where it is known, its score on each image, from 0 to 1."""

    accuracy: float
    images: int
    row: np.ndarray | None

    def towards(self, other: "_Answers", share: float) -> "_Answers":
        """A mixture of both, with so large a share of the other."""
        row = None if self.row is None or other.row is None else (1 - share) * self.row + share * other.row
        return _Answers((1 - share) * self.accuracy + share * other.accuracy, self.images, row)


def more_than_once(ratio: float) -> float:
    """How many times as much the one has that has more."""
    return max(ratio, 1 / ratio)


def _both(first: Sequence[RunResult], second: Sequence[RunResult]) -> tuple[list[RunResult], list[RunResult]]:
    """The runs of the seeds that both sides have."""
    one, two = ({r.seed: r for r in side} for side in (first, second))
    shared = sorted(one.keys() & two.keys())
    return [one[seed] for seed in shared], [two[seed] for seed in shared]


def _cost(result: RunResult, cost: Cost) -> float:
    """The cost of a run."""
    costs = {"steps": result.cost.steps, "flops": result.cost.flops, "seconds": result.cost.train_seconds}
    return float(costs[cost])
