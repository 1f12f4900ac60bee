"""Pairs of contenders at every training size that they have in common, judged together."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vit_vs_cnn.plain import field_values
from vit_vs_cnn.regimes.fairness import NO_RESERVATIONS, Reservations, obstacle
from vit_vs_cnn.runs.design import Design, judged, terms_of
from vit_vs_cnn.runs.result import RunResult, by_network
from vit_vs_cnn.statistics.measurements import Measurements
from vit_vs_cnn.statistics.verdict import Comparison, Obstacle, ObstacleKind, compare_accuracies, compare_scores


@dataclass(frozen=True, kw_only=True)
class SizedComparison(Comparison):
    """Two contenders at one training size."""

    size: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.first, self.second, self.size


def comparisons(
    measured: Measurements,
    results: Sequence[RunResult],
    design: Design | None = None,
    reserved: Reservations = NO_RESERVATIONS,
) -> list[SizedComparison]:
    """Every two contenders at every size at which they have a seed in common, judged together.

    Arguments:
        results: of the same cells, for what makes a comparison unfair.
        design: what was settled before they were looked at; None to give all the same share of the error.
        reserved: objections of the test-set log.
    """
    runs = by_network(results)
    found = [
        _comparison(measured, names, size, runs, design=design, reserved=reserved)
        for names in itertools.combinations(measured.contenders, 2)
        for size in measured.sizes
        if (design is None or design.compares(*names)) and measured.shared(*((name, size) for name in names)).any()
    ]
    return judged(found, [one.key for one in found], design)


def _waits_for(design: Design | None, results: Iterable[RunResult]) -> Obstacle | None:
    """Why runs of another budget than was settled allow no verdict; None where there are none."""
    budgets = {budget.text for r in results if design is not None and design.budget and (budget := r.parsed_budget)}
    if design is None or budgets <= {design.budget}:
        return None
    others = " or ".join(sorted(budgets - {design.budget}))
    told = f"some of their runs had {others}, and {design.budget} were settled"
    return Obstacle(ObstacleKind.OTHER_BUDGET, told)


def _comparison(
    measured: Measurements,
    names: tuple[str, str],
    size: int,
    runs: Mapping[tuple[str, int], Sequence[RunResult]],
    *,
    design: Design | None,
    reserved: Reservations,
) -> SizedComparison:
    one, two = (measured.contenders.index(name) for name in names)
    place = measured.sizes.index(size)
    there = measured.shared(*((name, size) for name in names))
    planned = there if design is None else there & np.isin(measured.seeds, design.seeds)
    shared = planned if planned.any() else there  # only planned ones where any of these is there
    compared = [runs.get((name, size), []) for name in names]
    unfair = _waits_for(design, itertools.chain(*compared)) or obstacle(compared[0], compared[1], reserved)
    terms = terms_of(design, [measured.seeds[i] for i in np.flatnonzero(there)], unfair)
    if measured.correct is not None:
        first, second = (measured.correct[i, place, shared] for i in (one, two))
        return SizedComparison(size=size, **field_values(compare_scores(names, first, second, terms=terms)))
    first, second = (measured.accuracy[i, place, shared] for i in (one, two))
    images = (int(measured.images[one, place, shared].min()), int(measured.images[two, place, shared].min()))
    return SizedComparison(size=size, **field_values(compare_accuracies(names, first, second, images, terms=terms)))
