"""Looking more than once while seeds are added: what each look may spend of the error that all of them share."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy import special

#: Fewer paired seeds than these describe runs and judge nothing: the first look.
SEEDS_FOR_A_VERDICT = 3
#: Errors for which levels are tabled, and cells of the normal score z of a p-value.
_ERRORS = np.log(np.geomspace(1e-9, 1.0, 60))
_WIDTH = 0.05
_EDGES = _WIDTH * np.arange(-140, 141)
_HALF_TURN = (-np.pi / 2, np.pi / 2)


@dataclass(frozen=True)
class Plan:
    """Up to how many seeds a comparison may grow, and whether it is judged on the way.

    On the way looks are taken to happen at every number of seeds k from 3 on, whether or not anybody looks. Up to k the
    error alpha ln(1 + (e - 1) k / seeds) is spent, so that all looks together have alpha: the nominal level of look k
    is what leaves P[p_k < level_k, no p_j < level_j for j < k] = spent(k) - spent(k - 1).

    The p_k are those of Student's test on the first k of the same values x, which have one recursion: the direction of
    (x_1 ... x_k) is independent of its length, so that R_k = sum x / sqrt(sum x^2) is a Markov chain,

        ``R_(k + 1) = (R_k + w) / sqrt(1 + w^2)``, ``w = T_k / sqrt k``, T_k of Student's distribution with k degrees,

    and t_k = R_k sqrt((k - 1) / (k - R_k^2)). It is followed over cells of z_k, ``p_k = 2 Phi(-|z_k|)``. Without looks
    on the way there is one, at the end, with all of alpha.

    References: Lan & DeMets, Biometrika 1983 (its spending function of Pocock's type); Armitage, McPherson & Rowe,
    JRSS A 1969 (the recursion); Jennison & Turnbull, "Group sequential methods", 2000, chapter 9 (repeated intervals).
    Differs: the recursion is that of Student's test and not of a Brownian motion, by whose levels ten looks at seeds
    would err in 5.9 % instead of 5. What test images add to the variance is the same at all looks, so that it makes
    these more alike than is taken here, and the error smaller.

    Arguments:
        seeds: at most.
        on_the_way: whether verdicts are given before all of them are there.
    """

    seeds: int
    on_the_way: bool = False

    def at(self, seeds: int) -> "Plan":
        """The plan where it is being followed; one look at what is there where no verdict comes of it anyway."""
        return self if SEEDS_FOR_A_VERDICT <= seeds <= self.seeds else Plan(seeds)

    def level(self, seeds: int, error: float) -> float:
        """The p-value below which so many seeds reject, where all looks together may err in a share of ``error``."""
        if not self.on_the_way:
            return error
        return math.exp(float(np.interp(math.log(error), _ERRORS, _levels(self.seeds, seeds))))

    def p_value(self, seeds: int, p: float) -> float:
        """The least error at which a look at so many seeds rejects: a p-value that allows for all looks up to here.

        ``p_value(k, p) < error`` exactly where ``p < level(k, error)``. The chance that it falls below ``error`` at any
        look is at most ``error``, so that it may be corrected for many comparisons like any p-value.

        Reference: Liu & Anderson, "On adaptive extensions of group sequential trials", JASA 2008 (sequential p-values).
        """
        if not self.on_the_way:
            return p
        if p <= 0:
            return 0.0
        levels = _levels(self.seeds, seeds)
        if math.log(p) >= levels[-1]:
            return 1.0
        below = min(0.0, math.log(p) - float(levels[0]))  # under the table both shrink alike
        return math.exp(float(np.interp(math.log(p), levels, _ERRORS)) + below)


def spent(share: float) -> float:
    """What part of the error may be spent when this share of the seeds is there: ln(1 + (e - 1) t)."""
    return math.log1p((math.e - 1) * min(1.0, share))


def _levels(planned: int, seeds: int) -> Float[np.ndarray, "errors"]:
    """Logarithms of the nominal levels of the look at so many seeds, for each of the tabled errors."""
    if not SEEDS_FOR_A_VERDICT <= seeds <= planned:
        raise ValueError(f"a look at {seeds} of {planned} seeds; they go from {SEEDS_FOR_A_VERDICT} to all of them")
    return _table(planned)[seeds - SEEDS_FOR_A_VERDICT]


@lru_cache(maxsize=64)
def _table(planned: int) -> tuple[Float[np.ndarray, "errors"], ...]:
    """``_levels`` of every look, from the first on."""
    errors, found = np.exp(_ERRORS), []
    centres = (_EDGES[1:] + _EDGES[:-1]) / 2
    mass, sofar = np.tile(np.diff(special.ndtr(_EDGES)), (len(errors), 1)), np.zeros(len(errors))
    for seeds in range(SEEDS_FOR_A_VERDICT, planned + 1):
        spending = spent(seeds / planned) * errors
        boundary = _boundary(spending - sofar, mass)
        found.append(np.log(2 * special.ndtr(-boundary)))
        kept = np.clip((boundary[:, None] - np.abs(centres)) / _WIDTH + 0.5, 0.0, 1.0)
        mass, sofar = (mass * kept) @ _leap(seeds), spending
    return tuple(found)


def _boundary(spending: Float[np.ndarray, "errors"], mass: Float[np.ndarray, "errors cells"]) -> np.ndarray:
    """The |z| that as much of the mass lies beyond as may be spent."""
    half = mass.shape[1] // 2
    outwards = (mass[:, half:] + mass[:, half - 1 :: -1])[:, ::-1]  # of |z|, from the outermost cell inwards
    beyond, places = np.log(np.maximum(outwards.cumsum(1), 1e-300)), _EDGES[half:-1][::-1]
    return np.array([np.interp(np.log(s), b, places) for s, b in zip(spending, beyond, strict=True)])


def _leap(seeds: int) -> Float[np.ndarray, "cells cells"]:
    """The chances to get from each cell of z after so many seeds to each after one more.

    With w = tan a the next R is sqrt(1 + R^2) cos(a - a_0), tan a_0 = 1 / R: above an edge over one stretch of angles.
    """
    centres = (_EDGES[1:] + _EDGES[:-1]) / 2
    before, edges = _ratio(centres, seeds)[:, None], _ratio(_EDGES[1:-1], seeds + 1)
    middle, longest = np.arctan2(1.0, before), np.sqrt(1 + before**2)
    reach = np.arccos(np.clip(edges / longest, -1.0, 1.0))
    ends = (middle + reach, middle - reach, middle + reach - 2 * np.pi)  # once around
    upper, lower, around = (special.stdtr(seeds, np.sqrt(seeds) * np.tan(np.clip(end, *_HALF_TURN))) for end in ends)
    above = np.pad(upper - lower + around, ((0, 0), (1, 1)), constant_values=((0, 0), (1.0, 0.0)))
    return above[:, :-1] - above[:, 1:]


def _ratio(z: Float[np.ndarray, "places"], seeds: int) -> Float[np.ndarray, "places"]:
    """sum x / sqrt(sum x^2) of so many values whose t-test has the p-value 2 Phi(-|z|)."""
    t = -np.sign(z) * special.stdtrit(seeds - 1, special.ndtr(-np.abs(z)))
    return t * np.sqrt(seeds / (seeds - 1 + t**2))
