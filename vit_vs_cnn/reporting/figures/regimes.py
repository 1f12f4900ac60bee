"""Figures of an analysis of data sizes: readable on a telephone, and by the colour-blind."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from vit_vs_cnn.regimes.analysis import Analysis, Pair
from vit_vs_cnn.regimes.answer import display_name, headline
from vit_vs_cnn.regimes.convergence import LAST, Convergence
from vit_vs_cnn.regimes.crossing import NEAR, Crossing
from vit_vs_cnn.regimes.curves import best_of
from vit_vs_cnn.regimes.frontier import COSTS
from vit_vs_cnn.regimes.multiplier import WHY_NONE, Multiplier
from vit_vs_cnn.reporting.figures.drawing import PercentLocator, in_percent, plain_axes, plot_rows
from vit_vs_cnn.reporting.style import GREY, MARKERS, SERIES, Look, looks, rounded, short
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.verdict import DECIDED, Verdict

DASHES = {"interpolation": "-", "power law": "--", "power law with floor": ":"}
#: A telephone's column, in inches.
SIZE = (6.0, 4.3)
#: Curves that a figure shows with bands and laws, at most; of more the lines alone.
FEW = 5
#: A verdict and the difference it is of, by training size.
_BySize = dict[int, tuple[Verdict, Estimate]]


def regime_figures(analysis: Analysis) -> dict[str, Figure]:
    """Every figure that the analysis has something to show in, by the name of its file.

    The difference, the crossing and the multiplier are of the pair of which the answer speaks.
    """
    pair = headline(analysis)
    figures = {"learning_curves": learning_curves(analysis)}
    if _all_to_best(analysis):
        figures["behind_the_best"] = behind_the_best(analysis)
    elif len(analysis.pairs) > 1:
        figures["pairs"] = pairs(analysis)
    if any(len(c.curve) > 1 for c in analysis.convergence):
        figures["training_curves"] = training_curves(analysis)
    if analysis.budgets:
        figures["more_training"] = more_training(analysis)
    if pair is not None and len(pair.comparisons) > 1:
        figures["difference"] = difference(pair)
        if any(m.state not in WHY_NONE for m in pair.multipliers if m.method == "interpolation"):
            figures["data_multiplier"] = data_multiplier(pair)
    if any(m.state not in WHY_NONE for m in analysis.equivalents):
        figures["equivalents"] = equivalents(analysis)
    if analysis.laws:
        figures["residuals"] = residuals(analysis)
    if analysis.frontier:
        figures["cost_frontier"] = cost_frontier(analysis)
    return figures


def learning_curves(analysis: Analysis) -> Figure:
    """Accuracy over log n: means with 95 % intervals, single seeds as dots, and the fitted power laws.

    Of more than ``FEW`` contenders means alone, joined by lines: ``behind_the_best`` or ``pairs`` has the intervals.
    """
    if len(analysis.sizes) == 1:
        return _one_size(analysis)
    if is_crowded(analysis):
        return _many_curves(analysis)
    figure, axis = _figure("Accuracy and labelled images")
    axis.yaxis.set_major_locator(PercentLocator())
    for curve in analysis.curves:
        look = looks(analysis.contenders)[curve.contender]
        sizes = [point.size for point in curve.points]
        _with_intervals(axis, sizes, [p.accuracy for p in curve.points], display_name(curve.contender), look)
        for point in curve.points:
            if (count := len(point.by_seed)) > 1:
                axis.plot([point.size] * count, _percent(point.by_seed), ".", color=look.colour, ms=4, alpha=0.5)
    _draw_laws(axis, analysis)
    axis.set(xlabel="labelled images", ylabel="accuracy, %")
    _log_axis(axis, analysis.sizes)
    _legend(axis, [model for model in DASHES if any(law.model == model for law in analysis.laws)])
    return figure


def is_crowded(analysis: Analysis) -> bool:
    """Whether there are too many learning curves for each to have its interval."""
    return len(analysis.curves) > FEW and len(analysis.sizes) > 1


def _many_curves(analysis: Analysis) -> Figure:
    figure, (axis,) = plain_axes(SIZE[0] + 1.5, SIZE[1])
    axis.yaxis.set_major_locator(PercentLocator())
    known = looks(analysis.contenders)
    for curve in sorted(analysis.curves, key=lambda curve: -curve.points[-1].accuracy.value):
        across, up = [p.size for p in curve.points], _percent([p.accuracy.value for p in curve.points])
        axis.plot(across, up, ms=6, lw=1, label=display_name(curve.contender), **known[curve.contender].line)
    axis.set_title("Accuracy and labelled images, means over seeds", fontsize=12, loc="left")
    axis.set_xlabel("labelled images", fontsize=11)
    axis.set_ylabel("accuracy, %", fontsize=11)
    _log_axis(axis, analysis.sizes)
    figure.legend(fontsize=9, frameon=False, loc="outside right center")
    return figure


def _one_size(analysis: Analysis) -> Figure:
    """A row for each contender: there is nothing to draw it over."""
    figure, (axis,) = plain_axes(SIZE[0], 1.2 + 0.5 * len(analysis.curves))
    known = looks(analysis.contenders)
    points = {curve.contender: curve.points[0] for curve in analysis.curves}
    rows = [(display_name(name), known[name], point.accuracy, point.by_seed) for name, point in points.items()]
    plot_rows(axis, rows, {"marker": ".", "ms": 4, "alpha": 0.5}, ms=7, elinewidth=1.5)
    axis.set_xlabel("accuracy, %, with 95 % intervals")
    axis.set_title(f"Accuracy with {analysis.sizes[0]:,} images", fontsize=12, loc="left")
    return figure


def _draw_laws(axis: Axes, analysis: Analysis) -> None:
    """The laws up to twice the largest size, as far as they stay in view."""
    bottom, top = axis.get_ylim()
    for law in analysis.laws:
        colour = looks(analysis.contenders)[law.contender].colour
        sizes = np.geomspace(law.sizes[0], NEAR * law.sizes[-1], 100)
        heights = [100 * (1 - law.error_at(float(n))) for n in sizes]
        axis.plot(sizes, heights, DASHES[law.model], color=colour, lw=1.2 if law.is_chosen else 0.9, alpha=0.8)
        top = max(top, *heights)
    if analysis.laws:
        axis.axvspan(analysis.sizes[-1], NEAR * analysis.sizes[-1], color="#eeeeee", zorder=0)
        axis.set_ylim(bottom, min(top, 100.5))


def difference(pair: Pair) -> Figure:
    """Paired difference in accuracy over log n with 95 % intervals, and where the curves cross."""
    ahead, behind = (display_name(name) for name in (pair.ahead, pair.behind))
    figure, axis = _figure(f"{ahead} minus {behind}, 95 % intervals")
    signed = [c.difference if c.first == pair.ahead else -c.difference for c in pair.comparisons]
    sizes = [c.size for c in pair.comparisons]
    _with_intervals(axis, sizes, signed, None, Look(SERIES[0], "o"))
    for comparison, estimate in zip(pair.comparisons, signed, strict=True):
        if comparison.verdict not in DECIDED:  # hollow: nothing is claimed
            axis.plot(comparison.size, 100 * estimate.value, "o", mfc="white", mec=SERIES[0], ms=8, zorder=4)
    axis.axhline(0, color=GREY, lw=1)
    axis.set(xlabel="labelled images", ylabel="points of accuracy")
    _log_axis(axis, sizes)
    if pair.crossings:
        _draw_crossings(axis, pair.crossings)
    _note(axis, "filled: a verdict; hollow: none")
    return figure


def behind_the_best(analysis: Analysis) -> Figure:
    """How far those compared with it are from the one that is best at the largest size: a row for each, a panel for
    each size, paired differences with 95 % intervals."""
    found, known = _to_best(analysis), looks(analysis.contenders)
    order = sorted(found, key=lambda name: -found[name][max(found[name])][1].value)
    rows = [(display_name(name), known[name], found[name]) for name in order]
    return _forest(rows, f"points above {display_name(best_of(analysis.curves))}")


def pairs(analysis: Analysis) -> Figure:
    """What each pair that is compared differs by: a row for each, a panel for each size, paired differences with 95 %
    intervals."""
    known = looks(analysis.contenders)
    rows = []
    for pair in analysis.pairs:
        first, second = pair.comparisons[0].first, pair.comparisons[0].second
        differences = {c.size: (c.verdict, c.difference) for c in pair.comparisons}
        rows.append((f"{display_name(first)} above {display_name(second)}", known[first], differences))
    return _forest(rows, "points of accuracy")


def _forest(rows: Sequence[tuple[str, Look, _BySize]], measured: str) -> Figure:
    sizes = sorted({size for _, _, by_size in rows for size in by_size})
    figure, axes = plain_axes(max(4.6, 1.6 + 2.3 * len(sizes)), 1.2 + 0.28 * len(rows), len(sizes), share=True)
    for axis, size in zip(axes, sizes, strict=True):
        for place, (_, look, by_size) in enumerate(rows):
            if size not in by_size:
                continue
            verdict, estimate = by_size[size]
            (value,), span = in_percent([estimate])
            face = look.colour if verdict in DECIDED else "white"  # hollow: nothing is claimed
            axis.errorbar(value, place, xerr=span, ms=6, lw=0, elinewidth=1.5, mfc=face, **look.line)
        axis.axvline(0, color=GREY, lw=1)
        axis.set_title(f"n = {size:,}", fontsize=10, loc="left")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.supxlabel(f"{measured}\n(filled: a verdict; hollow: none)", fontsize=10)
    return figure


def _all_to_best(analysis: Analysis) -> bool:
    """Whether there are others than the best, more than one, and each is compared with it."""
    return 1 < len(_to_best(analysis)) == len(analysis.curves) - 1


def _to_best(analysis: Analysis) -> dict[str, _BySize]:
    """By the other contender of its pairs and by size: the verdict, and how far that one is above the best."""
    best, found = best_of(analysis.curves), dict[str, _BySize]()
    for pair in analysis.pairs:
        for c in pair.comparisons:
            if best in (c.first, c.second):
                other, estimate = (c.second, -c.difference) if c.first == best else (c.first, c.difference)
                found.setdefault(other, {})[c.size] = c.verdict, estimate
    return found


def _draw_crossings(axis: Axes, crossings: Sequence[Crossing]) -> None:
    """Each method's interval as a bar at the foot of the figure, open where it is censored."""
    bottom, top = axis.get_ylim()
    step = 0.085 * (top - bottom)
    left, right = axis.get_xlim()
    for row, crossing in enumerate(crossings):
        place, colour = bottom - (2 * row + 2) * step, SERIES[1 + row]  # its words, and its bar below them
        low, high = crossing.low or left, crossing.high or np.inf
        if low < right:
            bar = [place - 0.8 * step] * 2
            axis.plot([low, min(high, right)], bar, color=colour, lw=4, solid_capstyle="butt")
        if crossing.size is not None and crossing.size < right:
            axis.plot(crossing.size, place - 0.8 * step, "D", color=colour, mec="white", ms=8)
        axis.text(left, place, f" {crossing.method}: {_crossing_text(crossing)}", fontsize=9, color=GREY, va="center")
    passing = display_name(crossings[0].overtaker)
    axis.text(left, bottom - step, f" n*, where {passing} overtakes, by", fontsize=9, color=GREY, va="center")
    axis.set_ylim(bottom - (2 * len(crossings) + 1.6) * step, top)
    axis.set_yticks([tick for tick in axis.get_yticks() if bottom <= tick <= top])


def _crossing_text(crossing: Crossing) -> str:
    largest = crossing.range[1]
    if crossing.state == "far extrapolated":
        return f"none up to {NEAR * largest:,}; beyond, a guess"
    if crossing.size is None:
        return "never" if crossing.state == "never" else f"none up to {largest:,}"
    low = f"below {crossing.range[0]:,}" if crossing.low is None else rounded(crossing.low)
    open_end = f"beyond {largest:,}" if crossing.method == "interpolation" else "never"
    return f"{rounded(crossing.size)} ({low} to {open_end if crossing.high is None else rounded(crossing.high)})"


def training_curves(analysis: Analysis) -> Figure:
    """Validation accuracy over steps, a panel for each contender and a line for each size, the last quarter shaded."""
    figure, axes = plain_axes(SIZE[0], 0.8 + 2.4 * len(analysis.contenders), rows=len(analysis.contenders), share=True)
    for axis, contender in zip(axes, analysis.contenders, strict=True):
        look = looks(analysis.contenders)[contender]
        drawn = [c for c in analysis.convergence if c.contender == contender and len(c.curve) > 1]
        axis.yaxis.set_major_locator(PercentLocator())
        for place, c in enumerate(drawn):
            steps, accuracies = zip(*c.curve, strict=True)
            strength = (place + 1) / len(drawn)  # the more data, the stronger
            axis.plot(steps, _percent(accuracies), ms=4, lw=1.5, alpha=0.25 + 0.75 * strength, **look.line)
        if drawn:
            end = max(c.curve[-1][0] for c in drawn)
            axis.axvspan((1 - LAST) * end, end, color="#eeeeee", zorder=0)
        axis.margins(x=0.3, y=0.12, tight=False)
        axis.set_xlim(left=0)
        axis.set_title(display_name(contender), fontsize=11)
        axis.set_ylabel("validation, %", fontsize=11)
    axes[-1].set_xlabel("steps", fontsize=11)
    for axis, contender in zip(axes, analysis.contenders, strict=True):
        _name_curves(axis, [c for c in analysis.convergence if c.contender == contender and len(c.curve) > 1])
    return figure


def more_training(analysis: Analysis) -> Figure:
    """Accuracy over log n, a panel for each contender and a line for each budget, the longest the strongest."""
    figure, axes = plain_axes(SIZE[0], 0.8 + 2.6 * len(analysis.contenders), rows=len(analysis.contenders), share=True)
    for axis, contender in zip(axes, analysis.contenders, strict=True):
        look = looks(analysis.contenders)[contender]
        axis.yaxis.set_major_locator(PercentLocator())
        for place, budget in enumerate(analysis.budgets):
            points = [p for p in analysis.by_budget if (p.contender, p.budget) == (contender, budget)]
            if points:
                faint = replace(look, colour=_fainter(look.colour, (place + 1) / len(analysis.budgets)))
                _with_intervals(axis, [p.size for p in points], [p.accuracy for p in points], budget, faint)
                axis.plot([p.size for p in points], _percent([p.accuracy.value for p in points]), color=faint.colour)
        axis.set_title(display_name(contender), fontsize=11)
        axis.set_ylabel("accuracy, %", fontsize=11)
        _log_axis(axis, sorted({p.size for p in analysis.by_budget}))
        _legend(axis, [])
    axes[-1].set_xlabel("labelled images", fontsize=11)
    return figure


def _fainter(colour: str, strength: float) -> str:
    """A colour mixed with white: of strength 1 the colour itself."""
    red, green, blue = (1 - (0.3 + 0.7 * strength) * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _name_curves(axis: Axes, drawn: Sequence[Convergence]) -> None:
    """The size of each curve at its end, from the lowest up with room between them."""
    bottom, top = axis.get_ylim()
    least, room = bottom, 0.075 * (top - bottom)
    for c in sorted(drawn, key=lambda c: c.curve[-1][1]):
        step, accuracy = c.curve[-1]
        least = max(least + room, 100 * accuracy)
        told = f"n = {c.size:,}{', still improving' * (c.state == 'still improving')}"
        place = {"textcoords": "offset points", "va": "center", "fontsize": 8, "color": GREY}
        axis.annotate(told, (step, least), (7, 0), **place)


def data_multiplier(pair: Pair) -> Figure:
    """M(n) over log n: measured with intervals, extrapolated by the laws, and arrows where it was not reached."""
    ahead, behind = (display_name(name) for name in (pair.ahead, pair.behind))
    figure, axis = _figure(f"Times the data that {behind} needs\nfor what {ahead} does with n images")
    sizes = sorted({m.size for m in pair.multipliers})
    for place, method in enumerate(DASHES):
        chosen = [m for m in pair.multipliers if m.method == method]
        shift = 1 + 0.04 * (place - 1)
        label = "measured" if method == "interpolation" else f"extrapolated, {method}"
        _draw_multipliers(axis, chosen, label, Look(SERIES[place], MARKERS[place]), shift)
    _note(axis, f"hollow: beyond {NEAR} times the sizes that were run")
    axis.axhline(1, color=GREY, lw=1)
    axis.set(xlabel="n, labelled images", ylabel="data multiplier M(n)", yscale="log")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    low, high = axis.get_ylim()
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if low <= t <= high]
    axis.yaxis.set_major_locator(FixedLocator(ticks))
    _log_axis(axis, sizes)
    _legend(axis, [])
    return figure


def _draw_multipliers(axis: Axes, multipliers: Sequence[Multiplier], label: str, look: Look, shift: float) -> None:
    colour = look.colour
    if multipliers and multipliers[0].method == "interpolation":  # a curve with its band; a gap where there is none
        across = [m.size * shift for m in multipliers]
        known = [(m.value, m.low or m.less_than, m.high or m.more_than) for m in multipliers]
        value, low, high = np.array([k if k[0] is not None else (np.nan,) * 3 for k in known], float).T
        axis.fill_between(across, low, high, color=colour, alpha=0.15, lw=0)
        axis.plot(across, value, color=colour, lw=1)
    for m in multipliers:
        at = m.size * shift
        if m.value is None:
            if m.state in ("censored above", "censored below"):
                above = m.state == "censored above"
                end = m.more_than if above else m.less_than
                arrow = {"arrowstyle": "->", "color": colour, "lw": 1.5}
                axis.annotate("", (at, end * (1.35 if above else 0.74)), (at, end), arrowprops=arrow)
                axis.plot(at, end, "_", color=colour, ms=10)
            continue
        ends = (m.low or m.less_than or m.value, m.high or m.more_than)
        axis.plot([at, at], ends, color=colour, lw=1.5)
        face = "white" if m.state == "far extrapolated" else colour
        axis.plot(at, m.value, look.marker, mfc=face, mec=colour, ms=7, label=label)
        label = "_"


def equivalents(analysis: Analysis) -> Figure:
    """How many images the best contender needs for what each other does with n: a panel for each n, a line for each."""
    sizes = sorted({m.size for m in analysis.equivalents})
    others = [name for name in analysis.contenders if any(m.ahead == name for m in analysis.equivalents)]
    reached = {curve.contender: curve.points[-1].accuracy.value for curve in analysis.curves}
    rows = {name: -place for place, name in enumerate(sorted(others, key=lambda name: -reached[name]))}
    figure, axes = plain_axes(SIZE[0], 1.0 + len(sizes) * (0.7 + 0.3 * len(rows)), rows=len(sizes))
    by_name = looks(analysis.contenders)
    for axis, size in zip(axes, sizes, strict=True):
        for m in (m for m in analysis.equivalents if m.size == size):
            _draw_equivalent(axis, m, rows[m.ahead], by_name[m.ahead])
        axis.axvline(size, color=GREY, lw=1, ls="--")
        axis.set_yticks([*rows.values()], [display_name(name) for name in rows])
        axis.set_ylim(min(rows.values()) - 0.7, 0.7)
        axis.set_title(f"what n = {size:,.0f} images are worth", fontsize=11, loc="left")
        axis.set_xscale("log")
        axis.set_xlim(0.8 * analysis.sizes[0], 1.25 * analysis.sizes[-1])
        _log_axis(axis, analysis.sizes)
    best = display_name(analysis.equivalents[0].behind)
    axes[-1].set_xlabel(f"images that {best} needs for the same accuracy", fontsize=11)
    return figure


def _draw_equivalent(axis: Axes, m: Multiplier, row: int, look: Look) -> None:
    if m.state in WHY_NONE:
        axis.annotate(m.state, (0.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=8, color=GREY)
        return
    low, high = (m.low or m.less_than) * m.size, (m.high or m.more_than) * m.size
    axis.plot([low, high], [row, row], color=look.colour, lw=1.5)
    if m.value is not None:
        axis.plot(m.value * m.size, row, **{**look.line, "ls": ""}, ms=7)
    else:
        end, arrow = (low, "<") if m.state == "censored below" else (high, ">")
        axis.plot(end, row, arrow, color=look.colour, ms=7)


def residuals(analysis: Analysis) -> Figure:
    """Measured minus fitted accuracy of each law, in points; what a law leaves over should show no pattern."""
    models = [model for model in DASHES if any(law.model == model for law in analysis.laws)]
    figure, axes = plain_axes(SIZE[0], 1.0 + 2.2 * len(models), rows=len(models), share=True)
    for axis, model in zip(axes, models, strict=True):
        for law in (law for law in analysis.laws if law.model == model):
            # Residuals are of the error: accuracy's have the other sign.
            left_over, line = [-100 * r for r in law.residuals], looks(analysis.contenders)[law.contender].line
            axis.plot(law.sizes, left_over, ms=7, lw=1, label=display_name(law.contender), **line)
        axis.axhline(0, color=GREY, lw=1)
        axis.set_title(f"{model}: err = exp(a) n^-b{'' if model == 'power law' else ' + c'}", fontsize=11)
        axis.set_ylabel("points", fontsize=11)
        _log_axis(axis, analysis.sizes)
    axes[-1].set_xlabel("labelled images", fontsize=11)
    axes[0].legend(fontsize=9, frameon=False)
    figure.suptitle("Measured minus fitted accuracy", fontsize=12)
    return figure


def cost_frontier(analysis: Analysis) -> Figure:
    """Accuracy against each cost: a line for a contender from its smallest to its largest size, the frontier ringed."""
    costs = [cost for cost in COSTS if any(point.cost == cost for point in analysis.frontier)]
    figure, axes = plain_axes(SIZE[0], 0.8 + 2.9 * len(costs), rows=len(costs))
    for axis, cost in zip(axes, costs, strict=True):
        axis.yaxis.set_major_locator(PercentLocator())
        for contender, look in looks(analysis.contenders).items():
            points = [p for p in analysis.frontier if p.cost == cost and p.contender == contender]
            across, up = [p.value for p in points], [100 * p.accuracy for p in points]
            axis.plot(across, up, ms=7, lw=1, label=display_name(contender), **look.line)
            ringed = [(p.value, 100 * p.accuracy) for p in points if p.is_on_frontier]
            axis.plot(*zip(*ringed, strict=True), "o", mfc="none", mec="black", ms=13) if ringed else None
            for p in dict.fromkeys((points[0], points[-1])):
                at = (p.value, 100 * p.accuracy)
                axis.annotate(f"n = {p.size:,}", at, (10, 0), textcoords="offset points", fontsize=9)
        axis.margins(x=0.25, y=0.12, tight=False)
        axis.set_xlabel(COSTS[cost], fontsize=11)
        axis.set_ylabel("accuracy, %", fontsize=11)
        _log_axis(axis, [p.value for p in analysis.frontier if p.cost == cost], short)
    axes[0].legend(fontsize=9, frameon=False)
    figure.suptitle("Accuracy and its cost (ringed: not beaten by a verdict)", fontsize=12)
    return figure


def _figure(title: str) -> tuple[Figure, Axes]:
    figure, (axis,) = plain_axes(*SIZE)
    axis.set_title(title, fontsize=12, loc="left", pad=14)
    axis.xaxis.label.set_fontsize(11)
    axis.yaxis.label.set_fontsize(11)
    return figure, axis


def _note(axis: Axes, text: str) -> None:
    """How to read the figure, above its upper right corner."""
    axis.annotate(text, (1, 1), xycoords="axes fraction", ha="right", va="bottom", fontsize=9, color=GREY)


def _with_intervals(
    axis: Axes, sizes: Sequence[int], estimates: Sequence[Estimate], label: str | None, look: Look
) -> None:
    values, spans = in_percent(estimates)
    axis.fill_between(sizes, values - spans[0], values + spans[1], color=look.colour, alpha=0.15, lw=0)
    axis.errorbar(sizes, values, spans, ms=7, lw=0, elinewidth=1.5, label=label, **look.line)


def _legend(axis: Axes, models: Sequence[str]) -> None:
    for model in models:
        axis.plot([], [], DASHES[model], color=GREY, label=f"fit: {model}")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=9, frameon=False)


def _log_axis(
    axis: Axes, values: Sequence[int] | Sequence[float], form: Callable[[float], str] = "{:,.0f}".format
) -> None:
    """Values as ticks, as many as have room."""
    axis.set_xscale("log")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_locator(FixedLocator(_apart(values)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
    axis.tick_params(labelsize=10)


def _apart(values: Sequence[int] | Sequence[float]) -> list[float]:
    """The values from the largest down that are far enough from each other, on a log axis, to be labelled."""
    reach = np.log(max(values) / min(values))
    kept: list[float] = []
    for value in sorted(values, reverse=True):
        if not kept or np.log(kept[-1] / value) > 0.16 * reach:
            kept.append(float(value))
    return kept[::-1]


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]
