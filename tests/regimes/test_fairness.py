"""Unfair comparisons are named."""

import pytest

from tests.regimes.tables import seeded
from tests.results import changed
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.fairness import SevereWarning, obstacle, warnings_of
from vit_vs_cnn.regimes.networks import unequal_compute
from vit_vs_cnn.runs.result import by_network
from vit_vs_cnn.statistics.verdict import ObstacleKind


def both(**changes_of_b):
    common = {"trials": 1, "fingerprint": "f", "budget": "40 steps", "batch_size": 8}
    table = {"a": {7: 0.5, 11: 0.5}, "b": {7: 0.4, 11: 0.6}}
    results = seeded(table, **common, recipe={"augmentation": {"flip": True}})
    return [changed(r, **changes_of_b) if r.contender == "b" else r for r in results]


def sides(results):
    found = by_network(results)
    return found["a", 7], found["b", 7]


def test_a_fair_comparison_has_no_warning_and_no_obstacle():
    assert warnings_of(both()) == []
    assert obstacle(*sides(both())) is None


@pytest.mark.parametrize(
    ("change", "warning", "forbids"),
    [
        ({"trials": 12}, "Recipes had unequal trials (a: 1 against b: 12), at n = 7, 11", "unequal trials (1, 12)"),
        ({"subset": "t"}, "Contenders were trained on different subsets at 6 places", "different subsets"),
        ({"fingerprint": "g"}, "Data differ (a: f against b: g).", "different images"),
        ({"batch_size": 9}, "Batch sizes differ (a: 8 against b: 9).", None),
        ({"budget": "50 steps"}, "Budgets differ (a: 40 steps against b: 50 steps).", None),
        ({"recipe": {"augmentation": {"flip": False}}}, "Augmentation differs (a", None),
    ],
)
def test_what_differs_between_contenders_is_named(change, warning, forbids):
    results = both(**change)
    assert any(text.startswith(warning) for text in warnings_of(results))
    found = obstacle(*sides(results))
    assert found is None if forbids is None else forbids in str(found)


def test_the_name_of_a_contender_is_not_read_as_a_reason():
    names = {"a": "unequal_vit", "b": "Compute of this test set"}
    results = [changed(r, contender=names[r.contender], trials=12, tuned_at=7, trial_rank=2) for r in both()]
    (warning,) = warnings_of(results)
    assert warning.startswith("Recipes: unequal_vit runs number 2 of its 12 trials, not the best and Compute of this")
    assert not isinstance(warning, SevereWarning)
    early = warnings_of([changed(r, steps=3, planned_steps=5) for r in both()])
    assert [isinstance(warning, SevereWarning) for warning in early] == [True]


def test_recipes_by_hand_alike_allow_a_verdict_and_are_said():
    results = [changed(r, trials=None) for r in both()]
    assert warnings_of(results) == ["Recipes by hand, no record of trials."]
    assert obstacle(*sides(results)) is None


def test_what_differs_between_sizes_is_no_difference_between_contenders():
    assert warnings_of([changed(r, budget=f"{r.train_size} steps") for r in both()]) == []


def test_validation_images_allow_no_verdict():
    results = [changed(r, scored_on="validation") for r in both()]
    assert "no verdict" in warnings_of(results)[-1]
    assert obstacle(*sides(results)).kind is ObstacleKind.VALIDATION_IMAGES


def test_test_and_validation_scores_are_not_mixed():
    with pytest.raises(InputError, match="some are scored on test images, others on validation"):
        warnings_of(both(scored_on="validation"))


def test_contenders_of_unequal_compute_are_warned_of_in_one_line():
    costs = {"a": 12_239_488, "b": 2_420_000}
    results = [changed(r, macs=costs[r.contender]) for r in both()]
    told = "Compute differs: a has 5.1 times the multiply-accumulates of b (12.2M against 2.42M an image), so equal"
    assert [text for text in warnings_of(results) if text.startswith(told)] == warnings_of(results)
    assert unequal_compute(results, [("a", "b")]) == warnings_of(results)[0]
    assert warnings_of(results, [("a", "c")]) == []  # they are not compared
    close = [changed(r, macs={"a": 125, "b": 100}[r.contender]) for r in both()]
    assert warnings_of(close) == []
    equal = [changed(r, budget="1e+12 flops") for r in results]
    assert warnings_of(equal) == []
