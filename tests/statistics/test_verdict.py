"""What may be said of a difference."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from vit_vs_cnn.statistics.significance import mcnemar_exact
from vit_vs_cnn.statistics.verdict import compare_accuracies, compare_scores, corrected


def _right(share: float, seeds: int = 3, *, seed: int = 0, images: int = 997) -> np.ndarray:
    ease = np.random.default_rng(99).random(images)
    noise = np.random.default_rng(seed).normal(0, 0.1, (seeds, images))
    return ease + noise < share


def _compared(gap: float, seeds: int = 3, **changes):
    return compare_scores(("a", "b"), _right(0.7, seeds), _right(0.7 - gap, seeds, seed=1), **changes)


def test_three_paired_seeds_and_an_interval_off_zero_give_a_verdict():
    found = _compared(0.1)
    assert (found.verdict, found.reason, found.leader, found.follower) == ("ahead", None, "a", "b")
    assert found.p_value < 0.05
    assert found.sentence.startswith("a is ")
    assert found.sentence.endswith("shown over 3 paired seeds")
    level = _compared(0.0)
    assert level.verdict == "no difference shown"
    assert level.difference.low < 0 < level.difference.high
    assert level.sentence.endswith("no difference is shown")


def test_the_lead_is_the_difference_seen_from_the_leader():
    found = _compared(-0.1)
    assert found.leader == "b"
    assert found.lead == -found.difference
    assert found.lead.value > 0


def test_two_single_networks_have_mcnemars_p_value_and_no_verdict():
    first, second = _right(0.7, 1), _right(0.6, 1, seed=1)
    for paired in (True, False):
        found = compare_scores(("a", "b"), first, second, paired=paired)
        assert found.p_value == mcnemar_exact(first[0], second[0]).p_value
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
    found = _compared(0.2, obstacle="their recipes had unequal trials (1, 12)")
    assert (found.verdict, found.reason) == ("no verdict", "their recipes had unequal trials (1, 12)")


def test_more_pairs_make_a_verdict_harder_and_their_number_is_told():
    one = _compared(0.04)
    assert one.verdict == "ahead"
    many = corrected([one] * 97)
    assert many[0].adjusted_p_value == pytest.approx(min(1.0, 97 * one.p_value))
    assert many[0].verdict == "no difference shown"
    assert "Holm over 97 pairs" in many[0].sentence
    assert "Holm" not in one.sentence


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
