"""Curves between the sizes, and where they reach something."""

import numpy as np
import pytest

from vit_vs_cnn.regimes.interpolation import (
    interpolate,
    interpolation_error,
    log_errors,
    reached_from,
    root_with_interval,
    searched,
    size_grid,
)

SIZES = (70, 110, 530, 1300)


def test_a_power_law_is_met_exactly_between_the_sizes():
    law = lambda n: -0.3 * np.log(n) + 1.1  # noqa: E731
    at = size_grid(70, 1300, 31)
    np.testing.assert_allclose(interpolate(SIZES, law(np.array(SIZES, dtype=float))[None], at)[0], law(at), atol=1e-12)


def test_between_two_sizes_the_curve_stays_between_their_errors():
    values = np.random.default_rng(0).standard_normal((53, 4))
    at = size_grid(70, 1300, 301)
    curves = interpolate(SIZES, values, at)
    for left in range(3):
        inside = (at >= SIZES[left]) & (at <= SIZES[left + 1])
        low, high = values[:, left : left + 2].min(1), values[:, left : left + 2].max(1)
        assert (curves[:, inside] >= low[:, None] - 1e-9).all()
        assert (curves[:, inside] <= high[:, None] + 1e-9).all()


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ((-1.0, 1.0, 2.0, 3.0), 10**0.5),  # halfway from 1 to 10
        ((1.0, -1.0, -1.0, 3.0), 100 * 10**0.25),  # the last change counts
        ((1.0, -1.0, 1.0, 0.0), np.inf),
        ((1.0, 1.0, 1.0, -1.0), np.inf),
        ((1.0, 2.0, 3.0, 4.0), -np.inf),
        ((0.0, 2.0, 3.0, 4.0), 1.0),
    ],
)
def test_what_is_reached_is_reached_from_the_last_change_of_sign_on(gap, expected):
    found = reached_from(np.array([1.0, 10.0, 100.0, 1000.0]), np.array([gap]))
    assert found[0] == pytest.approx(expected)


@pytest.mark.parametrize("last", [True, False])
def test_a_costly_gap_is_searched_at_few_places_and_found_as_at_all(last):
    """Parabolas in log n: with no root, one or two inside, and with roots at either end."""
    sizes = size_grid(70, 1300)
    middle, height, turn = (np.random.default_rng(i).normal(size=(211, 1)) for i in range(3))
    looked: list[int] = []

    def gap(at, rows):
        looked.append(np.broadcast_to(at, (len(middle[rows]), at.shape[-1])).shape[1])
        x = (np.log(at) - 5.7) / 1.5
        return turn[rows] * (x - middle[rows]) ** 2 - height[rows]

    np.testing.assert_allclose(
        searched(sizes, gap, last=last, scale=np.asarray), reached_from(sizes, gap(sizes, slice(None)), last=last)
    )
    assert looked == [17, 17, 257]


def test_a_perfect_score_has_a_finite_logarithm():
    assert np.isfinite(log_errors(np.array([1.0, 0.5]))).all()


def test_the_interval_of_a_root_holds_all_sizes_that_a_test_cannot_tell_from_it():
    """A straight gap with normal intercept: in log n the interval is the root plus and minus 1.96 of its deviation."""
    sizes = size_grid(100, 10_000)
    intercepts = np.random.default_rng(0).normal(-np.log(1500), 0.2, (20_000, 1))
    found = root_with_interval(sizes, np.log(sizes)[None] - np.log(1500), np.log(sizes) + intercepts, np.zeros(257))
    assert found.value == pytest.approx(1500, rel=1e-4)
    assert np.log(found.high / found.value) == pytest.approx(1.96 * 0.2, rel=0.05)
    assert np.log(found.value / found.low) == pytest.approx(1.96 * 0.2, rel=0.05)


@pytest.mark.parametrize(
    ("root", "deviation", "expected"),
    [
        (9000, 0.2, (9000, 9000 * np.exp(-0.392), np.inf)),
        (110, 0.2, (110, -np.inf, 110 * np.exp(0.392))),
        (15_000, 0.5, (np.inf, 15_000 * np.exp(-0.98), np.inf)),
        (10**6, 0.2, (np.inf, np.inf, np.inf)),
        (80, 0.5, (-np.inf, -np.inf, 80 * np.exp(0.98))),
        (1, 0.2, (-np.inf, -np.inf, -np.inf)),
    ],
)
def test_an_interval_is_open_where_the_range_ends_before_it(root, deviation, expected):
    sizes = size_grid(100, 10_000)
    intercepts = np.random.default_rng(0).normal(-np.log(root), deviation, (20_000, 1))
    found = root_with_interval(sizes, np.log(sizes)[None] - np.log(root), np.log(sizes) + intercepts, np.zeros(257))
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=0.03)


def test_what_may_be_wrong_between_sizes_is_nothing_at_them_and_nothing_on_a_straight_line():
    sizes, at = (100, 700, 2000, 10_000), np.array([100.0, 250.0, 700.0, 1200.0, 2000.0, 5000.0, 10_000.0])
    straight = -0.3 * np.log(sizes)[None]
    assert interpolation_error(sizes, straight, at) == pytest.approx(0, abs=1e-12)
    bent = straight + np.array([0.0, 0.2, 0.0, 0.0])
    error = interpolation_error(sizes, bent, at)
    assert error[[0, 2, 4, 6]] == pytest.approx(0)
    assert (error[[1, 3, 5]] > 0.05).all()
    assert interpolation_error(sizes, np.concatenate([bent, bent]), at) == pytest.approx(0)  # both alike: no gap errs


def test_two_sizes_say_nothing_of_what_lies_between_them():
    error = interpolation_error((100, 1000), np.array([[0.0, -1.0]]), np.array([100.0, 101.0, 500.0, 1000.0]))
    assert error.tolist() == [0.0, np.inf, np.inf, 0.0]


def test_an_error_between_sizes_widens_the_interval_by_it():
    sizes = size_grid(100, 10_000)
    intercepts = np.random.default_rng(0).normal(-np.log(1500), 0.2, (20_000, 1))
    gaps = np.log(sizes)[None] - np.log(1500), np.log(sizes) + intercepts
    found = root_with_interval(sizes, *gaps, np.full(257, 0.3))
    assert np.log(found.high / found.value) == pytest.approx(1.96 * 0.2 + 0.3, rel=0.05)
    assert np.log(found.value / found.low) == pytest.approx(1.96 * 0.2 + 0.3, rel=0.05)
