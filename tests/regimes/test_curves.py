"""Who stands first at the end of the curves."""

from vit_vs_cnn.regimes.curves import CurvePoint, LearningCurve, best_of
from vit_vs_cnn.statistics.estimate import Estimate


def _curve(name, *points):
    return LearningCurve(name, tuple(CurvePoint(size, Estimate(a, a, a), (a,)) for size, a in points))


def test_the_best_is_best_at_the_largest_size_and_not_where_it_was_run_last():
    early, late = _curve("early", (7, 0.9), (11, 0.6)), _curve("late", (7, 0.2), (11, 0.7))
    short = _curve("short", (7, 0.95))
    assert best_of([early, late, short]) == best_of([short, late, early]) == "late"
