"""A search space is the same for every model, and a few trials cover it."""

import pytest

from vit_vs_cnn.config.search_space import DEFAULT_SPACE, sample_recipe

SPACE = {
    "optimizer": [
        {"name": "adamw", "lr": {"low": 1e-3, "high": 1e-1, "log": True}},
        {"name": "sgd", "lr": {"low": 1.0, "high": 3.0}},
    ],
    "model.depth": {"low": 2, "high": 5},
    "label_smoothing": [0.0, 0.1],
}


def sampled(space=SPACE, trials=64, seed=0):
    return [sample_recipe(space, trial, seed=seed) for trial in range(trials)]


def test_every_value_lies_in_the_space_and_all_of_it_is_reached():
    recipes = sampled()
    by_name = {
        name: [r["optimizer"]["lr"] for r in recipes if r["optimizer"]["name"] == name] for name in ("adamw", "sgd")
    }
    assert all(1e-3 <= lr <= 1e-1 for lr in by_name["adamw"])
    assert all(1.0 <= lr <= 3.0 for lr in by_name["sgd"])
    assert {recipe["lr"] for recipe in sampled({"lr": {"low": 1.2346, "high": 1.2349}})} == {1.2346}
    assert {r["model.depth"] for r in recipes} == {2, 3, 4, 5}
    assert {r["label_smoothing"] for r in recipes} == {0.0, 0.1}


def test_a_trial_is_a_function_of_its_number_and_the_seed():
    assert sampled() == sampled()
    assert sampled(trials=5) == sampled(trials=9)[:5]
    assert sampled(seed=1) != sampled()
    assert sampled(dict(reversed(SPACE.items()))) == sampled()


def test_a_range_with_log_is_even_in_factors():
    rates = [r["lr"] for r in sampled({"lr": {"low": 1e-4, "high": 1.0, "log": True}}, trials=64)]
    assert [sum(low <= rate < 10 * low for rate in rates) for low in (1e-4, 1e-3, 1e-2, 1e-1)] == [16] * 4


def test_sixteen_trials_of_the_built_in_space_try_every_optimizer_four_times():
    names = [r["optimizer"]["name"] for r in sampled(DEFAULT_SPACE, trials=17)[1:]]
    assert min(names.count(name) for name in ("adamw", "muon", "sgd")) >= 4


@pytest.mark.parametrize("space", [{}, {"label_smoothing": [0.1]}])
def test_a_space_may_be_empty_or_of_one_value(space):
    assert sample_recipe(space, 3, seed=0) == {name: values[0] for name, values in space.items()}
