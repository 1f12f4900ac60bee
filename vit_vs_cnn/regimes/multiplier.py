"""How many times more data one contender needs for the accuracy of another."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vit_vs_cnn.regimes.crossing import REACH, Method, PairLaws, State, state_of
from vit_vs_cnn.regimes.interpolation import interpolate, log_errors, root_with_interval, size_grid
from vit_vs_cnn.regimes.power_laws import Laws, Model
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.resampling import Draws, estimate_from


@dataclass(frozen=True)
class Multiplier:
    """M(n) = n_behind(err_ahead(n)) / n: so many times the data ``behind`` needs for what ``ahead`` does with n.

    Arguments:
        ahead: who is ahead at the largest size.
        behind: the other.
        size: n.
        method: curves interpolated between the sizes, or one of the fitted laws.
        state: where M n lies.
        value: M; None if it lies outside of what was run (and, for a law, was not found).
        low: lower end of its 95 % interval; None if the interval reaches below ``less_than``.
        high: upper end; None if the interval reaches beyond ``more_than``.
        more_than: the largest M that could have been seen.
        less_than: the smallest M that could have been seen.
    """

    ahead: str
    behind: str
    size: float
    method: Method
    state: State
    value: float | None
    low: float | None
    high: float | None
    more_than: float
    less_than: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def multipliers(draws: Draws, laws: PairLaws) -> list[Multiplier]:
    """M at every size: interpolated and, where that ends outside of the sizes that were run, by the laws, too."""
    if len(draws.sizes) < 2:
        return []
    found = []
    for place in range(len(draws.sizes)):
        measured = _by_interpolation(draws, place)
        found.append(measured)
        if measured.value is None:
            found += [_by_law(draws, place, model, laws[model]) for model in laws]
    return found


def matched_multiplier(draws: Draws) -> Multiplier | None:
    """M at the size where ``ahead`` does what ``behind`` does with the largest size: all of it was measured.

    If ``ahead`` needs n_0 images for what ``behind`` does with n_max, M = n_max / n_0. It is censored ("more than")
    where ``ahead`` is better at its smallest size than ``behind`` at its largest. None for a single size.
    """
    if len(draws.sizes) < 2:
        return None
    smallest, largest, ahead = float(draws.sizes[0]), float(draws.sizes[-1]), leader(draws)
    needed = _needed(draws, ahead, level_of=1 - ahead, at=-1)
    ratio = Estimate(*(_inverse(largest, size) for size in (needed.value, needed.high, needed.low)))
    found = _multiplier(draws, largest / ratio.value if np.isfinite(ratio.value) else smallest, "interpolation", ratio)
    return dataclasses.replace(found, more_than=largest / smallest, less_than=1.0)


def leader(draws: Draws) -> int:
    """Who is ahead at the largest size; the first one if they are level."""
    return int(draws.observed[1, -1] > draws.observed[0, -1])


def _needed(draws: Draws, contender: int, *, level_of: int, at: int) -> Estimate:
    """The size from which a contender errs no more than another does at one size."""
    sizes = size_grid(draws.sizes[0], draws.sizes[-1])
    gaps = []
    for accuracy in (draws.observed[None], draws.values):
        level = log_errors(accuracy[:, level_of, at])
        gap = level[:, None] - interpolate(draws.sizes, log_errors(accuracy[:, contender]), sizes)
        gaps.append(np.where(np.abs(gap) < 1e-12, 1e-12, gap))  # as good is good enough
    return root_with_interval(sizes, *gaps)


def _inverse(largest: float, size: float) -> float:
    """n_max / n_0; reached already at the smallest size: infinity; not even at the largest: minus infinity."""
    return largest / size if np.isfinite(size) else -size


def _by_interpolation(draws: Draws, place: int) -> Multiplier:
    ahead, size = leader(draws), float(draws.sizes[place])
    needed = _needed(draws, 1 - ahead, level_of=ahead, at=place)
    ratio = Estimate(needed.value / size, needed.low / size, needed.high / size)
    return _multiplier(draws, size, "interpolation", ratio)


def _by_law(draws: Draws, place: int, model: Model, laws: Sequence[tuple[Laws, Laws]]) -> Multiplier:
    ahead, size = leader(draws), float(draws.sizes[place])
    at = np.array([size])
    ratios = []
    for our, their in zip(laws[1 - ahead], laws[ahead], strict=True):
        needed = our.sizes_for(their.errors(at)[:, 0])
        ratios.append(np.where(needed > REACH * draws.sizes[-1], np.inf, needed) / size)
    return _multiplier(draws, size, model, estimate_from(ratios[0][0], ratios[1]))


def _multiplier(draws: Draws, size: float, method: Method, ratio: Estimate) -> Multiplier:
    smallest, largest, ahead = draws.sizes[0], draws.sizes[-1], leader(draws)
    more_than = largest / size * (1 if method == "interpolation" else REACH)
    low = more_than if np.isposinf(ratio.low) else ratio.low
    return Multiplier(
        ahead=draws.contenders[ahead],
        behind=draws.contenders[1 - ahead],
        size=size,
        method=method,
        state=state_of(ratio.value * size, smallest, largest, method),
        value=ratio.value if np.isfinite(ratio.value) else None,
        low=low if np.isfinite(low) else None,
        high=ratio.high if np.isfinite(ratio.high) else None,
        more_than=more_than,
        less_than=smallest / size if method == "interpolation" else 0.0,
    )
