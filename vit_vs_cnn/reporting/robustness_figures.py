"""Figures of robustness: spoiled, shifted and shuffled images, two cues, and attacks."""

import numpy as np
from matplotlib.figure import Figure

from vit_vs_cnn.comparison.attacks import Attacked
from vit_vs_cnn.comparison.robustness import Cues, Robustness
from vit_vs_cnn.reporting.comparison_style import plain_axes, style


def corruptions_figure(robustness: Robustness) -> Figure:
    """Accuracy over the level of every corruption, small multiples under one scale."""
    names = list(next(iter(robustness.corruptions.accuracy.values())))
    columns = 4
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(8.2, 1.55 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    for place, name in enumerate(names):
        axis = axes.flat[place]
        axis.set_visible(True)
        for number, (group, by_name) in enumerate(robustness.corruptions.accuracy.items()):
            values = [100 * a for a in (robustness.clean[group], *by_name[name])]
            label = group if place == 0 else None
            axis.plot(range(6), values, markersize=3, linewidth=1.2, label=label, **style(number))
        axis.set_title(name.replace("_", " "), fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    figure.supxlabel("level (0: as it was)", fontsize=9)
    figure.supylabel("accuracy in %", fontsize=9)
    figure.legend(fontsize=8, loc="outside upper center", ncols=4, frameon=False)
    return figure


def shifts_figure(robustness: Robustness) -> Figure:
    """How often the class stays when the image moves, and accuracy when tiles change places."""
    figure, (left, right) = plain_axes(8.2, 3.0, 2)
    shifts, shuffled = robustness.shifts, robustness.shuffled
    for number, (group, values) in enumerate(shifts.consistency.items()):
        left.plot(shifts.pixels, [100 * v for v in values], markersize=4, label=group, **style(number))
    for multiple in range(shifts.patch, max(shifts.pixels) + 1, shifts.patch):
        left.axvline(multiple, color="#999999", linestyle=":", zorder=0)
    left.set_xlabel(f"shift in pixels (dotted: multiples of {shifts.patch}, the patch)", fontsize=9)
    left.set_ylabel("% with the class they had", fontsize=9)
    for number, (group, values) in enumerate(shuffled.accuracy.items()):
        whole = [100 * v for v in (robustness.clean[group], *values)]
        right.plot(range(len(whole)), whole, markersize=4, label=group, **style(number))
    right.set_xticks(range(len(shuffled.tiles) + 1), ["1 x 1", *(f"{g} x {g}" for g in shuffled.tiles)])
    right.set_xlabel("tiles that change places", fontsize=9)
    right.set_ylabel("accuracy in %", fontsize=9)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    left.legend(fontsize=7, frameon=False)
    return figure


def cues_figure(cues: Cues) -> Figure:
    """Accuracy on one cue alone, and which cue wins."""
    figure, (axis,) = plain_axes(6.4, 2.8)
    kinds = {
        "shape alone": cues.shape_only,
        "texture alone": cues.texture_only,
        "shape wins,\nwhere they conflict": cues.shape_share,
    }
    width = 0.8 / len(cues.shape_only)
    for number, group in enumerate(cues.shape_only):
        values = [100 * (kind[group] or 0.0) for kind in kinds.values()]
        places = np.arange(len(kinds)) + (number - (len(cues.shape_only) - 1) / 2) * width
        axis.bar(places, values, width, label=group, color=style(number)["color"])
    axis.set_xticks(range(len(kinds)), list(kinds), fontsize=8)
    axis.set_ylabel("%", fontsize=9)
    axis.legend(fontsize=7, frameon=False)
    return figure


def attacks_figure(attacked: Attacked) -> Figure:
    """Accuracy over how much a value may change."""
    figure, axes = plain_axes(7.0, 2.9, 2)
    for axis, (title, kind) in zip(axes, {"FGSM": attacked.fgsm, "PGD": attacked.pgd}.items(), strict=True):
        for number, (group, values) in enumerate(kind.items()):
            axis.plot(attacked.radii, [100 * v for v in values], markersize=4, label=group, **style(number))
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("most that a value may change, in 1/255", fontsize=9)
        axis.set_ylabel("accuracy in %", fontsize=9)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7, frameon=False)
    return figure
