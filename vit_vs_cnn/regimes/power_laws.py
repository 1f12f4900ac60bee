"""Power laws fitted to learning curves: err(n) = e^a n^-b + c."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy import stats

from vit_vs_cnn.regimes.interpolation import LEAST_ERROR, GapAt, searched, size_grid
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.resampling import Draws, estimate_from

Model = Literal["power law", "power law with floor"]
MODELS: tuple[Model, ...] = ("power law", "power law with floor")
#: Exponents b among which the best is looked for, before it is refined.
EXPONENTS = np.geomspace(0.003, 6.0, 49)
ZOOMS = 6
ZOOMS_TO_VERTEX = 2
ZOOM_PLACES = 9
#: Laws are followed up to so many times the largest size.
REACH = 1000


@dataclass(frozen=True, eq=False)
class Laws:
    """Many power laws at once, one for each resample.

    Arguments:
        drift: by how much the exponent is smaller beyond the largest size; 0 for the law as it was fitted.
        largest: the largest size that they were fitted to.
    """

    log_scale: Float[np.ndarray, "laws"]
    exponent: Float[np.ndarray, "laws"]
    floor: Float[np.ndarray, "laws"]
    drift: Float[np.ndarray, "laws"]
    largest: float

    def of(self, rows: Bool[np.ndarray, "laws"] | slice) -> "Laws":
        """Some of them."""
        chosen = (values[rows] for values in (self.log_scale, self.exponent, self.floor, self.drift))
        return Laws(*chosen, largest=self.largest)

    def errors(self, sizes: Float[np.ndarray, "*laws places"]) -> Float[np.ndarray, "laws places"]:
        """err(n) = (e^a n^-b + c) max(1, n / N)^d, N the largest size, at sizes n of all laws or each law's own."""
        found = np.exp(self.log_scale[:, None] - self.exponent[:, None] * np.log(sizes)) + self.floor[:, None]
        beyond = np.log(np.maximum(sizes / self.largest, 1.0))
        if beyond.any():
            found *= np.exp(np.clip(self.drift[:, None] * beyond, -100.0, 100.0))
        return found

    def sizes_for(self, errors: Float[np.ndarray, "laws"]) -> Float[np.ndarray, "laws"]:
        """n = ((err - c) / e^a)^(-1/b), beyond N the first one at which a law with a drift errs as little; infinity
        where it never does (for such a law: up to ``REACH`` N)."""
        above = errors - self.floor
        with np.errstate(over="ignore"):
            sizes = np.exp((self.log_scale - np.log(np.maximum(above, 1e-300))) / self.exponent)
        sizes = np.where(above > 0, sizes, np.inf)
        drifts = (sizes > self.largest) & (self.drift != 0)
        drifting, wanted = self.of(drifts), errors[drifts, None]
        gap: GapAt = lambda at, rows: wanted[rows] / drifting.of(rows).errors(at) - 1.0  # noqa: E731
        sizes[drifts] = searched(size_grid(self.largest, REACH * self.largest), gap, last=False, scale=np.log1p)
        return sizes


def fit_laws(
    sizes: Sequence[int], errors: Float[np.ndarray, "laws sizes"], weights: Float[np.ndarray, "sizes"], *, floor: bool
) -> Laws:
    """Weighted least squares of err(n) = e^a n^-b + c with 0 <= c <= min err, every row of ``errors`` by itself.

    For a given b the best e^a and c are those of a linear problem with c in an interval, in closed form. So only b is
    searched: over a grid that spans all plausible exponents (a start everywhere), then again and again between the
    neighbours of the best; and without c at the vertex of a parabola through the last three.

    Reference: Golub & Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose
    variables separate", SIAM J. Numerical Analysis 1973 (variable projection).

    Arguments:
        weights: one over the variance of each error.
        floor: whether c is free; otherwise it is 0.
    """
    centre = float(np.mean(np.log(sizes)))
    steps = np.log(sizes) - centre
    by_size = np.ascontiguousarray(errors.T)
    ceiling = by_size.min(0) if floor else None
    laws = np.arange(len(errors))
    shapes = np.exp(-np.multiply.outer(steps, EXPONENTS))[:, :, None]
    fit = _linear_fit(shapes, by_size, weights, ceiling)
    place = fit.rough_misfit().argmin(0)
    low, high = (EXPONENTS[np.clip(place + side, 0, len(EXPONENTS) - 1)] for side in (-1, 1))
    for _ in range(ZOOMS if floor else ZOOMS_TO_VERTEX):
        grid = low + (high - low) * np.linspace(0, 1, ZOOM_PLACES)[:, None]
        misfit = _linear_fit(_shapes(steps, low, high), by_size, weights, ceiling).misfit()
        place = misfit.argmin(0)
        low, high = (grid[np.clip(place + side, 0, ZOOM_PLACES - 1), laws] for side in (-1, 1))
    best = grid[place, laws]
    if not floor:  # with one the misfit has a kink where c meets an end of its interval
        best += _vertex(misfit, place) * (grid[1] - grid[0])
    fit = _linear_fit(np.exp(-np.multiply.outer(steps, best))[:, None], by_size, weights, ceiling)
    level = np.broadcast_to(fit.level, fit.scale.shape)[0]
    return Laws(np.log(fit.scale[0]) + best * centre, best, level, np.zeros(len(errors)), float(sizes[-1]))


def _vertex(misfit: Float[np.ndarray, "places laws"], place: Int64[np.ndarray, "laws"]) -> Float[np.ndarray, "laws"]:
    """Where the parabola through the smallest value and its neighbours is lowest, in places beyond it; 0 at an end."""
    inner = np.clip(place, 1, len(misfit) - 2)
    before, least, after = (misfit[inner + side, np.arange(len(place))] for side in (-1, 0, 1))
    bend = before - 2 * least + after
    found = (before - after) / 2 / np.where(bend > 0, bend, np.inf)
    return np.where(place == inner, found, 0.0)


def _shapes(
    steps: Float[np.ndarray, "sizes"], low: Float[np.ndarray, "laws"], high: Float[np.ndarray, "laws"]
) -> Float[np.ndarray, "sizes places laws"]:
    """e^(-b step) for ``ZOOM_PLACES`` equally spaced exponents b: a power of the ratio of two neighbours."""
    found = np.empty((len(steps), ZOOM_PLACES, len(low)))
    np.exp(-np.multiply.outer(steps, low), out=found[:, 0])
    ratio = np.exp(-np.multiply.outer(steps, (high - low) / (ZOOM_PLACES - 1)))
    for place in range(1, ZOOM_PLACES):
        np.multiply(found[:, place - 1], ratio, out=found[:, place])
    return found


@dataclass(frozen=True, eq=False)
class _LinearFit:
    """Scale and floor for each exponent and law, and the weighted sums that they come from."""

    shapes: Float[np.ndarray, "sizes places #laws"]
    errors: Float[np.ndarray, "sizes laws"]
    weights: Float[np.ndarray, "sizes"]
    ws: Float[np.ndarray, "places #laws"]
    wss: Float[np.ndarray, "places #laws"]
    wse: Float[np.ndarray, "places laws"]
    scale: Float[np.ndarray, "places laws"]
    level: Float[np.ndarray, "places laws"] | float

    def misfit(self) -> Float[np.ndarray, "places laws"]:
        """The weighted sum of squares that is left over."""
        found = np.zeros(self.scale.shape)
        for shape, errors, weight in zip(self.shapes, self.errors, self.weights, strict=True):
            residuals = self.scale * shape
            residuals += self.level
            residuals -= errors
            residuals *= residuals
            residuals *= weight
            found += residuals
        return found

    def rough_misfit(self) -> Float[np.ndarray, "places laws"]:
        """The same out of the sums and less what no law changes: quicker, with what cancels as its error."""
        found = self.scale * (self.scale * self.wss - 2 * self.wse)
        if isinstance(self.level, float):
            return found
        free = self.weights.sum() * self.level - 2 * (self.weights @ self.errors) + 2 * self.scale * self.ws
        return found + self.level * free


def _linear_fit(
    shapes: Float[np.ndarray, "sizes places #laws"],
    errors: Float[np.ndarray, "sizes laws"],
    weights: Float[np.ndarray, "sizes"],
    ceiling: Float[np.ndarray, "laws"] | None,
) -> _LinearFit:
    """The best scale and floor for each exponent; without a ceiling the floor is 0."""
    weighted = errors * weights[:, None]
    w, we = weights.sum(), weighted.sum(0)
    ws, wss = np.tensordot(weights, shapes, 1), np.tensordot(weights, shapes**2, 1)
    wse = np.add.reduce([shape * one for shape, one in zip(shapes, weighted, strict=True)])
    level: Any = 0.0
    if ceiling is not None:
        spread = np.maximum(w * wss - ws**2, 1e-12 * w * wss)
        level = np.clip((wss * we - ws * wse) / spread, 0.0, ceiling)
    scale = np.maximum((wse - level * ws) / wss, 1e-9)
    return _LinearFit(shapes, errors, weights, ws, wss, wse, scale, level)


@dataclass(frozen=True)
class PowerLaw:
    """err(n) = e^a n^-b + c, fitted to one contender's mean errors.

    Arguments:
        model: c = 0 ("power law"), or 0 <= c <= min err ("power law with floor").
        log_scale: a.
        exponent: b, with the interval of its resamples.
        floor: c, with the interval of its resamples.
        sizes: the sizes that it was fitted to.
        residuals: measured error minus fitted one at each of them.
        chi_squared: sum of the residuals' squares over their variances.
        p_value: of residuals as large as these if the law were true; None where nothing is left over to tell.
        aicc: chi^2 + 2 p + 2 p (p + 1) / (m - p - 1) for p parameters and m sizes; None where m <= p + 1.
        is_chosen: whether its AICc is the lowest of the models (c = 0 where there is no telling).
        leave_last_out: measured error at the largest size minus what a fit to the other sizes says; None where they
            are too few.
    """

    contender: str
    model: Model
    log_scale: float
    exponent: Estimate
    floor: Estimate
    sizes: tuple[int, ...]
    residuals: tuple[float, ...]
    chi_squared: float
    p_value: float | None
    aicc: float | None
    is_chosen: bool
    leave_last_out: float | None

    def error_at(self, size: int | float) -> float:
        """What the law says of a training size."""
        return math.exp(self.log_scale - self.exponent.value * math.log(size)) + self.floor.value


def parameters_of(model: Model) -> int:
    """How many numbers are fitted."""
    return 3 if model == "power law with floor" else 2


def models_for(draws: Draws) -> list[Model]:
    """The models that have fewer parameters than there are sizes."""
    return [model for model in MODELS if len(draws.sizes) > parameters_of(model)]


def fit_draws(draws: Draws, place: int, model: Model) -> tuple[Laws, Laws]:
    """The law of one contender's observed means, and those of all their resamples with the same weights.

    Those of the resamples drift beyond the largest size as leaving out the last ones says that they may.
    """
    floor = model == "power law with floor"
    observed = _fit_means(draws.sizes, *_means(draws, place), floor=floor)
    resampled = fit_laws(draws.sizes, 1 - draws.values[:, place], 1 / draws.variance[place], floor=floor)
    return observed, dataclasses.replace(resampled, drift=_drifts(draws, place, model))


def _means(draws: Draws, place: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean errors of one contender, and their weights."""
    return tuple((1 - draws.observed[place]).tolist()), tuple((1 / draws.variance[place]).tolist())


@lru_cache(maxsize=256)
def _fit_means(sizes: tuple[int, ...], errors: tuple[float, ...], weights: tuple[float, ...], *, floor: bool) -> Laws:
    """``fit_laws`` of mean errors, which are the same in all pairs of a contender."""
    return fit_laws(sizes, np.array([errors]), np.array(weights), floor=floor)


def _drifts(draws: Draws, place: int, model: Model) -> Float[np.ndarray, "laws"]:
    """By how much the exponent may be off beyond the largest size N, for each resample: no resample tells that.

    The law is fitted without the last size and, where enough are left for its parameters, without the last two. Each
    miss log err measured - log err said is divided by its distance log(n / largest size fitted): an exponent that is
    off by d beyond N makes log err be off by d log(n / N). Their root mean square over the k = 1 or 2 fits is r, and
    the exponents of the resamples are off by r t_k, Student's distribution with k degrees of freedom: a normal miss
    over the root mean square of k earlier ones. What noise adds to the misses stays in, so that the interval is rather
    too wide. Where a curve turns in a way that no size that was run shows yet, nothing helps.

    References: Tashman, "Out-of-sample tests of forecasting accuracy", International Journal of Forecasting 2000
    (errors of forecasts from leaving out the end, by distance); Alabdulmohsin et al., "Revisiting neural scaling laws
    in language and vision", NeurIPS 2022 (laws judged at sizes that were left out). Ours: that the rate is one per
    log n, and t_k; ``python -m benchmarks.calibration`` shows how often the intervals hold.
    """
    logs, squares = np.log(draws.sizes), []
    for count in (1, 2):
        if len(logs) - count >= parameters_of(model):
            measured, said = _left_out(draws, place, model, count)
            miss = np.log(np.maximum(measured, LEAST_ERROR) / np.maximum(said, LEAST_ERROR))
            squares.append(float(np.mean((miss / (logs[-count:] - logs[-count - 1])) ** 2)))
    rng = np.random.default_rng(derive_seed("beyond the largest size", place))
    return np.sqrt(np.mean(squares)) * rng.standard_t(len(squares), len(draws.values))


def _left_out(
    draws: Draws, place: int, model: Model, count: int
) -> tuple[Float[np.ndarray, "count"], Float[np.ndarray, "count"]]:
    """The errors measured at the last sizes, and what a fit to the others says."""
    errors, weights = _means(draws, place)
    floor = model == "power law with floor"
    law = _fit_means(draws.sizes[:-count], errors[:-count], weights[:-count], floor=floor)
    return np.array(errors[-count:]), law.errors(np.array(draws.sizes[-count:], dtype=float))[0]


def power_laws(draws: Draws) -> list[PowerLaw]:
    """Both models for the only contender of ``draws``, as far as there are more sizes than parameters."""
    laws = [_power_law(draws, model) for model in models_for(draws)]
    scores = [math.inf if law.aicc is None else law.aicc for law in laws]
    chosen = scores.index(min(scores)) if scores else 0
    return [dataclasses.replace(law, is_chosen=i == chosen) for i, law in enumerate(laws)]


def _power_law(draws: Draws, model: Model) -> PowerLaw:
    (contender,) = draws.contenders
    m, p = len(draws.sizes), parameters_of(model)
    observed, resampled = fit_draws(draws, 0, model)
    errors, weights = 1 - draws.observed[0], 1 / draws.variance[0]
    residuals = errors - observed.errors(np.array(draws.sizes, dtype=float))[0]
    chi_squared = float((weights * residuals**2).sum())
    last = _left_out(draws, 0, model, 1) if m > p else None
    return PowerLaw(
        contender=contender,
        model=model,
        log_scale=float(observed.log_scale[0]),
        exponent=estimate_from(observed.exponent[0], resampled.exponent),
        floor=estimate_from(observed.floor[0], resampled.floor),
        sizes=draws.sizes,
        residuals=tuple(float(r) for r in residuals),
        chi_squared=chi_squared,
        p_value=float(stats.chi2.sf(chi_squared, m - p)) if m > p else None,
        aicc=chi_squared + 2 * p + 2 * p * (p + 1) / (m - p - 1) if m > p + 1 else None,
        is_chosen=False,
        leave_last_out=None if last is None else float(last[0][0] - last[1][0]),
    )
