"""Figures of an analysis show its numbers."""

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.tables import law_table, seeded
from tests.results import changed
from vit_vs_cnn.analysis.analysis import Analysis, analyze
from vit_vs_cnn.reporting.figures.experiment import accuracy_curves, difference_curves, experiment_figures, gaps_to_best
from vit_vs_cnn.statistics.pair_comparison import CONCLUSIVE

pytestmark = pytest.mark.usefixtures("real_figures")

SIZES = (500, 1000, 4000, 10000)
CROSSING = {"resnet": (0.5, 0.15, 0.0), "vit": (0.5 + 0.15 * 7.313, 0.3, 0.0)}  # equal at 1,500 images
THREE = {"cnn": {100: 0.5, 700: 0.7}, "vit": {100: 0.2, 700: 0.4}, "windows": {100: 0.5, 700: 0.69}}


def analysis_of_crossing(**options) -> Analysis:
    return analyze(seeded(law_table(SIZES, **CROSSING), images=10_000, **options))


def hollow_marks(axis, marker="o"):
    return [line for line in axis.lines if line.get_marker() == marker and line.get_markerfacecolor() == "white"]


def labels_next_to(axis) -> list[str]:
    """Names of the curves in the legend."""
    return [text.get_text() for text in axis.figure.legends[0].get_texts()]


def test_curves_show_means_intervals_seeds_and_no_fit():
    analysis = analysis_of_crossing()
    (axis,) = accuracy_curves(analysis).axes
    assert len(axis.containers) == len(analysis.models)
    for model, bars in zip(analysis.models, axis.containers, strict=True):
        curve = analysis.curve(model.key)
        means, _, spans = bars.lines
        np.testing.assert_allclose(means.get_ydata().astype(float), [100 * p.accuracy.value for p in curve])
        ends = np.array([segment[:, 1] for segment in spans[0].get_segments()])
        np.testing.assert_allclose(ends, [[100 * p.accuracy.low, 100 * p.accuracy.high] for p in curve])
    assert sum(line.get_marker() == "." for line in axis.lines) == len(SIZES) * 2
    assert not [line for line in axis.lines if line.get_linestyle() == ":"]
    assert labels_next_to(axis) == ["ResNet", "ViT"]


def test_majority_accuracy_is_a_dashed_line_unless_far_below_the_curves():
    def lines(chance: float) -> list[float]:
        (axis,) = accuracy_curves(replace(analysis_of_crossing(), chance=chance)).axes
        return [line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == "--"]

    assert lines(0.25) == [25.0]
    high = {"resnet": {500: 0.95, 900: 0.96}, "vit": {500: 0.96, 900: 0.97}}
    (axis,) = accuracy_curves(replace(analyze(seeded(high)), chance=0.1)).axes
    assert not [line for line in axis.lines if line.get_linestyle() == "--"]


def test_many_curves_have_intervals_for_the_recommended_pair_alone():
    table = {name: {100: 0.4 + gap, 700: 0.6 + gap} for name, gap in zip("abcdef", np.arange(6) / 500, strict=True)}
    (axis,) = accuracy_curves(analyze(seeded(table))).axes
    assert len(axis.containers) == 2
    assert labels_next_to(axis) == [*"abcdef"]
    curves = [line.get_xdata() for line in axis.lines if len(line.get_xdata()) == 2]
    assert sum([*curve] == [100, 700] for curve in curves) == 4  # those without intervals are not shifted


def test_differences_from_the_best_are_ordered_and_filled_only_with_a_conclusion():
    analysis = analyze(seeded(THREE, images=10**6, spread=0.01))
    figure = gaps_to_best(analysis)
    assert [axis.get_title("left") for axis in figure.axes] == ["100 images", "700 images"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["windows", "ViT"]
    filled = []
    for axis, size in zip(figure.axes, (100, 700), strict=True):
        for bars, name in zip(axis.containers, ("windows", "vit"), strict=True):
            (one,) = (c for c in analysis.pair_comparisons("cnn", name) if c.train_size == size)
            mark = bars.lines[0]
            assert mark.get_xdata()[0] == pytest.approx(100 * one.difference.value)
            filled.append((mark.get_markerfacecolor() != "white", one.conclusion in CONCLUSIVE))
    assert [is_filled for is_filled, _ in filled] == [expected for _, expected in filled]
    assert {True, False} == {expected for _, expected in filled}
    assert "behind_the_best" not in experiment_figures(analysis_of_crossing())
    unfinished = analyze([r for r in seeded(THREE) if r.train_size == 100 or r.model == "vit"])
    assert experiment_figures(unfinished)["behind_the_best"].get_supxlabel() == "points below the CNN"


def test_the_difference_is_best_minus_rival_and_the_crossover_lies_between_two_sizes():
    analysis = analysis_of_crossing()
    (axis,) = difference_curves(analysis).axes
    assert axis.get_ylabel() == "points above the ResNet" and labels_next_to(axis) == ["ViT"]
    heights = axis.containers[0].lines[0].get_ydata().astype(float)
    assert heights[0] < 0 < heights[-1]
    np.testing.assert_allclose(heights, [-100 * c.difference.value for c in analysis.comparisons])
    (crossover,) = analysis.crossovers
    (band,) = axis.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == (crossover.low, crossover.high)


@pytest.mark.parametrize("seeds", [1, 3])
def test_differences_without_a_conclusion_are_hollow(seeds):
    analysis = analysis_of_crossing(seeds=seeds)
    (axis,) = difference_curves(analysis).axes
    open_ones = [c for c in analysis.comparisons if c.conclusion not in CONCLUSIVE]
    assert len(hollow_marks(axis)) == len(open_ones)
    assert len(open_ones) < len(SIZES) if seeds == 3 else len(open_ones) == len(SIZES)


def test_each_model_has_a_difference_curve_whose_marks_without_a_conclusion_are_hollow():
    analysis = analyze(seeded(THREE, images=10**6, spread=0.01))
    to_cnn = replace(analysis, comparisons=tuple(c for c in analysis.comparisons if "cnn" in c.names))
    (axis,) = difference_curves(to_cnn).axes
    assert axis.get_ylabel() == "points above the CNN"
    assert labels_next_to(axis) == ["ViT", "windows"]
    for bars, name in zip(axis.containers, ("vit", "windows"), strict=True):
        pair = to_cnn.pair_comparisons(name, "cnn")
        signs = [1 if comparison.first == name else -1 for comparison in pair]
        expected = [100 * sign * comparison.difference.value for sign, comparison in zip(signs, pair, strict=True)]
        np.testing.assert_allclose(bars.lines[0].get_ydata().astype(float), expected)
        assert expected[0] < 0 if name == "vit" else abs(expected[0]) < 1
    hollow = [mark for marker in "osv^D" for mark in hollow_marks(axis, marker)]
    assert len(hollow) == len([c for c in to_cnn.comparisons if c.conclusion not in CONCLUSIVE]) > 0


def test_every_budget_is_a_panel_with_all_models():
    table = law_table(SIZES, **CROSSING)
    budgets = ({"budget": f"{steps} steps", "steps": steps} for steps in (100, 400))
    short, long = (seeded(table, images=10_000, seeds=2, **budget) for budget in budgets)
    named = [changed(r, run=f"{r.run}-{r.budget}") for r in (*short, *long)]
    figure = experiment_figures(analyze(named))["more_training"]
    assert [axis.get_title("left") for axis in figure.axes] == ["100 steps", "400 steps"]
    assert [len(axis.containers) for axis in figure.axes] == [2, 2]
