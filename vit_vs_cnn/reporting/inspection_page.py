"""Page of an inspection: an interactive view of attention, then scores, figures and predictions."""

import base64
import io
import json
import math
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
import pandas
import torch
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from vit_vs_cnn.analysis.model_summaries import display_name
from vit_vs_cnn.console import format_count, join_names
from vit_vs_cnn.data.images import as_rgb
from vit_vs_cnn.inspection.inspect import InspectedImages, Inspection, NetworkInspection
from vit_vs_cnn.inspection.map_scores import (
    BASELINE_METHODS,
    MAX_CORRELATION_OF_SENSITIVE_MAP,
    MAX_RANDOMIZATION_IMAGES,
    NUM_RANDOM_MAPS,
    SCORE_ERROR_RATE,
    has_star,
    stage_columns,
)
from vit_vs_cnn.inspection.randomized_weights import NUM_SHUFFLES, STAGE_ALL_WEIGHTS
from vit_vs_cnn.inspection.saliency import get_method, resize_maps
from vit_vs_cnn.models.input_wrappers import find_center_crop
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.reporting.figures.drawing import make_axes, wrap_text
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import COLOUR_MAP, assign_styles
from vit_vs_cnn.reporting.table import Table, print_tables

#: Largest size of the page without figures, and the share of it for weights, images and maps.
MAX_PAGE_BYTES, CONTENT_SHARE = 10_000_000, 0.94
#: Weights are stored as integers: steps from zero to the largest weight of a row, and steps of these largest weights.
WEIGHT_STEPS, SCALE_STEPS = 255, 65535
#: Largest number of rows and of columns of a map; larger maps are reduced by averaging.
MAX_MAP_SIZE = 56
COLOUR_MAPS = ("viridis", "cividis")
#: Number of images side by side.
COLUMNS = 8
#: Opacity of a map over an image at the smallest and at the largest value of the map.
OVERLAY_OPACITY_RANGE = (0.2, 0.75)
#: Methods that the page computes in the browser, for any token.
METHODS_COMPUTED_ON_PAGE = {"raw_attention", "rollout"}
#: For each network, by its number: its weights for one image, encoded as text, and their largest rounding error.
_Packed: TypeAlias = dict[int, tuple[str, float]]


def write_inspection_page(
    inspection: Inspection,
    folder: Path,
    *,
    max_bytes: int = MAX_PAGE_BYTES,
    report_progress: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write figures, tables, scores and ``index.html`` into a folder, which is created, and return their paths.

    If the page would be larger than ``max_bytes``, it contains fewer images. A weight A is stored as ``round(255 A /
    s)``, with s the largest weight of its row (rounded up to a multiple of 1/65535). The page computes its views from
    the stored weights.
    """
    report_progress("figures and page")
    networks, names = inspection.networks, [network.name for network in inspection.networks]
    count = min([len(inspection.images.data), *(len(n.attention.logits) for n in networks if n.attention is not None)])
    data = _page_data(inspection, count)
    packed = _pack(networks, count, CONTENT_SHARE * max_bytes - len(json.dumps(data)))
    if len(packed) < count:
        data = _page_data(inspection, len(packed))
    weights = {f"w{number}-{index}": text for index, image in enumerate(packed) for number, (text, _) in image.items()}
    title = f"{join_names(names)}: important image regions"
    page = Page(title, styles=assign_styles(names), assets=("explorer.css", "explorer.js"))
    page.template("explorer.html", weights=weights, data=data, lines=inspection.lines)
    max_error = max([0.0, *(error for image in packed for _, error in image.values())])
    page.template("about_maps.html")
    page.text(_page_limits(inspection, len(packed), max_error), note=True)
    if not inspection.scores.empty:
        page.heading("Tests of the maps")
        for table in score_tables(inspection.scores):
            page.table(table)
        for legend in score_legends(inspection.scores):
            page.text(legend, note=True)
        page.files["scores.csv"] = inspection.scores.to_csv(index=False, lineterminator="\n")
    page.heading("Maps side by side")
    caption = "Maps over images: blue for the smallest value of a map, yellow for the largest."
    page.picture(overlay_figure(inspection.images, networks), caption, "sheet_0", ["png"])
    return page.write(folder)


def with_display_names(networks: Sequence[TrainedNetwork]) -> Sequence[TrainedNetwork]:
    """The networks with the display names of their models, as in the report, if these differ."""
    names = [
        display_name(network.origin.model) if network.origin and network.origin.name == network.name else network.name
        for network in networks
    ]
    is_distinct = len({*names}) == len(names)
    return [replace(one, name=name) for one, name in zip(networks, names, strict=True)] if is_distinct else networks


def print_scores(inspection: Inspection) -> None:
    """Print the scores, if there are any, in a terminal, which shows some of their columns only."""
    if not (scores := inspection.scores).empty:
        print_tables(score_tables(scores), score_legends(scores), style="dim")


def score_tables(scores: pandas.DataFrame) -> list[Table]:
    """Two tables for each network, without the columns of other networks."""
    tables = []
    for name, of_network in scores.groupby("network", sort=False):
        rows = of_network.dropna(axis=1, how="all")
        tables += [score_table(str(name), rows), randomization_table(str(name), rows)]
    return tables


def score_legends(scores: pandas.DataFrame) -> list[str]:
    tests = int(scores.filter(regex="_p_holm$").count().sum())
    images = min(MAX_RANDOMIZATION_IMAGES, scores["images"].min())
    return [
        f"Deletion, insertion: relative to the mean of {NUM_RANDOM_MAPS} random maps (the row random is another random "
        "map); larger is better. Pointing, mass, rank: share on the object; chance is the area of the object. "
        "Intervals are 95 %. A star needs two things. The score is significantly above chance and above the centre "
        f"map, in deletion and in insertion with the same replacement: p < {SCORE_ERROR_RATE} after Holm's correction "
        f"for all {tests} tests of measures, methods and networks. The maps change if the head is shuffled: the mean "
        "rank correlation is below 0.5.",
        "Rank correlation (Spearman) with the maps of the same network with shuffled weights, from the head to the "
        f"input: mean and standard deviation over {NUM_SHUFFLES} shuffles of the weights, on {images} images. Values "
        "near 0 are good; ! marks an absolute value of at least 0.5 in any shuffle: the map may not show what was "
        "learned. class-agnostic: the map does not depend on the head. constant: the map has one value everywhere.",
    ]


def score_table(name: str, rows: pandas.DataFrame) -> Table:
    """Table of all measures with their intervals; a terminal shows deletion with one fill value only."""
    measures = [str(column).removesuffix("_p") for column in rows if str(column).endswith("_p")]
    columns = ["method", *(measure.replace("_", "\n") for measure in measures)]
    lines = [[row["method"], *(_score(row, measure) for measure in measures)] for row in rows.to_dict("records")]
    page_only_columns = frozenset(column for column in columns if column.endswith(("\nblur", "\nnoise")))
    return Table(f"{name}: {rows['images'].iloc[0]:,} images", columns, lines, page_only_columns=page_only_columns)


def randomization_table(name: str, rows: pandas.DataFrame) -> Table:
    """Table of the rank correlation of each method's maps by stage; a terminal shows the first and the last stage."""
    stages = stage_columns(rows)
    titles = [stage.removeprefix("sanity_").replace("_to_", " to\n", 1) for stage in stages]
    titles[0] = f"{titles[0]} alone" if titles[0] != STAGE_ALL_WEIGHTS else titles[0]
    lines = [
        [row["method"], *(_correlation(row, stage, is_first=stage is stages[0]) for stage in stages)]
        for row in rows.to_dict("records")
    ]
    return Table(f"{name}: shuffled weights", ["method", *titles], lines, page_only_columns=frozenset(titles[1:-1]))


def _correlation(row: Mapping[Hashable, Any], stage: str, *, is_first: bool) -> str:
    """Mean and standard deviation, or the reason for a missing number."""
    mean, deviation, largest = (row.get(f"{stage}{suffix}", math.nan) for suffix in ("", "_sd", "_max"))
    if is_first and not stage.endswith(STAGE_ALL_WEIGHTS) and not row["class_specific"] and mean == 1:
        return "class-agnostic"
    if math.isnan(mean):
        return "constant"
    spread = "" if math.isnan(deviation) else f" ± {deviation:.2f}"
    is_unchanged = largest >= MAX_CORRELATION_OF_SENSITIVE_MAP and row["method"] not in BASELINE_METHODS
    return f"{mean:z.2f}{spread}{' !' * is_unchanged}"


def _score(row: Mapping[Hashable, Any], measure: str) -> str:
    """Value with its interval, and a star if the method passes the tests (``has_star``)."""
    value, low, high = (f"{row[f'{measure}{suffix}']:z.2f}" for suffix in ("", "_low", "_high"))
    return f"{value}{'*' if has_star(row, measure) else ' '}\n{low},{high}"


def compress_weights(weights: Sequence[Float[Tensor, "heads tokens tokens"]]) -> tuple[bytes, float]:
    """Compressed weights of all layers for one image, and the largest rounding error.

    The bytes are the largest weights of all rows (two bytes each, little-endian), then one byte for each weight, both
    layer by layer; zlib compresses them.
    """
    scales, bytes_, error = [], [], 0.0
    for layer in weights:
        values = layer.detach().cpu().double().clamp_min(0.0).numpy()
        scale = np.ceil(np.round(values.max(axis=-1) * SCALE_STEPS, 6)).clip(1, SCALE_STEPS)
        rounded = np.rint(WEIGHT_STEPS * values * SCALE_STEPS / scale[..., None]).clip(0, WEIGHT_STEPS)
        error = max(error, float(np.abs(rounded / WEIGHT_STEPS * scale[..., None] / SCALE_STEPS - values).max()))
        scales.append(scale.astype("<u2").tobytes())
        bytes_.append(rounded.astype(np.uint8).tobytes())
    return zlib.compress(b"".join([*scales, *bytes_]), 9), error


def _pack(networks: Sequence[NetworkInspection], count: int, room: float) -> list[_Packed]:
    """Encoded weights of as many images as fit into ``room`` bytes, at least one."""
    packed: list[_Packed] = []
    for index in range(count):
        image: _Packed = {}
        for number, network in enumerate(networks):
            if network.attention is not None:
                data, error = compress_weights([layer[index] for layer in network.attention.weights])
                image[number] = _base64(data), error
        room -= sum(len(text) + 60 for text, _ in image.values())
        if packed and room < 0:
            break
        packed.append(image)
    return packed


def _page_data(inspection: Inspection, count: int) -> dict[str, Any]:
    """Data of the interactive page for the first images, except attention weights."""
    images = inspection.images
    rows, cols = images.data.images.shape[2:]
    labels = [images.label(index) for index in range(count)]
    pictures = [
        {"name": name, "label": label, "size": [rows, cols], "src": _picture(images.data.images[index])}
        for index, (name, label) in enumerate(zip(images.data.sample_ids, labels, strict=False))
    ]
    colours = {name: np.rint(255 * mpl.colormaps[name](np.linspace(0, 1, 256))[:, :3]) for name in COLOUR_MAPS}
    return {
        "images": pictures,
        "models": [_network_data(network, images.data.class_names, labels) for network in inspection.networks],
        "levels": WEIGHT_STEPS,
        "scales": SCALE_STEPS,
        "rollout": get_method("rollout").description,
        "colours": {name: _base64(values.astype(np.uint8).tobytes()) for name, values in colours.items()},
    }


def _network_data(
    network: NetworkInspection, class_names: Sequence[str], labels: Sequence[str | None]
) -> dict[str, Any]:
    """Predictions, shape of the attention weights, maps and their scores for images with these labels."""
    count, attention, weights = len(labels), network.attention, None
    if attention is not None:
        query = attention.query[:count].double().cpu()
        same = bool((query == query[:1]).all())  # then the pooled tokens are stored once
        weights = {
            "grid": list(attention.grid_size),
            "extra": attention.num_prefix_tokens,
            "heads": [layer.shape[1] for layer in attention.weights],
            "query": [[round(share, 7) for share in row] for row in (query[:1] if same else query).tolist()],
        }
    says = []
    for index, (predicted, label) in enumerate(zip(network.predicted.tolist(), labels, strict=False)):
        name, share = class_names[predicted], round(float(network.probabilities[index, predicted]), 4)
        says.append({"class": name, "share": share, "right": None if label is None else label == name})
    computed, stored = {}, []
    for maps in network.methods:
        relative = torch.tensor([maps.relative_deletion(index) for index in range(count)])
        columns = (maps.deletion[:count].cpu(), maps.random_deletion[:count].cpu(), relative)
        scores = [[round(value, 3) for value in row] for row in torch.stack(columns, dim=1).tolist()]
        method = maps.method
        if attention is not None and method.name in METHODS_COMPUTED_ON_PAGE:
            computed[method.name] = scores
            continue
        of_method = {"method": method.name, "about": method.description, "specific": method.class_specific}
        classes = [class_names[number] for number in network.target_classes[:count].tolist()]
        stored.append({**of_method, "classes": classes, "score": scores, **_quantize(maps.maps[:count])})
    return {
        "name": network.name,
        "attention": weights,
        "says": says,
        "maps": stored,
        "scores": computed,
    }


def _quantize(maps: Float[Tensor, "images map_rows map_cols"]) -> dict[str, Any]:
    """Maps as bytes, scaled between the smallest and the largest value of each map."""
    maps = maps.float().cpu()
    if max(maps.shape[1:]) > MAX_MAP_SIZE:
        rows, cols = (min(side, MAX_MAP_SIZE) for side in maps.shape[1:])
        maps = resize_maps(maps, (rows, cols))
    low, high = maps.amin(dim=(1, 2)), maps.amax(dim=(1, 2))
    span = (high - low).clamp_min(1e-30)[:, None, None]
    levels = torch.round(255 * (maps - low[:, None, None]) / span).to(torch.uint8)
    return {
        "grid": list(maps.shape[1:]),
        "low": [float(f"{value:.6g}") for value in low],
        "high": [float(f"{value:.6g}") for value in high],
        "bytes": _base64(levels.numpy().tobytes()),
    }


def _picture(image: UInt8[Tensor, "channels rows cols"]) -> str:
    """Image as a data URL: lossless PNG if it is small, otherwise JPEG."""
    pixels = as_rgb(image)
    kind = "PNG" if max(pixels.shape[:2]) <= 64 else "JPEG"
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, quality=88)
    return f"data:image/{kind.lower()};base64,{_base64(file.getvalue())}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _page_limits(inspection: Inspection, count: int, max_error: float) -> str:
    total, networks = len(inspection.images.data), inspection.networks
    sentences = [f"The page shows {format_count(count, 'image')}."]
    if count < total:
        sentences.append(f"{total - count} more did not fit.")
    if any(network.attention is not None for network in networks):
        sentences.append(
            f"Weights are rounded to {WEIGHT_STEPS} steps between zero and the largest weight of their row; the "
            f"largest error is {max_error:.1e}. Attention is not an explanation: see the scores."
        )
    cropped = [network.name for network in networks if find_center_crop(network.network.network)]
    if cropped:
        sentences.append(
            f"The patches of {join_names(cropped)} cover the middle of an image, but are drawn over all of it."
        )
    return " ".join(sentences)


def overlay_figure(images: InspectedImages, networks: Sequence[NetworkInspection]) -> Figure:
    """Figure of the first images side by side; below each image the maps of all networks, with their scores."""
    rows = [(network, maps) for network in networks for maps in network.methods]
    count = min(COLUMNS, len(images.data))
    figure, axes = make_axes(1.4 * count + 0.8, 1.85 * (1 + len(rows)) + 0.2, count, 1 + len(rows), has_axes=False)
    for column, image in enumerate(images.data.images[:count]):
        pixels = as_rgb(image) / 255
        axes[column].imshow(pixels, interpolation="nearest")
        axes[column].set_title(wrap_text(images.label(column) or "class not known"), fontsize=7)
        for axis, (network, maps) in zip(axes[count + column :: count], rows, strict=True):
            axis.imshow(overlay(pixels, maps.maps[column]), interpolation="nearest")
            score = f"deletion {float(maps.deletion[column]):.2f} ({100 * maps.relative_deletion(column):+z.0f} %)"
            axis.set_title(f"{wrap_text(describe_prediction(images, network, column))}\n{score}", fontsize=6.5)
    for axis, (network, maps) in zip(axes[count::count], rows, strict=True):
        axis.set_ylabel(f"{wrap_text(network.name)}\n{wrap_text(maps.label)}", fontsize=7)
    return figure


def describe_prediction(images: InspectedImages, network: NetworkInspection, index: int) -> str:
    """Text with the predicted class, its probability, and whether it is right."""
    predicted, label = int(network.predicted[index]), images.label(index)
    name = images.data.class_names[predicted]
    right = "" if label is None else " (right)" if label == name else " (wrong)"
    return f"{name} {100 * network.probabilities[index, predicted]:.0f} %{right}"


def overlay(pixels: Float[np.ndarray, "rows cols 3"], values: Tensor) -> Float[np.ndarray, "rows cols 3"]:
    """Map over the grey image, scaled from its smallest to its largest value; larger values are more opaque."""
    heat = resize_maps(values[None].float(), (pixels.shape[0], pixels.shape[1]))[0].cpu().numpy()
    heat = (heat - heat.min()) / max(heat.max() - heat.min(), 1e-30)
    grey = np.repeat(pixels @ np.array([[0.299], [0.587], [0.114]]), 3, axis=2)
    low, high = OVERLAY_OPACITY_RANGE
    opacity = (low + (high - low) * heat)[..., None]
    return np.clip((1 - opacity) * grey + opacity * mpl.colormaps[COLOUR_MAP](heat)[..., :3], 0, 1)
