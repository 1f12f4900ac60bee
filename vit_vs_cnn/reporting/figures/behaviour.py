"""Figures of robustness and similarity: spoiled and shifted images, two cues, attacks; layers, frequencies, reach."""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from vit_vs_cnn.comparison.attacks import Attacked
from vit_vs_cnn.comparison.robustness import Cues, Robustness
from vit_vs_cnn.comparison.similarity import Similarity
from vit_vs_cnn.reporting.figures.drawing import panels, plain_axes, plot_distances, plot_shares
from vit_vs_cnn.reporting.style import COLOUR_MAP, GREY, MOST, Looks


def corruptions_figure(robustness: Robustness, known: Looks) -> Figure:
    """Accuracy over the level of every corruption, small multiples under one scale."""
    accuracy = robustness.corruptions.accuracy
    names = list(next(iter(accuracy.values())))
    figure, axes = panels(len(names), 4, 1.9, 1.55, extra=0.5, share=True)
    for axis, name in zip(axes, names, strict=True):
        shares = {group: (robustness.clean[group], *by_name[name]) for group, by_name in accuracy.items()}
        plot_shares(axis, range(6), shares, known, ms=3, lw=1.2)
        axis.set_title(name.replace("_", " "), fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    figure.supxlabel("level (0: as it was)", fontsize=9)
    figure.supylabel("accuracy in %", fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside upper center", ncols=4, frameon=False)
    return figure


def shifts_figure(robustness: Robustness, known: Looks) -> Figure:
    """How often the class stays when the image moves, and accuracy when tiles change places."""
    figure, (left, right) = plain_axes(8.2, 3.0, 2)
    shifts, shuffled = robustness.shifts, robustness.shuffled
    plot_shares(left, shifts.pixels, shifts.consistency, known)
    for multiple in range(shifts.patch, max(shifts.pixels) + 1, shifts.patch):
        left.axvline(multiple, color=GREY, linestyle=":", zorder=0)
    whole_patches = ", whole patches" if shifts.has_patch else ""
    left.set_xlabel(f"shift in pixels (dotted: multiples of {shifts.patch}{whole_patches})")
    left.set_ylabel("% with the class they had")
    whole = {group: (robustness.clean[group], *values) for group, values in shuffled.accuracy.items()}
    plot_shares(right, range(1 + len(shuffled.tiles)), whole, known)
    right.set_xticks(range(len(shuffled.tiles) + 1), ["1 x 1", *(f"{g} x {g}" for g in shuffled.tiles)])
    right.set(xlabel="tiles that change places", ylabel="accuracy in %")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    left.legend(fontsize=7, frameon=False)
    return figure


def cues_figure(cues: Cues, known: Looks) -> Figure:
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
        axis.bar(places, values, width, label=group, color=known[group].colour)
    axis.set_xticks(range(len(kinds)), list(kinds), fontsize=8)
    axis.set_ylabel("%")
    axis.legend(fontsize=7, frameon=False)
    return figure


def attacks_figure(attacked: Attacked, known: Looks) -> Figure:
    figure, axes = plain_axes(7.0, 2.9, 2)
    for axis, (title, shares) in zip(axes, {"FGSM": attacked.fgsm, "PGD": attacked.pgd}.items(), strict=True):
        plot_shares(axis, attacked.radii, shares, known)
        axis.set_title(title, fontsize=10)
        axis.set(xlabel="most that a value may change, in 1/255", ylabel="accuracy in %")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def similarity_figures(similarity: Similarity, known: Looks) -> dict[str, Figure]:
    drawn = {}
    if similarity.cka:
        drawn["cka"] = cka_figure(similarity)
    if similarity.fourier:
        drawn["fourier"] = fourier_figure(similarity)
    if similarity.attention_distance:
        drawn["attention_distance"] = attention_distance_figure(similarity, known)
    return drawn


def cka_figure(similarity: Similarity) -> Figure:
    """CKA between all layers: of two networks, and of each with itself; the pairs of different ones first."""
    ordered = sorted(similarity.cka, key=lambda one: one.first == one.second)[:MOST]
    figure, axes = panels(len(ordered), 3, 3.6, 3.5, extra=0.0)
    for axis, one in zip(axes, ordered, strict=True):
        axis.imshow(np.asarray(one.values), cmap=COLOUR_MAP, vmin=0, vmax=1, origin="lower", aspect="auto")
        axis.set(xlabel=one.second, ylabel=one.first)
        for names, set_ticks in ((one.second_layers, axis.set_xticks), (one.first_layers, axis.set_yticks)):
            every = -(-len(names) // 20)
            set_ticks(range(0, len(names), every), names[::every], fontsize=6)
        axis.tick_params(axis="x", labelrotation=90)
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.7, label="CKA")
    return figure


def fourier_figure(similarity: Similarity) -> Figure:
    """Amplitude over frequency of every layer's maps, from the first (dark) to the last (light)."""
    names = list(similarity.fourier)[:MOST]
    figure, axes = plain_axes(3.4 * len(names) + 0.6, 3.0, len(names))
    every = [value for name in names for values in similarity.fourier[name].log_amplitude for value in values]
    for axis, name in zip(axes, names, strict=True):
        profile = similarity.fourier[name]
        colours = mpl.colormaps[COLOUR_MAP](np.linspace(0, 0.9, len(profile.layers)))
        for layer, values, colour in zip(profile.layers, profile.log_amplitude, colours, strict=True):
            axis.plot(profile.frequencies, values, color=colour, label=layer)
        axis.set_title(name, fontsize=10)
        axis.set_ylim(min(every) - 0.2, max(every) + 0.4)
        axis.set_xlabel("frequency in units of pi")
        axis.grid(alpha=0.3)
        if len(profile.layers) <= 12:
            axis.legend(fontsize=6, frameon=False)
    axes[0].set_ylabel("log amplitude, relative to frequency 0")
    return figure


def attention_distance_figure(similarity: Similarity, known: Looks) -> Figure:
    found = dict(list(similarity.attention_distance.items())[:MOST])
    figure, axes = plain_axes(3.4 * len(found) + 0.6, 2.9, len(found))
    for axis, (name, distances) in zip(axes, found.items(), strict=True):
        plot_distances(axis, distances["by_layer"], known[name], name)
        depth = len(distances["by_layer"])
        axis.axhline(distances["uniform"], color=GREY, linestyle=":")
        axis.text(depth + 0.4, distances["uniform"], "sees all alike", fontsize=7, ha="right", va="bottom")
        axis.set(xlim=(0.5, depth + 0.5), ylim=(0, max(1.35 * distances["uniform"], axis.get_ylim()[1])))
        axis.set_title(name, fontsize=10)
    return figure
