"""Figures of what networks look at: pictures with maps, heads by layers, distances, positions, filters, training."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

from vit_vs_cnn.attention.positions import position_similarity
from vit_vs_cnn.experiments.inspection_maps import MethodMaps, NetworkMaps
from vit_vs_cnn.experiments.inspection_subjects import ShownImages
from vit_vs_cnn.inspection.attention_weights import AttentionMaps
from vit_vs_cnn.inspection.locality.distance import attention_distance, uniform_distance
from vit_vs_cnn.inspection.saliency import resize_maps
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.reporting.attention_figures import COLOURS
from vit_vs_cnn.reporting.heatmaps import COLOUR_MAP

#: Images beside each other on a sheet.
COLUMNS = 8
OPACITY = 0.6
#: Filters drawn at most, the largest first; principal components of patch filters.
FILTERS, COMPONENTS = 64, 28
#: Side of a picture in the strip and the GIF of training, in pixels.
FRAME = 128


def card(shown: ShownImages, networks: Sequence[NetworkMaps], index: int) -> Figure:
    """One image: of every network what it says, and of every method map, overlay and score."""
    rows = [(network, maps) for network in networks for maps in network.methods]
    figure = Figure(figsize=(5.0, 1.62 * len(rows) + 0.3), layout="constrained")
    axes = figure.subplots(len(rows), 3, squeeze=False)
    pixels = _pixels(shown.data.images[index])
    for (image, plain, overlay), (network, maps) in zip(axes, rows, strict=True):
        _picture(image, pixels)
        _map(plain, maps.maps[index], pixels.shape[:2])
        _overlay(overlay, pixels, maps.maps[index])
        image.set_title(network.run.name, fontsize=7, loc="left", fontweight="bold")
        image.set_xlabel(says(shown, network, index), fontsize=7, loc="left")
        plain.set_title(maps.label, fontsize=7, loc="left")
        plain.set_xlabel(score_line(maps, index), fontsize=7, loc="left")
    label = shown.label(index)
    figure.suptitle(
        f"{shown.data.sample_ids[index]}: {'class not known' if label is None else label}",
        fontsize=8,
        x=0.01,
        ha="left",
    )
    return figure


def overlay_sheet(shown: ShownImages, networks: Sequence[NetworkMaps], indices: Sequence[int]) -> Figure:
    """Images side by side; below each of them the overlay of every network and method, with what it says."""
    rows = [(network, maps) for network in networks for maps in network.methods]
    figure = Figure(figsize=(1.32 * len(indices) + 0.5, 1.75 * len(rows) + 1.5), layout="constrained")
    axes = figure.subplots(1 + len(rows), len(indices), squeeze=False)
    for column, index in enumerate(indices):
        pixels = _pixels(shown.data.images[index])
        _picture(axes[0, column], pixels)
        axes[0, column].set_title(shown.label(index) or "class not known", fontsize=7, loc="left", fontweight="bold")
        for axis, (network, maps) in zip(axes[1:, column], rows, strict=True):
            _overlay(axis, pixels, maps.maps[index])
            lines = [says(shown, network, index), score_line(maps, index).replace(", ", "\n")]
            axis.set_xlabel("\n".join(lines), fontsize=5.5, loc="left")
    for axis, (network, maps) in zip(axes[1:, 0], rows, strict=True):
        axis.set_title(f"{network.run.name}: {maps.label}", fontsize=7, loc="left", fontweight="bold")
    return figure


def says(shown: ShownImages, network: NetworkMaps, index: int) -> str:
    """What a network says of an image, how surely, and whether that is right."""
    predicted = int(network.predicted[index])
    label = shown.label(index)
    name = shown.data.class_names[predicted]
    right = "" if label is None else " (right)" if label == name else " (wrong)"
    return f"says {name} {network.probabilities[index, predicted]:.0%}{right}"


def score_line(maps: MethodMaps, index: int) -> str:
    """The score that is printed on a picture."""
    own, chance = float(maps.deletion[index]), float(maps.chance[index])
    return f"deletion {own:.2f}, random {chance:.2f} ({maps.faster(index):+.0%})"


def head_grid(attention: AttentionMaps, index: int, title: str) -> Figure:
    """What each head of each layer gives to the patches on the way to what the classifier reads, for one image."""
    maps = [
        torch.einsum("q,hqk->hk", attention.query[index].to(layer), layer[index])[
            :, attention.extra_tokens :
        ].unflatten(1, attention.grid_size)
        for layer in attention.weights
    ]
    return _mosaic(maps, title, "mean weight that a patch is given")


def weight_grid(attention: AttentionMaps, title: str) -> Figure:
    """The weights of each head of each layer, the mean over the images: queries downwards, keys to the right."""
    return _mosaic([layer.mean(dim=0) for layer in attention.weights], title, "mean attention weight")


def distances_by_depth(networks: Sequence[NetworkMaps], image_size: tuple[int, int]) -> Figure:
    """Mean attention distance of every head in pixels by layer, and that of attention which sees all alike."""
    figure = Figure(figsize=(6.4, 3.5), layout="constrained")
    axis = figure.subplots()
    for number, network in enumerate(networks):
        attention, colour = network.attention, COLOURS[number % len(COLOURS)]
        assert attention is not None, "of networks with attention"
        patch = (image_size[0] // attention.grid_size[0], image_size[1] // attention.grid_size[1])
        place = {"grid_size": attention.grid_size, "patch_size": patch, "extra_tokens": attention.extra_tokens}
        heads = [attention_distance(layer, **place) for layer in attention.weights]
        for layer, distances in enumerate(heads):
            axis.plot([layer] * len(distances), distances, "osD^"[number % 4], color=colour, alpha=0.45, ms=4)
        axis.plot([float(d.mean()) for d in heads], "-", color=colour, label=f"{network.run.name}, mean of heads")
        axis.axhline(
            uniform_distance(attention.grid_size, patch), ls="--", lw=1, color=colour, label="attends to all alike"
        )
        axis.set_xticks(range(len(heads)))
    axis.set(xlabel="layer", ylabel="distance in pixels", title="Mean attention distance by depth")
    axis.set_ylim(0, 1.08 * axis.get_ylim()[1])
    axis.title.set_fontsize(10)
    axis.grid(axis="y", alpha=0.3, linewidth=0.5)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=2)
    return figure


def position_figure(network: nn.Module, title: str) -> Figure | None:
    """Cosine similarity of each patch's position with all others'; None where no position is added to the tokens."""
    found = _position(network)
    if found is None:
        return None
    encoding, grid_size = found
    similarity = position_similarity(encoding, grid_size)
    return _mosaic(list(similarity), title, "cosine similarity", names=("row", "column"), low=float(similarity.min()))


def filter_figure(network: nn.Module, title: str) -> Figure | None:
    """What the first layer looks for, in colours: the principal components of the filters of patches, or the
    convolution's own, the largest first; None where the network starts otherwise.

    Reference: Dosovitskiy et al. 2021, figure 7 (left).
    Differs: the filters of a convolution are drawn as they are.
    """
    filters = _first_filters(network)
    if filters is None or filters.shape[1] not in (1, 3):
        return None
    few = filters.shape[2] * filters.shape[3] <= 9
    drawn = filters if few else _components(filters)
    order = drawn.flatten(1).norm(dim=1).argsort(descending=True)[:FILTERS] if few else torch.arange(len(drawn))
    drawn = drawn[order]
    drawn = 0.5 + 0.5 * drawn / drawn.flatten(1).abs().amax(dim=1).clamp_min(1e-12)[:, None, None, None]
    columns = min(len(drawn), 14 if not few else 16)
    rows = -(-len(drawn) // columns)
    figure = Figure(figsize=(0.55 * columns + 0.2, 0.55 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, one in zip(axes.flat, drawn, strict=False):
        axis.imshow(one.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    what = "filters" if few else f"first principal components of {len(filters)} filters"
    figure.suptitle(f"{title}: {len(drawn)} {what}", fontsize=9)
    return figure


def training_strip(
    shown: ShownImages, stages: Sequence[tuple[int, Float[Tensor, "images map_rows map_cols"]]], title: str
) -> Figure:
    """Overlays at the states of a run, one below the image for each step."""
    count = min(COLUMNS, len(shown.data))
    figure = Figure(figsize=(1.2 * count + 0.8, 1.22 * (1 + len(stages)) + 0.5), layout="constrained")
    axes = figure.subplots(1 + len(stages), count, squeeze=False)
    for column in range(count):
        pixels = _pixels(shown.data.images[column])
        _picture(axes[0, column], pixels)
        axes[0, column].set_title(shown.label(column) or "class not known", fontsize=7)
        for axis, (step, maps) in zip(axes[1:, column], stages, strict=True):
            _overlay(axis, pixels, maps[column])
            if column == 0:
                axis.set_ylabel(f"step {step:,}", fontsize=7)
    figure.suptitle(title, fontsize=9)
    return figure


def write_training_gif(
    shown: ShownImages, stages: Sequence[tuple[int, Float[Tensor, "images map_rows map_cols"]]], path: Path
) -> Path:
    """The overlays of a run as a moving picture: images side by side, a frame for each state, a bar for the step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count, last = min(COLUMNS, len(shown.data)), max(step for step, _ in stages)
    frames = []
    for step, maps in stages:
        tiles = [_blended(_pixels(shown.data.images[i]), maps[i]) for i in range(count)]
        row = np.concatenate([np.asarray(_enlarged(tile)) for tile in tiles], axis=1)
        bar = np.full((6, row.shape[1], 3), 255, dtype=np.uint8)
        bar[:, : round(row.shape[1] * step / max(last, 1))] = (0, 114, 178)
        frames.append(Image.fromarray(np.concatenate([row, bar])))
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=[700] * (len(frames) - 1) + [2000], loop=0)
    return path


def _enlarged(tile: Float[np.ndarray, "rows cols 3"]) -> Image.Image:
    image = Image.fromarray(np.rint(255 * tile).astype(np.uint8))
    return image.resize((FRAME, round(FRAME * image.height / image.width)), Image.Resampling.NEAREST)


def _mosaic(
    maps: Sequence[Tensor], title: str, bar: str, *, names: tuple[str, str] = ("layer", "head"), low: float = 0.0
) -> Figure:
    """Maps as tiles under one colour scale: ``maps[row]`` is (tiles, rows, cols), all of one size."""
    rows, cols = maps[0].shape[1:]
    gap = max(1, round(0.06 * min(rows, cols)))
    columns = max(len(row) for row in maps)
    sheet = np.full((len(maps) * (rows + gap) - gap, columns * (cols + gap) - gap), np.nan)
    for down, row in enumerate(maps):
        for right, tile in enumerate(row):
            y, x = down * (rows + gap), right * (cols + gap)
            sheet[y : y + rows, x : x + cols] = tile.detach().float().cpu().numpy()
    width = min(12.0, max(5.0, 0.75 * columns + 1.4))
    figure = Figure(figsize=(width, (width - 1.4) * sheet.shape[0] / sheet.shape[1] + 0.8), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(sheet, cmap=COLOUR_MAP, vmin=low, interpolation="nearest")
    axis.set_yticks(
        [i * (rows + gap) + rows / 2 - 0.5 for i in range(len(maps))], [str(i) for i in range(len(maps))], fontsize=8
    )
    axis.set_xticks(
        [i * (cols + gap) + cols / 2 - 0.5 for i in range(columns)], [str(i) for i in range(columns)], fontsize=8
    )
    axis.set(ylabel=names[0], xlabel=names[1])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    figure.colorbar(image, ax=axis, shrink=0.8, pad=0.02).set_label(bar, fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def _pixels(image: Tensor) -> Float[np.ndarray, "rows cols 3"]:
    """From bytes to what a figure draws: three channels from 0 to 1."""
    colours = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    return colours.permute(1, 2, 0).numpy() / 255


def _picture(axis: Axes, pixels: np.ndarray) -> None:
    axis.imshow(pixels, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)


def _map(axis: Axes, values: Tensor, size: tuple[int, int]) -> None:
    """The map on its own grid, stretched over the image."""
    extent = (-0.5, size[1] - 0.5, size[0] - 0.5, -0.5)
    axis.imshow(values.cpu().numpy(), cmap=COLOUR_MAP, interpolation="nearest", extent=extent)
    axis.set_xticks([])
    axis.set_yticks([])


def _overlay(axis: Axes, pixels: np.ndarray, values: Tensor) -> None:
    _picture(axis, _blended(pixels, values))


def _blended(pixels: np.ndarray, values: Tensor) -> Float[np.ndarray, "rows cols 3"]:
    """The map, from its least to its greatest value, over the image without its colours."""
    size = (pixels.shape[0], pixels.shape[1])
    heat = resize_maps(values[None].float(), size)[0].cpu().numpy()
    span = heat.max() - heat.min()
    scaled = (heat - heat.min()) / span if span > 0 else np.zeros_like(heat)
    grey = np.repeat(pixels @ np.array([[0.299], [0.587], [0.114]]), 3, axis=2)
    return np.clip((1 - OPACITY) * grey + OPACITY * mpl.colormaps[COLOUR_MAP](scaled)[..., :3], 0, 1)


def _position(network: nn.Module) -> tuple[Float[Tensor, "tokens dim"], tuple[int, int]] | None:
    """What is added to the patches, and their grid."""
    if isinstance(network, VisionTransformer):
        encoding = getattr(network.position, "encoding", None)
        return None if encoding is None else (encoding.detach()[network.extra_tokens :], network.grid_size)
    encoding, patches = getattr(network, "pos_embed", None), getattr(network, "patch_embed", None)
    if not isinstance(encoding, Tensor) or encoding.ndim != 3 or getattr(patches, "grid_size", None) is None:
        return None
    rows, cols = patches.grid_size  # pyright: ignore[reportOptionalMemberAccess, reportGeneralTypeIssues]
    return encoding.detach()[0, -rows * cols :], (rows, cols)


def _first_filters(network: nn.Module) -> Float[Tensor, "filters channels rows cols"] | None:
    """The weights that the pixels meet first."""
    if isinstance(network, VisionTransformer) and network.patch_embedding.stem is None:
        rows, cols = network.patch_embedding.patch_size
        weight = network.patch_embedding.projection.weight.detach()
        return rearrange(weight, "d (c y x) -> d c y x", y=rows, x=cols).cpu()
    first = next((module for module in network.modules() if isinstance(module, nn.Conv2d)), None)
    return None if first is None else first.weight.detach().cpu()


def _components(
    filters: Float[Tensor, "filters channels rows cols"],
) -> Float[Tensor, "components channels rows cols"]:
    flat = filters.flatten(1)
    _, _, directions = torch.linalg.svd(flat - flat.mean(dim=0), full_matrices=False)
    return directions[:COMPONENTS].unflatten(1, filters.shape[1:])
