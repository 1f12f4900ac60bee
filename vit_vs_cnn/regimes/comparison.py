"""Pairs of contenders at every training size that they have in common."""

from collections.abc import Sequence
from dataclasses import dataclass

from vit_vs_cnn.statistics.measurements import Measurements
from vit_vs_cnn.statistics.significance import holm
from vit_vs_cnn.statistics.verdict import Comparison, compare_accuracies, compare_scores, corrected


@dataclass(frozen=True, kw_only=True)
class SizedComparison(Comparison):
    """Two contenders at one training size.

    Arguments:
        size: labelled images.
    """

    size: int


def comparisons(
    measured: Measurements, names: tuple[str, str], sizes: Sequence[int], obstacles: Sequence[str | None]
) -> list[SizedComparison]:
    """Two contenders at each size over the seeds that both have, judged by themselves.

    Arguments:
        measured: all accuracies.
        names: of both.
        sizes: those at which both have a seed in common.
        obstacles: for each size, why no verdict may be given.
    """
    return [_comparison(measured, names, size, reason) for size, reason in zip(sizes, obstacles, strict=True)]


def _comparison(measured: Measurements, names: tuple[str, str], size: int, obstacle: str | None) -> SizedComparison:
    one, two = (measured.contenders.index(name) for name in names)
    place = measured.sizes.index(size)
    shared = measured.present[one, place] & measured.present[two, place]
    if measured.correct is not None:
        first, second = (measured.correct[i, place, shared] for i in (one, two))
        return SizedComparison(size=size, **vars(compare_scores(names, first, second, obstacle=obstacle)))
    first, second = (measured.accuracy[i, place, shared] for i in (one, two))
    images = (int(measured.images[one, place, shared].min()), int(measured.images[two, place, shared].min()))
    return SizedComparison(size=size, **vars(compare_accuracies(names, first, second, images, obstacle=obstacle)))


def adjust_for_pairs(pairs: Sequence[Sequence[SizedComparison]]) -> list[list[SizedComparison]]:
    """The same comparisons with p-values corrected, size by size, for the number of pairs; verdicts follow.

    The pairs at one size are what ``compare`` looks at, too, so that both say the same.
    """
    adjusted = [list(pair) for pair in pairs]
    for size in sorted({c.size for pair in pairs for c in pair}):
        places = [(i, j) for i, pair in enumerate(pairs) for j, c in enumerate(pair) if c.size == size]
        for (i, j), judged in zip(places, corrected([pairs[i][j] for i, j in places]), strict=True):
            adjusted[i][j] = judged
    return adjusted


def over_all_sizes(pairs: Sequence[Sequence[SizedComparison]]) -> dict[tuple[str, str, int], float]:
    """p-values of all pairs at all sizes, corrected for all of them at once (Holm), by first, second and size."""
    every = [c for pair in pairs for c in pair]
    values = holm([c.p_value for c in every])
    return {(c.first, c.second, c.size): p for c, p in zip(every, values, strict=True)}
