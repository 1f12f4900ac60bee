"""Figures of an inspection: maps over images, heads, attention distances."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from vit_vs_cnn.inspection.inspect import InspectedImages, NetworkInspection
from vit_vs_cnn.inspection.locality.measures import attention_distance, uniform_distance
from vit_vs_cnn.inspection.saliency import resize_maps
from vit_vs_cnn.models.input_wrappers import visible_size
from vit_vs_cnn.reporting.figures.drawing import Drawing, as_rgb, make_axes, plot_distances, wrap_text
from vit_vs_cnn.reporting.style import COLOUR_MAP, assign_styles

#: Number of images side by side.
COLUMNS = 8
#: Opacity of a map over an image at the smallest and at the largest value of the map.
OVERLAY_OPACITY_RANGE = (0.2, 0.75)


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


def head_grid(network: NetworkInspection, title: str) -> Figure:
    """Attention of each head of each layer to the patches of the first image, averaged over the pooled tokens."""
    attention = network.attention
    assert attention is not None, "of networks with attention"
    rows, cols = attention.grid_size
    gap = max(1, round(0.06 * min(rows, cols)))
    layers, heads = len(attention.weights), max(layer.shape[1] for layer in attention.weights)
    sheet = np.full((layers * (rows + gap) - gap, heads * (cols + gap) - gap), np.nan)
    for down, layer in enumerate(attention.weights):
        maps = torch.einsum("q,hqk->hk", attention.query[0].to(layer), layer[0])[:, attention.extra_tokens :]
        for right, tile in enumerate(maps.unflatten(1, attention.grid_size)):
            y, x = down * (rows + gap), right * (cols + gap)
            sheet[y : y + rows, x : x + cols] = tile.detach().float().cpu().numpy()
    width = min(12.0, max(5.0, 0.75 * heads + 1.4))
    figure = Drawing(figsize=(width, (width - 1.4) * sheet.shape[0] / sheet.shape[1] + 0.8), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(sheet, cmap=COLOUR_MAP, vmin=0.0, interpolation="nearest")
    for count, side, set_ticks in ((layers, rows, axis.set_yticks), (heads, cols, axis.set_xticks)):
        ticks = [i * (side + gap) + side / 2 - 0.5 for i in range(count)]
        set_ticks(ticks, list(map(str, range(1, count + 1))), fontsize=8)
    axis.set(ylabel="layer", xlabel="head")
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    colours = figure.colorbar(image, ax=axis, shrink=0.8, pad=0.02)
    colours.set_label("mean weight of a patch", fontsize=8)
    colours.ax.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def distances_by_depth(networks: Sequence[NetworkInspection], image_size: tuple[int, int]) -> Figure:
    """Mean attention distance of every head in pixels by layer, and that of uniform attention."""
    figure, (axis,) = make_axes(6.4, 3.5)
    styles = assign_styles([network.name for network in networks])
    uniform: dict[float, str] = {}  # distance: colour; one line for networks with the same grid
    for network in networks:
        attention, style = network.attention, styles[network.name]
        assert attention is not None, "of networks with attention"
        rows, cols = visible_size(network.network.network, image_size)
        patch = (rows / attention.grid_size[0], cols / attention.grid_size[1])
        options = {"extra_tokens": attention.extra_tokens}
        heads = [attention_distance(layer, attention.grid_size, patch, **options) for layer in attention.weights]
        of_uniform = uniform_distance(attention.grid_size, patch)
        plot_distances(axis, [layer.tolist() for layer in heads], style, f"{network.name}, mean of heads")
        uniform[of_uniform] = "0.4" if of_uniform in uniform or len(networks) == 1 else style.colour
    for distance, colour in uniform.items():
        axis.axhline(distance, ls="--", lw=1, color=colour, label="uniform attention")
    axis.set_ylim(0, 1.08 * axis.get_ylim()[1])
    axis.set_title("Mean attention distance by depth", fontsize=10)
    axis.grid(axis="y", alpha=0.3, linewidth=0.5)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=2)
    return figure
