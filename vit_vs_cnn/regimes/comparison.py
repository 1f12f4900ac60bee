"""Pairs of contenders at every training size that they have in common, judged together."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vit_vs_cnn.plain import field_values
from vit_vs_cnn.regimes.fairness import obstacle
from vit_vs_cnn.regimes.measurements import by_network
from vit_vs_cnn.runs.cell import budget_of
from vit_vs_cnn.runs.design import Design, judged, terms_of
from vit_vs_cnn.statistics.measurements import Measurements
from vit_vs_cnn.statistics.verdict import Comparison, compare_accuracies, compare_scores


@dataclass(frozen=True, kw_only=True)
class SizedComparison(Comparison):
    """Two contenders at one training size."""

    size: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.first, self.second, self.size


def comparisons(
    measured: Measurements, results: Sequence[Mapping[str, Any]], design: Design | None = None
) -> list[SizedComparison]:
    """Every two contenders at every size at which they have a seed in common, judged together.

    Arguments:
        results: of the same cells, for what makes a comparison unfair.
        design: what was settled before they were looked at; None to give all the same share of the error.
    """
    runs = by_network(results)
    found = [
        _comparison(measured, names, size, runs, design)
        for names in itertools.combinations(measured.contenders, 2)
        for size in measured.sizes
        if (design is None or design.compares(*names)) and measured.shared(*((name, size) for name in names)).any()
    ]
    return judged(found, [one.key for one in found], design)


def _waits_for(design: Design | None, results: Iterable[Mapping[str, Any]]) -> str | None:
    """Why runs of another budget than was settled allow no verdict; None where there are none."""
    budgets = {budget.text for r in results if design is not None and design.budget and (budget := budget_of(r))}
    if design is None or budgets <= {design.budget}:
        return None
    return f"some of their runs had {' or '.join(sorted(budgets - {design.budget}))}, and {design.budget} were settled"


def _comparison(
    measured: Measurements,
    names: tuple[str, str],
    size: int,
    runs: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]],
    design: Design | None,
) -> SizedComparison:
    one, two = (measured.contenders.index(name) for name in names)
    place = measured.sizes.index(size)
    there = measured.shared(*((name, size) for name in names))
    planned = there if design is None else there & np.isin(measured.seeds, design.seeds)
    shared = planned if planned.any() else there  # only planned ones where any of these is there
    compared = [runs.get((name, size), []) for name in names]
    unfair = _waits_for(design, itertools.chain(*compared)) or obstacle(*compared)
    terms = terms_of(design, [measured.seeds[i] for i in np.flatnonzero(there)], unfair)
    if measured.correct is not None:
        first, second = (measured.correct[i, place, shared] for i in (one, two))
        return SizedComparison(size=size, **field_values(compare_scores(names, first, second, terms=terms)))
    first, second = (measured.accuracy[i, place, shared] for i in (one, two))
    images = (int(measured.images[one, place, shared].min()), int(measured.images[two, place, shared].min()))
    return SizedComparison(size=size, **field_values(compare_accuracies(names, first, second, images, terms=terms)))
