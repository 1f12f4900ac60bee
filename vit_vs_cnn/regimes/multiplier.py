"""How many times more data one contender needs for the accuracy of another."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vit_vs_cnn.regimes.convergence import Convergence
from vit_vs_cnn.regimes.convergence import State as TrainingState
from vit_vs_cnn.regimes.crossing import Method, PairLaws, State, state_of
from vit_vs_cnn.regimes.interpolation import Curves, interpolation_error, log_errors, root_with_interval
from vit_vs_cnn.regimes.power_laws import REACH, Laws, Model
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.resampling import Draws, estimate_from

MultiplierState = State | Literal["budget-limited", "budget not known", "no longer rises"]
#: Why there is no multiplier where two networks were compared at several sizes, for a reader.
WHY_NONE = {
    "budget-limited": "budget-limited: no multiplier",
    "budget not known": "not known whether the budget limits it: no multiplier",
    "no longer rises": "the curve of {behind} no longer rises: no multiplier",
}
_NEARLY = 1 + 1e-9
#: Added to a gap of log errors: as good is good enough, whatever the rounding.
AS_GOOD = 1e-12
_SURELY = 0.975


@dataclass(frozen=True)
class Multiplier:
    """M(n) = n_behind(err_ahead(n)) / n: so many times the data ``behind`` needs for what ``ahead`` does with n.

    Arguments:
        ahead: who is ahead at the largest size; among equivalents the one that is not.
        size: n.
        method: curves interpolated between the sizes, or one of the fitted laws.
        state: where M n lies, or why nothing is said of it.
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
    state: MultiplierState
    value: float | None
    low: float | None
    high: float | None
    more_than: float
    less_than: float

    def without_numbers(self, state: "MultiplierState") -> "Multiplier":
        """The same with nothing but why there is no number."""
        return dataclasses.replace(self, state=state, value=None, low=None, high=None)


def multipliers(draws: Draws, laws: PairLaws, curves: Curves | None = None) -> list[Multiplier]:
    """M at every size: interpolated and, where that ends outside of the sizes that were run, by the laws, too.

    Arguments:
        curves: ``Curves.of(draws)``, where they are at hand already.
    """
    if len(draws.sizes) < 2:
        return []
    curves, ahead, found = curves or Curves.of(draws), leader(draws), []
    for place in range(len(draws.sizes)):
        measured = _by_interpolation(draws, curves, place, ahead)
        found.append(measured)
        if measured.value is None:
            found += [_by_law(draws, place, model, laws[model]) for model in laws]
    return found


def equivalents(draws: Draws, of: int) -> list[Multiplier]:
    """What a contender's accuracy is worth in images of the other: n_other(err(n)) / n, interpolated, at every size.

    Arguments:
        of: the contender's place in ``draws``.
    """
    if len(draws.sizes) < 2:
        return []
    curves = Curves.of(draws)
    return [_by_interpolation(draws, curves, place, of) for place in range(len(draws.sizes))]


def where_they_stand(found: Sequence[Multiplier], draws: Draws, convergence: Sequence[Convergence]) -> list[Multiplier]:
    """The same, without the numbers of those that the budget may have made.

    M(n) stands on ``ahead`` at n and on ``behind`` at the sizes around its interval, a law's on all sizes of both. It
    is kept where the runs at all of these are settled and the curve of ``behind`` rises around M n: a curve that is
    flat, or flat because its steps ended, is never caught up with by more data, whatever n.
    """
    states: dict[tuple[str, int], TrainingState] = {(c.contender, c.size): c.state for c in convergence}
    return [_where_it_stands(m, draws, states) for m in found]


def _where_it_stands(m: Multiplier, draws: Draws, states: Mapping[tuple[str, int], TrainingState]) -> Multiplier:
    own = {states[place] for place in _stands_on(m, draws.sizes)}
    if "still improving" in own:
        return m.without_numbers("budget-limited")
    if "not known" in own:
        return m.without_numbers("budget not known")
    return m if _rises(m, draws) else m.without_numbers("no longer rises")


def _stands_on(m: Multiplier, sizes: Sequence[int]) -> list[tuple[str, int]]:
    if m.method != "interpolation":
        return [(name, size) for name in (m.ahead, m.behind) for size in sizes]
    low, high = (m.low or m.less_than) * m.size, (m.high or m.more_than) * m.size
    first = max((size for size in sizes if size <= low * _NEARLY), default=sizes[0])
    last = min((size for size in sizes if size * _NEARLY >= high), default=sizes[-1])
    return [(m.ahead, round(m.size)), *((m.behind, size) for size in sizes if first <= size <= last)]


def _rises(m: Multiplier, draws: Draws) -> bool:
    """Whether ``behind`` is surely better at the size behind M n than at the one before it."""
    found = {"censored below": draws.sizes[0], "measured": (m.value or 0) * m.size}.get(m.state, draws.sizes[-1])
    upper = int(np.clip(np.searchsorted(draws.sizes, found), 1, len(draws.sizes) - 1))
    accuracy = draws.values[:, draws.contenders.index(m.behind)]
    return bool(np.mean(accuracy[:, upper] > accuracy[:, upper - 1]) >= _SURELY)


def leader(draws: Draws) -> int:
    """Who is ahead at the largest size; the first one if they are level."""
    return int(draws.observed[1, -1] > draws.observed[0, -1])


def _needed(draws: Draws, curves: Curves, contender: int, *, level_of: int, at: int) -> Estimate:
    """The size from which a contender errs no more than another does at one size."""
    observed, resampled = (
        log_errors(accuracy[:, level_of, at])[:, None] - curve[contender] + AS_GOOD
        for accuracy, curve in ((draws.observed[None], curves.observed), (draws.values, curves.resampled))
    )
    error = interpolation_error(draws.sizes, log_errors(draws.observed[contender][None]), curves.places)
    return root_with_interval(curves.places, observed, resampled, error)


def _by_interpolation(draws: Draws, curves: Curves, place: int, ahead: int) -> Multiplier:
    size = float(draws.sizes[place])
    needed = _needed(draws, curves, 1 - ahead, level_of=ahead, at=place)
    ratio = Estimate(needed.value / size, needed.low / size, needed.high / size)
    return _multiplier(draws, size, "interpolation", ratio, ahead)


def _by_law(draws: Draws, place: int, model: Model, laws: Sequence[tuple[Laws, Laws]]) -> Multiplier:
    ahead, size = leader(draws), float(draws.sizes[place])
    at = np.array([size])
    ratios = []
    for our, their in zip(laws[1 - ahead], laws[ahead], strict=True):
        needed = our.sizes_for(their.errors(at)[:, 0])
        ratios.append(np.where(needed > REACH * draws.sizes[-1], np.inf, needed) / size)
    return _multiplier(draws, size, model, estimate_from(ratios[0][0], ratios[1]), ahead)


def _multiplier(draws: Draws, size: float, method: Method, ratio: Estimate, ahead: int) -> Multiplier:
    smallest, largest = draws.sizes[0], draws.sizes[-1]
    more_than = largest / size * (1 if method == "interpolation" else REACH)
    less_than = smallest / size if method == "interpolation" else 0.0
    low = more_than if np.isposinf(ratio.low) else ratio.low
    high = less_than if np.isneginf(ratio.high) else ratio.high
    return Multiplier(
        ahead=draws.contenders[ahead],
        behind=draws.contenders[1 - ahead],
        size=size,
        method=method,
        state=state_of(ratio.value * size, smallest, largest, method),
        value=ratio.value if np.isfinite(ratio.value) else None,
        low=low if np.isfinite(low) else None,
        high=high if np.isfinite(high) else None,
        more_than=more_than,
        less_than=less_than,
    )
