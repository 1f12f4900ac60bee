"""The training size at which one contender overtakes another, or the range in which it does not."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from vit_vs_cnn.regimes.interpolation import (
    first_reached,
    interpolate,
    interpolation_error,
    log_errors,
    reached_from,
    root_with_interval,
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
        overtaken: the other.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def crossings(draws: Draws, laws: PairLaws) -> list[Crossing]:
    """n* of the two contenders of ``draws``, interpolated and by every fitted law; none for one size.

    In range n* is the last change of sign of the difference in log n, so that a resample in which the overtaker is
    behind at the largest size has none, whatever happened before. A law is followed beyond the range only then.

    The interval of an interpolated n* is a test of "they are equal at n" turned inside out (``root_with_interval``): it
    stays right where n* is ill determined, and is open on the side where the test cannot reject. That of a law holds
    only if the law does, which no resample can tell: so both laws are there, to be compared.
    """
    if len(draws.sizes) < 2:
        return []
    overtaker = _overtaker(draws)
    return [_by_interpolation(draws, overtaker), *(_by_law(draws, overtaker, model, laws[model]) for model in laws)]


def _gap(
    sizes: Sequence[int], accuracy: Float[np.ndarray, "resamples 2 sizes"], at: Float[np.ndarray, "places"]
) -> Float[np.ndarray, "resamples places"]:
    """log err of the first minus log err of the second: above zero where the second is ahead."""
    first, second = (interpolate(sizes, log_errors(accuracy[:, i]), at) for i in (0, 1))
    return first - second


def _overtaker(draws: Draws) -> int:
    """Who passes the other within the range; if nobody, who is behind at the largest size."""
    leader = int(draws.observed[1, -1] > draws.observed[0, -1])
    gap = _gap(draws.sizes, draws.observed[None], size_grid(draws.sizes[0], draws.sizes[-1]))
    lead = gap if leader == 1 else -gap
    return leader if bool((lead <= 0).any()) else 1 - leader


def _by_interpolation(draws: Draws, overtaker: int) -> Crossing:
    sizes = size_grid(draws.sizes[0], draws.sizes[-1])
    sign = 1 if overtaker == 1 else -1
    observed, resampled = (sign * _gap(draws.sizes, a, sizes) for a in (draws.observed[None], draws.values))
    error = interpolation_error(draws.sizes, log_errors(draws.observed), sizes)
    interval = root_with_interval(sizes, observed, resampled, error)
    return _crossing(draws, overtaker, "interpolation", interval, reached_from(sizes, resampled))


def _by_law(draws: Draws, overtaker: int, model: Model, laws: Sequence[tuple[Laws, Laws]]) -> Crossing:
    smallest, largest = draws.sizes[0], draws.sizes[-1]
    inside, beyond = size_grid(smallest, largest), size_grid(largest, REACH * largest)
    roots = []
    for our, their in zip(laws[overtaker], laws[1 - overtaker], strict=True):
        within = reached_from(inside, np.log(their.errors(inside)) - np.log(our.errors(inside)))
        after = first_reached(beyond, np.log(their.errors(beyond)) - np.log(our.errors(beyond)))
        roots.append(np.where(np.isposinf(within), after, within))
    return _crossing(draws, overtaker, model, estimate_from(roots[0][0], roots[1]), roots[1])


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
