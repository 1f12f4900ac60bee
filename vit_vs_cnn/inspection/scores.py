"""What scoring a method gives: measures with intervals and tests, the sanity checks, and what to say beside them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.significance import holm

#: A map whose ranks still agree this well with the trained network's does not move.
MOVES_BELOW = 0.5
#: Share of maps above which it is not said whether they move: a constant map has no order that could.
MOST_CONSTANT = 0.5
#: Error rate of all stars of one table together.
ALPHA = 0.05
#: The last stage of the cascade, and the check with networks that were trained on shuffled labels.
EVERYTHING, LABELS = "all", "labels"
#: What every method is held against; no test is made of these.
BASELINES = ("random", "centre")

Number = str | int | float | bool | None


@dataclass(frozen=True)
class Measure:
    """One measure of one method; larger is better for all.

    Arguments:
        over_random: what it is above chance; the same as ``value`` where that is relative to chance already.
        over_centre: what it is above the centre prior, on the same images.
        p_value: that it is above chance and above the centre prior: the larger of two one-sided p-values.
        corrected: the same corrected for the number of tests in the table; None of a baseline.
    """

    value: Estimate
    over_random: Estimate
    over_centre: Estimate
    p_value: float
    corrected: float | None = None

    @property
    def beats_both(self) -> bool:
        """Whether it has a star: above chance and above the centre prior, after the correction."""
        return self.corrected is not None and self.corrected < ALPHA


@dataclass(frozen=True)
class SanityStage:
    """What is left of a method's maps when a part of the weights, or the labels, were randomised.

    Arguments:
        correlations: of each redraw, the mean over images of Spearman's correlation with the maps of the trained
            network; chance is 0. Not a number if no map of the redraw has an order.
        constant: share of the pairs of maps of which one is constant; they are not in the correlations.
        rank: mean rank accuracy against the masks, if they are known; chance is their mean area.
    """

    stage: str
    correlations: tuple[float, ...]
    constant: float = 0.0
    rank: float | None = None

    @property
    def told(self) -> tuple[float, ...]:
        return tuple(one for one in self.correlations if not math.isnan(one))

    @property
    def value(self) -> float | None:
        """The mean over redraws; None if there is none."""
        return fmean(self.told) if self.told else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over redraws; None of fewer than two."""
        return stdev(self.told) if len(self.told) > 1 else None

    @property
    def stays(self) -> bool | None:
        """Whether in some redraw the maps keep at least half of their order, be it upside down; None where most are
        constant, which is neither staying nor moving."""
        if self.constant > MOST_CONSTANT or not self.told:
            return None
        return max(map(abs, self.told)) >= MOVES_BELOW


@dataclass(frozen=True)
class MethodScore:
    """How far the maps of one method can be trusted.

    Arguments:
        area: mean area of the masks: what chance gives for pointing, mass and rank; None without masks.
        measures: by name: "deletion_mean", "insertion_road" and so on for each fill; with masks "pointing", "mass" and
            "rank".
        constant: share of the images on which the map of the trained network is constant.
        sanity: from the head alone to all weights ("all"), then "labels" if networks for that were given; empty if it
            was not asked for.
        notes: what has to be said beside the numbers.
    """

    method: str
    class_specific: bool
    images: int
    area: float | None
    measures: dict[str, Measure]
    constant: float = 0.0
    sanity: tuple[SanityStage, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def moves(self) -> bool | None:
        """Whether the map moves when all weights are randomised; None if it was not checked, or is constant then."""
        stays = next((one.stays for one in self.sanity if one.stage == EVERYTHING), None)
        return None if stays is None else not stays

    def never_moves(self, stage: SanityStage) -> bool:
        """Whether no change of the head can move this map, and this stage is that of the head alone."""
        alone = stage is self.sanity[0] and stage.stage != EVERYTHING
        return alone and not self.class_specific and stage.constant == 0 and set(stage.told) == {1.0}

    def row(self) -> dict[str, Number]:
        """One line of a table: every number under a name of its own."""
        line: dict[str, Number] = {
            "method": self.method,
            "class_specific": self.class_specific,
            "images": self.images,
            "mask_area": self.area,
        }
        for name, measure in self.measures.items():
            for suffix, estimate in {
                "": measure.value,
                "_over_random": measure.over_random,
                "_over_centre": measure.over_centre,
            }.items():
                line[f"{name}{suffix}"] = estimate.value
                line |= {f"{name}{suffix}_low": estimate.low, f"{name}{suffix}_high": estimate.high}
            line |= {f"{name}_p": measure.p_value, f"{name}_p_holm": measure.corrected}
        line["constant"] = self.constant
        for one in self.sanity:
            name = f"sanity_{one.stage.replace(' ', '_')}"
            line |= {name: one.value, f"{name}_sd": one.spread, f"{name}_constant": one.constant}
            if one.rank is not None:
                line[f"{name}_rank"] = one.rank
        return line | {"moves": self.moves, "notes": "; ".join(self.notes)}


def corrected(scores: Mapping[str, Sequence[MethodScore]]) -> dict[str, list[MethodScore]]:
    """The same scores with every p-value corrected for all tests that stand beside each other (Holm), by network.

    One test is one measure of one method of one network; baselines are not tested.
    """
    tested = [(row, name) for rows in scores.values() for row in rows if _tested(row) for name in row.measures]
    found = iter(holm([row.measures[name].p_value for row, name in tested]))
    return {
        network: [
            replace(row, measures={name: replace(one, corrected=next(found)) for name, one in row.measures.items()})
            if _tested(row)
            else row
            for row in rows
        ]
        for network, rows in scores.items()
    }


def number_of_tests(scores: Mapping[str, Sequence[MethodScore]]) -> int:
    """How many tests the stars are corrected for."""
    return sum(len(row.measures) for rows in scores.values() for row in rows if _tested(row))


def _tested(row: MethodScore) -> bool:
    return row.method not in BASELINES
