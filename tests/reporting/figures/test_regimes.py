"""Figures of an analysis show its numbers, and only what is known."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.regimes.tables import law_table, seeded, validated
from tests.results import changed
from vit_vs_cnn.regimes.analysis import Analysis, analyse
from vit_vs_cnn.reporting.figures.drawing import save_figure
from vit_vs_cnn.reporting.figures.regimes import (
    behind_the_best,
    difference,
    learning_curves,
    more_training,
    pairs,
    regime_figures,
    training_curves,
)
from vit_vs_cnn.runs.analysis_plan import AnalysisPlan
from vit_vs_cnn.statistics.pair_comparison import CONCLUSIVE

pytestmark = pytest.mark.usefixtures("real_figures")

SIZES = (500, 1000, 4000, 10000)
CROSSING = {"resnet": (0.5, 0.15, 0.0), "vit": (0.5 + 0.15 * 7.313, 0.3, 0.0)}  # equal at 1,500 images
THREE = {"cnn": {100: 0.5, 700: 0.7}, "vit": {100: 0.2, 700: 0.4}, "windows": {100: 0.5, 700: 0.69}}


def analysis_of_crossing(**options) -> Analysis:
    return analyse(seeded(law_table(SIZES, **CROSSING), images=10_000, **options))


def hollow_marks(axis, marker="o"):
    return [line for line in axis.lines if line.get_marker() == marker and line.get_markerfacecolor() == "white"]


def test_curves_show_means_intervals_seeds_and_forecasts_to_twice_the_largest_size():
    analysis = analysis_of_crossing()
    (axis,) = learning_curves(analysis).axes
    for model, bars in zip(analysis.models, axis.containers, strict=False):
        curve = analysis.curve(model.key)
        means, _, spans = bars.lines
        np.testing.assert_allclose(means.get_ydata().astype(float), [100 * p.accuracy.value for p in curve])
        ends = np.array([segment[:, 1] for segment in spans[0].get_segments()])
        np.testing.assert_allclose(ends, [[100 * p.accuracy.low, 100 * p.accuracy.high] for p in curve])
    laws = [line for line in axis.lines if line.get_linestyle() == ":" and len(line.get_xdata()) > 1]
    ends = {(float(line.get_xdata()[-1]), round(float(line.get_ydata()[-1]), 6)) for line in laws}
    assert ends == {(20_000.0, round(100 * one.accuracy.value, 6)) for one in analysis.forecasts}
    assert sum(line.get_marker() == "." for line in axis.lines) == len(SIZES) * 2
    texts = [text.get_text() for text in axis.get_legend().get_texts()]
    assert {"forecast up to 20,000 images", "ResNet", "ViT"} == {*texts}


def test_the_accuracy_of_always_predicting_the_most_frequent_class_is_a_line():
    (axis,) = learning_curves(replace(analysis_of_crossing(), chance=0.25)).axes
    dashed = [line for line in axis.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in dashed] == [25.0]


def test_models_differ_in_marker_as_well_as_colour():
    (axis,) = learning_curves(analyse(seeded({name: {7: 0.5} for name in "abcdefghi"}))).axes
    styles = [(c.lines[0].get_marker(), c.lines[0].get_color()) for c in axis.containers]
    assert len(set(styles)) == 9
    assert len({marker for marker, _ in styles[:7]}) == len({colour for _, colour in styles[:7]}) == 7


def test_many_curves_have_no_intervals_and_are_named_from_the_best_down():
    table = {name: {100: 0.4 + gap, 700: 0.6 + gap} for name, gap in zip("abcdef", np.arange(6) / 50, strict=True)}
    analysis = analyse(seeded(table))
    figure = learning_curves(analysis)
    (axis,), (legend,) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*"fedcba"]
    assert not axis.collections and not axis.containers
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [100 * p.accuracy.value for p in analysis.curve("f")])


def test_differences_from_the_best_are_ordered_and_filled_only_with_a_conclusion():
    analysis = analyse(seeded(THREE, images=10**6, spread=0.01))
    figure = behind_the_best(analysis)
    assert [axis.get_title("left") for axis in figure.axes] == ["100 images", "700 images"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["windows", "ViT"]
    filled = []
    for axis, size in zip(figure.axes, (100, 700), strict=True):
        for bars, name in zip(axis.containers, ("windows", "vit"), strict=True):
            (one,) = (c for c in analysis.pair("cnn", name) if c.train_size == size)
            mark = bars.lines[0]
            assert mark.get_xdata()[0] == pytest.approx(-100 * one.difference.value)
            filled.append((mark.get_markerfacecolor() != "white", one.conclusion in CONCLUSIVE))
    assert [is_filled for is_filled, _ in filled] == [expected for _, expected in filled]
    assert {True, False} == {expected for _, expected in filled}
    assert "behind_the_best" not in regime_figures(analysis_of_crossing())


def test_pairs_that_are_not_all_with_the_best_have_a_row_each():
    named = (("windows", "vit"), ("vit", "cnn"))
    plan = AnalysisPlan((0, 1, 2), ("cnn", "vit", "windows"), (100, 700), 700, ("vit", "cnn"), 1.0, pairs=named)
    analysis = analyse(seeded(THREE, images=10**6), plan=plan)
    assert {"pairs", "behind_the_best"} & regime_figures(analysis).keys() == {"pairs"}
    figure = pairs(analysis)
    found = {(c.first, c.second, c.train_size): c.difference.value for c in analysis.comparisons}
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["CNN - ViT", "ViT - windows"]
    for axis, size in zip(figure.axes, (100, 700), strict=True):
        for bars, row in zip(axis.containers, rows, strict=True):
            first, second = (name.lower() for name in row.split(" - "))
            assert bars.lines[0].get_xdata()[0] == pytest.approx(100 * found[first, second, size])


def test_the_label_of_a_figure_of_one_size_fits_into_it():
    table = {"resnet_with_a_long_name": {700: 0.7}, "vit": {700: 0.4}, "windows": {700: 0.69}}
    figure = behind_the_best(analyse(seeded(table, images=10**6)))
    figure.draw_without_rendering()
    box = figure._supxlabel.get_window_extent()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width


def test_the_difference_is_best_minus_rival_and_the_crossover_lies_between_two_sizes():
    analysis = analysis_of_crossing()
    (axis,) = difference(analysis).axes
    assert axis.get_title(loc="left") == "ViT - ResNet"
    drawn = axis.containers[0].lines[0].get_ydata().astype(float)
    assert drawn[0] < 0 < drawn[-1]
    np.testing.assert_allclose(drawn, [-100 * c.difference.value for c in analysis.comparisons])
    (crossover,) = analysis.crossovers
    (label,) = (text for text in axis.texts if text.get_text() == "crossover")
    assert crossover.low < label.xy[0] < crossover.high


@pytest.mark.parametrize("seeds", [1, 3])
def test_differences_without_a_conclusion_are_hollow(seeds):
    analysis = analysis_of_crossing(seeds=seeds)
    (axis,) = difference(analysis).axes
    open_ones = [c for c in analysis.comparisons if c.conclusion not in CONCLUSIVE]
    assert len(hollow_marks(axis)) == len(open_ones)
    assert len(open_ones) < len(SIZES) if seeds == 3 else len(open_ones) == len(SIZES)


def test_every_budget_is_a_line():
    short, long = (
        seeded(law_table(SIZES, **CROSSING), images=10_000, budget=f"{steps} steps", steps=steps, seeds=2)
        for steps in (100, 400)
    )
    named = [changed(r, run=f"{r.run}-{r.budget}") for r in (*short, *long)]
    figure = more_training(analyse(named))
    assert [axis.get_title() for axis in figure.axes] == ["ResNet", "ViT"]
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["100 steps", "400 steps"]


def test_training_curves_are_means_over_seeds_at_shared_steps():
    results = validated(seeded(THREE), (0.1, 0.2, 0.3, 0.4, 0.5))
    results[0] = changed(results[0], validation_curve=[(80, 0.4), (160, 0.5), (400, 0.8)])
    figure = training_curves(results)
    assert figure is not None
    first, *others = figure.axes
    np.testing.assert_allclose(first.lines[0].get_xdata(), [80, 160, 400])
    np.testing.assert_allclose(first.lines[0].get_ydata(), [20, 30, 60])
    np.testing.assert_allclose(others[0].lines[0].get_ydata(), [10, 20, 30, 40, 50])
    assert training_curves(seeded(THREE)) is None


def test_a_single_size_draws_what_there_is():
    figures = regime_figures(analyse(seeded(law_table((500,), **CROSSING))))
    assert [*figures] == ["learning_curves"]
    assert [tick.get_text() for tick in figures["learning_curves"].axes[0].get_yticklabels()] == ["ResNet", "ViT"]
    assert [*regime_figures(analyse(seeded({"vit": {500: 0.5}})))] == ["learning_curves"]


def test_all_figures_are_written_and_the_same_each_time(tmp_path):
    results = validated(seeded(law_table(SIZES, **CROSSING), images=10_000))
    drawn = [regime_figures(analyse(results), results) for _ in range(2)]
    assert [*drawn[0]] == ["learning_curves", "difference", "training_curves"]
    for name in drawn[0]:
        once, again = (save_figure(f[name], tmp_path / str(i), name, ["png"]) for i, f in enumerate(drawn))
        assert once[0].read_bytes() == again[0].read_bytes()
        assert np.asarray(Image.open(once[0])).std() > 10
