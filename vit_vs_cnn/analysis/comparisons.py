"""Comparison of all pairs of models at all training-set sizes, and crossovers between sizes."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vit_vs_cnn.analysis.measurements import Measurements, nothing_learned
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan
from vit_vs_cnn.statistics.caveats import Caveat
from vit_vs_cnn.statistics.pair_comparison import (
    ComparisonRules,
    Conclusion,
    PairComparison,
    adjust_comparisons,
    compare_models,
)
from vit_vs_cnn.statistics.variance import pool_seed_variance


@dataclass(frozen=True)
class Crossover:
    """Crossover of two models between two training-set sizes.

    Arguments:
        below: model that is significantly better at size ``low``.
        above: model that is significantly better at size ``high``, the next size with a significant difference.
    """

    below: str
    above: str
    low: int
    high: int


def compare_all(
    measured: Measurements,
    plan: AnalysisPlan | None = None,
    find_caveat: Callable[[str, str, int], Caveat | None] = lambda *_: None,
) -> list[PairComparison]:
    """Compare the pairs of the plan at every training-set size at which both models have runs with the same seed.

    The seed variance of a pair is pooled over training-set sizes (``pool_seed_variance``), never over other models,
    whose seed noise may differ. The primary and the second comparison are not adjusted. All others are adjusted for
    each other (Holm), planned ones without runs included.

    Arguments:
        plan: rules that were fixed in advance; None if none were recorded. Then all shared seeds are compared. With two
            models, the primary comparison is the one at the largest size.
    """
    results = []
    single_pair = len(measured.models) == 2
    for names in itertools.combinations(measured.models, 2):
        if plan is not None and not plan.compares(*names):
            continue
        differences = functools.cache(functools.partial(measured.differences, *names))
        for size in measured.sizes:
            shared = measured.shared_seeds(size, *names)
            if not shared:
                continue
            caveat = find_caveat(*names, size)
            if plan is not None:
                is_primary = plan.is_primary(*names, size)
                is_second = plan.is_second(*names, size)
                seeds, rules = plan.find_analysis(shared, is_primary=is_primary, is_second=is_second, caveat=caveat)
            else:
                is_primary = single_pair and size == measured.sizes[-1]
                seeds, rules = tuple(shared), ComparisonRules(caveat=caveat, is_primary=is_primary)
            first, second = (measured.scores(name, size, seeds) for name in names)
            rules = replace(rules, caveat=rules.caveat or nothing_learned(first, second, measured.chance))
            failed = [len(measured.failed_seeds(name, size, seeds)) for name in names]
            comparison = compare_models(
                names,
                first,
                second,
                seed_variance=pool_seed_variance(differences(seeds), size),
                fold_train_size=measured.fold_train_size(size),
                failed_runs=(failed[0], failed[1]),
                rules=rules,
            )
            results.append(replace(comparison, train_size=size))
    return adjust_comparisons(results, planned=None if plan is None else plan.secondary_count)


def find_crossovers(comparisons: Sequence[PairComparison]) -> list[Crossover]:
    """Find pairs whose significant conclusions at two training-set sizes have opposite signs."""
    results = []
    ordered = sorted(
        comparisons, key=lambda comparison: (comparison.first, comparison.second, comparison.train_size or 0)
    )
    for _, group in itertools.groupby(ordered, key=lambda comparison: comparison.names):
        clear = [comparison for comparison in group if comparison.conclusion is Conclusion.SIGNIFICANTLY_BETTER]
        for smaller, larger in itertools.pairwise(clear):
            if smaller.leader != larger.leader:
                assert smaller.train_size is not None and larger.train_size is not None
                results.append(Crossover(smaller.leader, larger.leader, smaller.train_size, larger.train_size))
    return results
