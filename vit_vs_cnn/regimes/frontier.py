"""Accuracy against what it costs, and who is beaten on both counts."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.regimes.curves import LearningCurve

#: What may stand in a result, and what it is called. Not seconds of training: they vary with what else runs.
COSTS = {
    "flops": "training FLOPs",
    "parameters": "parameters",
    "macs": "MACs of one image",
    "latency_ms": "latency in ms",
}


@dataclass(frozen=True)
class FrontierPoint:
    """One contender at one training size: what it reaches and what it costs.

    Arguments:
        contender: who.
        size: labelled images.
        cost: a name of ``COSTS``.
        value: mean over its seeds.
        accuracy: mean over its seeds.
        is_on_frontier: no contender with the same data is at least as accurate and as cheap, and better in one.
    """

    contender: str
    size: int
    cost: str
    value: float
    accuracy: float
    is_on_frontier: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def cost_frontier(results: Sequence[Mapping[str, Any]], curves: Sequence[LearningCurve]) -> list[FrontierPoint]:
    """A point for each contender, size and cost that is known for all contenders."""
    found = []
    accuracy = {(curve.contender, point.size): point.accuracy.value for curve in curves for point in curve.points}
    for cost in COSTS:
        if any(result.get(cost) is None for result in results):
            continue
        means = {key: _mean_cost(results, cost, *key) for key in accuracy}
        for (contender, size), value in means.items():
            rivals = [(means[key], accuracy[key]) for key in means if key[1] == size and key[0] != contender]
            mine = (value, accuracy[contender, size])
            beaten = any(_beats(rival, mine) for rival in rivals)
            found.append(FrontierPoint(contender, size, cost, *mine, is_on_frontier=not beaten))
    return found


def _mean_cost(results: Sequence[Mapping[str, Any]], cost: str, contender: str, size: int) -> float:
    values = [float(r[cost]) for r in results if r["contender"] == contender and r["train_size"] == size]
    return sum(values) / len(values)


def _beats(rival: tuple[float, float], mine: tuple[float, float]) -> bool:
    (their_cost, their_accuracy), (cost, accuracy) = rival, mine
    return their_cost <= cost and their_accuracy >= accuracy and rival != mine
