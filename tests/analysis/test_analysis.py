"""The analysis is a function of results, predictions and plan: the order does not matter, and it is plain data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.conftest import RECORD
from tests.analysis.tables import PLAN, law_table, seeded, with_predictions
from tests.results import changed
from vit_vs_cnn.analysis.analysis import analyze, read_analysis, read_table_analysis
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.record import Answers
from vit_vs_cnn.statistics.pair_comparison import Conclusion

LAWS = {"a": (0.5, 0.2, 0.0), "b": (0.6, 0.2, 0.0)}


def with_answers(results):
    """Results and predictions of images of two classes."""
    results, correct = with_predictions(results)
    return results, Answers(np.array([509, 500], dtype=np.int64), {}, correct)


def test_the_order_of_results_has_no_effect_and_json_has_plain_and_finite_values():
    results, answers = with_answers(seeded(law_table((500, 1000, 2000, 4000), **LAWS)))
    one, again = analyze(results, answers), analyze(results[::-1], answers)
    assert one == again
    assert one.chance == 509 / 1009
    results, answers = with_answers(seeded(law_table((500, 1000, 2000, 4000), **LAWS), budget="40 steps", macs=5))
    values = json.loads(json.dumps(analyze(results, answers, plan=PLAN).to_dict(), allow_nan=False))
    assert values["comparisons"][0]["conclusion"] in [*Conclusion]
    assert values["forecasts"][0]["train_size"] == 8000
    assert values["sizes"] == [500, 1000, 2000, 4000]


def test_only_planned_seeds_and_the_first_added_ones_are_analyzed():
    five = seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.48, 11: 0.6}}, seeds=5, spread=0.01)
    three = [r for r in five if r.seed < 3]
    assert analyze(five, plan=PLAN) == analyze(three, plan=PLAN)
    added = analyze(five, plan=replace(PLAN, added_seeds=((3, 4),)))
    assert (added.seeds, {one.error_rate for one in added.comparisons}) == (5, {0.01})
    assert analyze(five, plan=replace(PLAN, added_seeds=((3,), (4,)))).seeds == 4
    other = analyze([changed(r, seed=r.seed + 7) for r in three], plan=PLAN)
    assert {str(one.caveat) for one in other.comparisons} == {"none of their seeds was planned"}


def test_an_unfinished_experiment_is_analyzed_with_its_finished_runs():
    results = seeded(law_table((500, 1000, 4000), **LAWS))
    unfinished = [r for r in results if (r.model, r.train_size) != ("b", 4000)]
    analysis = analyze(unfinished)
    assert [len(analysis.curve(model)) for model in "ab"] == [3, 2]
    assert analysis.forecasts == ()  # they need four sizes
    assert [one.train_size for one in analysis.pair_comparisons("b", "a")] == [500, 1000]
    assert not any(one.train_size == analysis.sizes[-1] for one in analysis.comparisons)
    few = "There are fewer than 3 seeds with 4,000 images"
    assert not any(text.startswith(few) for text in analysis.warnings())
    started = analyze([*unfinished, next(r for r in results if r not in unfinished)])
    assert any(text.startswith(few) for text in started.warnings())


def test_table_of_results_has_the_analysis_of_its_results_and_plan(tmp_path):
    analysis = read_table_analysis(RECORD / "results.csv")
    assert analysis.primary is not None
    assert (analysis.primary.train_size, analysis.primary.leader) == (10_000, "resnet")
    assert len(analysis.comparisons) == 5 and analysis.seeds == 3
    with pytest.raises(InputError):
        read_analysis(tmp_path)
