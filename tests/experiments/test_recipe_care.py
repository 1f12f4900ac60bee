"""Recipes that were chosen with unequal care allow no conclusion."""

import pytest

from tests.results import make_result
from vit_vs_cnn.experiments.recipe_care import recipe_caveat

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
def test_recipes_chosen_with_unequal_care_allow_no_conclusion(first, second, text):
    caveat = recipe_caveat({"a": [make_result(**first)], "b": [make_result(**second)]})
    assert caveat is None if text is None else text in caveat.text


def test_a_linear_probe_has_no_recipe_and_a_network_without_a_result_one_by_hand():
    probe = make_result(start_kind="linear probe", passes=1)
    assert recipe_caveat({"a": [make_result(**BEST_OF_12)], "b": [probe]}) is None
    assert recipe_caveat({"a": [None], "b": [make_result(**GIVEN)]}) is None
    assert recipe_caveat({"a": [None], "b": [make_result(**FALLBACK)]}) is not None
