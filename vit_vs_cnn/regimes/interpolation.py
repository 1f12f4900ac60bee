"""Learning curves between the sizes that were run, and where they reach something."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.resampling import Draws

#: Places between the smallest and the largest size, equally spaced in log n.
PLACES = 257
#: ``searched`` looks at every so-many-th of them first: it divides ``PLACES`` - 1.
STRIDE = 16
#: What is done to a gap before it is interpolated.
Scale = Callable[[np.ndarray], np.ndarray]
#: Logarithms need an error above 0.
LEAST_ERROR = 1e-5


def size_grid(smallest: int | float, largest: int | float, places: int = PLACES) -> Float[np.ndarray, "places"]:
    """Training sizes equally spaced in log n, both ends included."""
    return np.geomspace(smallest, largest, places)


def log_errors(accuracies: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """log(1 - accuracy), finite for a perfect score, too."""
    return np.log(np.maximum(1.0 - accuracies, LEAST_ERROR))


def interpolate(
    sizes: Sequence[int], log_error: Float[np.ndarray, "resamples sizes"], at: Float[np.ndarray, "places"]
) -> Float[np.ndarray, "resamples places"]:
    """log err over log n, monotone between neighbouring sizes: a power law without floor is met exactly.

    Reference: Fritsch & Carlson, "Monotone piecewise cubic interpolation", SIAM J. Numerical Analysis 1980 (SciPy's).
    """
    x = np.log(sizes)
    slopes = PchipInterpolator(x, log_error, axis=1)(x, nu=1)
    unit, none = np.eye(len(x)), np.zeros((len(x), len(x)))
    places = np.clip(np.log(at), x[0], x[-1])
    values_at, slopes_at = (CubicHermiteSpline(x, *parts)(places).T for parts in ((unit, none), (none, unit)))
    return np.asarray(log_error @ values_at + slopes @ slopes_at)


@dataclass(frozen=True, eq=False)
class Curves:
    """log err of two contenders at ``places``, interpolated, as it was observed and in every resample."""

    places: Float[np.ndarray, "places"]
    observed: tuple[Float[np.ndarray, "1 places"], ...]
    resampled: tuple[Float[np.ndarray, "resamples places"], ...]

    @classmethod
    def of(cls, draws: Draws) -> "Curves":
        """Those of all contenders of ``draws`` over its whole range of sizes."""
        places = size_grid(draws.sizes[0], draws.sizes[-1])
        both = (
            [interpolate(draws.sizes, log_errors(values[:, i]), places) for i in range(len(draws.contenders))]
            for values in (draws.observed[None], draws.values)
        )
        return cls(places, *map(tuple, both))


def reached_from(
    sizes: Float[np.ndarray, "*resamples places"],
    gap: Float[np.ndarray, "resamples places"],
    *,
    last: bool = True,
    scale: Scale = np.asarray,
) -> Float[np.ndarray, "resamples"]:
    """The size from which ``gap`` stays above zero up to the largest size.

    Plus infinity where the gap is not above zero at the largest size, minus infinity where it is above zero everywhere.
    Between two places the gap is taken as straight in log n.

    Arguments:
        sizes: of the places, for all resamples or for each its own.
        last: False for the first size at which the gap is above zero; plus infinity where it never is.
        scale: what of ``gap`` is straight, where that is not the gap itself; it has the gap's sign.
    """
    left = _before_change(gap, last)
    return np.where(left < 0, -np.inf if last else sizes[..., 0], _straight(sizes, gap, left, scale))


def _before_change(gap: Float[np.ndarray, "resamples places"], last: bool) -> Int64[np.ndarray, "resamples"]:
    """The last place at or below zero, or the one before the first above it; -1 where there is none."""
    places = gap.shape[1]
    if last:
        below = gap <= 0
        return np.where(below.any(1), places - 1 - np.argmax(below[:, ::-1], axis=1), -1)
    above = gap > 0
    return np.where(above.any(1), np.argmax(above, axis=1), places) - 1


def _straight(
    sizes: Float[np.ndarray, "*resamples places"],
    gap: Float[np.ndarray, "resamples places"],
    left: Int64[np.ndarray, "resamples"],
    scale: Scale,
) -> Float[np.ndarray, "resamples"]:
    """Where a straight line through the gap at a place and the next is zero; infinity behind the last place."""
    logs, rows = np.broadcast_to(np.log(sizes), gap.shape), np.arange(len(gap))
    at = np.clip(left, 0, gap.shape[1] - 2)
    before, after = scale(gap[rows, at]), scale(gap[rows, at + 1])
    share = np.clip(-before / np.where(after > before, after - before, 1.0), 0.0, 1.0)
    found = np.exp(logs[rows, at] + share * (logs[rows, at + 1] - logs[rows, at]))
    return np.where(left == gap.shape[1] - 1, np.inf, found)


#: A gap at sizes that are the same for all resamples or each one's own, of the resamples chosen.
GapAt = Callable[[Float[np.ndarray, "*resamples places"], Any], Float[np.ndarray, "resamples places"]]


def searched(sizes: Float[np.ndarray, "places"], gap_at: GapAt, *, last: bool, scale: Scale) -> np.ndarray:
    """``reached_from`` of a gap that is costly: first at every ``STRIDE``-th place, then
    between the two where its sign changes. What changes it twice between two such places is not seen.

    Arguments:
        gap_at: for smooth gaps of few turns, such as those of power laws.
    """
    rough = sizes[::STRIDE]
    gap = gap_at(rough, slice(None))
    cell = _before_change(gap, last)
    inside = (cell >= 0) & (cell < len(rough) - 1)
    found = np.where(cell < 0, -np.inf if last else sizes[0], np.inf)
    fine = sizes[STRIDE * cell[inside, None] + np.arange(STRIDE + 1)]
    within = reached_from(fine, gap_at(fine, inside), last=last, scale=scale)
    found[inside] = np.clip(within, fine[:, 0], fine[:, -1])
    return found


def interpolation_error(
    sizes: Sequence[int], log_errors: Float[np.ndarray, "curves sizes"], at: Float[np.ndarray, "places"]
) -> Float[np.ndarray, "places"]:
    """How far the difference of two interpolated curves, or one curve, may be off between the sizes: no resample tells.

    Every size but the first and the last is left out in turn; the miss d_j is what the others then say of it less what
    was measured. Between two sizes the error is taken to be 4 u (1 - u) times the larger of the misses at both, u the
    share of the way in log n: nothing at the sizes themselves. A size that is left out leaves a gap twice as wide, so
    that a smooth curve is off by less. With two sizes nothing is known of what lies between them.

    Arguments:
        log_errors: of the curve, or of both, of which the first less the second is looked at.
    """
    x, signs = np.log(sizes), np.array([1.0, -1.0])[: len(log_errors)]
    misses = np.zeros(len(sizes)) if len(sizes) > 2 else np.full(2, np.inf)
    for left_out in range(1, len(sizes) - 1):
        others = np.delete(x, left_out)
        said = PchipInterpolator(others, np.delete(log_errors, left_out, axis=1), axis=1)(x[left_out])
        misses[left_out] = abs(float(signs @ (said - log_errors[:, left_out])))
    places = np.clip(np.log(at), x[0], x[-1])
    left = np.clip(np.searchsorted(x, places, side="right") - 1, 0, len(x) - 2)
    share = (places - x[left]) / (x[left + 1] - x[left])
    width = 4 * share * (1 - share)
    return np.where(width > 1e-9, np.maximum(misses[left], misses[left + 1]) * np.maximum(width, 1e-9), 0.0)


def root_with_interval(
    sizes: Float[np.ndarray, "places"],
    observed: Float[np.ndarray, "1 places"],
    resampled: Float[np.ndarray, "resamples places"],
    error: Float[np.ndarray, "places"],
    confidence: float = 0.95,
) -> Estimate:
    """The root of the observed gap, by ``reached_from``, and all sizes around it that a test cannot tell from a root.

    A size is told from a root where fewer than 2.5 % or more than 97.5 % of the resampled gaps are above zero there:
    the test of "the gap is zero at n" turned inside out (Fieller's way). So the interval holds as often as the test
    does, however crooked the curves, and has no end on a side where the test never rejects. Rejected is only what is
    rejected for every gap that lies within ``error`` of the interpolated one.

    Arguments:
        error: of the gap at each place, by ``interpolation_error``.

    Returns:
        sizes; an end that is not there is infinite, as is a root beyond the largest size (+) or below the smallest (-).
    """
    root = float(reached_from(sizes, observed)[0])
    most, least = (np.count_nonzero(resampled > bound, axis=0) / len(resampled) for bound in (-error, error))
    share = np.where(most < 0.5, most, np.maximum(least, 0.5))
    tail = (1 - confidence) / 2
    told = (share < tail) | (share > 1 - tail)
    after = int(np.searchsorted(sizes, root, side="right"))  # the first place behind the root
    left, right = np.flatnonzero(told[:after]), np.flatnonzero(told[after:]) + after
    low = _edge(sizes, share, int(left[-1]), 1, tail) if len(left) else -np.inf
    high = _edge(sizes, share, int(right[0]), -1, tail) if len(right) else np.inf
    return Estimate(root, min(low, root), max(high, root))


def _edge(
    sizes: Float[np.ndarray, "places"], share: Float[np.ndarray, "places"], told: int, inwards: int, tail: float
) -> float:
    """Where the share leaves the tail between a place that is told from a root and the next one inwards.

    There is none where the last place of the range is told: then the interval begins where the range ends, at infinity.
    """
    if not 0 <= told + inwards < len(sizes):
        return np.inf * inwards
    level = tail if share[told] < tail else 1 - tail
    step = share[told + inwards] - share[told]
    part = float(np.clip((level - share[told]) / step, 0.0, 1.0)) if step else 0.0
    logs = np.log(sizes)
    return float(np.exp(logs[told] + part * (logs[told + inwards] - logs[told])))
