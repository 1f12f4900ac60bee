"""Pictures with maps over them: cards of one image, sheets of several, the strip and the GIF of a training."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image
from torch import Tensor

from vit_vs_cnn.experiments.inspection_maps import MethodMaps, NetworkMaps
from vit_vs_cnn.experiments.inspection_subjects import ShownImages
from vit_vs_cnn.inspection.saliency import resize_maps
from vit_vs_cnn.reporting.heatmaps import COLOUR_MAP

#: Images beside each other on a sheet.
COLUMNS = 8
#: Maps beside each other on a card; more go below.
ABREAST = 6
#: How much of an overlay is the map, where it is least and where it is greatest: the image stays to be seen.
OPACITY = (0.2, 0.75)
#: Letters that fit over a picture of a card.
LETTERS = 24
#: Side of a picture in the GIF of training, in pixels.
FRAME = 128


def card(shown: ShownImages, networks: Sequence[NetworkMaps], index: int) -> Figure:
    """One image, and beside it of every network what it says and of every method overlay, map and score."""
    found = [(network, maps) for network in networks for maps in network.methods]
    bands = [found[first : first + ABREAST] for first in range(0, len(found), ABREAST)]
    columns = 1 + max(len(band) for band in bands)
    figure = Figure(figsize=(1.36 * columns, 3.62 * len(bands) - 0.1), layout=_tight())
    axes = figure.subplots(2 * len(bands), columns, squeeze=False)
    pixels = _pixels(shown.data.images[index])
    for axis in axes.flat:
        axis.set_axis_off()
    _picture(axes[0, 0], pixels)
    _legend(axes[1, 0])
    for number, band in enumerate(bands):
        for column, (network, maps) in enumerate(band, start=1):
            overlay, plain = axes[2 * number, column], axes[2 * number + 1, column]
            _overlay(overlay, pixels, maps.maps[index])
            _map(plain, maps.maps[index], pixels.shape[:2])
            first = column == 1 or network is not band[column - 2][0]
            _head(overlay, shown, network, index, maps.label, first=first)
            lines = [*_score_lines(maps, index), _wrapped(asked_for(shown, network, index).strip())]
            plain.set_xlabel("\n".join(filter(None, lines)), fontsize=7, loc="left", parse_math=False)
    label = shown.label(index)
    name = f"{shown.data.sample_ids[index]}: {'class not known' if label is None else label}"
    figure.suptitle(name, fontsize=8, x=0.01, ha="left", parse_math=False)
    return figure


def card_width(networks: Sequence[NetworkMaps]) -> int:
    """CSS pixels that a card takes for its text to be read."""
    return 115 * (1 + min(ABREAST, sum(len(network.methods) for network in networks)))


def overlay_sheet(shown: ShownImages, networks: Sequence[NetworkMaps], indices: Sequence[int]) -> Figure:
    """Images side by side; below each of them the overlay of every network and method, with what it says."""
    rows = [(network, maps) for network in networks for maps in network.methods]
    figure = Figure(figsize=(1.4 * len(indices) + 0.1, 2.16 * len(rows) + 1.75), layout=_tight())
    axes = figure.subplots(1 + len(rows), len(indices), squeeze=False)
    for column, index in enumerate(indices):
        pixels = _pixels(shown.data.images[index])
        _picture(axes[0, column], pixels)
        label = shown.label(index) or "class not known"
        axes[0, column].set_title(_wrapped(label), fontsize=7, loc="left", fontweight="bold", parse_math=False)
        for axis, (network, maps) in zip(axes[1:, column], rows, strict=True):
            _overlay(axis, pixels, maps.maps[index])
            lines = [_wrapped(says(shown, network, index)), *_score_lines(maps, index)]
            lines.append(_wrapped(asked_for(shown, network, index).strip()))
            axis.set_xlabel("\n".join(filter(None, lines)), fontsize=6.5, loc="left", parse_math=False)
    for axis, (network, maps) in zip(axes[1:, 0], rows, strict=True):
        axis.set_title(f"{network.run.name}: {maps.label}", fontsize=7.5, loc="left", fontweight="bold")
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
    return f"deletion {own:.2f} ({maps.faster(index):+.0%}), random {chance:.2f}"


def asked_for(shown: ShownImages, network: NetworkMaps, index: int) -> str:
    """ " for CLASS", where maps and scores are not for the class that the network says."""
    asked = int(network.classes[index])
    return "" if asked == int(network.predicted[index]) else f" for {shown.data.class_names[asked]}"


def _head(axis: Axes, shown: ShownImages, network: NetworkMaps, index: int, method: str, *, first: bool) -> None:
    """The network and what it says over the first of its maps, and the method over each."""
    lines = [_wrapped(network.run.name), _wrapped(says(shown, network, index))] if first else ["", ""]
    axis.set_title("\n".join([*lines, _wrapped(method)]), fontsize=7, loc="left", parse_math=False)


def _score_lines(maps: MethodMaps, index: int) -> list[str]:
    """``score_line`` in two."""
    own, chance = score_line(maps, index).split(", ")
    return [own, chance]


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, LETTERS, break_on_hyphens=False))


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
        label = _wrapped(shown.label(column) or "class not known")
        axes[0, column].set_title(label, fontsize=7, parse_math=False)
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


def _pixels(image: Tensor) -> Float[np.ndarray, "rows cols 3"]:
    """From bytes to what a figure draws: three channels from 0 to 1."""
    colours = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    return colours.permute(1, 2, 0).numpy() / 255


def _picture(axis: Axes, pixels: np.ndarray) -> None:
    axis.imshow(pixels, interpolation="nearest")
    _bare(axis)


def _map(axis: Axes, values: Tensor, size: tuple[int, int]) -> None:
    """The map on its own grid, stretched over the image."""
    extent = (-0.5, size[1] - 0.5, size[0] - 0.5, -0.5)
    axis.imshow(values.cpu().numpy(), cmap=COLOUR_MAP, interpolation="nearest", extent=extent)
    _bare(axis)


def _legend(axis: Axes) -> None:
    """What the colours of a map are."""
    inside = axis.inset_axes((0.0, 0.8, 1.0, 0.1))
    inside.imshow(np.linspace(0, 1, 256)[None], cmap=COLOUR_MAP, aspect="auto")
    _bare(inside)
    inside.set_xticks([0, 255], ["least", "greatest"], fontsize=7)
    inside.tick_params(length=0, pad=2)
    for label, side in zip(inside.get_xticklabels(), ("left", "right"), strict=True):
        label.set_horizontalalignment(side)


def _bare(axis: Axes) -> None:
    axis.set_axis_on()
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)


def _overlay(axis: Axes, pixels: np.ndarray, values: Tensor) -> None:
    _picture(axis, _blended(pixels, values))


def _blended(pixels: np.ndarray, values: Tensor) -> Float[np.ndarray, "rows cols 3"]:
    """The map, from its least to its greatest value, over the image without its colours: the more, the denser."""
    size = (pixels.shape[0], pixels.shape[1])
    heat = resize_maps(values[None].float(), size)[0].cpu().numpy()
    span = heat.max() - heat.min()
    scaled = (heat - heat.min()) / span if span > 0 else np.zeros_like(heat)
    grey = np.repeat(pixels @ np.array([[0.299], [0.587], [0.114]]), 3, axis=2)
    share = (OPACITY[0] + (OPACITY[1] - OPACITY[0]) * scaled)[..., None]
    return np.clip((1 - share) * grey + share * mpl.colormaps[COLOUR_MAP](scaled)[..., :3], 0, 1)


def _tight() -> ConstrainedLayoutEngine:
    """Little room between pictures, and enough for what stands over and under them."""
    return ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.04)
