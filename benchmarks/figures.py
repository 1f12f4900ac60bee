"""Draw the recorded figures again from the records, without training.

    python -m benchmarks.figures                    # all
    python -m benchmarks.figures regimes_cpu cues   # those whose path begins with one of the names

Each figure in ``results/`` is drawn by the code of the reports: of an experiment from its runs, of a comparison from
``comparison.json``, and others from the numbers that were recorded for them. ``benchmarks.centers`` draws its figure.
Charts are SVG files, which the site inverts in dark mode. The README shows a second file in dark mode. Images are PNG.
"""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas
import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn import functional as F

from benchmarks import command_line, run_command
from benchmarks.differences import best_candidates, distribution_of
from benchmarks.figure_words import darken, recorded_png, recorded_svg
from vit_vs_cnn.analysis.analysis import Analysis, read_analysis, read_table_analysis
from vit_vs_cnn.comparison.accuracy import ClassAccuracy
from vit_vs_cnn.comparison.compare import CalibrationScores, CorruptionAccuracy
from vit_vs_cnn.comparison.entries import RunPredictions
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.inspection.inspect import InspectedImages, MethodMaps, NetworkInspection
from vit_vs_cnn.inspection.locality.study import SUMMARY_MEASURES
from vit_vs_cnn.inspection.saliency import SaliencyMethod
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.reporting.figures import comparison
from vit_vs_cnn.reporting.figures.drawing import error_bars_in_percent, make_axes
from vit_vs_cnn.reporting.figures.experiment import accuracy_curves, experiment_figures
from vit_vs_cnn.reporting.inspection_page import overlay_figure
from vit_vs_cnn.reporting.locality_page import before_and_after_figure
from vit_vs_cnn.reporting.style import NEUTRAL_COLOUR, assign_styles
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.training.checkpoints import CheckpointInfo

RESULTS = Path(__file__).parents[1] / "results"
#: Models that a figure compares with ResNet-8 from scratch.
REMEDIES = {
    "vit": "ViT from scratch",
    "vit_by_vit": "ViT, taught by a ViT",
    "vit_by_resnet": "ViT, taught by ResNet-8",
    "vit_masked": "ViT, pretrained",
    "vit_both": "ViT, pretrained and taught",
    "resnet_by_resnet": "ResNet-8, taught by ResNet-8",
    "resnet_masked": "ResNet-8, pretrained",
    "resnet_both": "ResNet-8, pretrained and taught",
}
#: Values of ``MethodMaps`` in the file of a sheet, in the order of its arguments.
MAP_VALUES = ("maps", "deletion", "random_deletion")


@functools.cache
def analysis_of(record: str) -> Analysis:
    """Analysis of a record, or of its table where predictions are not recorded."""
    folder = RESULTS / record
    has_predictions = (folder / "predictions.npz").exists()
    return read_analysis(folder)[0] if has_predictions else read_table_analysis(folder / "results.csv")


def report_figure(record: str, name: str) -> Figure:
    """Figure of the report of an experiment; the one at its top has the learning curves."""
    analysis = analysis_of(record)
    return accuracy_curves(analysis) if name == "learning_curves" else experiment_figures(analysis)[name]


def remedies_figure() -> Figure:
    """Accuracy minus that of ResNet-8 from scratch: a row for each model, a panel for each number of training images.

    A dot is filled if the 95 % interval, which is not adjusted for several comparisons, does not contain 0.
    """
    records = [RESULTS / "few_labels_cpu", RESULTS / "few_labels_cpu" / "images_10000"]
    scores = {
        size: {key: best_candidates(f"{record}:{key}")[size].scores for key in ("resnet", *REMEDIES)}
        for record in records
        for size in best_candidates(f"{record}:resnet")
    }
    figure, axes = make_axes(2.2 + 1.9 * len(scores), 0.9 + 0.3 * len(REMEDIES), len(scores), share=True)
    for axis, (size, by_model) in zip(axes, sorted(scores.items()), strict=True):
        for row, key in enumerate(REMEDIES):
            difference = distribution_of([by_model[key], by_model["resnet"]]).interval()
            (value,), span = error_bars_in_percent([difference])
            colour = assign_styles(["resnet", "vit"])[key.partition("_")[0]].colour
            face = "white" if difference.low <= 0 <= difference.high else colour
            axis.errorbar(value, row, xerr=span, fmt="o", ms=6, elinewidth=1.5, color=colour, mfc=face)
        axis.axvline(0, color=NEUTRAL_COLOUR, lw=1)
        axis.set_title(f"{size:,} images", fontsize=10, loc="left")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(REMEDIES)), [*REMEDIES.values()])
    axes[0].set_ylim(len(REMEDIES) - 0.5, -0.5)
    figure.supxlabel("points above ResNet-8 from scratch", fontsize=10)
    return figure


def comparison_figure(name: str) -> Figure:
    """Figure of the recorded comparison."""
    folder = RESULTS / "compare_cifar10"
    found = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    accuracy, groups, classes = found["accuracy"], [*found["accuracy"]["top1"]], found["class_names"]
    styles = assign_styles(groups)
    if name == "classes":
        return comparison.classes_figure([ClassAccuracy(**one) for one in accuracy["classes"]], styles)
    if name == "confusion":
        return comparison.confusion_figure(accuracy["confusion"], classes)
    if name == "pictures":
        return _example_images(folder, found["examples"], groups, classes)
    if name == "reliability":
        first = {group: found["calibration"][f"{group}-s0"] for group in groups}
        scores = {group: [CalibrationScores(**one) for one in of_group] for group, of_group in first.items()}
        return comparison.reliability_figure(scores, styles)
    if name == "corruptions":
        mean = {group: Estimate(**estimate) for group, estimate in found["corruptions"]["mean"].items()}
        return comparison.corruptions_figure(CorruptionAccuracy(**found["corruptions"] | {"mean": mean}), styles)
    similarity = {}
    for pair, table in found["similarity"].items():
        first, _, second = pair.partition(",")
        similarity[first, second] = pandas.DataFrame.from_dict(table, orient="index")
    return comparison.cka_figure(similarity)


def _example_images(folder: Path, examples: dict[str, list[int]], groups: list[str], class_names: list[str]) -> Figure:
    """Example images; ``pictures.npz`` contains them, their labels and the classes predicted by each group."""
    with np.load(folder / "pictures.npz") as file:
        images, labels, classes = (torch.from_numpy(file[name]) for name in ("images", "labels", "classes"))
    test, names = LabelledImages(images, labels.long(), tuple(class_names)), [str(i) for i in range(len(images))]
    rest = torch.zeros(len(images))  # probabilities are not shown
    networks = [
        RunPredictions(group, 0, None, None, Predictions(test.labels, names, len(class_names), of_group.long(), rest))
        for group, of_group in zip(groups, classes, strict=True)
    ]
    numbers = iter(range(len(images)))
    kinds = {kind: [next(numbers) for _ in shown] for kind, shown in examples.items()}
    return comparison.examples_figure(kinds, networks, test)


def sheet(path: Path) -> Figure:
    """Figure of an inspection, from a file with its images, maps, scores and predictions."""
    with np.load(path) as file:
        values = dict(file)
    tensors = {key: torch.from_numpy(value) for key, value in values.items() if value.dtype.kind in "uif"}
    classes = tuple(map(str, values["class_names"]))
    images = InspectedImages(LabelledImages(tensors["images"], tensors["labels"], classes), "recorded")
    about, networks = CheckpointInfo({"name": "recorded"}, classes, (1, 1, 1), [0.5], [0.5]), []
    for row, name in enumerate(map(str, values["networks"])):
        predicted = tensors["predicted"][row]
        specific, shown = bool(values["class_specific"][row]), (tensors[key][row] for key in MAP_VALUES)
        method = SaliencyMethod(str(values["methods"][row]), "", "any", specific, lambda request: request.images[:, 0])
        probabilities = tensors["probability"][row, :, None] * F.one_hot(predicted, len(classes))
        network = TrainedNetwork(name, path, nn.Identity(), about)
        networks.append(NetworkInspection(network, probabilities, predicted, [MethodMaps(method, *shown)], None))
    return overlay_figure(images, networks)


def layers_figure(measure: str) -> Figure:
    """Measure of locality by layer, from means over seeds."""
    layers = pandas.read_csv(RESULTS / "locality_cpu" / "layers.csv")
    return before_and_after_figure(layers, layers["model"].unique().tolist(), measure)


#: Records whose reports have a figure, by its name.
REPORT_FIGURES = {
    "learning_curves": [
        *("regimes_cpu", "regimes_synthetic", "transfer_cpu", "cues/agreement_0.6", "cues/agreement_1.0"),
        *("reach/distance_0.6", "reach/distance_1.0", "heads_cpu"),
    ],
    "differences": ["regimes_cpu", "permuted_blocks_cpu"],
    "behind_the_best": ["ladder/locality_ladder"],
    "more_training": ["regimes_surface_cpu", "regimes_convergence_cpu"],
}
#: Function that draws each figure, by its path in ``results/``.
FIGURES: dict[str, Callable[[], Figure]] = {
    **{
        f"{record}/figures/{name}": functools.partial(report_figure, record, name)
        for name, records in REPORT_FIGURES.items()
        for record in records
    },
    "few_labels_cpu/figures/remedies": remedies_figure,
    "locality_cpu/figures/accuracy": functools.partial(report_figure, "locality_cpu", "learning_curves"),
    **{
        f"compare_cifar10/figures/{name}": functools.partial(comparison_figure, name)
        for name in ("classes", "confusion", "pictures", "reliability", "corruptions", "cka")
    },
    **{
        f"locality_cpu/figures/layers_{measure}": functools.partial(layers_figure, measure)
        for measure in SUMMARY_MEASURES
    },
    "inspect/cifar10/figures/sheet_0": functools.partial(sheet, RESULTS / "inspect" / "cifar10" / "sheet_0.npz"),
}
#: Figures with images or with colour maps, which must not be inverted.
PNG_FIGURES = {
    *(f"compare_cifar10/figures/{name}" for name in ("confusion", "pictures", "cka")),
    "inspect/cifar10/figures/sheet_0",
}
#: Figures of the README, with a file for dark mode.
DARK_FIGURES = {"regimes_convergence_cpu/figures/more_training"}


def draw(name: str) -> dict[str, bytes]:
    """Files of a recorded figure, by their paths in ``results/``."""
    figure = FIGURES[name]()
    if name in PNG_FIGURES:
        return {f"{name}.png": recorded_png(figure)}
    svg = recorded_svg(figure, name)
    return {f"{name}.svg": svg} | ({f"{name}-dark.svg": darken(svg)} if name in DARK_FIGURES else {})


def draw_files(names: Sequence[str]) -> None:
    """Write the figures whose path begins with one of the names."""
    for name in FIGURES:
        if not name.startswith(tuple(names)):
            continue
        for path, data in draw(name).items():
            with atomic_write(RESULTS / path) as partial:
                partial.write_bytes(data)
            print(f"wrote {RESULTS.name}/{path}", flush=True)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("names", nargs="*", default=[""], metavar="NAME", help="beginning of a path in results/")
    run_command(parser, draw_files)
