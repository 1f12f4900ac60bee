"""Figures of similarity: layers beside layers, frequencies of features, and how far attention looks."""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from vit_vs_cnn.comparison.similarity import Similarity
from vit_vs_cnn.reporting.drawing import panels, plain_axes, plot_distances
from vit_vs_cnn.reporting.style import COLOUR_MAP, GREY, MOST, Looks


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
    least = min(min(map(min, similarity.fourier[name].log_amplitude)) for name in names)
    for axis, name in zip(axes, names, strict=True):
        profile = similarity.fourier[name]
        colours = mpl.colormaps[COLOUR_MAP](np.linspace(0, 0.9, len(profile.layers)))
        for layer, values, colour in zip(profile.layers, profile.log_amplitude, colours, strict=True):
            axis.plot(profile.frequencies, values, color=colour, label=layer)
        axis.set_title(name, fontsize=10)
        axis.set_ylim(least - 0.2, 0.4)
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
        axis.text(depth - 0.6, distances["uniform"], "sees all alike", fontsize=7, ha="right", va="bottom")
        axis.set(xlim=(-0.5, depth - 0.5), ylim=(0, 1.35 * distances["uniform"]))
        axis.set_title(name, fontsize=10)
    return figure
