"""The table of runs and the lines after the answer."""

import pytest

from tests.regimes.tables import seeded
from tests.results import changed
from vit_vs_cnn.regimes.analysis import Analysis, analyse
from vit_vs_cnn.regimes.answer import write_answer
from vit_vs_cnn.reporting.regime_tables import (
    comparisons_table,
    crossovers_table,
    equal_cost_table,
    forecasts_table,
    interactions_table,
    more_training_table,
)
from vit_vs_cnn.reporting.tables import further_comparisons, results_csv, results_table, rows_of
from vit_vs_cnn.runs.analysis_plan import AnalysisPlan
from vit_vs_cnn.runs.record import read_result_table

PAIR = {"a": {50: 0.5}, "b": {50: 0.6}}
COST = {"parameters": 1_234_567, "macs": 12_000_000, "steps": 40, "planned_steps": 40}


def columns_of(table) -> list[dict]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_seeds_are_one_row_with_the_interval_of_the_analysis():
    results = seeded(PAIR, **COST)
    analysis = analyse(results)
    row, _ = rows_of(results, analysis)
    accuracy = analysis.curve("a")[0].accuracy
    assert accuracy.value == pytest.approx(sum(r.accuracy for r in results[:3]) / 3)
    low, high = 100 * accuracy.low, 100 * accuracy.high
    assert row[:6] == ("a", "50", f"{100 * accuracy.value:.1f} %", f"{low:.1f}-{high:.1f}", "1.23M", "12M")


def test_there_is_a_line_for_each_run_and_a_row_for_each_model(tmp_path):
    results = seeded(PAIR, validation_curve=[(5, 0.1), (10, 0.3)])
    (tmp_path / "results.csv").write_text(results_csv(results))
    assert read_result_table(tmp_path / "results.csv") == results
    assert [row[0] for row in results_table(results, analyse(results), title="t").rows] == ["a", "b"]


def test_runs_that_stopped_early_show_both_numbers_of_steps():
    results = seeded(PAIR, **COST)
    results[4] = changed(results[4], steps=37)
    whole, early = rows_of(results, analyse(results))
    assert (whole[6], early[6]) == ("40", "37 of 40")


def test_runs_of_unplanned_seeds_alone_have_no_row():
    results = [*seeded(PAIR), changed(seeded({"c": {50: 0.7}}, seeds=1)[0], seed=8)]
    plan = AnalysisPlan((0, 1, 2), ("a", "b", "c"), (50,), 50, ("a", "b"), 1.0)
    assert [row[0] for row in rows_of(results, analyse(results, plan=plan))] == ["a", "b"]


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_note_describes_the_interval_of_one_seed(seeds):
    results = seeded(PAIR, seeds=seeds)
    note = results_table(results, analyse(results), title="t").note
    assert ("The interval of one seed covers other test images only." in note) == (seeds == 1)
    assert (f"{seeds} seeds were run" in note) == (seeds > 1)


def four_models() -> Analysis:
    gaps = zip("abcd", (0, 0.001, 0.1, 0.2), strict=True)
    plan = AnalysisPlan((0, 1, 2), tuple("abcd"), (100, 400), 400, ("a", "c"), 1.0)
    return analyse(seeded({name: {100: 0.5 + gap, 400: 0.6 + gap} for name, gap in gaps}), plan=plan)


def test_after_the_answer_come_the_primary_comparison_and_the_number_of_the_others():
    analysis = four_models()
    primary, others = further_comparisons(analysis)
    assert {analysis.recommendation.best, analysis.recommendation.rival} == {"c", "d"}
    assert primary.startswith("With 400 images: c is 10.")
    assert "primary comparison): significantly better." in primary
    assert others == "The report contains 9 more comparisons."


def test_nothing_follows_an_answer_that_shows_every_comparison():
    analysis = analyse(seeded({"a": {50: 0.5, 90: 0.6}, "b": {50: 0.6, 90: 0.7}}))
    assert further_comparisons(analysis) == []
    assert len(write_answer(analysis).rows) == len(analysis.comparisons)


def test_comparisons_name_the_better_model_first_and_state_conclusion_and_reason():
    analysis = four_models()
    rows = columns_of(comparisons_table(analysis))
    assert [row["n"] for row in rows] == ["100"] * 6 + ["400"] * 6
    for row, one in zip(rows, sorted(analysis.comparisons, key=lambda c: c.train_size or 0), strict=True):
        assert (row["better"], row["worse"]) == (one.leader, one.follower)
        assert float(row["points"]) == pytest.approx(100 * one.lead.value, abs=0.051)
        assert row["conclusion"].startswith(str(one.conclusion))
    assert sum(row["conclusion"].endswith(", primary") for row in rows) == 1
    (single,) = columns_of(comparisons_table(analyse(seeded(PAIR, seeds=1))))
    assert single["conclusion"].startswith("no conclusion: 1 seed was run")
    assert single["detectable"] == ""


def test_a_crossover_is_between_two_sizes():
    crossing = {"a": {100: 0.5, 400: 0.6, 900: 0.7}, "b": {100: 0.4, 400: 0.6, 900: 0.8}}
    assert crossovers_table(analyse(seeded(crossing, images=10**6))).rows == [["b", "a", "100", "900"]]
    assert crossovers_table(analyse(seeded(PAIR))).rows == []


def test_forecasts_have_their_law():
    table = {"a": {n: 1 - 2 * n**-0.3 for n in (100, 400, 900, 2000)}}
    analysis = analyse(seeded(table, images=10**6, spread=0))
    (row,) = columns_of(forecasts_table(analysis))
    assert (row["n"], row["b"]) == ("4,000", "0.300")
    assert float(row["from"]) <= float(row["accuracy, %"]) <= float(row["to"])


def test_longer_budgets_have_gains_and_the_change_of_the_difference():
    runs = [
        changed(r, run=f"{r.run}-{steps}", budget=f"{steps} steps", steps=steps, accuracy=r.accuracy + gain)
        for steps, gain in ((100, 0.0), (400, 0.1))
        for r in seeded(PAIR)
    ]
    analysis = analyse(runs)
    rows = columns_of(more_training_table(analysis))
    assert [(row["model"], row["budget"], row["gain"]) for row in rows] == [
        ("a", "100 steps", ""),
        ("a", "400 steps", "+10.0"),
        ("b", "100 steps", ""),
        ("b", "400 steps", "+10.0"),
    ]
    (change,) = columns_of(interactions_table(analysis))
    assert (change["budgets"], float(change["change"])) == ("100 steps to 400 steps", 0.0)
    single = analyse(seeded(PAIR))
    assert more_training_table(single).rows == interactions_table(single).rows == []


def test_equal_cost_states_where_the_accuracies_come_from():
    cheap, dear = seeded({"a": {50: 0.5}}, macs=10_000), seeded({"b": {50: 0.6}}, macs=40_000)
    steps, flops = columns_of(equal_cost_table(analyse([*cheap, *dear])))
    assert (steps["equal"], steps["ratio"], steps["source"]) == ("steps", "1.00", "runs")
    assert (flops["equal"], flops["ratio"]) == ("training FLOPs", "0.25")
    assert (flops["points"], flops["source"]) == ("unknown", "no run is short enough")
