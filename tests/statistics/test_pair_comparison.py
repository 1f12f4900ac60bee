"""Conclusions of comparisons: requirements, caveats, and adjustment for multiple comparisons."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind
from vit_vs_cnn.statistics.mean_distribution import SeedScores
from vit_vs_cnn.statistics.pair_comparison import (
    ComparisonRules,
    ComparisonTest,
    Conclusion,
    adjust_comparisons,
    compare_models,
)
from vit_vs_cnn.statistics.significance import ERROR_RATE, mcnemar_exact

TUNING = Caveat(CaveatKind.UNEQUAL_RECIPE_CARE, "their recipes had unequal trials (1, 12)")


def correct(share: float, seeds: int = 3, *, seed: int = 0, images: int = 997) -> np.ndarray:
    ease = np.random.default_rng(99).random(images)
    return ease + np.random.default_rng(seed).normal(0, 0.1, (seeds, images)) < share


#: Two models of clearly different accuracy.
CLEAR = correct(0.7), correct(0.4, seed=1)


def compared(gap: float, seeds: int = 3, **rules):
    sides = (correct(0.7, seeds), correct(0.7 - gap, seeds, seed=1))
    return compare_models(("a", "b"), *map(SeedScores.from_correct, sides), rules=ComparisonRules(**rules))


def without_predictions(first, second, images=60, **options):
    sides = [SeedScores(np.array(side), np.full(len(side), images)) for side in (first, second)]
    return compare_models(("a", "b"), *sides, **options)


def test_three_paired_seeds_and_a_clear_difference_are_enough_for_a_conclusion():
    found, level = compared(0.1), compared(0.0)
    assert (found.conclusion, found.caveat) == (Conclusion.SIGNIFICANTLY_BETTER, None)
    assert (found.leader, found.follower, found.names) == ("a", "b", {"a", "b"})
    assert (found.seeds, found.images, found.test) == (3, 997, ComparisonTest.STUDENT_AND_NORMAL)
    assert level.conclusion is Conclusion.NOT_ENOUGH_EVIDENCE
    assert level.difference.low <= 0 <= level.difference.high


@pytest.mark.parametrize(
    ("sides", "options", "kind"),
    [
        ((correct(0.7, 2), correct(0.4, 2, seed=1)), {}, CaveatKind.TOO_FEW_SEEDS),
        ((correct(0.7, 1), correct(0.4, 1, seed=1)), {}, CaveatKind.TOO_FEW_SEEDS),
        ((correct(0.7, 3), correct(0.4, 5, seed=1)), {"paired": False}, CaveatKind.UNPAIRED),
        ((np.ones((3, 5)), np.zeros((3, 5))), {}, CaveatKind.TOO_FEW_TEST_IMAGES),
        (CLEAR, {"rules": ComparisonRules(caveat=TUNING)}, CaveatKind.UNEQUAL_RECIPE_CARE),
        (CLEAR, {"failed_runs": (0, 1)}, CaveatKind.UNSTABLE_TRAINING),
    ],
)
def test_blocking_caveat_forbids_a_conclusion_whatever_the_difference(sides, options, kind):
    found = compare_models(("a", "b"), *map(SeedScores.from_correct, sides), **options)
    assert (found.conclusion, found.caveat.kind) == (Conclusion.NO_CONCLUSION, kind)
    assert found.difference.low > 0 or found.seeds == 2


def test_mcnemar_needs_at_least_six_test_images():
    right, wrong = np.ones((3, 6), bool), np.zeros((3, 6), bool)
    found = compare_models(("a", "b"), SeedScores.from_correct(right), SeedScores.from_correct(wrong))
    assert found.conclusion is Conclusion.SIGNIFICANTLY_BETTER
    assert mcnemar_exact(right[0], wrong[0]) < ERROR_RATE < mcnemar_exact(right[0, :5], wrong[0, :5])


@pytest.mark.parametrize("paired", [True, False])
def test_two_single_networks_are_compared_by_mcnemars_test(paired):
    first, second = correct(0.7, 1), correct(0.6, 1, seed=1)
    found = compare_models(("a", "b"), SeedScores.from_correct(first), SeedScores.from_correct(second), paired=paired)
    assert (found.test, found.p_value) == (ComparisonTest.MCNEMAR, mcnemar_exact(first[0], second[0]))
    parts = [SeedScores.from_correct(0.3 + rows / 2) for rows in (first, second)]  # more than half right
    assert compare_models(("a", "b"), *parts, paired=paired).p_value == found.p_value
    assert found.caveat is not None and found.caveat.kind is CaveatKind.TOO_FEW_SEEDS


def test_unstable_training_is_compared_by_fishers_test_of_failed_runs():
    runs = ([0.7, 0.1, 0.7, 0.1, 0.1], [0.6] * 5)
    found = without_predictions(*runs, images=1000, failed_runs=(3, 0))
    expected = stats.fisher_exact([[3, 2], [0, 5]]).pvalue
    assert (found.test, found.p_value) == (ComparisonTest.FISHER, pytest.approx(expected))
    assert "3 of 5 runs of a and 0 of 5 runs of b failed" in str(found.caveat)
    all_failed = without_predictions([0.1] * 5, [0.6] * 5, images=1000, failed_runs=(5, 0))
    assert (all_failed.test, all_failed.leader) == (ComparisonTest.STUDENT_AND_NORMAL, "b")
    assert all_failed.conclusion is Conclusion.SIGNIFICANTLY_BETTER


@pytest.mark.parametrize("gap", np.linspace(0.0, 0.08, 9))
def test_primary_comparison_is_significant_where_the_interval_of_its_analysis_excludes_zero(gap):
    first, second = (compared(float(gap), 4, is_primary=True, error_rate=rate) for rate in (0.05, 0.01))
    for found in (compared(float(gap), is_primary=True), first, second):
        excludes_zero = not found.difference.low <= 0 <= found.difference.high
        assert (found.conclusion is Conclusion.SIGNIFICANTLY_BETTER) == excludes_zero
    assert second.p_value == first.p_value == second.adjusted_p_value
    assert (second.conclusion is Conclusion.SIGNIFICANTLY_BETTER) == (second.p_value < 0.01)
    assert vars(second.difference) == pytest.approx(vars(second.distribution.interval(0.99)))
    assert second.level == 0.01


def test_interval_within_the_margin_is_equivalent_and_a_significant_difference_is_more_than_that():
    close = compared(0.0, 10, margin=0.1)
    assert close.conclusion is Conclusion.EQUIVALENT
    assert -0.1 < close.difference.low < close.difference.high < 0.1
    assert compared(0.0, 10, margin=0.001).conclusion is Conclusion.NOT_ENOUGH_EVIDENCE
    assert compared(0.04, 10, margin=0.1).conclusion is Conclusion.SIGNIFICANTLY_BETTER
    end = max(-close.difference.low, close.difference.high)
    barely, missed = (compared(0.0, 10, margin=factor * end) for factor in (1.01, 0.99))
    assert (barely.conclusion, missed.conclusion) == (Conclusion.EQUIVALENT, Conclusion.NOT_ENOUGH_EVIDENCE)
    assert adjust_comparisons([barely] * 3)[0].conclusion is Conclusion.NOT_ENOUGH_EVIDENCE  # adjusted, too


def test_secondary_comparisons_are_adjusted_by_holm_and_the_primary_one_is_not():
    gaps = (0.0, 0.01, 0.02, 0.05)
    primary, *others = adjust_comparisons([compared(0.03, is_primary=True), *(compared(gap) for gap in gaps)])
    assert (primary.adjusted_p_value, primary.adjusted_for, primary.level) == (primary.p_value, 1, ERROR_RATE)
    expected = multipletests([one.p_value for one in others], method="holm")[1]
    assert [one.adjusted_p_value for one in others] == pytest.approx(expected)
    assert {one.adjusted_for for one in others} == {4}
    assert [one.conclusion is Conclusion.SIGNIFICANTLY_BETTER for one in others] == [p < ERROR_RATE for p in expected]


def test_minimum_detectable_difference_grows_with_the_number_of_open_comparisons():
    one, many = compared(0.0), adjust_comparisons([compared(0.0)] * 10)[0]
    assert many.level == pytest.approx(ERROR_RATE / 10)
    assert many.minimum_detectable > one.minimum_detectable > one.difference.high - one.difference.value
    settled, still_open = adjust_comparisons([compared(0.3), compared(0.0)])
    assert (settled.level, still_open.level) == (ERROR_RATE, ERROR_RATE)


def test_missing_planned_comparisons_count_and_those_without_a_conclusion_do_not_relax_the_adjustment():
    comparisons = [compared(0.03, is_primary=True), compared(0.04)]
    primary, other = adjust_comparisons(comparisons, planned=9)
    assert primary.adjusted_p_value == primary.p_value
    assert (other.adjusted_p_value, other.adjusted_for) == (pytest.approx(9 * other.p_value), 9)
    assert adjust_comparisons(comparisons, planned=0)[1].adjusted_for == 1  # more than planned
    # Holm's method would otherwise relax the adjustment of the other comparison after the small p-value.
    blocked, judged = compared(0.3, caveat=TUNING), compared(0.03)
    assert blocked.p_value < judged.p_value
    adjusted = adjust_comparisons([blocked, judged])
    assert adjusted[1].adjusted_p_value == pytest.approx(2 * judged.p_value)
    assert adjusted[0].conclusion is Conclusion.NO_CONCLUSION


def test_comparisons_of_both_analyses_are_adjusted_together_and_never_below_their_own_p_value():
    """At 1 % a p-value counts five times as much as at 5 %."""
    first, second = compared(0.04), compared(0.035, error_rate=0.01)
    expected = multipletests([first.p_value, 5 * second.p_value], method="holm")[1] / [1, 5]
    assert [one.adjusted_p_value for one in adjust_comparisons([first, second])] == pytest.approx(expected.tolist())
    unclear = adjust_comparisons([compared(0.0, error_rate=0.01), compared(0.001, error_rate=0.01), first])
    assert all(one.adjusted_p_value >= one.p_value for one in unclear)


def test_impossible_differences_are_neither_printed_nor_proposed():
    wide = without_predictions([0.99, 0.75, 0.93], [0.3, 0.95, 0.92])
    assert (wide.difference.low, wide.difference.high) == (-1.0, 1.0)
    assert wide.minimum_detectable is None
    assert without_predictions([0.88, 0.87, 0.86], [0.85, 0.86, 0.84], images=1000).minimum_detectable is not None
    far = without_predictions([0.90, 0.99, 0.98], [0.20, 0.02, 0.04], images=1000)
    assert (far.difference.high, far.conclusion) == (1.0, Conclusion.SIGNIFICANTLY_BETTER)
    assert far.difference.low > 0
