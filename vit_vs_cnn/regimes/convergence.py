"""Whether runs were still improving when their budget ended, by their own validation curves."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

import numpy as np

from vit_vs_cnn.runs.result import RunResult, StartKind, by_network

#: The part of a run, at its end, whose gain is looked at.
LAST = 0.25
#: A last validation before this share of a run does not stand for its end.
END = 0.95
#: Where a last quarter surely gains less than so much accuracy, the budget is not what limits the run.
LITTLE = 0.02
#: Standard errors of a one-sided test at 5 %.
ONE_SIDED = 1.645
NO_CURVE = "no validation curve is recorded"
EARLY_CURVE = "validations do not span the last quarter of a run"
FITTED = "a linear probe is fitted to its minimum"
FEW_IMAGES = f"too few validation images to rule out {100 * LITTLE:g} points"

#: settled: a gain of ``LITTLE`` is ruled out, or there is none to be had, as of a linear probe. still improving: some
#: gain is shown. Else it is not known.
State = Literal["still improving", "settled", "not known"]


@dataclass(frozen=True)
class Gain:
    """What the last quarter of a run, or of several, gained in accuracy.

    Arguments:
        value: from 0 to 1.
        error: its standard error.
    """

    value: float
    error: float

    @property
    def state(self) -> State:
        """What may be said of it. Being flat is no absence of evidence: too few images leave it open."""
        if self.value + ONE_SIDED * self.error < LITTLE:
            return "settled"
        return "still improving" if self.value - ONE_SIDED * self.error > 0 else "not known"


@dataclass(frozen=True)
class Convergence:
    """The training of one contender at one size, over its seeds.

    Arguments:
        size: labelled images, validation included.
        steps: of a run; the fewest.
        epochs: of a run, on average.
        gain: of the last quarter, the mean over the seeds; None where a run has no curve.
        reason: why nothing may, or why without a gain it is settled.
        curve: (step, validation accuracy), the mean over the seeds.
    """

    contender: str
    size: int
    steps: int
    epochs: float
    gain: Gain | None
    state: State
    reason: str | None
    curve: tuple[tuple[int, float], ...]


def late_gain(curve: Sequence[tuple[int, float]] | None, images: int, run: int | None = None) -> Gain | None:
    """What the last quarter of a run of S steps gained, a(S) - a(3 S / 4), with a standard error that is not too small.

    Between two validations i and j the curve is straight, a(3 S / 4) = (1 - w) a_i + w a_j, and

        SE^2 = v(S) + ((1 - w) sqrt v(i) + w sqrt v(j))^2,    v = p (1 - p) / N,    p = (N a + 1) / (N + 2).

    The same N images are looked at again and again, so accuracies err together: an image that is hard for a network
    mostly stays hard. What the two ends have in common cancels in their difference and is not subtracted here, as the
    accuracies alone do not tell how much it is; the two validations in the middle are taken to err wholly together. So
    SE is an upper bound, and what is called settled or still improving would be so with the images' answers at hand.
    p keeps a perfect score of few images from looking certain.

    A rate that falls to 0 gains at its end whatever the budget: it makes "still improving" more likely, never less.

    Arguments:
        curve: pairs of step and accuracy, one for each validation; None if there are none.
        images: that were validated on, N.
        run: its optimizer steps, which the last validation may miss a little; None for those of that validation.

    Returns:
        the gain; None where the validations do not begin before the last quarter, or end before the run does.
    """
    if not curve or images < 1:
        return None
    steps, accuracies = np.asarray(curve, float).T
    if len(steps) < 2 or steps[0] > (1 - LAST) * steps[-1] or steps[-1] < END * (run or 0):
        return None
    place = (1 - LAST) * steps[-1]
    j = int(np.searchsorted(steps, place))
    i = max(j - 1, 0)
    w = (place - steps[i]) / (steps[j] - steps[i]) if j > i else 1.0
    p = (images * accuracies + 1) / (images + 2)
    errors = np.sqrt(p * (1 - p) / images)
    before = (1 - w) * accuracies[i] + w * accuracies[j]
    error = math.hypot(errors[-1], (1 - w) * errors[i] + w * errors[j])
    return Gain(float(accuracies[-1] - before), float(error))


def convergence_of(results: Iterable[RunResult]) -> list[Convergence]:
    """How every contender's runs ended at every size, by contender and size."""
    return [_at(contender, size, runs) for (contender, size), runs in sorted(by_network(results).items())]


def _at(contender: str, size: int, runs: Sequence[RunResult]) -> Convergence:
    gains = [late_gain(r.scores.validation_curve, r.data.validation_images, r.cost.steps) for r in runs]
    known = [gain for gain in gains if gain is not None]
    gain = _mean(known) if len(known) == len(runs) else None
    state: State = "not known" if gain is None else gain.state
    reason = None
    if state == "not known":
        missing = NO_CURVE if any(not r.scores.validation_curve for r in runs) else EARLY_CURVE
        reason = missing if gain is None else FEW_IMAGES
    if all(r.start.start_kind is StartKind.LINEAR_PROBE for r in runs):
        state, reason = "settled", FITTED
    return Convergence(
        contender=contender,
        size=size,
        steps=min(r.cost.steps for r in runs),
        epochs=fmean(r.epochs for r in runs),
        gain=gain,
        state=state,
        reason=reason,
        curve=_mean_curve([r.scores.validation_curve for r in runs if r.scores.validation_curve]),
    )


def _mean(gains: Sequence[Gain]) -> Gain:
    """Over seeds, which have validation images of their own; where they differ by more than these explain, that.

    Of a val/ folder all have the same images, whose difficulty is the same at both ends of a gain.
    """
    error = math.hypot(*(gain.error for gain in gains)) / len(gains)
    values = [gain.value for gain in gains]
    scatter = stdev(values) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return Gain(fmean(values), max(error, scatter))


def _mean_curve(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[tuple[int, float], ...]:
    """At the steps at which all were validated."""
    by_step = [dict(curve) for curve in curves]
    shared = sorted(set.intersection(*(set(one) for one in by_step))) if by_step else []
    return tuple((int(step), fmean(one[step] for one in by_step)) for step in shared)
