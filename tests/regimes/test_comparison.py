"""Pairs at every size: what is compared with what, and on what terms."""

from dataclasses import replace

import numpy as np
import pytest

from tests.regimes.tables import seeded
from tests.results import changed
from vit_vs_cnn.regimes.comparison import comparisons
from vit_vs_cnn.regimes.measurements import in_order, measurements_of
from vit_vs_cnn.runs.design import Design
from vit_vs_cnn.statistics.significance import holm

SEEDED = {"seeds": (0, 1, 2), "on_the_way": False, "contenders": ("a", "b"), "train_sizes": (7, 11)}
DESIGN = Design(**SEEDED, size=11, pair=("b", "a"), equivalence_points=1.0)


def judged(results, design=None):
    ordered = in_order(results)
    return comparisons(measurements_of(ordered), ordered, design)


def compared(gap, *, seeds=3, spread=0.002, design=None):
    table = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.5 - gap, 11: 0.6}}
    return judged(seeded(table, seeds=seeds, spread=spread), design)


def test_each_size_is_judged_by_itself():
    first, second = compared(0.2)
    assert (first.verdict, first.reason, first.leader, first.size) == ("ahead", None, "a", 7)
    assert (second.verdict, second.size) == ("no difference shown", 11)
    assert second.difference.low < 0 < second.difference.high


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_describe_only(seeds):
    (first, _) = compared(0.2, seeds=seeds)
    assert first.verdict == "descriptive only"
    assert first.reason is not None and first.reason.text.startswith(f"{seeds} seed")


def test_an_obstacle_forbids_the_verdict():
    results = seeded({"a": {7: 0.5}}, trials=1) + seeded({"b": {7: 0.2}}, trials=12)
    (first,) = judged(results)
    assert (first.verdict, str(first.reason)) == ("no verdict", "their recipes had unequal trials (1, 12)")


def test_only_seeds_that_both_have_are_compared():
    results = seeded({"a": {7: 0.5}, "b": {7: 0.4}}, seeds=4, spread=0.02)
    few = [r for r in results if (r.contender, r.seed) != ("b", 3)]
    (found,) = judged(few)
    by_seed = [[r.accuracy for r in few if r.contender == name][:3] for name in "ab"]
    assert found.seeds == 3
    assert found.difference.value == pytest.approx(np.mean(by_seed[0]) - np.mean(by_seed[1]))


def test_all_sizes_and_pairs_are_one_family():
    table = {"a": {7: 0.5, 11: 0.6}, "b": {7: 0.45, 11: 0.6}, "c": {7: 0.48, 11: 0.58}}
    found = judged(seeded(table, spread=0.02))
    assert len(found) == 6
    assert {one.family for one in found} == {6}
    assert [one.adjusted_p_value for one in found] == pytest.approx(holm([one.p_value for one in found]))


def test_the_design_says_which_comparison_has_half_of_the_error():
    first, second = compared(0.0, spread=0.01, design=DESIGN)
    assert (first.primary, second.primary) == (False, True)
    assert [first.level, second.level] == pytest.approx([0.025, 0.025])
    three = compared(0.0, spread=0.01, design=replace(DESIGN, contenders=("a", "b", "c"), train_sizes=(3, 7, 11)))
    assert [one.family for one in three] == [9, 9]  # what is planned counts, finished or not
    assert [one.level for one in three] == pytest.approx([0.05 / 16, 0.025])
    assert [one.adjusted_p_value for one in three] == pytest.approx(
        [min(1, w * c.p_value) for w, c in zip((16, 2), three, strict=True)]
    )


def test_seeds_beyond_the_plan_change_no_verdict_and_are_told_of():
    of_three = compared(0.02, seeds=3, spread=0.01, design=DESIGN)
    five = seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.48, 11: 0.6}}, seeds=5, spread=0.01)
    few = [r for r in five if r.seed < 3]
    planned, more = judged(few, DESIGN), judged(five, DESIGN)
    assert [one.p_value for one in more] == [one.p_value for one in planned]
    assert [one.later_seeds for one in more] == [2, 2]
    assert more[0].sentence.endswith("2 seeds beyond the plan only describe")
    assert of_three[0].later_seeds == 0
    (other, _) = judged([changed(r, seed=r.seed + 7) for r in few], DESIGN)
    assert (other.verdict, str(other.reason)) == ("no verdict", "none of their seeds was planned")
