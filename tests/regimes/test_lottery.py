"""Runs that failed, and seeds in two groups."""

import numpy as np
import pytest

from tests.regimes.tables import seeded
from tests.results import changed
from vit_vs_cnn.regimes import analyse
from vit_vs_cnn.regimes.lottery import has_failed, not_ruled_out, two_groups
from vit_vs_cnn.reporting.tables import comparison_lines


def test_what_is_within_the_error_of_chance_has_failed():
    """Of 1,000 images at .1 the standard error is .0095."""
    assert has_failed(0.1, 0.1, 1000)
    assert has_failed(0.118, 0.1, 1000)
    assert not has_failed(0.12, 0.1, 1000)
    assert has_failed(float("nan"), 0.1, 1000)


def test_of_a_few_images_what_is_closer_to_all_right_than_to_chance_has_not_failed():
    """Of 8 images at .75 two standard errors reach beyond 1."""
    assert has_failed(7 / 8, 0.75, 8)
    assert not has_failed(1.0, 0.75, 8)


@pytest.mark.parametrize(
    ("accuracies", "gap"),
    [
        ((0.70, 0.71, 0.10, 0.69), 0.59),
        ((0.70, 0.71, 0.11, 0.10, 0.72), 0.59),
        ((0.70, 0.71, 0.10), 0.60),
        ((0.70, 0.75, 0.60), None),  # three seeds that spread
        ((0.70, 0.705, 0.69, 0.73), None),  # no further apart than images alone bring about
        ((0.70, 0.10), None),
        ((0.7, 0.7, 0.7), None),
    ],
)
def test_seeds_fall_into_two_groups_where_the_gap_is_far_above_what_they_spread(accuracies, gap):
    assert two_groups(accuracies, 1000) == (None if gap is None else pytest.approx(gap))


def test_seeds_of_one_kind_are_seldom_said_to_be_two():
    """Seeds of a normal distribution that is wide beside the error of the images."""
    draws = 0.5 + 0.05 * np.random.default_rng(0).standard_normal((2000, 8))
    for seeds in (3, 4, 5, 6, 8):
        assert np.mean([two_groups(row[:seeds], 10**6) is not None for row in draws]) < 0.065


def test_failures_are_counted_and_told_of_before_the_rest():
    results = seeded({"a": {500: 0.7, 900: 0.8}, "b": {500: 0.7, 900: 0.8}}, seeds=4)
    results[2] = changed(results[2], accuracy=0.1)
    analysis = analyse(results, majority=0.1, resamples=50)
    told = analysis.warnings
    on_the_terminal = comparison_lines(analysis)
    assert on_the_terminal[0].startswith("warning: 1 of 8 runs of a ended within two standard errors of chance")
    assert on_the_terminal[1].startswith("warning: The seeds of a fall into two groups at n = 500")
    assert (
        "1 of 8 runs of a ended within two standard errors of chance (n = 500 seed 2): they count, as what is compared "
        "is the mean accuracy over seeds, failures included." in told
    )
    assert any(t.startswith("The seeds of a fall into two groups at n = 500 (60 points apart)") for t in told)
    assert not any("runs of b" in t or "seeds of b" in t for t in told)


def test_seeds_without_a_failure_leave_a_failure_rate_open():
    assert not_ruled_out(3) == pytest.approx(0.632, abs=1e-3)
    assert (1 - not_ruled_out(10)) ** 10 == pytest.approx(0.05)
