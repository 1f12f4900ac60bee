"""Every contender and size gets as many trials, scored on validation images alone; the best one goes to the grid."""

import csv
import io
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from tests.experiments.tiny import run_quietly, tiny_config
from vit_vs_cnn.cli import main
from vit_vs_cnn.commands import show
from vit_vs_cnn.config.experiment import experiment_from_dict, read_config
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.pruning import import_optuna, open_study, reached, report
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.experiments.trials import Search, space_of, splits_at
from vit_vs_cnn.experiments.tuning import equal_trials
from vit_vs_cnn.reporting.document import Bullets
from vit_vs_cnn.reporting.findings import read_findings
from vit_vs_cnn.reporting.regime_report import report_document
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.result import ScoredOn, read_result

pytest.importorskip("optuna")


def _values(output, **tuning):
    values = tiny_config(output)
    values["data"]["augmentation"] = {}
    values["protocol"] |= {"train_sizes": [60, "all"], "budget": {"steps": 2}, "trials": 2}
    values["contenders"] = {
        "linear": {
            "model": {"class_path": "tests.workers.killer.Fragile", "init_args": {"mended": str(output)}},
            "search": {"optimizer.lr": {"low": "1e-3", "high": 0.1, "log": True}, "optimizer.betas": [[0.9, 0.9]]},
        },
        "other": {
            "model": {"class_path": "tests.workers.killer.Fragile", "init_args": {"mended": str(output)}},
            "search": {"optimizer": {"lr": [0.01, 0.02, 0.05]}, "label_smoothing": {"low": 0.0, "high": 0.3}},
        },
    }
    return values | {"tuning": {"splits": 1, **tuning}}


def _trials(output) -> list[dict[str, str]]:
    with (output / "tiny" / "tuning.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    """A grid whose recipes were chosen first, as ``train`` does it."""
    output = tmp_path_factory.mktemp("tuned")
    (output / "config.yaml").write_text(yaml.safe_dump(_values(output)))
    run_quietly(experiment_from_dict(_values(output)))
    return output


def test_every_contender_and_size_has_as_many_trials_as_asked_for(tuned):
    places = [(trial["contender"], trial["train_size"]) for trial in _trials(tuned)]
    wanted = [(contender, size) for contender in ("linear", "other") for size in ("60", "120")]
    assert {place: places.count(place) for place in places} == dict.fromkeys(wanted, 2)
    assert {trial["state"] for trial in _trials(tuned)} == {"complete"}


def test_trials_are_scored_on_validation_and_only_the_grid_is_tested(tuned):
    for path in tuned.glob("tiny/tuning/cells/*/result.json"):
        assert read_result(path).scores.scored_on is ScoredOn.VALIDATION
    (ledger,) = tuned.rglob("test-sets/*.jsonl")
    assert ledger.parent.parent == tuned
    assert len(ledger.read_text().splitlines()) == 4


def test_the_best_trial_is_the_recipe_of_the_grid(tuned):
    config = experiment_from_dict(read_config(tuned / "tiny" / "tuned.yaml"))
    assert config.protocol.trials is None
    for contender in ("linear", "other"):
        for size in (60, 120):
            trials = [t for t in _trials(tuned) if (t["contender"], t["train_size"]) == (contender, str(size))]
            best = max(trials, key=lambda t: (float(t["validation_accuracy"]), -float(t["validation_loss"])))
            values, recipe = json.loads(best["values"]), config.recipe(contender, size)
            assert recipe.optimizer.lr == values["optimizer.lr"]
            assert recipe.label_smoothing == values.get("label_smoothing", 0.0)
    assert config.recipe("linear", 60).optimizer.betas == (0.9, 0.9)
    for path in tuned.glob("tiny/cells/*/result.json"):
        result = read_result(path)
        recipe = config.recipe(result.contender, result.train_size)
        assert result.recipe["optimizer"]["lr"] == recipe.optimizer.lr
        assert (result.tuning.trials, result.tuning.trial_rank) == (2, 1)


def test_the_recipes_that_were_chosen_are_told_on_standard_output(tuned, capsys):
    show.tune(experiment_from_dict(read_config(tuned / "tiny" / "tuned.yaml")))
    told = capsys.readouterr().out
    assert re.search(r"^linear at 60 images: .*optimizer\.lr .*\(validation [\d.]+ %\)$", told, re.MULTILINE)
    assert len(told.splitlines()) == 4 + 2


def test_the_config_that_is_written_runs_the_same_cells(tuned):
    before = {path: path.stat().st_mtime_ns for path in tuned.glob("tiny/cells/*/*")}
    results = run_quietly(experiment_from_dict(read_config(tuned / "tiny" / "tuned.yaml")))
    assert len(results) == 4
    assert before == {path: path.stat().st_mtime_ns for path in tuned.glob("tiny/cells/*/*")}


def test_tuning_again_runs_no_trial_twice_and_chooses_the_same(tuned):
    stamps = {path: path.stat().st_mtime_ns for path in tuned.glob("tiny/tuning/cells/*/*")}
    chosen = read_config(tuned / "tiny" / "tuned.yaml")
    assert main(["tune", "--config", str(tuned / "config.yaml")]) == 0
    assert stamps == {path: path.stat().st_mtime_ns for path in tuned.glob("tiny/tuning/cells/*/*")}
    assert read_config(tuned / "tiny" / "tuned.yaml") == chosen


def _search(output, **tuning) -> Search:
    return _searched(experiment_from_dict(_values(output, **tuning)))


def _searched(experiment) -> Search:
    return Search(experiment, "linear", 60, experiment.protocol.budget, 3, Pool(experiment.data, "validation"), 1)


def test_a_trial_is_drawn_by_its_number_and_the_seed(tmp_path):
    drawn = [_search(tmp_path).draw(number)["optimizer.lr"] for number in (0, 1, 2)]
    assert len(set(drawn)) == 3
    assert all(1e-3 <= rate <= 0.1 for rate in drawn)
    assert _search(tmp_path).draw(1)["optimizer.lr"] == drawn[1]
    assert _search(tmp_path, draw_seed=1).draw(1)["optimizer.lr"] != drawn[1]


def test_a_trial_that_diverges_counts_and_is_not_chosen(tmp_path):
    values = _values(tmp_path)
    values["protocol"] |= {"train_sizes": [60]}
    values["contenders"].pop("other")
    values["contenders"]["linear"]["optimizer"] = {"name": "sgd"}
    values["contenders"]["linear"]["search"] = {"optimizer.lr": [0.1, 1e38]}
    values["contenders"]["linear"]["schedule"] = {"warmup": 0.0}
    values["trainer"].pop("gradient_clip_val")
    numbers = range(20)
    experiment = experiment_from_dict(values)
    drawn = [_searched(experiment).draw(number)["optimizer.lr"] for number in numbers]
    values["protocol"]["trials"] = max(drawn.index(0.1), drawn.index(1e38)) + 1
    values["protocol"]["budget"] = {"steps": 6}
    run_quietly(experiment_from_dict(values))
    states = {json.loads(trial["values"])["optimizer.lr"]: trial["state"] for trial in _trials(tmp_path)}
    assert states == {0.1: "complete", 1e38: "fail"}
    assert experiment_from_dict(read_config(tmp_path / "tiny" / "tuned.yaml")).recipe("linear", 60).optimizer.lr == 0.1


def test_asha_ends_what_falls_behind_and_judges_by_the_mean_over_seeds(tmp_path):
    values = _values(tmp_path, pruner="asha", splits=2)
    values["protocol"] |= {"train_sizes": [60], "trials": 3, "budget": {"steps": 3}}
    values["contenders"].pop("other")
    values["execution"]["validation_interval"] = 1
    run_quietly(experiment_from_dict(values))
    states = {trial["trial"]: trial["state"] for trial in _trials(tmp_path)}
    assert set(states.values()) == {"complete", "pruned"}
    results = {path.parent.name: read_result(path) for path in tmp_path.rglob("tuning/cells/*/result.json")}
    for trial in _trials(tmp_path):
        if trial["state"] == "complete":
            accuracies = [results[cell].accuracy for cell in json.loads(trial["cells"])]
            assert len(accuracies) == 2
            assert float(trial["validation_accuracy"]) == pytest.approx(sum(accuracies) / 2)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("tiny/tuning/cells/*/*")}
    run_quietly(experiment_from_dict(values))  # a pruned trial stays pruned
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.glob("tiny/tuning/cells/*/*")}


def test_a_run_that_was_begun_elsewhere_is_compared_by_the_validations_that_it_had_there(tmp_path):
    """It goes on behind its second validation: held against first ones of others, it would end all of them."""
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("step,metric,value\n319,val/accuracy,0.43\n639,val/accuracy,0.54\n639,val/loss,1.0\n")
    optuna = import_optuna()
    study = open_study(tmp_path / "journal", "s", pruner="asha")
    for _ in range(3):
        study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING))
    assert reached(metrics, before=640) == {1: 0.43}
    assert not report(study, 0, {**reached(metrics, before=640), 2: 0.54})
    assert not report(study, 1, {1: 0.51}), "better than the other was at its first"
    assert report(study, 2, {1: 0.42})
    assert study.trials[0].intermediate_values == {1: 0.43, 2: 0.54}


def test_trials_need_validation_images(tmp_path):
    values = _values(tmp_path)
    values["data"]["validation_fraction"] = 0.0
    with pytest.raises(InputError, match="leaves none to validate with"):
        run_quietly(experiment_from_dict(values))


def test_tuning_without_trials_is_refused(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tiny_config(tmp_path)))
    assert main(["tune", "--config", str(tmp_path / "config.yaml")]) == 2
    assert "protocol.trials says how many recipes to try" in capsys.readouterr().err


def test_without_a_search_of_its_own_every_contender_draws_from_the_space_of_its_optimizer(tmp_path):
    values = tiny_config(tmp_path)
    values["contenders"]["resnet"]["optimizer"] = {"name": "adamw"}
    experiment = experiment_from_dict(values)
    pool = Pool(experiment.data)
    vit, resnet = (space_of(experiment, name, pool) for name in ("vit", "resnet"))
    assert {*vit.search} - {*resnet.search} == {"model.drop_path"} == {*resnet.lacks}
    assert vit.lacks == ()
    assert all(vit.search[key] == given for key, given in resnet.search.items())
    assert [one["policy"] for one in vit.search["augmentation"]][1:] == ["randaugment", "randaugment"]
    values["contenders"]["resnet"]["optimizer"] = {"name": "lion"}
    with pytest.raises(InputError, match=r"contenders.resnet.optimizer: lion has no search space of its own"):
        space_of(experiment_from_dict(values), "resnet", pool)


def test_a_shared_space_of_the_users_names_what_a_model_lacks(tmp_path):
    values = tiny_config(tmp_path) | {"tuning": {"space": {"model": {"embed_dim": [12, 24]}, "optimizer.lr": [0.1]}}}
    values["contenders"]["vit"]["search"] = {"label_smoothing": [0.0, 0.1]}
    experiment = experiment_from_dict(values)
    resnet = space_of(experiment, "resnet", Pool(experiment.data))
    assert (dict(resnet.search), resnet.lacks) == ({"optimizer.lr": [0.1]}, ("model.embed_dim",))
    assert [*space_of(experiment, "vit", Pool(experiment.data)).search] == ["label_smoothing"]


def test_few_validation_images_are_made_up_for_by_more_splits(tmp_path):
    experiment = experiment_from_dict(tiny_config(tmp_path))
    fraction = experiment.data.validation_fraction
    assert [splits_at(experiment, round(answers / fraction)) for answers in (50, 250, 400, 1000, 9000)] == [
        *(5, 4, 3, 1, 1)
    ]
    assert _search(tmp_path, splits=3).seeds == [3, 0, 1]


def test_equal_flops_give_the_cheaper_network_more_trials(tmp_path):
    values = tiny_config(tmp_path) | {"tuning": {"equal": "flops"}}
    experiment = experiment_from_dict(values)
    pool = Pool(experiment.data, "validation")
    budget = experiment.protocol.budget
    searches = [Search(experiment, name, 60, budget, 4, pool, 1) for name in ("vit", "resnet")]
    granted = [one.count * one.flops() for one in equal_trials(searches)]
    assert min(one.count for one in equal_trials(searches)) == 4
    assert max(one.count for one in equal_trials(searches)) > 4
    assert abs(granted[0] - granted[1]) <= min(one.flops() for one in searches)


def test_a_size_at_which_nothing_was_tuned_takes_the_recipe_of_the_nearest(tmp_path):
    values = _values(tmp_path, sizes=[60])
    values["contenders"].pop("other")
    run_quietly(experiment_from_dict(values))
    found = read_findings(tmp_path / "tiny")
    assert {(r.train_size, r.tuning.trials, r.tuning.trial_rank, r.tuning.tuned_at) for r in found.results} == {
        (60, 2, 1, 60),
        (120, 2, 1, 60),
    }
    assert {trial["train_size"] for trial in _trials(tmp_path)} == {"60"}


def test_every_budget_has_trials_of_its_own_and_the_others_take_those_of_the_nearest(tmp_path):
    values = _values(tmp_path, budgets=[2, 4], sizes=["all"])
    values["protocol"] |= {"train_sizes": ["all"], "budget": {"steps": [2, 3, 4]}}
    values["contenders"].pop("other")
    run_quietly(experiment_from_dict(values))
    assert [trial["budget"] for trial in _trials(tmp_path)] == ["2 steps"] * 2 + ["4 steps"] * 2
    found = read_findings(tmp_path / "tiny")
    assert {(r.budget, r.tuning.trials, r.tuning.trial_rank) for r in found.results} == {
        ("2 steps", 2, 1),
        ("3 steps", 2, 1),
        ("4 steps", 2, 1),
    }
    tuned = experiment_from_dict(read_config(tmp_path / "tiny" / "tuned.yaml"))
    two, three, four = (tuned.recipe("linear", 120, budget).optimizer.lr for budget in tuned.protocol.budget.each())
    best = {steps: max(_trials_with(tmp_path, steps), key=_judged) for steps in ("2", "4")}
    assert [two, four] == [json.loads(best[steps]["values"])["optimizer.lr"] for steps in ("2", "4")]
    assert three == four


def _trials_with(output, steps) -> list[dict[str, str]]:
    return [trial for trial in _trials(output) if trial["steps"] == steps]


def _judged(trial) -> tuple[float, float]:
    return float(trial["validation_accuracy"]), -float(trial["validation_loss"])


def test_the_second_best_recipe_is_told_and_allows_no_verdict(tuned, tmp_path):
    values = read_config(tuned / "tiny" / "tuned.yaml")
    values["output"] = str(tmp_path)
    trials = [t for t in _trials(tuned) if (t["contender"], t["train_size"]) == ("linear", "60")]
    second = min(trials, key=lambda t: (float(t["validation_accuracy"]), -float(t["validation_loss"])))
    values["contenders"]["linear"]["by_size"]["60"]["optimizer"]["lr"] = json.loads(second["values"])["optimizer.lr"]
    values["contenders"]["other"]["label_smoothing"] = 0.0
    values["contenders"]["other"]["by_size"]["all"]["label_smoothing"] = 0.31
    told = io.StringIO()
    run_experiment(experiment_from_dict(values), console=Console(file=told))
    assert "linear at 60 images runs number 2 of its 2 trials, not the best: no verdict" in told.getvalue()
    assert "other at 60 images" not in told.getvalue()
    found = read_findings(tmp_path / "tiny")
    assert {str(one.conclusion) for one in found.analysis.comparisons} == {"no conclusion"}
    warnings = found.analysis.warnings()
    for reason in ("linear runs number 2 of its 2 trials, not the best", "other runs none of its 2 trials"):
        assert any(reason in warning for warning in warnings)


def test_a_record_that_is_gone_is_one_line_before_anything_trains(tuned, tmp_path):
    values = read_config(tuned / "tiny" / "tuned.yaml") | {"output": str(tmp_path)}
    values["tuning"]["record"] = str(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r"tuning.record .*nowhere.csv: No such file"):
        run_quietly(experiment_from_dict(values))
    assert not [*tmp_path.rglob("result.json")]


def test_the_report_has_the_trials_of_the_record(tuned):
    document = report_document(read_findings(tuned / "tiny"))
    titles = [heading.title for heading in document.contents]
    assert "Tuning" in titles
    (granted,) = [table for table in document.tables if table.name == "tuning"]
    assert [row[2] for row in granted.rows] == ["2"] * 4
    assert {row[-1] for row in granted.rows} == {"the best of them"}
    notes = next(block for block in document.blocks if isinstance(block, Bullets))
    assert not [note for note in notes.items if "record" in str(note) or "trials had" in str(note)]
    (trials,) = [table for table in document.tables if table.name == "trials"]
    assert len(trials.rows) == len(_trials(tuned))


def test_two_that_tune_one_experiment_enter_each_trial_once(tmp_path, monkeypatch):
    searches, draw = [_search(tmp_path) for _ in range(2)], Search.draw
    monkeypatch.setattr(Search, "draw", lambda search, number: time.sleep(0.05) or draw(search, number))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(Search.enter, searches))
    assert len(searches[0].study.get_trials()) == 3
