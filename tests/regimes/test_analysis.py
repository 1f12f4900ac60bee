"""The one door: deterministic, whole, and plain."""

import json

import pytest

from tests.regimes.synthetic import PURE, World
from tests.regimes.tables import law_table, published, seeded
from tests.results import changed
from vit_vs_cnn.regimes import analyse
from vit_vs_cnn.statistics.means import mean_of_accuracies

SMALL = World(laws=PURE.laws, sizes=(500, 1000, 4000), images=307)


def test_the_same_results_give_the_same_analysis_in_any_order():
    results, correct = SMALL.draw(0)
    one = analyse(results, correct, resamples=200)
    again = analyse(results[::-1], correct, resamples=200)
    assert one == again
    assert json.dumps(one.to_dict()) == json.dumps(again.to_dict())
    assert one != analyse(results, correct, resamples=200, seed=1)


def test_everything_is_plain_and_finite():
    """JSON has no infinity: what is censored is null."""
    analysis = analyse(published("CNN 4.9M", "ViT 5.0M"), resamples=100)
    text = json.dumps(analysis.to_dict(), allow_nan=False)
    assert json.loads(text)["pairs"][0]["crossings"][0]["size"] is None


def test_curves_hold_every_seed_and_their_mean():
    results = seeded({"a": {7: 0.5, 11: 0.6}, "b": {7: 0.4}}, seeds=3, spread=0.01)
    curve = analyse(results, resamples=50).curves[0]
    values = [r.accuracy for r in results if (r.contender, r.train_size) == ("a", 7)]
    point = curve.points[0]
    assert (curve.contender, point.size, point.by_seed) == ("a", 7, tuple(values))
    assert point.accuracy == mean_of_accuracies(values, 1009).interval(within=(0.0, 1.0))


def test_an_unfinished_grid_is_analysed_as_far_as_it_goes():
    results = seeded(law_table((500, 1000, 4000), a=(0.5, 0.2, 0.0), b=(0.6, 0.2, 0.0)))
    last = [r for r in results if (r.contender, r.train_size) == ("b", 4000)]
    unfinished = [r for r in results if r not in last]
    analysis = analyse(unfinished, resamples=100)
    assert [len(curve.points) for curve in analysis.curves] == [3, 2]
    assert [c.size for c in analysis.pairs[0].comparisons] == [500, 1000]
    few = "Fewer than 3 seeds at n = 4,000"
    assert not any(warning.startswith(few) for warning in analysis.warnings)  # the runs of a there have their seeds
    begun = analyse([*unfinished, last[0]], resamples=100)
    assert any(warning.startswith(few) for warning in begun.warnings)


def test_all_pairs_are_there_and_their_p_values_are_corrected():
    table = {name: {50: value, 70: value + 0.1} for name, value in zip("abcd", (0.1, 0.2, 0.3, 0.4), strict=True)}
    analysis = analyse(seeded(table), resamples=200)
    assert len(analysis.pairs) == 6
    pair = analysis.pair("d", "a")
    assert pair is not None and (pair.ahead, pair.behind) == ("d", "a")
    assert pair.at_largest.adjusted_p_value >= pair.at_largest.p_value
    assert analysis.pair("a", "nobody") is None


def test_one_decade_of_sizes_warns_of_the_floor_and_two_do_not():
    laws = {"a": (0.5, 0.2, 0.0), "b": (0.6, 0.2, 0.0)}
    narrow = analyse(seeded(law_table((500, 1000, 5000), **laws)), resamples=50)
    wide = analyse(seeded(law_table((500, 1000, 50000), **laws)), resamples=50)
    text = "Over one decade of sizes the floor c of a power law is not identifiable (a and b)."
    assert text in narrow.warnings
    assert text not in wide.warnings


def test_a_curve_that_is_no_power_law_is_warned_of():
    table = {
        "a": {500: 0.3, 1000: 0.31, 2000: 0.32, 50000: 0.9},
        **law_table((500, 1000, 2000, 50000), b=(0.5, 0.2, 0)),
    }
    warnings = analyse(seeded(table, images=10_000), resamples=50).warnings
    assert "The curve of a is no power law, so what is extrapolated from it is a guess." in warnings


def test_the_difference_is_narrower_where_predictions_are_known():
    """Without them contenders count as tested on independent images."""
    world = World(laws=PURE.laws, sizes=(500, 4000), seeds=1, images=2003)
    results, correct = world.draw(0)
    known, unknown = (analyse(results, c, resamples=2000).pairs[0].at_largest.difference for c in (correct, None))
    assert known.value == pytest.approx(unknown.value)
    assert known.high - known.low < 0.8 * (unknown.high - unknown.low)


def test_costs_come_from_the_results():
    results = seeded({"a": {7: 0.5}}, parameters=10) + seeded({"b": {7: 0.4}}, parameters=20)
    points = {(p.contender, p.cost): p for p in analyse(results, resamples=50).frontier}
    assert points["a", "parameters"].value == 10
    assert [points[name, "parameters"].is_on_frontier for name in "ab"] == [True, False]


def test_equal_steps_at_every_size_do_not_tell_data_from_training():
    results = [changed(r, training_images=r.train_size) for r in seeded({"a": {500: 0.3, 50_000: 0.6}})]
    assert analyse(results, resamples=20).same_steps == (
        "Every run has 400 steps: 102 epochs at n = 500 and 1.02 at 50,000. More data and more training are not told "
        "apart: a curve that flattens may be out of steps, not of data."
    )
    assert analyse(seeded({"a": {500: 0.3}}), resamples=20).same_steps is None
