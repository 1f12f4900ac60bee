"""Accuracy against what it costs, and who is beaten on both counts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from vit_vs_cnn.regimes.curves import LearningCurve
from vit_vs_cnn.runs.result import RunResult, by_network

#: Costs of a training, and what they are called. Not seconds of training: they vary with what else runs.
COSTS = {"flops": "training FLOPs", "parameters": "parameters", "macs": "MACs of one image"}


@dataclass(frozen=True)
class FrontierPoint:
    """One contender at one training size: what it reaches and what it costs.

    Arguments:
        size: labelled images.
        value: mean over its seeds.
        accuracy: mean over its seeds.
        is_on_frontier: no contender with the same data costs as little and is ahead by a verdict.
    """

    contender: str
    size: int
    cost: str
    value: float
    accuracy: float
    is_on_frontier: bool


def cost_frontier(
    results: Sequence[RunResult], curves: Sequence[LearningCurve], ahead: Collection[tuple[str, str, int]]
) -> list[FrontierPoint]:
    """A point for each contender, size and cost.

    Arguments:
        ahead: who is ahead of whom at which size, by a verdict: a gap that is none beats nobody.
    """
    found, runs = [], by_network(results)
    accuracy = {(curve.contender, point.size): point.accuracy.value for curve in curves for point in curve.points}
    for cost in COSTS:
        means = {key: fmean(getattr(run.cost, cost) for run in runs[key]) for key in accuracy}
        for (contender, size), value in means.items():
            rivals = [name for name, n in means if n == size and means[name, n] <= value]
            beaten = any((rival, contender, size) in ahead for rival in rivals)
            point = FrontierPoint(contender, size, cost, value, accuracy[contender, size], is_on_frontier=not beaten)
            found.append(point)
    return found
