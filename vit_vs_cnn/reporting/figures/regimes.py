"""Figures of the analysis of an experiment: readable on a phone, and by colour-blind readers."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from vit_vs_cnn.regimes.analysis import Analysis
from vit_vs_cnn.regimes.model_summaries import display_name
from vit_vs_cnn.reporting.figures.drawing import PercentLocator, in_percent, plain_axes, plot_rows
from vit_vs_cnn.reporting.style import GREY, SERIES, Look, looks
from vit_vs_cnn.runs.result import RunResult, by_network
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.pair_comparison import CONCLUSIVE, Conclusion, PairComparison

#: Width and height in inches; the width suits a phone.
SIZE = (6.0, 4.3)
#: Largest number of curves that are drawn with intervals and forecasts.
MAX_CURVES_WITH_INTERVALS = 5
HOLLOW = "hollow: not enough evidence, or no conclusion"
#: Conclusion and difference of one comparison, by training-set size.
_BySize = dict[int, tuple[Conclusion, Estimate]]


def regime_figures(analysis: Analysis, results: Sequence[RunResult] = ()) -> dict[str, Figure]:
    """All figures for which there are data, by the name of the file.

    Arguments:
        results: with the longest budget, for their validation curves.
    """
    figures = {"learning_curves": learning_curves(analysis)}
    if _all_are_compared_with_best(analysis):
        figures["behind_the_best"] = behind_the_best(analysis)
    elif len({one.names for one in analysis.comparisons}) > 1:
        figures["pairs"] = pairs(analysis)
    if len(analysis.budgets) > 1:
        figures["more_training"] = more_training(analysis)
    if len(_recommended_pair(analysis)) > 1:
        figures["difference"] = difference(analysis)
    if (curves := training_curves(results)) is not None:
        figures["training_curves"] = curves
    return figures


def learning_curves(analysis: Analysis) -> Figure:
    """Accuracy against the number of training images: means with 95 % intervals, single seeds as dots, and forecasts.

    With more than ``MAX_CURVES_WITH_INTERVALS`` models only the means are drawn.
    """
    if len(analysis.sizes) == 1:
        return _one_size(analysis)
    if is_crowded(analysis):
        return _many_curves(analysis)
    figure, axis = _figure("Accuracy and training images")
    axis.yaxis.set_major_locator(PercentLocator())
    known = looks(analysis.display_names)
    for key, name in analysis.display_names.items():
        curve, colour = analysis.curve(key), known[key].colour
        sizes = [point.train_size for point in curve]
        axis.plot(sizes, _percent([p.accuracy.value for p in curve]), color=colour, lw=1)
        _with_intervals(axis, sizes, [p.accuracy for p in curve], name, known[key])
        for point in curve:
            if (count := len(point.by_seed)) > 1:
                axis.plot([point.train_size] * count, _percent(point.by_seed), ".", color=colour, ms=4, alpha=0.5)
    _draw_forecasts(axis, analysis)
    _draw_chance(axis, analysis)
    axis.set(xlabel="training images", ylabel="accuracy, %")
    _log_axis(axis, analysis.sizes)
    axis.legend(fontsize=9, facecolor="white", edgecolor="none")
    return figure


def is_crowded(analysis: Analysis) -> bool:
    """Whether there are too many learning curves for each to have its interval."""
    return len(analysis.models) > MAX_CURVES_WITH_INTERVALS and len(analysis.sizes) > 1


def _many_curves(analysis: Analysis) -> Figure:
    figure, (axis,) = plain_axes(SIZE[0] + 1.5, SIZE[1])
    axis.yaxis.set_major_locator(PercentLocator())
    known = looks(analysis.display_names)
    curves = [(model, analysis.curve(model.key)) for model in analysis.models]
    for model, curve in sorted(curves, key=lambda one: -one[1][-1].accuracy.value if one[1] else 0.0):
        sizes, values = [p.train_size for p in curve], _percent([p.accuracy.value for p in curve])
        axis.plot(sizes, values, ms=6, lw=1, label=model.display_name, **known[model.key].line)
    axis.set_title("Accuracy and training images, means over seeds", fontsize=12, loc="left")
    axis.set_xlabel("training images", fontsize=11)
    axis.set_ylabel("accuracy, %", fontsize=11)
    _log_axis(axis, analysis.sizes)
    figure.legend(fontsize=9, frameon=False, loc="outside right center")
    return figure


def _one_size(analysis: Analysis) -> Figure:
    """One row for each model."""
    figure, (axis,) = plain_axes(SIZE[0], 1.2 + 0.5 * len(analysis.models))
    known = looks(analysis.display_names)
    rows = [
        (model.display_name, known[model.key], point.accuracy, point.by_seed)
        for model in analysis.models
        for point in analysis.curve(model.key)
    ]
    plot_rows(axis, rows, {"marker": ".", "ms": 4, "alpha": 0.5}, ms=7, elinewidth=1.5)
    axis.set_xlabel("accuracy, %, with 95 % intervals")
    axis.set_title(f"Accuracy with {analysis.sizes[0]:,} images", fontsize=12, loc="left")
    return figure


def _draw_forecasts(axis: Axes, analysis: Analysis) -> None:
    """The fitted laws, up to the size of the forecast, and the interval there."""
    known = looks(analysis.display_names)
    for one in analysis.forecasts:
        colour = known[one.model].colour
        sizes = np.geomspace(analysis.curve(one.model)[0].train_size, one.train_size, 100)
        axis.plot(sizes, [100 * (1 - one.law.error_at(float(n))) for n in sizes], ":", color=colour, lw=1.5)
        value, span = in_percent([one.accuracy])
        axis.errorbar(one.train_size, value, span, color=colour, lw=0, elinewidth=1, capsize=3, alpha=0.8)
    if analysis.forecasts:
        end = max(one.train_size for one in analysis.forecasts)
        axis.axvspan(analysis.sizes[-1], end, color="#eeeeee", zorder=0)
        axis.plot([], [], ":", color=GREY, label=f"forecast up to {end:,} images")


def _draw_chance(axis: Axes, analysis: Analysis) -> None:
    if analysis.chance is not None:
        axis.axhline(100 * analysis.chance, color=GREY, lw=1, ls="--", label="always the most frequent class")


def difference(analysis: Analysis) -> Figure:
    """Difference of the two models of the answer against the number of training images, and the crossover."""
    advice, names = analysis.recommendation, analysis.display_names
    assert advice.rival is not None
    comparisons = _recommended_pair(analysis)
    figure, axis = _figure(f"{names[advice.best]} - {names[advice.rival]}")
    signed = [one.difference if one.first == advice.best else -one.difference for one in comparisons]
    sizes = [one.train_size or 0 for one in comparisons]
    _with_intervals(axis, sizes, signed, None, Look(SERIES[0], "o"))
    for one, size, estimate in zip(comparisons, sizes, signed, strict=True):
        if one.conclusion not in CONCLUSIVE:
            axis.plot(size, 100 * estimate.value, "o", mfc="white", mec=SERIES[0], ms=8, zorder=4)
    axis.axhline(0, color=GREY, lw=1)
    for one in analysis.crossovers:
        if {one.below, one.above} == {advice.best, advice.rival}:
            axis.axvspan(one.low, one.high, color="#eeeeee", zorder=0)
            place = {"xycoords": ("data", "axes fraction"), "ha": "center", "fontsize": 9, "color": GREY}
            axis.annotate("crossover", (np.sqrt(one.low * one.high), 0.02), **place)
    axis.set(xlabel="training images", ylabel="points of accuracy")
    _log_axis(axis, sizes)
    if any(one.conclusion not in CONCLUSIVE for one in comparisons):
        axis.annotate(HOLLOW, (1, 1), xycoords="axes fraction", ha="right", va="bottom", fontsize=9, color=GREY)
    return figure


def behind_the_best(analysis: Analysis) -> Figure:
    """Differences of all models from the best one: one row for each model, one panel for each training-set size."""
    differences, known, names = _differences_from_best(analysis), looks(analysis.display_names), analysis.display_names
    order = sorted(differences, key=lambda key: -differences[key][max(differences[key])][1].value)
    rows = [(names[key], known[key], differences[key]) for key in order]
    return _forest(rows, f"points of accuracy compared with {names[_best(analysis)]}")


def pairs(analysis: Analysis) -> Figure:
    """Differences of all pairs: one row for each pair, one panel for each training-set size."""
    known, names = looks(analysis.display_names), analysis.display_names
    by_pair: dict[tuple[str, str], _BySize] = {}
    for one in analysis.comparisons:
        by_pair.setdefault((one.first, one.second), {})[one.train_size or 0] = one.conclusion, one.difference
    rows = [(f"{names[a]} - {names[b]}", known[a], differences) for (a, b), differences in by_pair.items()]
    return _forest(rows, "points of accuracy")


def _forest(rows: Sequence[tuple[str, Look, _BySize]], measured: str) -> Figure:
    sizes = sorted({size for _, _, by_size in rows for size in by_size})
    figure, axes = plain_axes(max(4.6, 1.6 + 2.3 * len(sizes)), 1.2 + 0.28 * len(rows), len(sizes), share=True)
    for axis, size in zip(axes, sizes, strict=True):
        for place, (_, look, by_size) in enumerate(rows):
            if size not in by_size:
                continue
            conclusion, estimate = by_size[size]
            (value,), span = in_percent([estimate])
            face = look.colour if conclusion in CONCLUSIVE else "white"
            axis.errorbar(value, place, xerr=span, ms=6, lw=0, elinewidth=1.5, mfc=face, **look.line)
        axis.axvline(0, color=GREY, lw=1)
        axis.set_title(f"{size:,} images", fontsize=10, loc="left")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.supxlabel(f"{measured}\n({HOLLOW})", fontsize=10)
    return figure


def _recommended_pair(analysis: Analysis) -> list[PairComparison]:
    """Comparisons of the two models of the answer, by size."""
    advice = analysis.recommendation
    return [] if advice.rival is None else analysis.pair(advice.best, advice.rival)


def _best(analysis: Analysis) -> str:
    """The most accurate model at the largest training-set size."""
    there = [p for model in analysis.models for p in analysis.curve(model.key) if p.train_size == analysis.sizes[-1]]
    return max(there, key=lambda point: point.accuracy.value).model


def _all_are_compared_with_best(analysis: Analysis) -> bool:
    return 1 < len(_differences_from_best(analysis)) == len(analysis.models) - 1


def _differences_from_best(analysis: Analysis) -> dict[str, _BySize]:
    """By model and size: its accuracy minus that of the best model, with the conclusion."""
    best, found = _best(analysis), dict[str, _BySize]()
    for one in analysis.comparisons:
        if best in one.names:
            other, estimate = (one.second, -one.difference) if one.first == best else (one.first, one.difference)
            found.setdefault(other, {})[one.train_size or 0] = one.conclusion, estimate
    return found


def more_training(analysis: Analysis) -> Figure:
    """Accuracy against the number of training images: one panel for each model, one line for each budget."""
    figure, axes = plain_axes(SIZE[0], 0.8 + 2.6 * len(analysis.models), rows=len(analysis.models), share=True)
    known = looks(analysis.display_names)
    for axis, model in zip(axes, analysis.models, strict=True):
        look = known[model.key]
        axis.yaxis.set_major_locator(PercentLocator())
        for place, budget in enumerate(analysis.budgets):
            if curve := analysis.curve(model.key, budget):
                faint = replace(look, colour=_fainter(look.colour, (place + 1) / len(analysis.budgets)))
                sizes = [p.train_size for p in curve]
                _with_intervals(axis, sizes, [p.accuracy for p in curve], budget, faint)
                axis.plot(sizes, _percent([p.accuracy.value for p in curve]), color=faint.colour)
        axis.set_title(model.display_name, fontsize=11)
        axis.set_ylabel("accuracy, %", fontsize=11)
        _log_axis(axis, sorted({p.train_size for p in analysis.accuracies}))
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=9, frameon=False)
    axes[-1].set_xlabel("training images", fontsize=11)
    return figure


def training_curves(results: Sequence[RunResult]) -> Figure | None:
    """Validation accuracy against steps, mean over seeds: one panel for each model, one line for each size.

    None if no run has a validation curve, or if there are too many models.
    """
    curves = {key: curve for key, runs in by_network(results).items() if (curve := _mean_curve(runs))}
    models = list(dict.fromkeys(model for model, _ in sorted(curves)))
    if not 0 < len(models) <= MAX_CURVES_WITH_INTERVALS:
        return None
    figure, axes = plain_axes(SIZE[0], 0.8 + 2.4 * len(models), rows=len(models), share=True)
    known = looks(models)
    for axis, model in zip(axes, models, strict=True):
        of_model = {size: curve for (key, size), curve in sorted(curves.items()) if key == model}
        axis.yaxis.set_major_locator(PercentLocator())
        for place, (size, curve) in enumerate(of_model.items(), start=1):
            steps, accuracies = zip(*curve, strict=True)
            look = replace(known[model], colour=_fainter(known[model].colour, place / len(of_model)))
            axis.plot(steps, _percent(accuracies), ms=4, lw=1.5, label=f"{size:,} images", **look.line)
        axis.set_xlim(left=0)
        axis.tick_params(labelsize=10)
        axis.set_title(display_name(model), fontsize=11)
        axis.set_ylabel("validation, %", fontsize=11)
        axis.legend(fontsize=9, frameon=False)
    axes[-1].set_xlabel("steps", fontsize=11)
    return figure


def _mean_curve(runs: Sequence[RunResult]) -> list[tuple[int, float]]:
    """Step and mean validation accuracy at the steps that all runs share; empty if there are fewer than two."""
    curves = [dict(r.scores.validation_curve or ()) for r in runs]
    shared = sorted(set.intersection(*({*curve} for curve in curves)))
    return [(step, fmean(curve[step] for curve in curves)) for step in shared] if len(shared) > 1 else []


def _fainter(colour: str, strength: float) -> str:
    """A colour mixed with white; with a strength of 1 the colour itself."""
    red, green, blue = (1 - (0.3 + 0.7 * strength) * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _figure(title: str) -> tuple[Figure, Axes]:
    figure, (axis,) = plain_axes(*SIZE)
    axis.set_title(title, fontsize=12, loc="left", pad=14)
    axis.xaxis.label.set_fontsize(11)
    axis.yaxis.label.set_fontsize(11)
    return figure, axis


def _with_intervals(
    axis: Axes, sizes: Sequence[int], estimates: Sequence[Estimate], label: str | None, look: Look
) -> None:
    values, spans = in_percent(estimates)
    axis.fill_between(sizes, values - spans[0], values + spans[1], color=look.colour, alpha=0.15, lw=0)
    axis.errorbar(sizes, values, spans, ms=7, lw=0, elinewidth=1.5, label=label, **look.line)


def _log_axis(axis: Axes, values: Sequence[int]) -> None:
    """A logarithmic axis whose ticks are the values, as far as there is room for their labels."""
    axis.set_xscale("log")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_locator(FixedLocator(_apart(values)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.tick_params(labelsize=10)


def _apart(values: Sequence[int]) -> list[float]:
    """The values, from the largest down, that are far enough apart on a logarithmic axis to be labelled."""
    length = np.log(max(values) / min(values))
    kept: list[float] = []
    for value in sorted(values, reverse=True):
        if not kept or np.log(kept[-1] / value) > 0.16 * length:
            kept.append(float(value))
    return kept[::-1]


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]
