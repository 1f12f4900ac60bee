"""Figures of a comparison: what one sees at a glance, each drawn without a display."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vit_vs_cnn.comparison.accuracy import Accuracy
from vit_vs_cnn.comparison.by_class import ClassAccuracy
from vit_vs_cnn.comparison.compare import Comparison
from vit_vs_cnn.comparison.confidence import Confidence
from vit_vs_cnn.comparison.entries import Answered, Tested, grouped, on_one_fold
from vit_vs_cnn.comparison.latency import Cost
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.reporting.figures.behaviour import (
    attacks_figure,
    corruptions_figure,
    cues_figure,
    shifts_figure,
    similarity_figures,
)
from vit_vs_cnn.reporting.figures.drawing import PercentLocator, in_colours, in_percent, plain_axes, plot_rows, wrapped
from vit_vs_cnn.reporting.style import COLOUR_MAP, GREY, MOST, Looks, looks, percent

#: In a line of the width of a picture.
LETTERS = 22


def figures_of(comparison: Comparison, tested: Sequence[Tested]) -> dict[str, Figure]:
    drawn: dict[str, Figure] = {}
    known = looks([network.group for network in comparison.networks])
    if (accuracy := comparison.accuracy) is not None:
        drawn["accuracy"] = accuracy_figure(accuracy, known)
        drawn["classes"] = classes_figure(accuracy.classes, known)
        drawn["confusion"] = confusion_figure(accuracy.confusion, comparison.class_names)
        if len(accuracy.networks) > 1:
            drawn["disagreement"] = disagreement_figure(accuracy)
        if comparison.pictures:
            shown = on_one_fold(tested)
            drawn["pictures"] = pictures_figure(comparison.pictures, shown, shown[0].test)
    if comparison.confidence:
        first = {network.group: network.name for network in reversed(comparison.networks)}
        ordered = {group: first[group] for group in known}
        drawn["reliability"] = reliability_figure(ordered, comparison.confidence, known)
    if comparison.robustness is not None:
        drawn["corruptions"] = corruptions_figure(comparison.robustness, known)
        drawn["shifts"] = shifts_figure(comparison.robustness, known)
        if comparison.robustness.cues is not None:
            drawn["cues"] = cues_figure(comparison.robustness.cues, known)
    if comparison.attacked is not None:
        drawn["attacks"] = attacks_figure(comparison.attacked, known)
    if comparison.similarity is not None:
        drawn |= similarity_figures(comparison.similarity, known)
    if comparison.cost and accuracy is not None:
        drawn["cost"] = cost_figure(comparison.cost, accuracy, known)
    return drawn


def accuracy_figure(accuracy: Accuracy, known: Looks) -> Figure:
    """Every group's top-1 accuracy with its interval, and its single networks as small marks."""
    figure, (axis,) = plain_axes(6.4, 0.9 + 0.45 * len(accuracy.groups))
    rows = [(group.name, known[group.name], group.top1, list(group.by_network.values())) for group in accuracy.groups]
    plot_rows(axis, rows, {"marker": "|", "ms": 8}, capsize=3)
    axis.axvline(100 * accuracy.majority, color=GREY, linestyle=":", zorder=0)
    axis.set_xlabel("top-1 accuracy in %, with 95 % interval; dotted: always the most frequent class")
    axis.grid(axis="x", alpha=0.3)
    return figure


def classes_figure(classes: Sequence[ClassAccuracy], known: Looks) -> Figure:
    """Accuracy by class, the class where groups differ most on top; at most 30 classes."""
    ordered = sorted(classes, key=lambda c: max(c.accuracy.values()) - min(c.accuracy.values()), reverse=True)
    shown = ordered[:30]
    figure, (axis,) = plain_axes(6.4, 1.2 + 0.27 * len(shown))
    axis.xaxis.set_major_locator(PercentLocator())
    for name in classes[0].accuracy:
        values = [100 * one.accuracy[name] for one in shown]
        axis.plot(values, range(len(shown)), ls="none", label=name, ms=5, **known[name].line)
    for place, one in enumerate(shown):
        ends = [100 * min(one.accuracy.values()), 100 * max(one.accuracy.values())]
        axis.plot(ends, [place, place], color="#bbbbbb", zorder=0, linewidth=1.5)
    names = [f"{one.name} *" if _differs(one) else one.name for one in shown]
    axis.set_yticks(range(len(shown)), names)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    more = f" (the {len(shown)} of {len(ordered)} where they differ most)" if len(shown) < len(ordered) else ""
    starred = "; * they differ (p < 0.05, Holm)" if any(map(_differs, shown)) else ""
    axis.set_xlabel(f"accuracy in % by class{more}{starred}")
    axis.grid(axis="x", alpha=0.3)
    figure.legend(fontsize=8, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _differs(one: ClassAccuracy) -> bool:
    return one.p_corrected is not None and one.p_corrected < 0.05


def confusion_figure(confusion: Mapping[str, Sequence[Sequence[int]]], class_names: Sequence[str]) -> Figure:
    """Confusion of each group in per cent of the true class, one panel for each."""
    shown = dict(list(confusion.items())[:MOST])
    figure, axes = plain_axes(0.6 + 3.7 * len(shown), 4.0, len(shown))
    few = len(class_names) <= 20
    for axis, (name, counts) in zip(axes, shown.items(), strict=True):
        matrix = np.asarray(counts, dtype=float)
        share = 100 * matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
        axis.imshow(share, cmap=COLOUR_MAP, vmin=0, vmax=100)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("predicted")
        if few:
            axis.set_xticks(range(len(class_names)), class_names, rotation=90, fontsize=7)
            axis.set_yticks(range(len(class_names)), class_names, fontsize=7)
            _write_in(axis, share)
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel("true class")
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.7, label="% of the true class")
    return figure


def _write_in(axis: Axes, values: np.ndarray) -> None:
    middle = (values.min() + values.max()) / 2
    for (row, col), value in np.ndenumerate(values):
        colour = "white" if value < middle else "black"
        axis.text(col, row, f"{value:.0f}", ha="center", va="center", fontsize=6, color=colour)


def disagreement_figure(accuracy: Accuracy) -> Figure:
    count = len(accuracy.networks)
    side = 2.0 + 0.5 * count
    figure, (axis,) = plain_axes(side + 1, side)
    values = 100 * np.asarray(accuracy.disagreement)
    picture = axis.imshow(values, cmap=COLOUR_MAP, vmin=0, vmax=max(1.0, values.max()))
    axis.set_xticks(range(count), accuracy.networks, rotation=90)
    axis.set_yticks(range(count), accuracy.networks)
    axis.spines[:].set_visible(False)
    if count <= 12:
        _write_in(axis, values)
    figure.colorbar(picture, ax=axis, shrink=0.7).set_label("% of images named differently", fontsize=8)
    return figure


def pictures_figure(pictures: Mapping[str, list[int]], tested: Sequence[Answered], test: LabelledImages) -> Figure:
    """Test images that one network alone gets right, and some that all get wrong, with what each says."""
    first = [members[0] for members in grouped(tested).values()][:MOST]
    kinds = dict(list(pictures.items())[: MOST + 1])
    columns = max(len(numbers) for numbers in kinds.values())
    words = {number: _words(number, first, test) for numbers in kinds.values() for number in numbers}
    lines = 2 + max(above.count("\n") + below.count("\n") for above, below in words.values())
    height = len(kinds) * (1.45 + 0.14 * lines) + 0.1
    figure, axes = plain_axes(1.25 * columns + 0.3, height, columns, len(kinds), ruled=False)
    for row, (kind, numbers) in enumerate(kinds.items()):
        in_row = axes[row * columns : (row + 1) * columns]
        for axis, number in zip(in_row, numbers, strict=False):
            axis.imshow(in_colours(test.images[number]))
            above, below = words[number]
            axis.set_title(above, fontsize=6.5, loc="left")
            axis.set_xlabel(below, fontsize=6.5, loc="left")
        title = f"{kind}\n{in_row[0].get_title(loc='left')}"
        in_row[0].set_title(title, fontsize=6.5, loc="left", fontweight="bold")
    return figure


def _words(number: int, first: Sequence[Answered], test: LabelledImages) -> tuple[str, str]:
    """What stands above and below a picture, in lines that are no wider."""
    truth = test.class_names[int(test.labels[number])]
    says = [f"{t.group}: {test.class_names[int(t.predictions.classes[number])]}" for t in first]
    return wrapped(f"it is: {truth}", LETTERS), "\n".join(wrapped(text, LETTERS) for text in says)


def reliability_figure(first: Mapping[str, str], confidence: Mapping[str, Confidence], known: Looks) -> Figure:
    """Accuracy over confidence in bins of equal mass, before and after the temperature; the first of each group."""
    after = {group: confidence[name].after for group, name in first.items()}
    panels = 2 if any(after.values()) else 1
    figure, axes = plain_axes(3.6 * panels + 0.4, 3.6, panels)
    for panel, axis in enumerate(axes):
        for group, name in first.items():
            judged = after[group] if panel else confidence[name].before
            if judged is not None:
                label = f"{group}: ECE {percent(judged.ece)} %"
                axis.plot(judged.confidence, judged.accuracy, label=label, ms=4, **known[group].line)
        axis.plot([0, 1], [0, 1], color=GREY, linestyle=":", zorder=0)
        axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="confidence", ylabel="accuracy")
        axis.set_title("with a temperature fitted on validation" if panel else "as it is", fontsize=10)
        axis.legend(fontsize=7, frameon=False, loc="upper left")
    return figure


def cost_figure(cost: Mapping[str, Cost], accuracy: Accuracy, known: Looks) -> Figure:
    figure, axes = plain_axes(8.2, 3.0, 2)
    groups = {group.name: group for group in accuracy.groups}
    for axis in axes:
        axis.yaxis.set_major_locator(PercentLocator())
    for name, one in cost.items():
        value, error = in_percent([groups[name].top1])
        for axis, x in zip(axes, (one.macs and one.macs / 1e6, 1000 * one.latency_p50), strict=True):
            if x:
                axis.errorbar(x, value, yerr=error, capsize=3, linestyle="none", label=name, **known[name].line)
    axes[0].set(xlabel="MACs of one image in millions, attention counted", ylabel="top-1 accuracy in %")
    axes[1].set_xlabel(f"median time of one image in ms ({next(iter(cost.values())).device})")
    for axis in axes:
        axis.margins(0.2)
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=7, frameon=False)
    return figure
