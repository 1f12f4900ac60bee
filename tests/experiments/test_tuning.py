"""Every model gets equally many trials, scored on validation images alone, and runs with the best one."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import vit_vs_cnn as vc
from tests.experiments.tiny import run_quietly, tiny_config
from vit_vs_cnn import cli
from vit_vs_cnn.cli import main
from vit_vs_cnn.config.experiment import experiment_from_dict, read_config
from vit_vs_cnn.config.recipes import recipe_source
from vit_vs_cnn.config.schema import ModelConfig, RecipeSource
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.tuning import _with_sampled, count_splits, restrict_space
from vit_vs_cnn.models import create_model
from vit_vs_cnn.reporting.experiment_page import write_experiment_page
from vit_vs_cnn.reporting.findings import read_findings
from vit_vs_cnn.runs.result import ScoredOn, read_result

SPACE = {"optimizer.lr": {"low": 1e-3, "high": 0.1, "log": True}, "label_smoothing": [0.0, 0.2]}


def values_with(output, **tuning):
    values = tiny_config(output, train_sizes=[60, "all"], budget={"steps": 2})
    values["data"]["augmentation"] = {}
    model = {"class_path": "tests.workers.killer.Fragile", "init_args": {"fixed": str(output)}}
    values["models"] = {"linear": model, "other": {**model, "recipe": "none"}}
    return values | {"tuning": {"trials": 3, "splits": 1, "space": SPACE, **tuning}}


def read_table(output) -> list[dict[str, str]]:
    with (output / "tiny" / "tuning.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def by_accuracy(trial) -> tuple[float, float]:
    return float(trial["validation_accuracy"]), -float(trial["validation_loss"])


def modification_times(output) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in output.glob("tiny/tuning/*/*")}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    """An experiment with a search for recipes before its runs, as in ``train``."""
    output = tmp_path_factory.mktemp("tuned")
    values = values_with(output)
    (output / "config.yaml").write_text(yaml.safe_dump(values))
    run_quietly(values)
    return output


def test_trials_are_equal_for_all_models_begin_with_the_configs_recipe_and_are_scored_on_validation(tuned):
    values = {(t["model"], t["trial"]): json.loads(t["values"]) for t in read_table(tuned)}
    assert [*values] == [(name, str(trial)) for name in ("linear", "other") for trial in range(3)]
    assert values["linear", "0"] == {}
    assert {*values["linear", "1"]} == {*SPACE}
    assert values["linear", "1"] == values["other", "1"] != values["linear", "2"]
    scored = [read_result(path).scores.scored_on for path in tuned.glob("tiny/tuning/*/result.json")]
    assert {*scored} == {ScoredOn.VALIDATION}
    (log,) = tuned.rglob("test-sets/*.jsonl")
    assert log.parent.parent == tuned
    assert len(log.read_text().splitlines()) == 4


def test_the_best_trial_is_the_recipe_of_the_grid(tuned):
    config = experiment_from_dict(read_config(tuned / "tiny" / "tuned.yaml"))
    assert config.tuning.trials is None
    for model in ("linear", "other"):
        trials = [t for t in read_table(tuned) if t["model"] == model]
        best, recipe = max(trials, key=by_accuracy), config.recipe(model, 60)
        values = json.loads(best["values"])
        if values:
            assert recipe.optimizer.lr == values["optimizer.lr"]
            assert recipe.label_smoothing == values["label_smoothing"]
        assert recipe == config.recipe(model, 120)
        assert recipe.augmentation is None  # no trial changed it
        assert recipe_source(recipe) is RecipeSource.SEARCHED
    for path in tuned.glob("tiny/*/result.json"):
        result = read_result(path)
        assert result.recipe_source is RecipeSource.SEARCHED
        assert (result.tuning.trials, result.tuning.tuned_at) == (3, 120)
        accuracies = [by_accuracy(t)[0] for t in read_table(tuned) if t["model"] == result.model]
        assert result.tuning.trial_accuracies == pytest.approx(sorted(accuracies, reverse=True))


def test_a_sampled_augmentation_changes_one_setting_of_the_shared_or_own_one():
    shared, own = Augmentation(flip=False), Augmentation(crop_padding=3)
    model = ModelConfig("vit_nano")
    for augmentation, expected in ((None, shared), (own, own)):
        sampled = _with_sampled(replace(model, augmentation=augmentation), {"augmentation.mixup": 0.3}, shared)
        assert sampled.augmentation == replace(expected, mixup=0.3)
    assert _with_sampled(model, {"label_smoothing": 0.3}, shared) == replace(model, label_smoothing=0.3)


def test_chosen_recipes_are_printed_and_count_as_given_by_hand_if_they_are_changed(tuned, capsys):
    cli.PRINTERS["tune"](experiment_from_dict(read_config(tuned / "tiny" / "tuned.yaml")))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("linear, 120 images: trial ")
    assert len(lines) == 2 + 2
    values = read_config(tuned / "tiny" / "tuned.yaml")
    values["models"]["linear"]["by_size"] = {60: {"optimizer": {"lr": 0.0123}}}
    config = experiment_from_dict(values)
    sources = [recipe_source(config.recipe("linear", size)) for size in (60, 120)]
    assert sources == [RecipeSource.GIVEN, RecipeSource.SEARCHED]


def test_a_second_search_repeats_no_trial_and_chooses_the_same(tuned):
    before, chosen = modification_times(tuned), read_config(tuned / "tiny" / "tuned.yaml")
    assert main(["tune", "--config", str(tuned / "config.yaml")]) == 0
    assert modification_times(tuned) == before
    assert read_config(tuned / "tiny" / "tuned.yaml") == chosen


def test_a_diverged_trial_counts_and_is_neither_chosen_nor_repeated(tmp_path):
    values = values_with(tmp_path, trials=4, space={"optimizer.lr": [0.1, 1e38]})
    values["protocol"] |= {"train_sizes": [60], "budget": {"steps": 6}}
    values["models"] = {"linear": values["models"]["linear"]}
    values["models"]["linear"] |= {"optimizer": {"name": "sgd"}, "schedule": {"warmup": 0.0}}
    values["trainer"].pop("gradient_clip_val")
    run_quietly(values)
    trials = read_table(tmp_path)
    states = {json.loads(one["values"]).get("optimizer.lr"): (one["state"], one["steps"]) for one in trials}
    assert states == {None: ("complete", "6"), 0.1: ("complete", "6"), 1e38: ("diverged", "0")}
    chosen = experiment_from_dict(read_config(tmp_path / "tiny" / "tuned.yaml")).models["linear"]
    assert chosen.optimizer.lr < 1
    assert chosen.recipe.search.trials == 4
    assert len(chosen.recipe.search.trial_accuracies) == sum(one["state"] == "complete" for one in trials)
    before = modification_times(tmp_path)
    run_quietly(values)
    assert modification_times(tmp_path) == before


def test_options_that_a_model_lacks_are_not_searched(tmp_path):
    values = tiny_config(tmp_path) | {"tuning": {"space": {"options.embed_dim": [12, 24], "optimizer.lr": [0.1]}}}
    experiment = experiment_from_dict(values)
    assert {*restrict_space(experiment, "vit")} == {"options.embed_dim", "optimizer.lr"}
    assert {*restrict_space(experiment, "resnet")} == {"optimizer.lr"}
    values["tuning"]["space"]["options.embed_dims"] = [12]
    with pytest.raises(InputError, match=r"options\.embed_dims: no model has this option"):
        vc.tune(values, quiet=True)


def test_a_search_needs_validation_images_and_models_that_are_not_linear_probes(tmp_path):
    values = values_with(tmp_path)
    values["data"]["validation_fraction"] = 0.0
    with pytest.raises(InputError, match="leaves no validation image"):
        run_quietly(values)
    torch.save(create_model("resnet8", num_classes=10).state_dict(), tmp_path / "weights.pth")
    probe = {"name": "resnet8", "weights": {"file": str(tmp_path / "weights.pth")}, "finetune": "head"}
    with pytest.raises(InputError, match="tuning: all models are linear probes"):
        vc.tune(tiny_config(tmp_path) | {"models": {"probe": probe}}, quiet=True)


def test_few_validation_images_lead_to_more_splits(tmp_path):
    experiment = experiment_from_dict(tiny_config(tmp_path))
    fraction = experiment.data.validation_fraction
    splits = [count_splits(experiment, round(scored / fraction)) for scored in (50, 250, 400, 1000, 9000)]
    assert splits == [5, 4, 3, 1, 1]


def test_a_trial_is_the_mean_over_its_splits_with_the_largest_size_and_the_longest_budget(tmp_path):
    values = values_with(tmp_path, splits=2, trials=1)
    values["protocol"]["budget"] = {"steps": [2, 3]}
    values["models"].pop("other")
    run_quietly(values)
    (trial,) = read_table(tmp_path)
    assert (trial["train_size"], trial["budget"]) == ("120", "3 steps")
    results = [read_result(tmp_path / "tiny/tuning" / name / "result.json") for name in json.loads(trial["runs"])]
    assert [result.seed for result in results] == [3, 0]
    assert float(trial["validation_accuracy"]) == pytest.approx(sum(r.accuracy for r in results) / 2)
    expected = {(size, budget, 120) for size in (60, 120) for budget in ("2 steps", "3 steps")}
    assert {(r.train_size, r.budget, r.tuning.tuned_at) for r in read_findings(tmp_path / "tiny").results} == expected


def test_the_report_lists_recipes_and_trials(tuned, tmp_path):
    write_experiment_page(read_findings(tuned / "tiny"), tmp_path)
    texts = ((tmp_path / "tables" / f"{name}.csv").read_text() for name in ("models", "trials"))
    models, trials = ([*csv.DictReader(text.splitlines())] for text in texts)
    assert {row["recipe"] for row in models} == {"best of 3 trials with 120 images"}
    assert len(trials) == len(read_table(tuned))
