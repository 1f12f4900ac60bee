"""Settings that differ at a training-set size or with a budget are checked, and decide the name of a run."""

import pytest
import yaml

from tests.experiments.tiny import tiny_config
from tests.refused import refused
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.identity import hash_settings, run_identity
from vit_vs_cnn.config.reading import override


def _values(output, by_size, sizes=(60, "all")):
    values = tiny_config(output, train_sizes=list(sizes), budget={"steps": 2})
    values["models"]["vit"]["by_size"] = by_size
    return values


def test_an_override_by_size_applies_to_its_size_only_and_all_is_the_full_training_set(tmp_path):
    experiment = experiment_from_dict(_values(tmp_path, {60: {"optimizer": {"lr": 0.02}, "options": {"depth": 1}}}))
    small, large = experiment.recipe("vit", 60), experiment.recipe("vit", 120)
    assert (small.optimizer.lr, small.options["depth"]) == (0.02, 1)
    assert (large.optimizer.lr, large.options["depth"]) == (1e-3, 2)
    assert (small.options["embed_dim"], small.ema_half_life) == (24, 0.2)
    experiment = experiment_from_dict(_values(tmp_path, {"all": {"label_smoothing": 0.3}}))
    assert [experiment.recipe("vit", size).label_smoothing for size in (60, 120)] == [0.1, 0.3]


def test_an_override_by_budget_wins_over_one_by_size(tmp_path):
    values = _values(tmp_path, {60: {"optimizer": {"lr": 0.02, "weight_decay": 0.3}}})
    values["protocol"]["budget"] = {"steps": [2, 8]}
    values["models"]["vit"]["by_budget"] = {8: {"optimizer": {"lr": 0.05}}}
    experiment = experiment_from_dict(values)
    short, long = experiment.protocol.budget.each()
    recipes = [experiment.recipe("vit", size, budget) for size in (60, 120) for budget in (short, long)]
    assert [recipe.optimizer.lr for recipe in recipes] == [0.02, 0.05, 1e-3, 0.05]
    assert recipes[1].optimizer.weight_decay == 0.3
    assert experiment.recipe("vit", 60) == recipes[1]
    assert experiment_from_dict(yaml.safe_load(yaml.safe_dump(experiment.to_dict()))) == experiment
    alone = experiment.select_budget(short)
    assert experiment_from_dict(alone.to_dict()) == alone
    settings = experiment.run_settings("vit", 60, 3, budget=short, fingerprint="f")
    assert settings == alone.run_settings("vit", 60, 3, fingerprint="f"), "a run keeps its name"


def test_an_override_renames_the_runs_of_its_model_and_size_only(tmp_path):
    def hashes(by_size):
        experiment, runs = experiment_from_dict(_values(tmp_path, by_size)), (("vit", 60), ("vit", 120), ("resnet", 60))
        settings = (experiment.run_settings(*run, 3, fingerprint="f") for run in runs)
        return [hash_settings(run_identity(one)) for one in settings]

    plain, changed = hashes({}), hashes({60: {"optimizer": {"lr": 0.02}}})
    assert plain[0] != changed[0] and plain[1:] == changed[1:]


def test_the_amount_of_a_budget_may_have_a_decimal_point_on_the_command_line(tmp_path):
    values = _values(tmp_path, {})
    values["protocol"]["budget"] = {"epochs": [0.5, 2.5]}
    values["models"]["vit"]["by_budget"] = {2.5: {"optimizer": {"lr": 0.05}}}
    override(values, "models.vit.by_budget.2.5.label_smoothing", 0.3)
    override(values, "models.vit.by_budget.0.5", {"label_smoothing": 0.2})
    experiment = experiment_from_dict(values)
    short, long = (experiment.recipe("vit", 60, budget) for budget in experiment.protocol.budget.each())
    assert (short.label_smoothing, long.label_smoothing, long.optimizer.lr) == (0.2, 0.3, 0.05)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("by_size", {61: {}}, "models.vit.by_size: 61 is not one of protocol.train_sizes (60, all)"),
        ("by_size", {60: {}, "60": {}}, "models.vit.by_size: 60 is named twice"),
        ("by_budget", {2: {}, "2.0": {}}, "models.vit.by_budget: 2.0 is not one of protocol.budget (2)"),
        ("by_size", {60: 5}, "models.vit.by_size.60: expected settings"),
        ("by_size", 5, "models.vit.by_size: expected sizes or budgets"),
        ("by_size", {60: {"optimizer": {"lr": "x"}}}, "models.vit.by_size.60.optimizer.lr: expected a number"),
        ("by_size", {60: {"optimiser": 1}}, "models.vit.by_size.60.optimiser: there is no such setting"),
        ("by_size", {60: {"optimizer": {"lr": -1.0}}}, "models.vit.by_size.60.optimizer: lr must be above 0"),
        ("by_size", {60: {"starts_from": "resnet"}}, "by_size.60.starts_from: a model has this for all sizes"),
        ("by_budget", {3: {}}, "models.vit.by_budget: 3 is not one of protocol.budget (2)"),
        ("by_budget", {2: {"by_budget": {}}}, "by_budget.2.by_budget: a model has this for all sizes and budgets"),
        ("tuning.space", {"optimizer.lr": {"low": -1.0, "high": 1}}, "tuning.space.optimizer: lr must be above"),
        ("tuning.space", 5, "tuning.space: expected"),
        ("tuning.space", {1: [2]}, "tuning.space: the name 1 must be a text"),
        ("tuning.trials", 0, "tuning: trials must be from 1"),
        ("tuning.space", {"optimizer.lr": 0.1}, "tuning.space.optimizer.lr: expected a list of values or"),
        ("tuning.space", {"optimizer.lr": {"low": 1, "high": 0.5}}, "expected numbers low < high"),
        ("tuning.space", {"optimizer.lr": {"low": 0, "high": 1, "log": True}}, "above 0 where log is true"),
        ("tuning.space", {"optimizer.lr": {"low": 0.1, "high": 1, "step": 2}}, "lr.step: a range has low, high and"),
        ("tuning.space", {"optimizer": [{"lr": {"low": 2, "high": 1}}]}, "tuning.space.optimizer.lr: expected numbers"),
        ("tuning.space", {"optimizer.rate": [0.1]}, "optimizer.rate: there is no such setting"),
        ("tuning.space", {"by_size.60.label_smoothing": [0.1]}, "by_size: a model has this for all sizes"),
    ],
)
def test_impossible_recipes_and_search_spaces_are_refused(tmp_path, place, value, message):
    values = _values(tmp_path, {})
    if place.startswith("by_"):
        values["models"]["vit"][place] = value
    else:
        override(values, place, value)
    with refused(message):
        experiment_from_dict(values)
