"""Looks on the way: what each may spend, and that all together spend what they may."""

import numpy as np
import pytest
from scipy import stats

from vit_vs_cnn.statistics.looks import Plan, spent

PLAN = Plan(10, on_the_way=True)


@pytest.mark.slow
def test_all_looks_together_err_as_often_as_they_may():
    """Student's test at every number of seeds from three on: 200,000 paths, within four standard errors."""
    seeds = np.random.default_rng(5).standard_normal((200_000, 10))
    p = np.stack([stats.ttest_1samp(seeds[:, :k], 0.0, axis=1).pvalue for k in range(3, 11)], axis=1)
    for error in (0.01, 0.05, 0.3):
        stopped = p < [PLAN.level(k, error) for k in range(3, 11)]
        for k in (3, 5, 10):
            expected = error * spent(k / 10)
            found = stopped[:, : k - 2].any(1).mean()
            assert found == pytest.approx(expected, abs=4 * np.sqrt(expected / 200_000))


def test_a_finished_plan_has_spent_everything_and_its_first_look_what_is_its_own():
    assert spent(1.0) == pytest.approx(1.0)
    assert PLAN.level(3, 0.05) == pytest.approx(0.05 * spent(0.3), rel=1e-3)
    assert Plan(3, on_the_way=True).level(3, 0.05) == pytest.approx(0.05, rel=1e-3)


def test_without_looks_on_the_way_nothing_is_spent_on_them():
    assert Plan(10).level(10, 0.05) == 0.05
    assert Plan(10).p_value(10, 0.03) == 0.03


@pytest.mark.parametrize("seeds", [3, 4, 7, 10])
def test_the_p_value_over_looks_is_the_level_turned_inside_out(seeds):
    for error in (1e-6, 0.003, 0.05, 0.7):
        assert PLAN.p_value(seeds, PLAN.level(seeds, error)) == pytest.approx(error)
    p = [PLAN.p_value(seeds, p) for p in (0.0, 1e-40, 1e-9, 1e-3, 0.04, 0.5, 1.0)]
    assert p == sorted(p)
    assert p[0] == 0.0
    assert p[-1] == 1.0
    assert all(over >= alone for over, alone in zip(p, (0.0, 1e-40, 1e-9, 1e-3, 0.04, 0.5, 1.0), strict=True))


@pytest.mark.parametrize("seeds", [2, 11])
def test_a_look_outside_the_plan_is_none(seeds):
    with pytest.raises(ValueError, match=f"a look at {seeds} of 10 seeds"):
        PLAN.level(seeds, 0.05)
