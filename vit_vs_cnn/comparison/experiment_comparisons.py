"""Comparisons of the experiment that networks come from: ``compare`` and ``report`` give the same conclusions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vit_vs_cnn.comparison.entries import Entry
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.analysis import read_analysis
from vit_vs_cnn.runs.analysis_plan import FILE_NAME, AnalysisPlan, PlannedAnalysis, read_plan
from vit_vs_cnn.statistics.pair_comparison import ComparisonRules, Obstacle, PairComparison

#: Accuracies that differ by less are those of the same predictions.
_SAME_ACCURACY = 1e-9


@dataclass(frozen=True)
class ExperimentComparisons:
    """The plan and the comparisons of the experiment that all networks come from.

    Arguments:
        plan: None where the networks come from no common experiment.
        size: training-set size of all networks; 0 without a common experiment.
        comparisons: of the experiment's longest budget, adjusted for each other.
        models: model of the experiment for each group of networks.
    """

    plan: AnalysisPlan | None = None
    size: int = 0
    comparisons: tuple[PairComparison, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)

    def find(self, own: PairComparison) -> PairComparison | None:
        """The experiment's comparison of the same runs; None if it contains other seeds or images."""
        keys = (self.models.get(own.first), self.models.get(own.second))
        for found in self.comparisons:
            if found.train_size != self.size or found.names != {*keys}:
                continue
            one = found if (found.first, found.second) == keys else _swapped(found)
            same = (one.seeds, one.images) == (own.seeds, own.images)
            accuracies = zip(one.distribution.accuracies or (), own.distribution.accuracies or (), strict=True)
            if same and all(abs(a - b) < _SAME_ACCURACY for a, b in accuracies):
                return replace(one, first=own.first, second=own.second)
        return None

    def analysis_of(self, seeds: Sequence[int | None], obstacle: Obstacle | None) -> PlannedAnalysis:
        """Which of the shared seeds are compared, and the rules for them."""
        known = [seed for seed in seeds if seed is not None]
        if self.plan is None or len(known) < len(seeds):
            return PlannedAnalysis(tuple(known), ComparisonRules(obstacle=obstacle))
        return self.plan.analysis_of(known, is_primary=False, obstacle=obstacle)


def _swapped(one: PairComparison) -> PairComparison:
    accuracies = one.distribution.accuracies
    distribution = replace(
        one.distribution,
        mean=-one.distribution.mean,
        accuracies=None if accuracies is None else (accuracies[1], accuracies[0]),
    )
    return replace(one, first=one.second, second=one.first, difference=-one.difference, distribution=distribution)


def find_experiment_comparisons(entries: Sequence[Entry]) -> ExperimentComparisons:
    """The experiment whose finished networks these are, if all have one training-set size and the longest budget.

    Raises:
        InputError: its analysis plan cannot be read.
    """
    places = {_experiment_of(one) for one in entries}
    models = {one.group: one.origin.contender for one in entries if one.origin is not None}
    if len(places) > 1 or None in places or len({*models.values()}) < len(models):
        return ExperimentComparisons()
    ((folder, size),) = (place for place in places if place is not None)
    plan = read_plan(folder)
    if plan is None:
        return ExperimentComparisons()
    try:
        analysis, *_ = read_analysis(folder)
    except InputError:  # an experiment with contradictory results: its networks can still be compared
        return ExperimentComparisons(plan, size, models=models)
    return ExperimentComparisons(plan, size, analysis.comparisons, models)


def _experiment_of(one: Entry) -> tuple[Path, int] | None:
    """Folder of the experiment and training-set size of the final weights of one of its runs."""
    if one.origin is None or one.path.name != "last.ckpt":
        return None
    parents = one.path.absolute().parents
    if len(parents) < 4 or parents[2].name != "cells" or not (parents[3] / FILE_NAME).exists():
        return None
    return parents[3], one.origin.train_size
