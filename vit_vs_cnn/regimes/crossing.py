"""The training size at which one contender overtakes another, or the range in which it does not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from vit_vs_cnn.regimes.interpolation import (
    Curves,
    GapAt,
    interpolation_error,
    log_errors,
    reached_from,
    root_with_interval,
    searched,
    size_grid,
)
from vit_vs_cnn.regimes.power_laws import REACH, Laws, Model
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.resampling import Draws, estimate_from

#: The law of the observed means and those of the resamples, for both contenders of a pair.
PairLaws = Mapping[Model, Sequence[tuple[Laws, Laws]]]
Method = Literal["interpolation", "power law", "power law with floor"]
#: measured: within the sizes that were run. extrapolated: up to twice the largest. far extrapolated: beyond that, a
#: guess. censored: not within the sizes that were run. never: the fitted laws do not get there.
State = Literal["measured", "extrapolated", "far extrapolated", "censored above", "censored below", "never"]
#: Beyond so many times the largest size an extrapolation is called far.
NEAR = 2


@dataclass(frozen=True)
class Crossing:
    """The size n* at which ``overtaker`` passes ``overtaken`` and stays ahead up to the largest size.

    Arguments:
        overtaker: who is ahead at the largest size if the two cross within the range; else who is behind there.
        method: curves interpolated between the sizes, or one of the fitted laws.
        state: where n* lies.
        size: n*; None if it was not found.
        low: lower end of its 95 % interval; None if the interval reaches below the smallest size.
        high: upper end; None if the interval reaches beyond the largest size (beyond 1,000 times that for a law).
        range: smallest and largest size.
        probability_in_range: share of resamples that cross within the range.
    """

    overtaker: str
    overtaken: str
    method: Method
    state: State
    size: float | None
    low: float | None
    high: float | None
    range: tuple[int, int]
    probability_in_range: float

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval lies within the range: then, and only then, the crossing was seen."""
        return self.state == "measured" and self.low is not None and self.high is not None


def crossings(draws: Draws, laws: PairLaws, curves: Curves | None = None) -> list[Crossing]:
    """n* of the two contenders of ``draws``, interpolated and by every fitted law; none for one size.

    In range n* is the last change of sign of the difference in log n, so that a resample in which the overtaker is
    behind at the largest size has none, whatever happened before. A law is followed beyond the range only then.

    The interval of an interpolated n* is a test of "they are equal at n" turned inside out (``root_with_interval``): it
    stays right where n* is ill determined, and is open on the side where the test cannot reject. That of a law holds
    only if the law does, which no resample can tell: so both laws are there, to be compared.

    Arguments:
        curves: ``Curves.of(draws)``, where they are at hand already.
    """
    if len(draws.sizes) < 2:
        return []
    curves = curves or Curves.of(draws)
    overtaker = _overtaker(draws, curves)
    return [
        _by_interpolation(draws, curves, overtaker),
        *(_by_law(draws, overtaker, model, laws[model]) for model in laws),
    ]


def _overtaker(draws: Draws, curves: Curves) -> int:
    """Who passes the other within the range; if nobody, who is behind at the largest size."""
    leader = int(draws.observed[1, -1] > draws.observed[0, -1])
    lead = curves.observed[1 - leader] - curves.observed[leader]
    return leader if bool((lead <= 0).any()) else 1 - leader


def _by_interpolation(draws: Draws, curves: Curves, overtaker: int) -> Crossing:
    """By log err of the other minus log err of the overtaker: above zero where the latter is ahead."""
    observed, resampled = (a[1 - overtaker] - a[overtaker] for a in (curves.observed, curves.resampled))
    error = interpolation_error(draws.sizes, log_errors(draws.observed), curves.places)
    interval = root_with_interval(curves.places, observed, resampled, error)
    return _crossing(draws, overtaker, "interpolation", interval, reached_from(curves.places, resampled))


def _by_law(draws: Draws, overtaker: int, model: Model, laws: Sequence[tuple[Laws, Laws]]) -> Crossing:
    smallest, largest = draws.sizes[0], draws.sizes[-1]
    inside, beyond = size_grid(smallest, largest), size_grid(largest, REACH * largest)
    observed, resampled = (
        _roots(our, their, inside, beyond) for our, their in zip(laws[overtaker], laws[1 - overtaker], strict=True)
    )
    return _crossing(draws, overtaker, model, estimate_from(observed[0], resampled), resampled)


def _roots(
    our: Laws, their: Laws, inside: Float[np.ndarray, "places"], beyond: Float[np.ndarray, "places"]
) -> Float[np.ndarray, "laws"]:
    found = searched(inside, _lead(their, our), last=True, scale=np.log1p)
    later = np.isposinf(found)
    found[later] = searched(beyond, _lead(their.of(later), our.of(later)), last=False, scale=np.log1p)
    return found


def _lead(their: Laws, our: Laws) -> GapAt:
    """Their error over ours, less 1: its sign is that of the difference of the logarithms."""
    return lambda sizes, rows: their.of(rows).errors(sizes) / our.of(rows).errors(sizes) - 1.0


def _crossing(
    draws: Draws, overtaker: int, method: Method, interval: Estimate, resampled: Float[np.ndarray, "resamples"]
) -> Crossing:
    smallest, largest = draws.sizes[0], draws.sizes[-1]
    root, low, high = interval.value, interval.low, interval.high
    if np.isposinf(low):  # no resample crosses where one can look
        low = float(largest if method == "interpolation" else REACH * largest)
    return Crossing(
        overtaker=draws.contenders[overtaker],
        overtaken=draws.contenders[1 - overtaker],
        method=method,
        state=state_of(root, smallest, largest, method),
        size=root if np.isfinite(root) else None,
        low=low if np.isfinite(low) else None,
        high=high if np.isfinite(high) else None,
        range=(smallest, largest),
        probability_in_range=float(np.mean(np.isfinite(resampled) & (resampled <= largest))),
    )


def state_of(size: float, smallest: int, largest: int, method: Method) -> State:
    """How a size that was looked for relates to the sizes that were run; infinite if it was not found."""
    if not np.isfinite(size):
        if size < 0:
            return "censored below"
        return "censored above" if method == "interpolation" else "never"
    if size > largest * (1 + 1e-9):
        return "extrapolated" if size <= NEAR * largest else "far extrapolated"
    if size < smallest * (1 - 1e-9):
        return "extrapolated" if size >= smallest / NEAR else "far extrapolated"
    return "measured"
