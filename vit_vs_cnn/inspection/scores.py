"""What scoring a method gives: measures with intervals, the randomisation check, and what to say beside them."""

from dataclasses import dataclass

from vit_vs_cnn.statistics.estimate import Estimate

#: A map whose ranks still agree this well with the trained network's, when all weights are shuffled, does not move.
MOVES_BELOW = 0.5


@dataclass(frozen=True)
class Measure:
    """One measure of one method; larger is better for all.

    Arguments:
        over_random: what it is above chance; the same as ``value`` where that is relative to chance already.
        over_centre: what it is above the centre prior, on the same images.
        p_value: of the binomial test against the mean mask area, for pointing.
    """

    value: Estimate
    over_random: Estimate
    over_centre: Estimate
    p_value: float | None = None

    @property
    def beats_both(self) -> bool:
        """Whether it is clearly above chance and above the centre prior: neither interval reaches 0."""
        return self.over_random.low > 0 and self.over_centre.low > 0


@dataclass(frozen=True)
class SanityStage:
    """What is left of a method's maps when a part of the weights is randomised.

    Arguments:
        correlation: Spearman's, with the maps of the trained network; chance is 0.
        rank: rank accuracy against the masks, if they are known; chance is their mean area.
    """

    stage: str
    correlation: Estimate
    rank: Estimate | None


@dataclass(frozen=True)
class MethodScore:
    """How far the maps of one method can be trusted.

    Arguments:
        area: mean area of the masks: what chance gives for pointing, mass and rank; None without masks.
        measures: by name: "deletion_mean", "insertion_blur" and so on for each fill; with masks "pointing", "mass" and
            "rank".
        sanity: the randomisation check, from the head alone to all weights; empty if it was not asked for.
        notes: what has to be said beside the numbers.
    """

    method: str
    class_specific: bool
    images: int
    area: float | None
    measures: dict[str, Measure]
    sanity: tuple[SanityStage, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def moves(self) -> bool | None:
        """Whether the map moves when all weights are randomised; None if it was not checked."""
        return self.sanity[-1].correlation.low <= MOVES_BELOW if self.sanity else None

    def row(self) -> dict[str, str | int | float | bool | None]:
        """One line of a table: every number under a name of its own."""
        line: dict[str, str | int | float | bool | None] = {
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
            if measure.p_value is not None:
                line[f"{name}_p"] = measure.p_value
        for place, stage in (("head", 0), ("all", -1)):
            if self.sanity:
                line[f"correlation_{place}_randomised"] = self.sanity[stage].correlation.value
        return line | {"moves": self.moves, "notes": "; ".join(self.notes)}
