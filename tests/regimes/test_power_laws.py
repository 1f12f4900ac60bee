"""Fits against the truth and against SciPy."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from tests.regimes.tables import draws_of, law_table, seeded
from vit_vs_cnn.regimes.power_laws import fit_draws, fit_laws, power_laws

SIZES = (500, 1000, 2500, 5000, 10000)
TRUE = (0.7, 0.31, 0.11)


def errors_of(a, b, c):
    return np.exp(a) * np.array(SIZES, dtype=float) ** -b + c


def scipy_fit(sizes, errors, weights, *, floor):
    """The best of many starts of SciPy's bounded least squares."""
    n = np.array(sizes, dtype=float)
    best, least = None, np.inf
    for b in (0.05, 0.2, 0.4, 0.8):
        for c in (0.0, 0.6 * errors.min()) if floor else (0.0,):
            law = (lambda n, a, b, c: np.exp(a) * n**-b + c) if floor else (lambda n, a, b: np.exp(a) * n**-b)
            start = [np.log(max(errors[0] - c, 1e-3)) + b * np.log(n[0]), b] + [c] * floor
            bounds = ([-20, 0.003] + [0] * floor, [60, 6] + [errors.min() + 1e-12] * floor)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optimize.OptimizeWarning)
                found, _ = optimize.curve_fit(law, n, errors, start, 1 / np.sqrt(weights), bounds=bounds, max_nfev=4000)
            misfit = (weights * (errors - law(n, *found)) ** 2).sum()
            if misfit < least:
                best, least = found, misfit
    return best, least


@pytest.mark.parametrize("floor", [False, True])
def test_a_law_without_noise_is_recovered(floor):
    a, b, c = TRUE if floor else (*TRUE[:2], 0.0)
    law = fit_laws(SIZES, errors_of(a, b, c)[None], np.ones(5), floor=floor)
    assert law.log_scale[0] == pytest.approx(a, abs=2e-3)
    assert law.exponent[0] == pytest.approx(b, abs=2e-4)
    assert law.floor[0] == pytest.approx(c, abs=2e-4)


@pytest.mark.parametrize("floor", [False, True])
def test_fits_are_as_good_as_scipys_best_of_many_starts(floor):
    rng = np.random.default_rng(0)
    errors = errors_of(*TRUE) + 0.008 * rng.standard_normal((5 if floor else 11, 5))
    weights = 1 / rng.uniform(0.004, 0.012, 5) ** 2
    ours = fit_laws(SIZES, errors, weights, floor=floor)
    misfits = (weights * (errors - ours.errors(np.array(SIZES, dtype=float))) ** 2).sum(1)
    for row, misfit, b in zip(errors, misfits, ours.exponent, strict=True):
        found, least = scipy_fit(SIZES, row, weights, floor=floor)
        assert misfit <= least * (1 + 1e-4) + 1e-6
        if not floor:  # with a floor, b is hardly determined
            assert b == pytest.approx(found[1], rel=1e-3)


def test_the_floor_stays_between_zero_and_the_least_error():
    rng = np.random.default_rng(1)
    errors = np.clip(errors_of(*TRUE) + 0.05 * rng.standard_normal((101, 5)), 0.01, 1)
    law = fit_laws(SIZES, errors, np.ones(5), floor=True)
    assert (law.floor >= 0).all()
    assert (law.floor <= errors.min(1)).all()
    assert (law.floor > 0).any()


def test_the_size_for_an_error_inverts_the_error_of_a_size():
    law = fit_laws(SIZES, errors_of(*TRUE)[None], np.ones(5), floor=True)
    assert law.sizes_for(law.errors(np.array([1234.0]))[:, 0])[0] == pytest.approx(1234.0)
    assert np.isposinf(law.sizes_for(law.floor - 1e-3)[0])


def _laws(sizes=SIZES, law=TRUE, **options):
    return power_laws(draws_of(seeded(law_table(sizes, a=law), **options), count=300))


def test_residuals_weights_and_aicc_are_those_of_the_formulas():
    results = seeded(law_table(SIZES, a=TRUE), spread=0.01)
    draws = draws_of(results, count=300)
    plain, floored = power_laws(draws)
    for law, p in ((plain, 2), (floored, 3)):
        fitted = np.array([law.error_at(n) for n in SIZES])
        np.testing.assert_allclose(law.residuals, 1 - draws.observed[0] - fitted, atol=1e-12)
        assert law.chi_squared == pytest.approx((np.array(law.residuals) ** 2 / draws.variance[0]).sum())
        assert law.aicc == pytest.approx(law.chi_squared + 2 * p + 2 * p * (p + 1) / (5 - p - 1))
    assert floored.chi_squared <= plain.chi_squared


def test_a_floor_is_chosen_only_where_the_data_demand_it():
    with_floor = (4.0, 0.8, 0.3)
    assert [law.is_chosen for law in _laws(law=with_floor, images=10**9, spread=1e-4)] == [False, True]
    assert [law.is_chosen for law in _laws(law=(0.7, 0.3, 0.0))] == [True, False]


def test_few_sizes_allow_few_models():
    assert [law.model for law in _laws(SIZES[:4])] == ["power law", "power law with floor"]
    assert [law.aicc is None for law in _laws(SIZES[:4])] == [False, True]
    assert [law.model for law in _laws(SIZES[:3])] == ["power law"]
    assert [law.is_chosen for law in _laws(SIZES[:3])] == [True]
    assert _laws(SIZES[:2]) == []


def test_leaving_the_last_size_out_tells_how_far_off_the_extrapolation_was():
    table = law_table(SIZES, a=(0.7, 0.3, 0.0))
    table["a"][10000] -= 0.05
    (law, _) = power_laws(draws_of(seeded(table, images=10**9, spread=1e-6), count=300))
    assert law.leave_last_out == pytest.approx(0.05, abs=1e-4)


def test_a_curve_that_is_no_power_law_is_told_by_its_residuals():
    table = {"a": dict(zip(SIZES, (0.3, 0.31, 0.32, 0.6, 0.9), strict=True))}
    (law, _) = power_laws(draws_of(seeded(table), count=300))
    assert law.p_value is not None
    assert law.p_value < 1e-6
    (true, _) = _laws(law=(0.7, 0.3, 0.0))
    assert true.p_value is not None
    assert true.p_value > 0.01


def test_the_exponents_interval_covers_the_truth():
    (law, _) = _laws(law=(0.7, 0.3, 0.0))
    assert law.exponent.low < 0.3 < law.exponent.high
    assert (law.floor.low, law.floor.high) == (0.0, 0.0)


def _spread_beyond(table, times):
    """Standard deviation of log err over the resamples at so many times the largest size, between their quartiles."""
    draws = draws_of(seeded(table, images=10**12, spread=1e-9), count=2000)
    _, resampled = fit_draws(draws, 0, "power law")
    low, high = np.quantile(np.log(resampled.errors(np.array([times * SIZES[-1]]))[:, 0]), (0.25, 0.75))
    return (high - low) / 2


def test_what_leaving_out_the_last_sizes_misses_widens_a_law_beyond_them_with_the_distance():
    """Of a law with a floor of .3 a law without one misses log err by r for each unit of log n."""
    floored = law_table(SIZES, a=(2.0, 0.5, 0.3))
    at = {times: _spread_beyond(floored, times) for times in (0.9, 1.0, 2.0, 4.0)}
    assert at[0.9] == pytest.approx(0.0, abs=1e-5)
    assert at[1.0] == pytest.approx(0.0, abs=1e-5)
    assert at[4.0] == pytest.approx(2 * at[2.0], rel=1e-3)
    errors, rates = 1 - np.array(list(floored["a"].values())), []
    for count in (1, 2):
        law = fit_laws(SIZES[:-count], errors[None, :-count], np.ones(5 - count), floor=False)
        misses = np.log(errors[-count:] / law.errors(np.array(SIZES[-count:], dtype=float))[0])
        rates.append(np.mean((misses / np.log(np.array(SIZES[-count:]) / SIZES[-count - 1])) ** 2))
    quartile = stats.t.ppf(0.75, 2)
    assert at[2.0] == pytest.approx(np.sqrt(np.mean(rates)) * quartile * np.log(2), rel=0.1)
    assert _spread_beyond(law_table(SIZES, a=(0.7, 0.3, 0.0)), 4.0) < 1e-4  # a law that is true misses nothing


def test_the_size_for_an_error_beyond_the_sizes_that_were_run_heeds_the_drift():
    law = fit_laws(SIZES, errors_of(*TRUE)[None], np.ones(5), floor=True)
    drifted = replace(law, drift=np.array([0.1]))
    assert drifted.sizes_for(drifted.errors(np.array([25_000.0]))[:, 0])[0] == pytest.approx(25_000, rel=1e-3)
    assert drifted.sizes_for(drifted.errors(np.array([2000.0]))[:, 0])[0] == pytest.approx(2000, rel=1e-6)
    assert np.isposinf(drifted.sizes_for(law.errors(np.array([60_000.0]))[:, 0])[0])  # it turns before
