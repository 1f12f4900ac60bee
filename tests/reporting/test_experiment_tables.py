"""The tables of an experiment."""

import pytest

from tests.analysis.tables import seeded
from tests.results import changed, make_result
from tests.runs.test_trials import trial
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.config.schema import Budget
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan
from vit_vs_cnn.reporting import experiment_tables as tables
from vit_vs_cnn.runs.result import RecipeSource, RunState
from vit_vs_cnn.runs.status import RunStatus

PAIR = {"a": {50: 0.5}, "b": {50: 0.6}}


def columns_of(table) -> list[dict]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_seeds_are_one_row_with_the_interval_of_the_analysis():
    results = seeded(PAIR, parameters=1_234_567, macs=12_000_000, steps=40, planned_steps=40)
    row, _ = columns_of(tables.accuracy_table(analyze(results), results))
    accuracy = analyze(results).curve("a")[0].accuracy
    assert accuracy.value == pytest.approx(sum(r.accuracy for r in results[:3]) / 3)
    assert [row["model"], row["training images"], row["seeds"], row["steps"]] == ["a", 50, 3, 40]
    texts = [f"{100 * value:.1f}" for value in (accuracy.value, accuracy.low, accuracy.high)]
    assert [row["accuracy, %"], row["from"], row["to"]] == texts
    folds = [changed(r, fold=r.seed, scored_images=r.scores.scored_images - r.seed) for r in results]
    note = tables.accuracy_table(analyze(folds), folds).note
    assert note.startswith("Mean over seeds on 1,007 to 1,009 test images (another fold for each seed). ")


def test_each_model_has_one_row_with_its_recipe():
    results = [
        make_result(model="vit", recipe={"optimizer": {"lr": 0.1}}, recipe_source=RecipeSource.GIVEN),
        make_result(model="resnet", recipe_source=RecipeSource.SEARCHED, trials=4, tuned_at=500, trial_rank=2),
        make_result(model="resnet", train_size=7, recipe_source=None),
    ]
    resnet, vit = columns_of(tables.models_table(analyze(results), results))
    assert (vit["recipe"], vit["settings"]) == ("by hand", "optimizer.lr 0.1")
    assert resnet["recipe"] == "not the best of 4 trials with 500 images"


def test_a_linear_probe_has_no_steps_budget_or_augmentation_and_settings_have_their_names():
    recipe = {"finetune": {"head": True}, "augmentation": {"policy": "trivialaugment"}, "optimizer": {"lr": 0.1}}
    results = [
        make_result(model="a_probe", start_kind="linear probe", recipe=recipe),
        make_result(model="trained", start_kind="fine-tuned", recipe=recipe | {"finetune": {"last": 2}}),
    ]
    probe, trained = columns_of(tables.accuracy_table(analyze(results), results))
    assert (probe["steps"], probe["epochs"], trained["steps"]) == ("-", "-", 400)
    probe, trained = columns_of(tables.models_table(analyze(results), results))
    assert probe["settings"] == "finetune.head True"
    assert trained["settings"] == "finetune.last 2, augmentation.policy trivialaugment, optimizer.lr 0.1"
    budget = Budget(steps=150)
    runs = [RunStatus(r.run, r.model, r.train_size, r.seed, budget, RunState.FINISHED) for r in results]
    assert [row["budget"] for row in columns_of(tables.runs_table(runs, results))] == ["-", "150 steps"]


def test_comparisons_name_the_better_model_first_and_state_conclusion_and_reason():
    gaps = zip("abcd", (0, 0.001, 0.1, 0.2), strict=True)
    plan = AnalysisPlan((0, 1, 2), tuple("abcd"), (100, 400), 400, ("a", "c"), 1.0)
    analysis = analyze(seeded({name: {100: 0.5 + gap, 400: 0.6 + gap} for name, gap in gaps}), plan=plan)
    rows = columns_of(tables.comparison_table(analysis))
    assert [row["training images"] for row in rows] == [100] * 6 + [400] * 6
    for row, one in zip(rows, sorted(analysis.comparisons, key=lambda c: c.train_size or 0), strict=True):
        assert (row["better"], row["worse"]) == (one.leader, one.follower)
        assert float(row["points"]) == pytest.approx(100 * one.lead.value, abs=0.051)
        assert row["conclusion"].startswith(str(one.conclusion))
    assert sum(row["conclusion"].endswith(", primary") for row in rows) == 1
    (single,) = columns_of(tables.comparison_table(analyze(seeded(PAIR, seeds=1))))
    assert single["conclusion"].startswith("no conclusion, as 1 seed was run")


def test_forecasts_have_the_exponent_of_their_power_law():
    analysis = analyze(seeded({"a": {n: 1 - 2 * n**-0.3 for n in (100, 400, 900, 2000)}}, images=10**6, spread=0))
    (row,) = columns_of(tables.forecasts_table(analysis))
    assert (row["training images"], row["b"]) == (4000, "0.300")
    assert float(row["from"]) <= float(row["accuracy, %"]) <= float(row["to"])


def test_longer_budgets_have_gains_and_the_change_of_the_difference():
    runs = [
        changed(r, run=f"{r.run}-{steps}", budget=f"{steps} steps", steps=steps, accuracy=r.accuracy + gain)
        for steps, gain in ((100, 0.0), (400, 0.1))
        for r in seeded(PAIR)
    ]
    rows = columns_of(tables.gains_table(analyze(runs)))
    budgets = "100 steps to 400 steps"
    found = [(row["model"], row["budgets"], row["gain"].replace("-0.0", "+0.0")) for row in rows]
    assert found == [(name, budgets, gain) for name, gain in [("a", "+10.0"), ("b", "+10.0"), ("a - b", "+0.0")]]
    assert tables.gains_table(analyze(seeded(PAIR))).rows == []


def test_equal_cost_is_listed_where_costs_differ():
    cheap, dear = seeded({"a": {50: 0.5}}, macs=10_000), seeded({"b": {50: 0.6}}, macs=40_000)
    (flops,) = columns_of(tables.equal_cost_table(analyze([*cheap, *dear])))
    assert (flops["FLOPs ratio"], flops["points"]) == ("0.25", "no run is short enough")
    assert tables.equal_cost_table(analyze(seeded(PAIR))).rows == []


def test_all_trials_are_listed_the_best_of_each_model_first():
    trials = [trial(0, 0.1), trial(1, 0.3), trial(0, 0.5, model="resnet")]
    trials.append(trial(1, None, model="resnet", state="diverged"))
    rows = [row[1:5] for row in tables.trials_table(trials).rows]
    vit = [["ViT", 1, "30.0", "complete"], ["ViT", 2, "10.0", "complete"]]
    assert rows == [["ResNet", 1, "50.0", "complete"], ["ResNet", 2, "-", "diverged"], *vit]
