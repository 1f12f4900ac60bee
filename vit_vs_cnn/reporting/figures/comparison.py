"""Figures of a comparison: classes, confusion, example images, calibration, corruptions, similarity."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure

from vit_vs_cnn.comparison.accuracy import ClassAccuracy
from vit_vs_cnn.comparison.compare import CalibrationScores, CorruptionAccuracy, NetworkComparison
from vit_vs_cnn.comparison.entries import ScoredNetwork, TestedEntry, group_entries, select_one_fold
from vit_vs_cnn.data.images import LabelledImages, as_rgb
from vit_vs_cnn.reporting.figures.drawing import Drawing, make_axes, make_panels, wrap_text
from vit_vs_cnn.reporting.style import (
    COLOUR_MAP,
    MAX_NETWORKS,
    NEUTRAL_COLOUR,
    ModelStyles,
    assign_styles,
    format_percent,
)

if TYPE_CHECKING:
    import pandas

#: Number of characters that fit below an image.
LINE_LENGTH = 22
#: Height of a line, side of a picture, and distance of two pictures, in inches.
_LINE, _PICTURE, _COLUMN = 0.115, 1.05, 1.25


def comparison_figures(comparison: NetworkComparison, entries: Sequence[TestedEntry]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    styles = assign_styles(comparison.groups)
    if (accuracy := comparison.accuracy) is not None:
        figures["classes"] = classes_figure(accuracy.classes, styles)
        figures["confusion"] = confusion_figure(accuracy.confusion, comparison.class_names)
        if comparison.examples:
            shown = select_one_fold(entries)
            figures["pictures"] = examples_figure(comparison.examples, shown, shown[0].test)
    if comparison.calibration:
        first = comparison.networks.drop_duplicates("group")
        names = zip(first["group"], first["network"], strict=True)
        scores = {group: comparison.calibration[name] for group, name in names}
        figures["reliability"] = reliability_figure(scores, styles)
    if comparison.corruptions is not None:
        figures["corruptions"] = corruptions_figure(comparison.corruptions, styles)
    if comparison.similarity:
        figures["cka"] = cka_figure(comparison.similarity)
    return figures


def classes_figure(classes: Sequence[ClassAccuracy], styles: ModelStyles) -> Figure:
    """Accuracy by class for at most 30 classes, those with the largest difference between groups on top."""
    ordered = sorted(classes, key=lambda c: max(c.accuracy.values()) - min(c.accuracy.values()), reverse=True)
    shown = ordered[:30]
    figure, (axis,) = make_axes(6.4, 1.2 + 0.27 * len(shown))
    for name in classes[0].accuracy:
        values = [100 * result.accuracy[name] for result in shown]
        points: dict[str, Any] = styles[name].line | {"ls": "none"}
        axis.plot(values, range(len(shown)), label=name, ms=5, **points)
    for row, result in enumerate(shown):
        ends = [100 * min(result.accuracy.values()), 100 * max(result.accuracy.values())]
        axis.plot(ends, [row, row], color="#bbbbbb", zorder=0, linewidth=1.5)
    names = [f"{result.name} *" if _is_significant(result) else result.name for result in shown]
    axis.set_yticks(range(len(shown)), names)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    more = f" (the {len(shown)} of {len(ordered)} where they differ most)" if len(shown) < len(ordered) else ""
    starred = "; * they differ (p < 0.05, Holm)" if any(map(_is_significant, shown)) else ""
    # Long names leave little room below the axis.
    figure.supxlabel(f"accuracy in % by class{more}{starred}", fontsize=9)
    axis.grid(axis="x", alpha=0.3)
    figure.legend(fontsize=8, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _is_significant(accuracy: ClassAccuracy) -> bool:
    return accuracy.p_corrected is not None and accuracy.p_corrected < 0.05


def confusion_figure(confusion: Mapping[str, Sequence[Sequence[int]]], class_names: Sequence[str]) -> Figure:
    shown = dict(list(confusion.items())[:MAX_NETWORKS])
    figure, axes = make_axes(0.6 + 3.7 * len(shown), 4.0, len(shown))
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
            middle = (share.min() + share.max()) / 2
            for (row, col), value in np.ndenumerate(share):
                colour = "white" if value < middle else "black"
                axis.text(col, row, f"{value:.0f}", ha="center", va="center", fontsize=6, color=colour)
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel("true class")
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.7, label="% of the true class")
    return figure


def examples_figure(
    pictures: Mapping[str, list[int]], networks: Sequence[ScoredNetwork], test: LabelledImages
) -> Figure:
    """Test images that only one network classifies correctly, or none, with the predictions."""
    first = [members[0] for members in group_entries(networks).values()][:MAX_NETWORKS]
    kinds = dict(list(pictures.items())[: MAX_NETWORKS + 1])
    columns = max(len(numbers) for numbers in kinds.values())
    words = {}
    for number in {number for numbers in kinds.values() for number in numbers}:
        truth = test.class_names[int(test.labels[number])]
        answers = [f"{t.group}: {test.class_names[int(t.predictions.classes[number])]}" for t in first]
        below = "\n".join(wrap_text(text, LINE_LENGTH) for text in answers)
        words[number] = wrap_text(f"class: {truth}", LINE_LENGTH), below
    heights = [_LINE * (1 + max(text[part].count("\n") for text in words.values())) for part in (0, 1)]
    row_height = _LINE * 2.2 + heights[0] + _PICTURE + heights[1]
    width, height = columns * _COLUMN + 0.2, len(kinds) * row_height + 0.1
    figure = Drawing(figsize=(width, height))
    figure.suppressComposite = True  # pictures keep their pixels
    axis = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))  # in inches, much faster than an axis each
    axis.set_axis_off()
    for row, (kind, numbers) in enumerate(kinds.items()):
        top = row * row_height + _LINE * 1.8
        axis.text(0.1, top, kind, fontsize=6.5, va="bottom", fontweight="bold")
        top += heights[0] + _LINE * 0.3
        for column, number in enumerate(numbers):
            left, picture = 0.1 + column * _COLUMN, as_rgb(test.take(torch.tensor([number]))[0])
            rows, cols = (_PICTURE * side / max(picture.shape[:2]) for side in picture.shape[:2])
            axis.imshow(picture, extent=(left, left + cols, top + rows, top))
            for text, y, side in zip(words[number], (top - 0.02, top + rows + 0.02), ("bottom", "top"), strict=True):
                axis.text(left, y, text, fontsize=6.5, va=side)
    return figure


def reliability_figure(calibration: Mapping[str, Sequence[CalibrationScores]], styles: ModelStyles) -> Figure:
    """Accuracy over confidence of one network of each group, before and after temperature scaling."""
    panels = max(len(scores) for scores in calibration.values())
    figure, axes = make_axes(3.6 * panels + 0.4, 3.6, panels)
    for panel, axis in enumerate(axes):
        for group, scores in calibration.items():
            for score in scores[panel : panel + 1]:
                label = f"{group}: ECE {format_percent(score.ece)} %"
                axis.plot(score.confidence, score.accuracy, label=label, ms=4, **styles[group].line)
        axis.plot([0, 1], [0, 1], color=NEUTRAL_COLOUR, linestyle=":", zorder=0)
        axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="confidence", ylabel="accuracy")
        axis.set_title("after temperature scaling" if panel else "before temperature scaling", fontsize=10)
        axis.legend(fontsize=7, frameon=False, loc="upper left")
    return figure


def corruptions_figure(corruptions: CorruptionAccuracy, styles: ModelStyles) -> Figure:
    """Accuracy by level of every corruption, one panel for each."""
    accuracy = corruptions.accuracy
    names = list(next(iter(accuracy.values())))
    figure, axes = make_panels(len(names), 4, 1.9, 1.55, extra=0.5, share=True)
    for axis, name in zip(axes, names, strict=True):
        for group, by_name in accuracy.items():
            shares = 100 * np.array([corruptions.clean[group], *by_name[name]])
            axis.plot(range(len(shares)), shares, label=group, ms=3, lw=1.2, **styles[group].line)
        axis.set_title(name.replace("_", " "), fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    figure.supxlabel("level (0: original image)", fontsize=9)
    figure.supylabel("accuracy in %", fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside upper center", ncols=4, frameon=False)
    return figure


def cka_figure(similarity: "Mapping[tuple[str, str], pandas.DataFrame]") -> Figure:
    """CKA between all layers of two networks, and of each network with itself."""
    ordered = sorted(similarity, key=lambda pair: pair[0] == pair[1])[:MAX_NETWORKS]
    figure, axes = make_panels(len(ordered), 3, 2.8, 2.9, extra=0.0)
    for axis, pair in zip(axes, ordered, strict=True):
        table = similarity[pair]
        axis.imshow(table, cmap=COLOUR_MAP, vmin=0, vmax=1, origin="lower", aspect="auto")
        axis.set(xlabel=pair[1], ylabel=pair[0])
        for names, set_ticks in ((table.columns, axis.set_xticks), (table.index, axis.set_yticks)):
            step = -(-len(names) // 20)
            set_ticks(range(0, len(names), step), names[::step], fontsize=7)
        axis.tick_params(axis="x", labelrotation=90)
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.7, label="CKA")
    return figure
