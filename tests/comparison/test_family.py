"""One size of an experiment is judged together with all its other sizes, as its report judges it."""

import pytest

from tests.regimes.tables import seeded
from vit_vs_cnn.comparison.family import Family
from vit_vs_cnn.regimes.comparison import comparisons
from vit_vs_cnn.regimes.measurements import in_order, measurements_of
from vit_vs_cnn.runs.design import Design

DESIGN = Design((0, 1, 2), False, ("a", "b", "c"), (7, 11), 11, ("a", "b"), 1.0)
TABLE = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.47, 11: 0.5}, "c": {7: 0.48, 11: 0.58}}


@pytest.mark.parametrize("size", [7, 11])
def test_a_size_by_itself_has_the_verdicts_that_it_has_among_all(size):
    results = in_order(seeded(TABLE, spread=0.006))
    reported = comparisons(measurements_of(results), results, DESIGN)
    there = [one for one in reported if one.size == size]
    found = Family(DESIGN, size, tuple(reported)).judged(there)
    assert found == there
    assert {one.family for one in found} == {6}
    alone = Family(DESIGN, size).judged(there)  # the others unknown: their shares of the error stay with them
    assert all(a.adjusted_p_value >= b.adjusted_p_value for a, b in zip(alone, there, strict=True))
    assert (alone != there) == (size == 7)  # those at 11 come first and hand their shares on
