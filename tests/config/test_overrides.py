"""Settings that differ with a budget are checked, and decide the name of a run."""

import pytest
import yaml

from tests.experiments.tiny import run_quietly, tiny_config
from vit_vs_cnn.api import load_experiment
from vit_vs_cnn.commands import COMMANDS
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.reading import override
from vit_vs_cnn.errors import InputError


def _values(output, by_budget=None, **budget):
    values = tiny_config(output)
    values["protocol"] |= {"train_sizes": [60], "budget": budget or {"steps": [2, 8]}}
    values["contenders"]["vit"]["by_budget"] = by_budget or {}
    return values


def test_an_override_is_laid_over_the_rest_with_its_budget_alone(tmp_path):
    experiment = experiment_from_dict(_values(tmp_path, {8: {"optimizer": {"lr": 0.05}, "model": {"depth": 1}}}))
    short, long = experiment.protocol.budget.each()
    assert (experiment.recipe("vit", short).optimizer.lr, experiment.recipe("vit", short).model["depth"]) == (1e-3, 2)
    recipe = experiment.recipe("vit", long)
    assert (recipe.optimizer.lr, recipe.model["depth"], recipe.ema_half_life) == (0.05, 1, 0.2)
    assert experiment.recipe("vit") == recipe
    assert experiment_from_dict(yaml.safe_load(yaml.safe_dump(experiment.to_dict()))) == experiment
    alone = experiment.with_budget(short)
    assert experiment_from_dict(alone.to_dict()) == alone
    settings = experiment.run_settings("vit", 60, 3, budget=short, fingerprint="f")
    assert settings == alone.run_settings("vit", 60, 3, fingerprint="f"), "a run keeps its name"
    plain = experiment_from_dict(_values(tmp_path))
    assert settings == plain.run_settings("vit", 60, 3, budget=short, fingerprint="f")


def test_budgets_survive_the_command_line_with_and_without_a_decimal_point(tmp_path):
    values = _values(tmp_path, {2.5: {"optimizer": {"lr": 0.05}}}, epochs=[0.5, 2.5])
    (tmp_path / "budgets.yaml").write_text(yaml.safe_dump(values))
    words = ["--config", str(tmp_path / "budgets.yaml"), "--contenders.vit.by_budget.2.5.label_smoothing", "0.3"]
    given = COMMANDS["train"].read([*words, "--contenders.vit.by_budget.0.5", "{label_smoothing: 0.2}"])
    experiment = load_experiment(given.options["config"], given.overrides)
    short, long = (experiment.recipe("vit", budget) for budget in experiment.protocol.budget.each())
    assert (short.label_smoothing, long.label_smoothing, long.optimizer.lr) == (0.2, 0.3, 0.05)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({3: {}}, "contenders.vit.by_budget: 3 is not one of protocol.budget (2, 8)"),
        ({2: {}, "2.0": {}}, "contenders.vit.by_budget: 2.0 is not one of protocol.budget (2, 8)"),
        ({2: {}, "2": {}}, "contenders.vit.by_budget: 2 is named twice"),
        (5, "contenders.vit.by_budget: expected budgets with settings"),
        ({2: 5}, "contenders.vit.by_budget.2: expected settings"),
        ({2: {"optimizer": {"lr": "x"}}}, "contenders.vit.by_budget.2.optimizer.lr: expected a number"),
        ({2: {"optimiser": 1}}, "contenders.vit.by_budget.2.optimiser: there is no such setting"),
        ({2: {"optimizer": {"lr": -1.0}}}, "contenders.vit.by_budget.2.optimizer: lr -1.0 must be above 0"),
        ({2: {"starts_from": "resnet"}}, "by_budget.2.starts_from: a contender has this for all budgets"),
        ({2: {"by_budget": {}}}, "by_budget.2.by_budget: a contender has this for all budgets"),
    ],
)
def test_what_cannot_be_is_named_in_one_line(tmp_path, value, message):
    values = _values(tmp_path, value)
    with pytest.raises(InputError) as caught:
        experiment_from_dict(values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("tuning.space", {"optimizer.lr": {"low": -1.0, "high": 1}}, "tuning.space.optimizer: lr -1.0 must be above"),
        ("tuning.space", 5, "tuning.space: expected"),
        ("tuning.splits", 0, "tuning: splits 0 must be from 1"),
        ("tuning.trials", 0, "tuning: trials 0 must be from 1"),
        ("tuning.space", {"optimizer.lr": 0.1}, "tuning.space.optimizer.lr: expected a list of values or"),
        ("tuning.space", {"optimizer.lr": {"low": 1, "high": 0.5}}, "expected numbers low < high"),
        ("tuning.space", {"optimizer.lr": {"low": 0, "high": 1, "log": True}}, "above 0 where log is true"),
        ("tuning.space", {"optimizer.lr": {"low": 0.1, "high": 1, "step": 2}}, "lr.step: a range has low, high and"),
        ("tuning.space", {"optimizer": [{"lr": {"low": 2, "high": 1}}]}, "tuning.space.optimizer.lr: expected numbers"),
        ("tuning.space", {"optimizer.rate": [0.1]}, "optimizer.rate: there is no such setting"),
        ("tuning.space", {"by_budget.2.label_smoothing": [0.1]}, "by_budget: a contender has this for all budgets"),
    ],
)
def test_what_tuning_cannot_be_given_is_one_line(tmp_path, place, value, message):
    values = _values(tmp_path)
    override(values, place, value)
    with pytest.raises(InputError) as caught:
        experiment_from_dict(values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_each_budget_trains_with_its_own_recipe(tmp_path):
    values = _values(tmp_path, {2: {"model": {"depth": 1}}}, steps=[2, 3])
    values["contenders"].pop("resnet")
    results = {result.budget: result.cost for result in run_quietly(experiment_from_dict(values))}
    assert results["2 steps"].parameters < results["3 steps"].parameters
