"""Recipes that were chosen with unequal care allow no conclusion, and the report states how much they matter."""

import pytest

from tests.results import make_result
from vit_vs_cnn.runs.recipe_care import recipe_obstacle, recipe_sensitivity

BEST_OF_12 = {"recipe_source": "searched", "trials": 12, "tuned_at": 500, "trial_rank": 1}
RECOMMENDED, GIVEN, FALLBACK = ({"recipe_source": source} for source in ("recommended", "given", "fallback"))


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (GIVEN, GIVEN, None),
        (RECOMMENDED, RECOMMENDED, None),
        (RECOMMENDED, GIVEN, None),
        (FALLBACK, FALLBACK, None),
        (BEST_OF_12, BEST_OF_12, None),
        ({"trials": 12}, {"trials": 12}, None),  # a table without sources, sizes and ranks
        ({}, GIVEN, None),
        (FALLBACK, RECOMMENDED, "unequal care (a generic fallback; b recommended)"),
        (GIVEN, FALLBACK, "unequal care (b generic fallback; a by hand)"),
        (BEST_OF_12, RECOMMENDED, "unequal care (a best of 12 trials; b recommended)"),
        (BEST_OF_12, {}, "unequal care (a best of 12 trials; b by hand)"),
        (BEST_OF_12, BEST_OF_12 | {"trials": 6}, "unequal care (a best of 12 trials; b best of 6 trials)"),
        (BEST_OF_12, BEST_OF_12 | {"trial_rank": 2}, "the recipe of b is not the best of its trials"),
        (BEST_OF_12, BEST_OF_12 | {"trial_rank": None}, "the recipe of b is not the best of its trials"),
    ],
)
def test_care_is_equal_or_allows_no_conclusion(first, second, text):
    obstacle = recipe_obstacle({"a": [make_result(**first)], "b": [make_result(**second)]})
    assert obstacle is None if text is None else text in obstacle.text


def test_a_linear_probe_is_fitted_without_a_recipe():
    probe = make_result(start_kind="linear probe", passes=1)
    assert recipe_obstacle({"a": [make_result(**BEST_OF_12)], "b": [probe]}) is None


def test_a_network_without_a_result_has_a_recipe_by_hand():
    assert recipe_obstacle({"a": [None], "b": [make_result(**GIVEN)]}) is None
    assert recipe_obstacle({"a": [None], "b": [make_result(**FALLBACK)]}) is not None


def searched(name, *accuracies):
    return make_result(
        **BEST_OF_12
        | {"contender": name, "trials": len(accuracies), "trial_accuracies": accuracies, "trial_images": 400}
    )


def test_the_median_recipe_may_reverse_the_order():
    found = recipe_sensitivity(searched("a", 0.9, 0.5, 0.4, 0.3), searched("b", 0.8, 0.75, 0.7, 0.6))
    assert found.best_difference == pytest.approx(0.1)
    assert found.median_difference == pytest.approx(0.45 - 0.725)
    assert found.standard_error == pytest.approx((0.9 * 0.1 / 400 + 0.8 * 0.2 / 400) ** 0.5)
    assert not found.same_order
    assert found.text == (
        "Sensitivity to the recipe, on validation images: a - b is +10.0 points with the best of 4 recipes each, and "
        "-27.5 points with recipes of median accuracy (standard error 2.5). The order of the models depends on the "
        "recipe."
    )


def test_differences_within_the_noise_have_no_order():
    found = recipe_sensitivity(searched("a", 0.5, 0.4, 0.3, 0.2), searched("b", 0.49, 0.41, 0.31, 0.2))
    assert found.same_order


@pytest.mark.parametrize("accuracies", [(0.5, 0.4, 0.3), None])
def test_fewer_than_four_trials_have_no_median(accuracies):
    few = make_result(**BEST_OF_12) if accuracies is None else searched("a", *accuracies)
    assert recipe_sensitivity(few, searched("b", 0.5, 0.4, 0.3, 0.2)) is None
