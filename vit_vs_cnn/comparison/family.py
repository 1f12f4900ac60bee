"""Networks of one experiment are judged as its report judges them: together with all its pairs and sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vit_vs_cnn.comparison.entries import Entry
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.comparison import SizedComparison
from vit_vs_cnn.regimes.findings import comparisons_of, judged_results
from vit_vs_cnn.runs.design import NAME, Design, judged, read_design, terms_of
from vit_vs_cnn.statistics.verdict import Comparison, Obstacle, Terms


@dataclass(frozen=True)
class Family:
    """What the networks here are part of.

    Arguments:
        design: of their experiment; None where they are of no single one.
        size: the training size of all of them; 0 where they have none in common.
        others: the experiment's comparisons at all sizes.
        contenders: contender of each row, by the name of the row.
    """

    design: Design | None = None
    size: int = 0
    others: tuple[SizedComparison, ...] = ()
    contenders: Mapping[str, str] = field(default_factory=dict)

    def terms(self, seeds: Sequence[int | None], obstacle: Obstacle | None) -> Terms:
        """On what terms two groups are compared that share these seeds."""
        known = [seed for seed in seeds if seed is not None]
        return terms_of(self.design if known else None, known, obstacle)

    def planned(self, seeds: Sequence[int | None]) -> list[int]:
        """The places of the seeds that were planned; of all where none was."""
        every = range(len(seeds))
        return [i for i in every if self.design is None or seeds[i] in self.design.seeds] or [*every]

    def judged(self, pairs: Sequence[Comparison]) -> list[Comparison]:
        """The pairs with p-values and verdicts as the whole family gives them."""
        named = self.contenders
        keys = [(named.get(one.first, one.first), named.get(one.second, one.second), self.size) for one in pairs]
        shown = {(frozenset(key[:2]), self.size) for key in keys}
        rest = [one for one in self.others if (frozenset(one.key[:2]), one.size) not in shown]
        both: list[Comparison] = [*pairs, *rest]
        return judged(both, [*keys, *(one.key for one in rest)], self.design)[: len(pairs)]


def family_of(entries: Sequence[Entry]) -> Family:
    """The experiment whose finished networks these are, of one size and the longest budget; else only their own pairs.

    Raises:
        InputError: its design can't be read.
    """
    places = {_experiment_of(one) for one in entries}
    contenders = {one.group: one.origin.contender for one in entries if one.origin is not None}
    if len(places) > 1 or None in places or len({*contenders.values()}) < len(contenders):
        return Family()
    ((folder, size),) = (place for place in places if place is not None)
    design = read_design(folder)
    if design is None:
        return Family()
    try:
        results = judged_results(folder)
        if not {one.path.absolute().parents[1].name for one in entries} <= {result.run for result in results}:
            return Family()
        return Family(design, size, tuple(comparisons_of(folder, results)), contenders)
    except InputError:  # the experiment contradicts itself: its other comparisons count, and say nothing
        return Family(design, size, contenders=contenders)


def _experiment_of(one: Entry) -> tuple[Path, int] | None:
    """The experiment's folder and the training size of the last weights of one of its cells."""
    if one.origin is None or one.path.name != "last.ckpt":
        return None
    parents = one.path.absolute().parents
    if len(parents) < 4 or parents[2].name != "cells" or not (parents[3] / NAME).exists():
        return None
    return parents[3], one.origin.train_size
