"""Figures of an experiment: accuracy against training images, and differences between models."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from vit_vs_cnn.analysis.analysis import Analysis
from vit_vs_cnn.reporting.figures.drawing import error_bars_in_percent, make_axes
from vit_vs_cnn.reporting.style import DIFFERENCE_COLOUR, NEUTRAL_COLOUR, ModelStyle, assign_styles
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.pair_comparison import CONCLUSIVE, PairComparison

#: Width and height in inches. The text stays readable on a page that is 400 pixels wide.
FIGURE_SIZE_INCHES = (6.4, 3.0)
#: Distance between the intervals of two models at one size, as a share of the axis, so that none hides another.
INTERVAL_OFFSET = 0.012
#: With more models, only the two models of the recommendation have intervals.
MAX_CURVES_WITH_INTERVALS = 5


def experiment_figures(analysis: Analysis) -> dict[str, Figure]:
    """Figures of the details section for which there are data, by file name."""
    figures = {}
    if len(analysis.budgets) > 1:
        figures["more_training"] = accuracy_curves(analysis, analysis.budgets)
    if analysis.recommendation.rival is not None and len(analysis.sizes) > 1:
        figures["differences"] = difference_curves(analysis)
    best = analysis.recommendation.best
    compared = frozenset[str]().union(*(pair.names for pair in analysis.comparisons if best in pair.names))
    if len(compared) == len(analysis.models) > 2:
        figures["behind_the_best"] = gaps_to_best(analysis)
    return figures


def accuracy_curves(analysis: Analysis, budgets: Sequence[str] = ()) -> Figure:
    """Accuracy against training images: means with 95 % intervals joined by lines, and single seeds as dots.

    Each budget, by default the longest alone, is a panel. With a single training-set size, each model is a row.
    """
    shown = [*(budgets or analysis.budgets[-1:])]
    sizes = sorted({point.train_size for point in analysis.accuracies if point.budget in shown})
    rows = len(sizes) == 1
    height = 1.0 + 0.5 * len(analysis.models) if rows else FIGURE_SIZE_INCHES[1]
    figure, axes = make_axes(FIGURE_SIZE_INCHES[0], height, len(shown), share=True)
    for axis, budget in zip(axes, shown, strict=True):
        if rows:
            _draw_rows(axis, analysis, budget)
        else:
            _draw_curves(axis, analysis, budget)
            _set_log_axis(axis, sizes)
        axis.set_title(budget if len(shown) > 1 else "", fontsize=10, loc="left")
        axis.tick_params(labelsize=9)
    if not rows:
        axes[0].set_ylabel("test accuracy, %", fontsize=10)
    _add_legend(figure, axes[-1])
    figure.supxlabel(f"test accuracy with {sizes[0]:,} training images, %" if rows else "training images", fontsize=10)
    return figure


def _draw_rows(axis: Axes, analysis: Analysis, budget: str) -> None:
    styles = assign_styles(analysis.display_names)
    points = [point for model in analysis.models for point in analysis.curve(model.key, budget)]
    for row, point in enumerate(points):
        style, (value, error) = styles[point.model], error_bars_in_percent([point.accuracy])
        axis.errorbar(value, row, xerr=error, ms=7, elinewidth=1.5, **style.line)
        if len(point.by_seed) > 1:
            below = [row + 0.2] * len(point.by_seed)
            axis.plot(100 * np.array(point.by_seed), below, ".", color=style.colour, ms=5, alpha=0.5)
    axis.set_yticks(range(len(points)), [analysis.display_names[point.model] for point in points])
    axis.set_ylim(len(points) - 0.5, -0.5)
    if shows_chance(analysis):
        axis.axvline(100 * (analysis.chance or 0), color=NEUTRAL_COLOUR, lw=1, ls="--", label="majority class")


def _draw_curves(axis: Axes, analysis: Analysis, budget: str) -> None:
    styles, advice = assign_styles(analysis.display_names), analysis.recommendation
    step = (analysis.sizes[-1] / analysis.sizes[0]) ** INTERVAL_OFFSET
    has_few = len(styles) <= MAX_CURVES_WITH_INTERVALS
    with_intervals = [key for key in styles if has_few or key in (advice.best, advice.rival)]
    for key, style in styles.items():
        curve = analysis.curve(key, budget)
        offset = step ** (with_intervals.index(key) - (len(with_intervals) - 1) / 2) if key in with_intervals else 1
        sizes, values = [p.train_size * offset for p in curve], [100 * p.accuracy.value for p in curve]
        axis.plot(sizes, values, lw=1.5, ms=6, label=analysis.display_names[key], **style.line)
        if key in with_intervals:
            _draw_intervals(axis, sizes, [p.accuracy for p in curve], style)
            for size, point in zip(sizes, curve, strict=True):
                values = 100 * np.array(point.by_seed)
                if len(values) > 1:
                    axis.plot([size] * len(values), values, ".", color=style.colour, ms=4, alpha=0.5)
    if shows_chance(analysis):
        axis.axhline(100 * (analysis.chance or 0), color=NEUTRAL_COLOUR, lw=1, ls="--", label="majority class")


def shows_chance(analysis: Analysis) -> bool:
    """True if the axis can include chance and still show the accuracies well."""
    values = [point.accuracy.value for point in analysis.accuracies]
    room = 3 * (max(values) - min(values)) + 0.1
    return analysis.chance is not None and min(values) - analysis.chance < room


def _draw_intervals(axis: Axes, sizes: Sequence[int | float], estimates: Sequence[Estimate], style: ModelStyle) -> None:
    values, spans = error_bars_in_percent(estimates)
    axis.errorbar(sizes, values, spans, ms=6, lw=0, elinewidth=1.5, capsize=3, **style.line)


def _add_legend(figure: Figure, axis: Axes) -> None:
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", fontsize=9, frameon=False)


def _signed_difference(comparison: PairComparison, first: str) -> Estimate:
    """Difference ``first`` minus the other model; of zero width if the data do not determine both ends."""
    difference = comparison.difference if comparison.first == first else -comparison.difference
    value = difference.value
    return difference if difference.low > -1 and difference.high < 1 else Estimate(value, value, value)


def difference_curves(analysis: Analysis) -> Figure:
    """Difference of each model from the one that is part of every comparison, or of the recommended pair.

    Differences without a conclusion are hollow, and crossovers are shaded.
    """
    advice, styles = analysis.recommendation, assign_styles(analysis.display_names)
    figure, (axis,) = make_axes(*FIGURE_SIZE_INCHES)
    reference, others, pairs = advice.rival or "", [advice.best], {pair.names for pair in analysis.comparisons}
    if 1 < len(pairs) <= MAX_CURVES_WITH_INTERVALS and (shared := frozenset.intersection(*pairs)):
        reference, others = next(iter(shared)), [*styles]
    for key in others:
        if not (comparisons := analysis.pair_comparisons(key, reference)):
            continue
        style, sizes = styles[key], [comparison.train_size or 0 for comparison in comparisons]
        differences = [_signed_difference(comparison, key) for comparison in comparisons]
        values = [100 * difference.value for difference in differences]
        axis.plot(sizes, values, lw=1.5, label=analysis.display_names[key], **style.line)
        _draw_intervals(axis, sizes, differences, style)
        for comparison, size, difference in zip(comparisons, sizes, differences, strict=True):
            if comparison.conclusion not in CONCLUSIVE:
                axis.plot(size, 100 * difference.value, style.marker, mfc="white", mec=style.colour, ms=6, zorder=4)
        for crossover in analysis.crossovers:
            if {crossover.below, crossover.above} == {key, reference}:
                axis.axvspan(crossover.low, crossover.high, color="#eeeeee", zorder=0)
    axis.axhline(0, color=NEUTRAL_COLOUR, lw=1)
    axis.yaxis.set_major_locator(MaxNLocator(6))
    axis.tick_params(labelsize=9)
    axis.set_xlabel("training images", fontsize=10)
    axis.set_ylabel(f"points above the {analysis.display_names[reference]}", fontsize=10)
    _set_log_axis(axis, analysis.sizes)
    _add_legend(figure, axis)
    return figure


def gaps_to_best(analysis: Analysis) -> Figure:
    """Points by which each model is worse than the best one: one row for each model, one panel for each size."""
    best, names = analysis.recommendation.best, analysis.display_names
    others = [model.key for model in analysis.models if analysis.pair_comparisons(best, model.key)]
    gaps = {key: analysis.pair_comparisons(best, key) for key in others}
    order = sorted(gaps, key=lambda key: _signed_difference(gaps[key][-1], best).value)
    sizes = sorted({comparison.train_size or 0 for comparisons in gaps.values() for comparison in comparisons})
    width = max(FIGURE_SIZE_INCHES[0], 1.6 + 1.5 * len(sizes))
    figure, axes = make_axes(width, 1.1 + 0.28 * len(order), len(sizes), share=True)
    for axis, size in zip(axes, sizes, strict=True):
        for row, key in enumerate(order):
            for comparison in (comparison for comparison in gaps[key] if comparison.train_size == size):
                (value,), span = error_bars_in_percent([_signed_difference(comparison, best)])
                face = DIFFERENCE_COLOUR if comparison.conclusion in CONCLUSIVE else "white"
                style = {"color": DIFFERENCE_COLOUR, "marker": "o", "ms": 6, "lw": 0, "elinewidth": 1.5}
                axis.errorbar(value, row, xerr=span, mfc=face, **style)
        axis.axvline(0, color=NEUTRAL_COLOUR, lw=1)
        axis.set_title(f"{size:,} images", fontsize=10, loc="left")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(order)), [names[key] for key in order])
    axes[0].set_ylim(len(order) - 0.5, -0.5)
    figure.supxlabel(f"points below the {names[best]}", fontsize=10)
    return figure


def _set_log_axis(axis: Axes, values: Sequence[int]) -> None:
    """Set a logarithmic axis with ticks at the values, as far as their labels fit."""
    length, ticks = np.log(max(values) / min(values)), list[int]()
    room = 0.16 if axis.get_subplotspec().get_gridspec().ncols == 1 else 0.3  # pyright: ignore[reportOptionalMemberAccess]
    for value in sorted(values, reverse=True):
        if not ticks or np.log(ticks[-1] / value) > room * length:
            ticks.append(value)
    axis.set_xscale("log")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
