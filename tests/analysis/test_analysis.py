"""The analysis is a function of results, predictions and plan; forecasts follow a power law."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.conftest import RECORD
from tests.analysis.tables import PLAN, law_table, seeded, with_predictions
from tests.results import changed
from vit_vs_cnn.analysis.analysis import analyze, read_analysis, read_table_analysis
from vit_vs_cnn.analysis.forecast import extrapolate
from vit_vs_cnn.analysis.measurements import AccuracyPoint, measure
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.record import Answers
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.pair_comparison import Conclusion

LAWS = {"a": (0.5, 0.2, 0.0), "b": (0.6, 0.2, 0.0)}


def test_the_order_of_results_has_no_effect_and_json_has_plain_and_finite_values():
    results, correct = with_predictions(seeded(law_table((500, 1000, 2000, 4000), **LAWS), budget="40 steps", macs=5))
    answers = Answers(np.array([509, 500], dtype=np.int64), {}, correct)
    one = analyze(results, answers, plan=PLAN)
    assert one == analyze(results[::-1], answers, plan=PLAN)
    assert one.chance == 509 / 1009
    values = json.loads(json.dumps(one.to_dict(), allow_nan=False))
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
    assert (analysis.primary.train_size, analysis.primary.leader) == (10_000, "resnet")
    assert len(analysis.comparisons) == 5 and analysis.seeds == 3
    with pytest.raises(InputError):
        read_analysis(tmp_path)


SIZES = (500, 1000, 2000, 4000, 8000)


def points(accuracies: dict[int, float], error: float = 0.001, rng=None) -> list[AccuracyPoint]:
    found = []
    for size, accuracy in accuracies.items():
        value = accuracy + (rng.normal(0, error) if rng else 0.0)
        interval = Estimate(value, value - 1.96 * error, value + 1.96 * error)
        found.append(AccuracyPoint("a", size, "", interval, (value,)))
    return found


@pytest.mark.parametrize("law", [(0.5, 0.25, 0.0), (0.5, 0.4, 0.1), (-1.0, 0.1, 0.2)])
def test_parameters_of_an_exact_power_law_are_recovered(law):
    table = law_table((*SIZES, 16_000), a=law)["a"]
    true = table.pop(16_000)
    found = extrapolate(points(table), 16_000)
    assert found.law.exponent == pytest.approx(law[1], abs=0.02)
    assert found.law.floor == pytest.approx(law[2], abs=0.03)
    assert found.accuracy.value == pytest.approx(true, abs=0.001)


def test_interval_contains_the_truth_in_most_of_100_simulations():
    table = law_table((*SIZES, 16_000), a=(0.5, 0.3, 0.08))["a"]
    true = table.pop(16_000)
    rng = np.random.default_rng(0)
    found = [extrapolate(points(table, 0.006, rng), 16_000).accuracy for _ in range(100)]
    assert np.mean([one.low <= true <= one.high for one in found]) >= 0.9
    assert np.median([one.high - one.low for one in found]) < 0.1


def test_intervals_include_the_largest_measured_size_and_are_wider_for_curves_that_leave_their_law():
    """Without the largest size the law would have continued to rise."""
    exact = law_table(SIZES, a=(0.5, 0.3, 0.0))["a"]
    found = [extrapolate(points(table, 1e-4), 16_000).accuracy for table in (exact, exact | {8000: exact[4000]})]
    widths = [one.high - one.value for one in found]
    assert widths[1] > 0.9 * (exact[8000] - exact[4000]) > 10 * widths[0]
    # The accuracy may not rise any more, even if the measured accuracies follow the law exactly.
    found = extrapolate(points(exact, 1e-5), 16_000).accuracy
    assert found.low == pytest.approx(exact[8000], abs=1e-6)
    assert found.value > exact[8000] + 0.02 and found.high < found.value + 0.02


def test_forecasts_without_the_largest_recorded_size_contain_it(regimes_cpu):
    results, correct = regimes_cpu
    measured = measure(results, correct).points("")
    for model in ("vit", "resnet"):
        *known, largest = [point for point in measured if point.model == model]
        found = extrapolate(known, largest.train_size)
        assert found.accuracy.low <= largest.accuracy.value <= found.accuracy.high
