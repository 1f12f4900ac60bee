"""Figures: what an axis shows."""

import pytest

from vit_vs_cnn.reporting.figures.drawing import PercentLocator, make_axes


@pytest.mark.parametrize("values", [(100.0, 100.0), (0.0, 0.0), (2.0, 99.0)])
def test_an_axis_of_shares_ends_at_0_and_100_with_room_for_a_mark(values):
    _, (axis,) = make_axes(3.0, 2.0)
    axis.yaxis.set_major_locator(PercentLocator())
    axis.plot([1, 2], values, "o")
    axis.margins(y=0.25, tight=False)
    low, high = axis.get_ylim()
    assert -3.2 < low <= min(values) and max(values) <= high < 103.2
    assert high - low > 1
