"""What may be said of a difference."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from vit_vs_cnn.statistics.estimate import p_text
from vit_vs_cnn.statistics.looks import Plan
from vit_vs_cnn.statistics.significance import mcnemar_exact
from vit_vs_cnn.statistics.verdict import (
    LEVEL,
    Obstacle,
    ObstacleKind,
    Terms,
    compare_accuracies,
    compare_scores,
    corrected,
    margin_text,
)


def _right(share: float, seeds: int = 3, *, seed: int = 0, images: int = 997) -> np.ndarray:
    ease = np.random.default_rng(99).random(images)
    noise = np.random.default_rng(seed).normal(0, 0.1, (seeds, images))
    return ease + noise < share


def _compared(gap: float, seeds: int = 3, **terms):
    return compare_scores(("a", "b"), _right(0.7, seeds), _right(0.7 - gap, seeds, seed=1), terms=Terms(**terms))


def test_three_paired_seeds_and_an_interval_off_zero_give_a_verdict():
    found = _compared(0.1)
    assert (found.verdict, found.reason, found.leader, found.follower) == ("ahead", None, "a", "b")
    assert found.p_value < 0.05
    assert found.sentence.startswith("a is ")
    assert found.sentence.endswith("shown over 3 paired seeds")
    level = _compared(0.0)
    assert level.verdict == "no difference shown"
    assert level.difference.low < 0 < level.difference.high
    gap = f"a gap of {100 * (level.smallest_gap or 0):.1f} points would have been shown in 80 % of cases"
    assert level.sentence.endswith(f"no difference is shown: {gap}")


@pytest.mark.parametrize("seeds", [1, 3])
def test_five_images_show_nothing_whatever_the_networks_say(seeds):
    right, wrong = np.ones((seeds, 6), bool), np.zeros((seeds, 6), bool)
    found = compare_scores(("a", "b"), right[:, :5], wrong[:, :5])
    assert found.verdict == "no verdict"
    assert found.sentence.endswith(
        "no verdict: 5 images to score on can show no difference, however large it is; it takes 6 or more"
    )
    assert compare_scores(("a", "b"), right, wrong).verdict == ("descriptive only" if seeds == 1 else "ahead")
    assert mcnemar_exact(right[0], wrong[0]) < LEVEL < mcnemar_exact(right[0, :5], wrong[0, :5])


def test_the_lead_is_the_difference_seen_from_the_leader():
    found = _compared(-0.1)
    assert found.leader == "b"
    assert found.lead == -found.difference
    assert found.lead.value > 0


def test_two_single_networks_have_mcnemars_p_value_and_no_verdict():
    first, second = _right(0.7, 1), _right(0.6, 1, seed=1)
    for paired in (True, False):
        found = compare_scores(("a", "b"), first, second, paired=paired)
        assert found.p_value == mcnemar_exact(first[0], second[0])
        assert found.verdict == "descriptive only"
        assert "McNemar: p" in found.sentence
        assert found.sentence.endswith("no verdict: one seed describes these networks only")


def test_two_seeds_describe_only():
    found = _compared(0.2, seeds=2)
    assert found.verdict == "descriptive only"
    assert found.why_no_verdict == "2 seeds describe these runs only"


def test_unpaired_seeds_and_obstacles_forbid_the_verdict():
    unpaired = compare_scores(("a", "b"), _right(0.7, 3), _right(0.5, 5, seed=1), paired=False)
    assert (unpaired.verdict, unpaired.seeds) == ("no verdict", 3)
    assert unpaired.sentence.endswith("no verdict: their seeds or subsets are not the same")
    assert unpaired.difference.low > 0
    found = _compared(0.2, obstacle=Obstacle(ObstacleKind.TUNING, "their recipes had unequal trials (1, 12)"))
    assert (found.verdict, str(found.reason)) == ("no verdict", "their recipes had unequal trials (1, 12)")


def test_more_pairs_make_a_verdict_harder_and_their_number_is_told():
    one = _compared(0.04)
    assert one.verdict == "ahead"
    many = corrected([one] * 97)
    assert many[0].adjusted_p_value == pytest.approx(min(1.0, 97 * one.p_value))
    assert many[0].verdict == "no difference shown"
    assert "Holm over 97 comparisons" in many[0].sentence
    assert "Holm" not in one.sentence
    assert many[0].level < one.level  # so that the gap which would be shown is larger


def test_the_primary_comparison_has_half_of_the_error_and_says_so():
    one = _compared(0.0)
    first, *_, last = corrected([one] * 5, [0.5, *[0.125] * 4], primary=0)
    assert first.adjusted_p_value == pytest.approx(min(1.0, 2 * one.p_value))
    assert (first.primary, last.primary) == (True, False)
    assert (first.level, last.level) == (pytest.approx(LEVEL / 2), pytest.approx(LEVEL / 8))
    assert "primary comparison, Holm over 5 comparisons" in first.sentence
    assert "primary" not in last.sentence


def test_what_may_not_be_judged_passes_its_share_of_the_error_to_nobody():
    """The p-value of two single networks is of these networks: it is tiny where the seeds decide."""
    single, judged = _compared(0.3, seeds=1), _compared(0.03)
    assert single.p_value < 1e-6
    assert corrected([single, judged])[1].adjusted_p_value == pytest.approx(2 * judged.p_value)
    assert corrected([_compared(0.3), judged])[1].adjusted_p_value == pytest.approx(judged.p_value)


def test_surely_closer_than_the_margin_is_equivalent():
    close = _compared(0.0, seeds=10, margin=0.1)
    assert close.verdict == "equivalent"
    assert -0.1 < close.difference.low < close.difference.high < 0.1
    assert close.sentence.endswith("equivalent within 10.0 points over 10 paired seeds")
    assert _compared(0.0, seeds=10, margin=0.001).verdict == "no difference shown"
    assert _compared(0.04, seeds=10, margin=0.1).verdict == "ahead"  # both: that one is ahead says more
    barely = _compared(0.0, seeds=10, margin=1.01 * max(-close.difference.low, close.difference.high))
    assert barely.verdict == "equivalent"
    assert corrected([barely] * 3)[0].verdict == "no difference shown"  # corrected for, as a difference is


def test_a_look_on_the_way_has_a_level_of_its_own_and_the_interval_that_goes_with_it():
    """Wherever "ahead" stands, the interval leaves zero out; on the way both are harder to get."""
    at_once, verdicts = Plan(4), set()
    for gap in np.linspace(0.02, 0.08, 25):
        found, once = _compared(gap, seeds=4, plan=Plan(10, on_the_way=True)), _compared(gap, seeds=4, plan=at_once)
        assert found.adjusted_p_value > once.adjusted_p_value == once.p_value == found.p_value
        assert found.difference.high - found.difference.low > once.difference.high - once.difference.low
        assert (found.verdict == "ahead") == (found.lead.low > 0)
        verdicts.add((found.verdict, once.verdict))
    assert {("ahead", "ahead"), ("no difference shown", "ahead")} <= verdicts
    assert "looks at 3 to 10 seeds allowed for" in found.sentence


def test_a_plan_without_looks_gives_no_verdict_before_its_end():
    found = _compared(0.2, seeds=4, plan=Plan(5))
    assert (found.verdict, found.why_no_verdict) == (
        "no verdict",
        "4 of the 5 planned seeds are there, and looks on the way were not planned",
    )
    assert _compared(0.2, seeds=5, plan=Plan(5)).verdict == "ahead"


def test_a_family_is_corrected_as_statsmodels_does():
    family = [_compared(gap) for gap in (0.0, 0.01, 0.02, 0.05)]
    expected = multipletests([c.p_value for c in family], method="holm")[1]
    assert [c.adjusted_p_value for c in corrected(family)] == pytest.approx(expected)


def test_where_predictions_are_unknown_the_interval_is_wider_and_the_middle_the_same():
    first, second = _right(0.7), _right(0.65, seed=1)
    known = compare_scores(("a", "b"), first, second)
    unknown = compare_accuracies(("a", "b"), first.mean(1), second.mean(1), (997, 997))
    assert unknown.difference.value == pytest.approx(known.difference.value)
    assert unknown.difference.high - unknown.difference.low > known.difference.high - known.difference.low


def test_networks_that_answer_alike_are_0_points_apart():
    right = _right(0.7)
    found = compare_scores(("a", "b"), right, right)
    assert found.sentence.startswith("a and b are 0.0 points apart")
    assert found.p_value == 1.0


@pytest.mark.parametrize(("margin", "text"), [(0.01, "1.0 points"), (0.0025, "0.25 points"), (0.0004, "0.04 points")])
def test_a_margin_is_told_as_it_was_settled(margin, text):
    assert margin_text(margin) == text


def test_a_p_value_has_the_digits_that_tell_its_side_of_5_percent():
    assert [p_text(p) for p in (0.0496, 0.04999, 0.05, 0.0504, 0.3)] == ["0.0496", "0.04999", "0.05", "0.05", "0.3"]


def _of(first, second, images=60):
    """A comparison of accuracies, one a seed."""
    return compare_accuracies(("a", "b"), np.array(first), np.array(second), (images, images))


def test_no_interval_and_no_gap_is_printed_that_the_accuracies_leave_no_room_for():
    wide = _of([0.99, 0.75, 0.93], [0.3, 0.95, 0.92])
    assert (wide.difference.low, wide.difference.high) == (-1.0, 1.0)
    assert wide.smallest_gap is None
    assert "these seeds and test images cannot tell how large it is" in wide.sentence
    assert wide.sentence.endswith(
        "3 seeds and 60 test images can only show a gap that is larger than the 27.7 points of room above the worse "
        "accuracy"
    )
    narrow = _of([0.88, 0.87, 0.86], [0.85, 0.86, 0.84], images=1000)
    assert narrow.smallest_gap is not None
    assert -0.1 < narrow.difference.low < narrow.difference.high < 0.1


def test_an_interval_with_one_end_out_of_reach_keeps_the_other():
    one = _of([0.97, 0.99, 0.98], [0.08, 0.12, 0.10], images=1000)
    assert one.difference.high < 1 and one.verdict == "ahead"
    far = _of([0.90, 0.99, 0.98], [0.20, 0.02, 0.04], images=1000)
    assert far.difference.high == 1.0 and far.verdict == "ahead"
    assert f"({100 * far.difference.low:+.1f} or more;" in far.sentence
