"""What the figures of an analysis show, and that what is not known is not drawn."""

import numpy as np
import pytest
from PIL import Image

from tests.regimes.tables import RISING, law_table, published, seeded, validated
from tests.results import changed
from vit_vs_cnn.regimes import analyse
from vit_vs_cnn.reporting.figures.drawing import save_figure
from vit_vs_cnn.reporting.figures.regimes import (
    behind_the_best,
    cost_frontier,
    data_multiplier,
    difference,
    equivalents,
    learning_curves,
    pairs,
    regime_figures,
    residuals,
    training_curves,
)
from vit_vs_cnn.runs.design import Design
from vit_vs_cnn.statistics.verdict import DECIDED

pytestmark = pytest.mark.usefixtures("real_figures")

SIZES = (500, 1000, 4000, 10000)
CROSSING = {"resnet": (0.5, 0.15, 0.0), "vit": (0.5 + 0.15 * 7.313, 0.3, 0.0)}  # at 1,500
COSTS = {"resnet": {"macs": 30_000, "parameters": 75_000}, "vit": {"macs": 40_000, "parameters": 138_000}}


def analysis_of(laws=CROSSING, *, sizes=SIZES, **options):
    results = validated(seeded(law_table(sizes, **laws), images=10_000, **options))
    return analyse([changed(r, **COSTS.get(r.contender, {})) for r in results], resamples=200)


def texts(axis):
    return [text.get_text() for text in axis.texts]


def markers(axis, marker):
    """Places of the lines that are drawn with a marker."""
    return [line for line in axis.lines if line.get_marker() == marker]


def test_curves_show_means_intervals_seeds_and_laws_to_twice_the_largest_size():
    analysis = analysis_of()
    (axis,) = learning_curves(analysis).axes
    for curve, bars in zip(analysis.curves, axis.containers, strict=True):
        means, _, spans = bars.lines
        np.testing.assert_allclose(means.get_ydata().astype(float), [100 * p.accuracy.value for p in curve.points])
        ends = np.array([segment[:, 1] for segment in spans[0].get_segments()])
        np.testing.assert_allclose(ends, [[100 * p.accuracy.low, 100 * p.accuracy.high] for p in curve.points])
    laws = [line for line in axis.lines if line.get_linestyle() in ("--", ":") and len(line.get_xdata()) > 1]
    assert len(laws) == len(analysis.laws) == 4
    assert [float(line.get_xdata()[-1]) for line in laws] == pytest.approx([20_000.0] * 4)
    assert [t.get_text() for t in axis.get_legend().get_texts()][-2:] == ["ResNet", "ViT"]
    assert len(markers(axis, ".")) == 8


def test_contenders_differ_in_marker_as_well_as_colour():
    table = {name: {7: 0.5} for name in "abcdefghi"}
    (axis,) = learning_curves(analyse(seeded(table), resamples=20)).axes
    styles = [(c.lines[0].get_marker(), c.lines[0].get_color()) for c in axis.containers]
    assert len(set(styles)) == 9
    assert len({marker for marker, _ in styles[:7]}) == len({colour for _, colour in styles[:7]}) == 7


def test_of_many_contenders_the_curves_are_lines_named_from_the_best_down():
    table = {name: {100: 0.4 + gap, 700: 0.6 + gap} for name, gap in zip("abcdef", np.arange(6) / 50, strict=True)}
    analysis = analyse(seeded(table), resamples=20)
    figure = learning_curves(analysis)
    (axis,), (legend,) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*"fedcba"]
    assert not axis.collections and not axis.containers
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [100 * p.accuracy.value for p in analysis.curves[-1].points])


def test_contenders_stand_behind_the_best_in_their_order_and_only_verdicts_are_filled():
    table = {"cnn": {100: 0.5, 700: 0.7}, "vit": {100: 0.2, 700: 0.4}, "windows": {100: 0.5, 700: 0.69}}
    analysis = analyse(seeded(table, images=10**6), resamples=20)
    figure = behind_the_best(analysis)
    assert [axis.get_title("left") for axis in figure.axes] == ["n = 100", "n = 700"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["windows", "ViT"]
    found = {(c.first, c.second, c.size): c for pair in analysis.pairs for c in pair.comparisons}
    verdicts = []
    for axis, size in zip(figure.axes, (100, 700), strict=True):
        for bars, name in zip(axis.containers, ("windows", "vit"), strict=True):
            mark, one = bars.lines[0], found["cnn", name, size]
            assert mark.get_xdata()[0] == pytest.approx(-100 * one.difference.value)
            assert (mark.get_markerfacecolor() != "white") == (one.verdict in DECIDED)
            verdicts.append(one.verdict)
    assert verdicts == ["no difference shown", "ahead", "ahead", "ahead"]
    assert "behind_the_best" not in regime_figures(analysis_of())


def test_pairs_that_are_not_all_with_the_best_have_a_row_each():
    """Two of the three pairs are compared; the best, cnn, is not in one of them."""
    table = {"cnn": {100: 0.5, 700: 0.7}, "vit": {100: 0.2, 700: 0.4}, "windows": {100: 0.5, 700: 0.69}}
    named = (("windows", "vit"), ("vit", "cnn"))
    design = Design((0, 1, 2), False, ("cnn", "vit", "windows"), (100, 700), 700, ("vit", "cnn"), 1.0, pairs=named)
    analysis = analyse(seeded(table, images=10**6), resamples=20, design=design)
    assert {"pairs", "behind_the_best"} & regime_figures(analysis).keys() == {"pairs"}
    figure = pairs(analysis)
    found = {(c.first, c.second, c.size): c.difference.value for pair in analysis.pairs for c in pair.comparisons}
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["CNN above ViT", "ViT above windows"]
    for axis, size in zip(figure.axes, (100, 700), strict=True):
        for bars, row in zip(axis.containers, rows, strict=True):
            first, second = (name.lower() for name in row.split(" above "))
            assert bars.lines[0].get_xdata()[0] == pytest.approx(100 * found[first, second, size])


def test_what_a_figure_of_one_size_measures_is_written_within_it():
    table = {"resnet_with_a_long_name": {700: 0.7}, "vit": {700: 0.4}, "windows": {700: 0.69}}
    figure = behind_the_best(analyse(seeded(table, images=10**6), resamples=20))
    figure.draw_without_rendering()
    told = figure._supxlabel.get_window_extent()
    assert told.x0 >= 0 and told.y0 >= 0 and told.x1 <= figure.bbox.width


def test_the_difference_is_that_of_who_is_ahead_and_names_the_crossing():
    (pair,) = analysis_of().pairs
    (axis,) = difference(pair).axes
    assert axis.get_title(loc="left") == "ViT minus ResNet, 95 % intervals"
    (bars,) = axis.containers
    drawn = bars.lines[0].get_ydata().astype(float)
    assert drawn[0] < 0 < drawn[-1]
    np.testing.assert_allclose(drawn, [-100 * c.difference.value for c in pair.comparisons])
    assert " n*, where ViT overtakes, by" in texts(axis)
    (interpolated,) = (text for text in texts(axis) if text.startswith(" interpolation"))
    assert interpolated.startswith(" interpolation: 1,500 (1,")
    crossing = markers(axis, "D")[0]
    assert crossing.get_xdata()[0] == pytest.approx(pair.crossings[0].size)


def test_only_verdicts_are_filled():
    (pair,) = analysis_of(seeds=1).pairs
    (axis,) = difference(pair).axes
    hollow = [line for line in markers(axis, "o") if line.get_markerfacecolor() == "white"]
    assert len(hollow) == len(SIZES)
    (judged,) = analysis_of().pairs
    (axis,) = difference(judged).axes
    claims = sum(c.verdict in DECIDED for c in judged.comparisons)
    assert claims > 0
    hollow = [line for line in markers(axis, "o") if line.get_markerfacecolor() == "white"]
    assert len(hollow) == len(SIZES) - claims


def test_no_crossing_is_said_not_drawn():
    (pair,) = analyse(published("CNN 4.9M", "ViT 5.0M"), resamples=100).pairs
    (axis,) = difference(pair).axes
    assert markers(axis, "D") == []
    assert " interpolation: none up to 50,000" in texts(axis)
    assert " power law: never" in texts(axis)


def test_multipliers_beyond_the_range_are_arrows_and_far_extrapolations_are_hollow():
    (pair,) = analyse(validated(published("CNN 4.9M", "ViT 5.0M")), resamples=100).pairs
    (axis,) = data_multiplier(pair).axes
    (measured,) = markers(axis, "o")
    assert (measured.get_xdata()[0], measured.get_ydata()[0]) == (pytest.approx(4800), pytest.approx(6.02, abs=0.01))
    assert len(markers(axis, "_")) == 4  # censored at every larger size
    by_law = {round(float(line.get_xdata()[0])): line for line in markers(axis, "s")}
    assert sorted(by_law) == [12500, 25000, 37500, 50000]
    faces = [line.get_markerfacecolor() for _, line in sorted(by_law.items())]
    assert faces[0] != "white" and set(faces[1:]) == {"white"}
    assert markers(axis, "*") == []  # none for the end of the grid


def test_equivalents_have_a_panel_for_each_size_and_a_row_for_each_other_contender():
    laws = {"cnn": (0.5, 0.2, 0.0), "vit": (0.7, 0.2, 0.0), "windows": (0.6, 0.2, 0.0)}
    analysis = analyse(validated(seeded(law_table((500, 1000, 5000), **laws), images=10**12)), resamples=50)
    figure = equivalents(analysis)
    assert [axis.get_title("left") for axis in figure.axes] == [
        f"what n = {size} images are worth" for size in ("500", "1,000", "5,000")
    ]
    last = figure.axes[-1]
    assert [label.get_text() for label in last.get_yticklabels()] == ["windows", "ViT"], "the best one first"
    marks = sorted(float(line.get_xdata()[0]) for line in last.lines if len(line.get_xdata()) == 1)
    assert np.allclose(marks, [5000 * 0.367879, 5000 * 0.606531], rtol=0.05)
    assert "CNN" in last.get_xlabel()


def test_a_multiplier_that_the_budget_makes_is_not_drawn():
    results = published("CNN 4.9M", "ViT 5.0M")
    assert "data_multiplier" not in regime_figures(analyse(results, resamples=50))
    assert "data_multiplier" not in regime_figures(analyse(validated(results, RISING), resamples=50))
    assert "data_multiplier" in regime_figures(analyse(validated(results), resamples=50))


def test_training_curves_have_a_panel_for_each_contender_and_a_line_for_each_size():
    results = validated(published("CNN 4.9M", "ViT 5.0M"), RISING)
    figure = training_curves(analyse(results, resamples=50))
    for axis in figure.axes:
        assert len(axis.lines) == 5
        np.testing.assert_allclose(axis.lines[0].get_ydata(), [10, 20, 30, 40, 50])
        assert texts(axis)[0] == "n = 5,000, still improving"
        heights = [text.xy[1] for text in axis.texts]  # all end at 50 %, and none stands on another
        assert np.diff(heights).min() > 0.07 * np.ptp(axis.get_ylim())
    assert "training_curves" not in regime_figures(analyse(published("CNN 4.9M"), resamples=50))


def test_residuals_have_a_panel_for_each_law_and_the_sign_of_accuracy():
    analysis = analysis_of()
    plain, floored = residuals(analysis).axes
    assert plain.get_title().startswith("power law: ") and floored.get_title().startswith("power law with floor: ")
    law = next(law for law in analysis.laws if law.contender == "vit" and law.model == "power law")
    (drawn,) = markers(plain, "o")
    np.testing.assert_allclose(drawn.get_ydata(), [-100 * r for r in law.residuals])


def test_the_frontier_has_a_panel_for_each_cost_and_rings_who_is_not_beaten():
    figure = cost_frontier(analysis_of())
    assert [axis.get_xlabel() for axis in figure.axes] == ["training FLOPs", "parameters", "MACs of one image"]
    for axis in figure.axes:
        rings = sum(len(line.get_xdata()) for line in axis.lines if line.get_markerfacecolor() == "none")
        assert rings == 6  # the cheap one at each of four sizes, the dear one at the two where it is ahead


def test_a_single_size_draws_what_there_is():
    analysis = analyse(seeded(law_table((500,), **CROSSING)), resamples=50)
    figures = regime_figures(analysis)
    assert sorted(figures) == ["cost_frontier", "learning_curves"]
    assert [tick.get_text() for tick in figures["learning_curves"].axes[0].get_yticklabels()] == ["ResNet", "ViT"]
    alone = analyse(seeded({"vit": {500: 0.5}}), resamples=50)
    assert sorted(regime_figures(alone)) == ["cost_frontier", "learning_curves"]


def test_all_figures_are_written_and_the_same_each_time(tmp_path):
    drawn = [regime_figures(analysis_of()) for _ in range(2)]
    assert drawn[0]["difference"].axes[0].get_title(loc="left").startswith("ViT minus ResNet")
    assert list(drawn[0]) == (
        "learning_curves training_curves difference data_multiplier residuals cost_frontier".split()
    )
    for name in drawn[0]:
        once, again = (save_figure(f[name], tmp_path / str(i), name, ["png"]) for i, f in enumerate(drawn))
        assert once[0].read_bytes() == again[0].read_bytes()
        assert np.asarray(Image.open(once[0])).std() > 10
