"""Looking more than once while seeds are added: what each look may spend of the error that all of them share."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy import special

#: Fewer paired seeds than these describe runs and judge nothing: the first look.
SEEDS_FOR_A_VERDICT = 3
#: Places at which the path of a test is followed.
NODES = 120
_ERRORS = np.log(np.geomspace(1e-10, 1.0, 60))
_HALVINGS = 60


@dataclass(frozen=True)
class Plan:
    """Up to how many seeds a comparison may grow, and whether it is judged on the way.

    On the way looks are taken to happen at every number of seeds k from 3 on, whether or not anybody looks. Up to k the
    error alpha ln(1 + (e - 1) k / seeds) is spent, so that all looks together have alpha. With Z_k = B(t_k) / sqrt t_k,
    B a Brownian motion and t_k = k / seeds, the boundary c_k at look k solves

        P[|Z_j| < c_j for all j < k, |Z_k| > c_k] = spent(t_k) - spent(t_(k - 1)),

    by the recursion of Armitage, McPherson and Rowe over the density of B among the paths that have not been stopped.
    The nominal level 2 (1 - Phi(c_k)) is compared with the p-value of Student's distribution (the significance level
    approach). Without looks on the way there is one, at the end, with all of alpha.

    References: Armitage, McPherson & Rowe, JRSS A 1969; Lan & DeMets, Biometrika 1983 (its function of Pocock's type);
    Jennison & Turnbull, "Group sequential methods", 2000, sections 3.3 (significance levels), 9 (repeated intervals).

    Arguments:
        seeds: at most.
        on_the_way: whether verdicts are given before all of them are there.
    """

    seeds: int
    on_the_way: bool = False

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
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    mass, paths, before, sofar = np.ones((len(errors), 1)), np.zeros((len(errors), 1)), 0.0, np.zeros(len(errors))
    for seeds in range(SEEDS_FOR_A_VERDICT, planned + 1):
        time = seeds / planned
        step = math.sqrt(time - before)
        boundary = _boundary(spent(time) * errors - sofar, mass, paths, step, math.sqrt(time))
        found.append(np.log(np.maximum(2 * special.ndtr(-boundary / math.sqrt(time)), 1e-300)))
        across = boundary[:, None] * nodes
        leaps = np.exp(-0.5 * ((across[:, :, None] - paths[:, None, :]) / step) ** 2) / (step * math.sqrt(2 * math.pi))
        mass = boundary[:, None] * weights * (leaps @ mass[:, :, None])[:, :, 0]
        paths, before, sofar = across, time, spent(time) * errors
    return tuple(found)


def _boundary(
    spending: Float[np.ndarray, "errors"],
    mass: Float[np.ndarray, "errors paths"],
    paths: Float[np.ndarray, "errors paths"],
    step: float,
    deviation: float,
) -> Float[np.ndarray, "errors"]:
    """The |B| that as much of the paths' mass goes beyond as may be spent, by bisection."""
    low, high = np.zeros(len(spending)), np.full(len(spending), 12 * deviation)
    for _ in range(_HALVINGS):
        middle = ((low + high) / 2)[:, None]
        beyond = (mass * (special.ndtr((paths - middle) / step) + special.ndtr((-paths - middle) / step))).sum(1)
        low, high = np.where(beyond > spending, middle[:, 0], low), np.where(beyond > spending, high, middle[:, 0])
    return (low + high) / 2
