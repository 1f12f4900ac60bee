"""What is settled before anybody looks: which comparison decides, over how many seeds, and how close is equal."""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.dataclass_io import from_plain
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.statistics.looks import SEEDS_FOR_A_VERDICT, Plan
from vit_vs_cnn.statistics.verdict import Comparison, Obstacle, ObstacleKind, Terms, corrected

NAME = "design.json"
Compared = TypeVar("Compared", bound=Comparison)
#: Two networks whose multiply-accumulates differ by no more are equally large.
EQUAL = 1.25
#: Two contenders and a training size.
Key = tuple[str, str, int]


class DeviationKind(StrEnum):
    """A part of the design that was changed after results could have been seen: the field of ``Design``."""

    SEEDS = "seeds"
    ON_THE_WAY = "on_the_way"
    SIZE = "size"
    PAIR = "pair"
    MARGIN = "equivalence_points"
    BUDGET = "budget"
    PAIRS = "pairs"


DEVIATIONS = {
    DeviationKind.SEEDS: "the planned seeds",
    DeviationKind.ON_THE_WAY: "whether verdicts come on the way",
    DeviationKind.SIZE: "the size of the primary comparison",
    DeviationKind.PAIR: "the pair of the primary comparison",
    DeviationKind.MARGIN: "the margin of equivalence",
    DeviationKind.BUDGET: "the longest budget",
    DeviationKind.PAIRS: "which contenders are compared",
}


@dataclass(frozen=True)
class Deviation:
    """A change of the design after the first results existed, so that they may have influenced it."""

    kind: DeviationKind
    before: str
    after: str

    @property
    def text(self) -> str:
        """A clause for a reader."""
        return f"{DEVIATIONS[self.kind]} changed from {self.before} to {self.after} after a look was possible"


@dataclass(frozen=True)
class Design:
    """What is settled before the first look; a look is possible once three seeds of anything are finished.

    All pairs of contenders at all sizes are judged together. One of these comparisons, the primary, has half of the 5 %
    to itself; the others share the other half.

    Arguments:
        seeds: planned, in the order in which they are looked at.
        on_the_way: whether verdicts are given before all of them are there.
        contenders, train_sizes: of the grid.
        pairs: of contenders that are compared; None for all with all.
        size, pair: the primary comparison; None where there is but one contender.
        equivalence_points: contenders closer than these points are equivalent.
        budget: the longest, with which contenders are compared; empty where older versions did not note it.
        deviations: what was changed after the first look; verdicts go by what was settled.
    """

    seeds: tuple[int, ...]
    on_the_way: bool
    contenders: tuple[str, ...]
    train_sizes: tuple[int, ...]
    size: int | None
    pair: tuple[str, str] | None
    equivalence_points: float
    budget: str = ""
    pairs: tuple[tuple[str, str], ...] | None = None
    deviations: tuple[Deviation, ...] = ()

    @property
    def told(self) -> list[str]:
        """What was changed, and what follows, a sentence each without its end."""
        rest = "verdicts go by what was settled before"
        return [
            f"Exploratory: {one.text}; {'no verdict is given' if one == self.other_budget else rest}"
            for one in self.deviations
        ]

    @property
    def other_budget(self) -> Deviation | None:
        """The change to another budget than was settled, after which there is no verdict; None if there was none."""
        return next((one for one in self.deviations if one.kind is DeviationKind.BUDGET), None)

    def compares(self, first: str, second: str) -> bool:
        """Whether two contenders are compared."""
        return self.pairs is None or {first, second} in [{*pair} for pair in self.pairs]

    def terms(self, there: Sequence[int], obstacle: Obstacle | None) -> Terms:
        """On what terms two contenders are compared that have these seeds in common, those beyond the plan included."""
        plan = Plan(len(self.seeds), self.on_the_way)
        if self.other_budget is not None:
            obstacle = Obstacle(ObstacleKind.OTHER_BUDGET, self.other_budget.text)
        later, margin = len({*there} - {*self.seeds}), self.equivalence_points / 100
        if later == len(there):
            unplanned = Obstacle(ObstacleKind.UNPLANNED_SEEDS, "none of their seeds was planned")
            return Terms(None, 0, margin, obstacle or unplanned)
        return Terms(plan, later, margin, obstacle)


def terms_of(design: Design | None, there: Sequence[int], obstacle: Obstacle | None) -> Terms:
    """``Design.terms``; without a design the seeds that are there are looked at once."""
    return Terms(obstacle=obstacle) if design is None else design.terms(there, obstacle)


def judged(family: Sequence[Compared], keys: Sequence[Key], design: Design | None) -> list[Compared]:
    """The comparisons of an experiment judged together, those that are not finished yet counted in.

    Arguments:
        keys: of each, both contenders in either order.
        design: None to give all the same share of the error.
    """
    if design is None:
        return corrected(family)
    names = sorted({*design.contenders, *(name for key in keys for name in key[:2])})
    pairs = sum(design.compares(*pair) for pair in itertools.combinations(names, 2))
    count = max(1, pairs * len({*design.train_sizes, *(size for *_, size in keys)}))
    wanted = None if design.pair is None else ({*design.pair}, design.size)
    first = next((i for i, key in enumerate(keys) if ({*key[:2]}, key[2]) == wanted), None)
    if count == 1 or design.pair is None or not {*design.pair} <= {*design.contenders}:
        return corrected(family, [1 / count] * len(family), primary=first, count=count)
    weights = [0.5 if i == first else 0.5 / (count - 1) for i in range(len(family))]
    return corrected(family, weights, primary=first, count=count)


def design_of(experiment: Experiment, sizes: Mapping[int | str, int]) -> Design:
    """What a config settles.

    Arguments:
        sizes: how many images each of ``protocol.train_sizes`` is.

    Raises:
        InputError: the primary comparison is none that is run.
    """
    protocol, primary = experiment.protocol, experiment.protocol.primary
    size = max(sizes.values())
    if primary.train_size is not None:
        size = sizes.get(primary.train_size, primary.train_size)
        if size not in sizes.values():
            named = ", ".join(map(str, sizes))
            raise InputError(f"protocol.primary.train_size: {size} is none of protocol.train_sizes ({named})")
    pairs = protocol.pairs
    names = primary.contenders or (pairs[0] if pairs else list(experiment.contenders)[:2])
    return Design(
        seeds=tuple(protocol.seeds),
        on_the_way=False,
        contenders=tuple(experiment.contenders),
        train_sizes=tuple(sorted({*sizes.values()})),
        size=int(size) if len(names) > 1 else None,
        pair=(names[0], names[1]) if len(names) > 1 else None,
        equivalence_points=protocol.equivalence_points,
        budget=protocol.budget.largest.text,
        pairs=None if pairs is None else tuple((pair[0], pair[1]) for pair in pairs),
    )


def settle(new: Design, cells: Sequence[Cell]) -> Design:
    """Record the design of a grid, unless one is recorded that its results can have been looked at by: that one stands.

    Arguments:
        cells: of the grid.

    Raises:
        InputError: the one that is recorded can't be read.
    """
    if (old := settled_before(cells)) is not None:
        new = _kept(old, new)
    write_text(cells[0].experiment.folder / NAME, json.dumps(dataclasses.asdict(new), indent=1) + "\n")
    return new


def settled_before(cells: Sequence[Cell]) -> Design | None:
    """The recorded design of a grid, where its results can have been looked at by it; then it stands.

    Raises:
        InputError: the one that is recorded can't be read.
    """
    old = read_design(cells[0].experiment.folder)
    return old if old is not None and _seen(old, cells) else None


def _seen(old: Design, cells: Sequence[Cell]) -> bool:
    """Whether three seeds of any contender, size and budget are finished: recorded seeds, with today's recipes and
    today's budgets or, where the one that was settled is none of these any more, those of what is finished.
    """
    places = {(cell.contender, cell.train_size, cell.budget.text): cell for cell in cells}
    if old.budget not in ("", *(cell.budget.text for cell in cells)):
        finished = finished_cells(cells[0].experiment.folder, some=False).values()
        for budget in {one.short: one for result in finished if (one := result.parsed_budget) is not None}.values():
            for cell in cells:
                places[cell.contender, cell.train_size, budget.text] = dataclasses.replace(cell, budget=budget)
    return any(
        sum(dataclasses.replace(cell, seed=seed).has_result for seed in old.seeds) >= SEEDS_FOR_A_VERDICT
        for cell in places.values()
    )


def _kept(old: Design, new: Design) -> Design:
    changes = [
        Deviation(kind, _text(getattr(old, kind)), _text(getattr(new, kind)))
        for kind in DeviationKind
        if getattr(old, kind) not in ("", getattr(new, kind))
    ]
    deviations = tuple(dict.fromkeys([*old.deviations, *changes]))
    grid = {"contenders": new.contenders, "train_sizes": new.train_sizes, "budget": new.budget}
    return dataclasses.replace(old, **grid, deviations=deviations)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def read_design(folder: Path) -> Design | None:
    """What was settled for the experiment of a folder; None for one that is older than this.

    Raises:
        InputError: the file can't be read.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        return _checked(from_plain(Design, json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not the design of an experiment: {error}") from error


def _checked(design: Design) -> Design:
    if not design.seeds or not design.equivalence_points > 0:
        raise ValueError("it must have some seeds, and equivalence_points above 0")
    return design
