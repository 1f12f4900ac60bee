"""All that the results of a grid say about data sizes: one pure function."""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from vit_vs_cnn.regimes.budgets import LASTING, BudgetGap, BudgetPoint, Budgets, EqualCost
from vit_vs_cnn.regimes.comparison import SizedComparison, comparisons
from vit_vs_cnn.regimes.convergence import Convergence, convergence_of
from vit_vs_cnn.regimes.crossing import Crossing, PairLaws, crossings
from vit_vs_cnn.regimes.curves import LearningCurve, best_of, learning_curve
from vit_vs_cnn.regimes.fairness import NO_RESERVATIONS, Reservations, warnings_of
from vit_vs_cnn.regimes.frontier import FrontierPoint, cost_frontier
from vit_vs_cnn.regimes.interpolation import Curves
from vit_vs_cnn.regimes.lottery import lottery_warnings
from vit_vs_cnn.regimes.measurements import in_order, measurements_of
from vit_vs_cnn.regimes.multiplier import Multiplier, equivalents, leader, multipliers, where_they_stand
from vit_vs_cnn.regimes.networks import Network, networks_of, same_steps
from vit_vs_cnn.regimes.power_laws import PowerLaw, fit_draws, models_for, power_laws
from vit_vs_cnn.regimes.pretraining import Worth, worth_of
from vit_vs_cnn.runs.design import Design
from vit_vs_cnn.runs.result import RunResult, StartKind
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.looks import SEEDS_FOR_A_VERDICT
from vit_vs_cnn.statistics.measurements import Measurements
from vit_vs_cnn.statistics.resampling import Draws, Resamples
from vit_vs_cnn.statistics.verdict import confidence_of
from vit_vs_cnn.told import listed

#: Each analyses a pair at a time, whose resamples take some 50 MB.
MOST_THREADS = 4
#: Starts whose pairs are compared apart from each other.
COMPARED_STARTS = (StartKind.SCRATCH, StartKind.LINEAR_PROBE, StartKind.FINETUNED)


@dataclass(frozen=True)
class Pair:
    """Two contenders over all sizes that they have in common.

    Arguments:
        ahead: who has the higher accuracy at the largest of these sizes.
        crossings: by each method; the interpolated one comes first. None with a single size.
        multipliers: at each size, interpolated; and by the laws where that ends outside of the sizes that were run.
            Without numbers where the budget may have made them, or ``behind`` no longer rises.
        gaps: ``ahead`` minus ``behind`` with every budget, where there are several.
        at_equal: the same at every size at equal steps and at equal training FLOPs, as far as these are known.
    """

    ahead: str
    behind: str
    comparisons: tuple[SizedComparison, ...]
    crossings: tuple[Crossing, ...]
    multipliers: tuple[Multiplier, ...]
    gaps: tuple[BudgetGap, ...]
    at_equal: tuple[EqualCost, ...]

    def lead_at_equal(self, one: EqualCost) -> Estimate | None:
        """The lead at equal cost of who is ahead at the largest size, below 0 where it is none; None if unknown."""
        if one.difference is None or self.ahead == self.at_largest.leader:
            return one.difference
        return -one.difference

    @property
    def at_largest(self) -> SizedComparison:
        """The comparison at the largest size that they have in common."""
        return self.comparisons[-1]


@dataclass(frozen=True)
class Analysis:
    """What the results of a grid say. Where runs were made with several budgets, all is of the longest but what is said
    of the others.

    Arguments:
        contenders: in alphabetical order.
        sizes: labelled images, ascending.
        seeds: how many different ones there are.
        test_images: on how many images accuracies were measured, the least.
        majority: accuracy of always naming the most frequent class of these; None if their classes are unknown.
        few_classes: sentences on networks that name one class only, or fewer than half of those that occur.
        budgets: all of them, the longest last; none where there is only one.
        by_budget: the accuracies with each of them.
        convergence: how each contender's runs ended at each size.
        same_steps: why more data and more training are not told apart; None where they are.
        laws: both models for each contender, as far as it has more sizes than they have parameters.
        pairs: of all contenders that have a size and a seed in common.
        equivalents: with more than two contenders, how many images the one that is best at the largest size needs for
            what each other does with n, as a multiple of n. Without numbers as in ``Pair.multipliers``.
        worth: pretrained networks beside the same ones from scratch.
        frontier: accuracy against each cost.
        warnings: what a reader must know first, a sentence each.
        has_predictions: whether images were resampled; otherwise their part is that of independent test sets.
    """

    contenders: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: int
    test_images: int
    majority: float | None
    few_classes: tuple[str, ...]
    networks: tuple[Network, ...]
    budgets: tuple[str, ...]
    by_budget: tuple[BudgetPoint, ...]
    convergence: tuple[Convergence, ...]
    same_steps: str | None
    curves: tuple[LearningCurve, ...]
    laws: tuple[PowerLaw, ...]
    pairs: tuple[Pair, ...]
    equivalents: tuple[Multiplier, ...]
    worth: tuple[Worth, ...]
    frontier: tuple[FrontierPoint, ...]
    warnings: tuple[str, ...]
    resamples: int
    has_predictions: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values, to be written as JSON."""
        return dataclasses.asdict(self)

    @property
    def start_kinds(self) -> tuple[StartKind, ...]:
        """How the trainings began: from scratch, as linear probes, fine-tuned."""
        return tuple(dict.fromkeys(one.start_kind for one in self.networks if one.start_kind in COMPARED_STARTS))

    def pairs_by_start(self) -> list[tuple[StartKind, Pair]]:
        """The pairs of contenders whose trainings began in the same way, each after that way."""
        kinds = {network.contender: network.start_kind for network in self.networks}
        same = ((kinds[pair.ahead], pair) for pair in self.pairs if kinds[pair.ahead] == kinds[pair.behind])
        return [(kind, pair) for kind, pair in same if kind in COMPARED_STARTS]

    def pair(self, first: str, second: str) -> Pair | None:
        """The pair of these two in either order; None if they have nothing in common."""
        return next((pair for pair in self.pairs if {pair.ahead, pair.behind} == {first, second}), None)


def analyse(
    results: Sequence[RunResult],
    correct: Mapping[str, np.ndarray] | None = None,
    *,
    majority: float | None = None,
    few_classes: Sequence[str] = (),
    design: Design | None = None,
    reserved: Reservations = NO_RESERVATIONS,
    resamples: int = 4000,
    seed: int = 0,
) -> Analysis:
    """Learning curves, fits, crossings, data multipliers and verdicts; the same for the same results, in any order.

    Arguments:
        correct: by name of the run, whether each test image is classified rightly (``load_answers``).
        majority: accuracy of always naming the most frequent class (``load_answers``).
        few_classes: sentences on networks that name few classes.
        design: what was settled before anybody looked; None to give all comparisons the same share of the error.
        reserved: objections of the test-set log to conclusions on a contender, by its name.
        resamples: behind crossings, data multipliers and fits.

    Raises:
        InputError: no results, two of one cell, or predictions that do not belong to them.
    """
    budgets = Budgets(in_order(results), correct, planned=() if design is None else design.seeds)
    ordered = budgets.longest
    measured = measurements_of(ordered, correct)
    drawn = Resamples(measured, count=resamples, seed=seed)
    by_contender = [drawn.of([name]) for name in measured.contenders]
    laws = [law for draws in by_contender for law in power_laws(draws)]
    curves = [learning_curve(measured, name) for name in measured.contenders]
    convergence = convergence_of(ordered)
    judged = comparisons(measured, ordered, design, reserved)
    ahead = {(one.leader, one.follower, one.size) for one in judged if one.verdict == "ahead"}
    return Analysis(
        contenders=measured.contenders,
        sizes=measured.sizes,
        seeds=len(measured.seeds),
        test_images=int(np.nanmin(measured.images)),
        majority=majority,
        few_classes=tuple(few_classes),
        networks=tuple(networks_of(ordered)),
        budgets=budgets.texts,
        by_budget=tuple(budgets.points()),
        convergence=tuple(convergence),
        same_steps=same_steps(ordered),
        curves=tuple(curves),
        laws=tuple(laws),
        pairs=tuple(_pairs(drawn, judged, budgets, convergence)),
        equivalents=tuple(_equivalents(drawn, curves, convergence)),
        worth=tuple(worth_of(ordered, measured, judged)),
        frontier=tuple(cost_frontier(ordered, curves, ahead)),
        warnings=(
            *(f"{told}." for told in few_classes),
            *(f"{told}." for told in (design.told if design is not None else ())),
            *warnings_of(ordered, dict.fromkeys((one.first, one.second) for one in judged), reserved),
            *lottery_warnings(measured, majority),
            *_limits(measured, laws),
        ),
        resamples=resamples,
        has_predictions=correct is not None,
    )


def _pairs(
    drawn: Resamples, judged: Sequence[SizedComparison], budgets: Budgets, convergence: Sequence[Convergence]
) -> list[Pair]:
    """The comparisons by pair, each with what it says of all its sizes together.

    Pairs share the cores, and products of small matrices have one each: shared out further they take twice the time.
    """
    by_pair = itertools.groupby(judged, key=lambda one: (one.first, one.second))
    pairs = [(drawn.of(names), tuple(of_pair)) for names, of_pair in by_pair]
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda pair: _pair(pair[0], pair[1], budgets, convergence), pairs))


def _pair(
    draws: Draws, judged: tuple[SizedComparison, ...], budgets: Budgets, convergence: Sequence[Convergence]
) -> Pair:
    laws: PairLaws = {model: [fit_draws(draws, place, model) for place in (0, 1)] for model in models_for(draws)}
    curves = Curves.of(draws) if len(draws.sizes) > 1 else None
    place = leader(draws)
    ahead, behind = draws.contenders[place], draws.contenders[1 - place]
    confidence = {one.size: confidence_of(one.plan, one.seeds) for one in judged}
    return Pair(
        ahead=ahead,
        behind=behind,
        comparisons=judged,
        crossings=tuple(crossings(draws, laws, curves)),
        multipliers=tuple(where_they_stand(multipliers(draws, laws, curves), draws, convergence)),
        gaps=tuple(budgets.gaps(ahead, behind, confidence)),
        at_equal=tuple(one for cost in LASTING for one in budgets.at_equal(ahead, behind, cost, confidence)),
    )


def _equivalents(
    drawn: Resamples, curves: Sequence[LearningCurve], convergence: Sequence[Convergence]
) -> list[Multiplier]:
    """What each contender is worth in images of the one that has the highest accuracy at the largest size."""
    measured = drawn.measured
    if len(measured.contenders) < 3:
        return []
    best, found = best_of(curves), []
    for name in measured.contenders:
        if name != best and (measured.present[[measured.contenders.index(one) for one in (name, best)]].all(0)).any():
            draws = drawn.of([name, best])
            found += where_they_stand(equivalents(draws, of=0), draws, convergence)
    return found


def _limits(measured: Measurements, laws: Sequence[PowerLaw]) -> list[str]:
    """What these results cannot tell."""
    found = []
    seeds = measured.present.sum(2)  # contenders x sizes; who was not run at a size has none there
    fewest = np.where(seeds > 0, seeds, seeds.max()).min(0)
    if few := [size for size, k in zip(measured.sizes, fewest, strict=True) if k < SEEDS_FOR_A_VERDICT]:
        named = "every size" if len(few) == len(measured.sizes) else f"n = {', '.join(f'{size:,}' for size in few)}"
        found.append(
            f"Fewer than {SEEDS_FOR_A_VERDICT} seeds at {named}: that describes these runs and judges nothing; "
            "the interval of a single seed covers images only, and rerunning it moves more."
        )
    if narrow := dict.fromkeys(law.contender for law in laws if law.sizes[-1] <= 10 * law.sizes[0]):
        found.append(f"Over one decade of sizes the floor c of a power law is not identifiable ({listed([*narrow])}).")
    if poor := dict.fromkeys(
        law.contender for law in laws if law.is_chosen and law.p_value is not None and law.p_value < 0.01
    ):
        found.append(f"The curve of {listed([*poor])} is no power law, so what is extrapolated from it is a guess.")
    return found
