"""Heat maps: grids of attention matrices, and maps over images."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vit_vs_cnn.inspection.inspect import InspectedImages, NetworkInspection
from vit_vs_cnn.inspection.saliency import resize_maps
from vit_vs_cnn.reporting.figures.drawing import Drawing, as_rgb, make_axes, wrap_text
from vit_vs_cnn.reporting.style import COLOUR_MAP

#: Number of images side by side.
COLUMNS = 8
#: Opacity of a map over an image at the smallest and at the largest value of the map.
OVERLAY_OPACITY_RANGE = (0.2, 0.75)


def attention_heatmaps(
    weights: Sequence[Sequence[Tensor]] | Tensor,
    *,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    title: str | None = None,
    axis_labels: tuple[str, str] = ("queries", "keys"),
    bar_label: str = "attention weight",
    limits: tuple[float, float] | None = None,
    cell_size: float = 1.9,
) -> Drawing:
    """Grid of attention matrices with one colour scale; rows are queries, columns are keys.

    Arguments:
        weights: ``weights[row][column]`` is a matrix ``(queries, keys)``; for the heads of every layer, ``(layers,
            heads, queries, keys)``. The matrices may differ in size.
        axis_labels: labels of the query axis and of the key axis.
        limits: limits of the colour scale; from zero (or the smallest value if negative) to the largest value if None.
        cell_size: size of a matrix in inches.
    """
    grid = [[np.asarray(torch.as_tensor(matrix).detach().cpu().float()) for matrix in row] for row in weights]
    rows, columns = len(grid), len(grid[0])
    if limits is None:
        low, high = (end([float(end(matrix)) for row in grid for matrix in row]) for end in (np.min, np.max))
        low = min(low, 0.0)
        limits = low, high if high > low else low + 1.0
    figure = Drawing(figsize=(cell_size * columns + 1.5, cell_size * rows + 0.9), layout="compressed")
    axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    image = None
    for row, column in np.ndindex(rows, columns):
        axis = axes[row * columns + column]
        image = axis.imshow(grid[row][column], cmap=COLOUR_MAP, vmin=limits[0], vmax=limits[1], interpolation="nearest")
        axis.tick_params(labelsize=7, length=2)
        axis.locator_params(integer=True, nbins=4)
        if column_labels is not None and row == 0:
            axis.set_title(column_labels[column], fontsize=9)
        if column == 0:
            label = "\n".join(filter(None, [row_labels[row] if row_labels else "", axis_labels[0]]))
            axis.set_ylabel(label, fontsize=9)
        if row == rows - 1:
            axis.set_xlabel(axis_labels[1], fontsize=9)
    assert image is not None
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=12 * rows, pad=0.02)
    bar.set_label(bar_label, fontsize=9)
    bar.ax.tick_params(labelsize=7)
    if title is not None:
        figure.suptitle(title, fontsize=11)
    return figure


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
            score = f"deletion {float(maps.deletion[column]):.2f} ({maps.relative_deletion(column):+.0%})"
            axis.set_title(f"{wrap_text(describe_prediction(images, network, column))}\n{score}", fontsize=6.5)
    for axis, (network, maps) in zip(axes[count::count], rows, strict=True):
        axis.set_ylabel(f"{wrap_text(network.name)}\n{wrap_text(maps.label)}", fontsize=7)
    return figure


def describe_prediction(images: InspectedImages, network: NetworkInspection, index: int) -> str:
    """Text with the predicted class, its probability, and whether it is right."""
    predicted, label = int(network.predicted[index]), images.label(index)
    name = images.data.class_names[predicted]
    right = "" if label is None else " (right)" if label == name else " (wrong)"
    return f"{name} {network.probabilities[index, predicted]:.0%}{right}"


def overlay(pixels: Float[np.ndarray, "rows cols 3"], values: Tensor) -> Float[np.ndarray, "rows cols 3"]:
    """Map over the grey image, scaled from its smallest to its largest value; larger values are more opaque."""
    heat = resize_maps(values[None].float(), (pixels.shape[0], pixels.shape[1]))[0].cpu().numpy()
    heat = (heat - heat.min()) / max(heat.max() - heat.min(), 1e-30)
    grey = np.repeat(pixels @ np.array([[0.299], [0.587], [0.114]]), 3, axis=2)
    low, high = OVERLAY_OPACITY_RANGE
    opacity = (low + (high - low) * heat)[..., None]
    return np.clip((1 - opacity) * grey + opacity * mpl.colormaps[COLOUR_MAP](heat)[..., :3], 0, 1)
