"""Pictures with maps over them: cards of one image, sheets of several, the strip and the GIF of a training."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from vit_vs_cnn.inspection.look import MethodMaps, NetworkMaps
from vit_vs_cnn.inspection.runs import ShownImages
from vit_vs_cnn.inspection.saliency import resize_maps
from vit_vs_cnn.reporting.figures.board import Board, coloured, height_of, resized, scaled
from vit_vs_cnn.reporting.figures.drawing import in_colours, plain_axes, wrapped

#: Images beside each other on a sheet.
COLUMNS = 8
#: Maps beside each other on a card; more go below.
ABREAST = 6
#: How much of an overlay is the map, where it is least and where it is greatest: the image stays to be seen.
OPACITY = (0.2, 0.75)
#: Inches from one column to the next, of a card and of a sheet; between things; over the pictures of a card.
CARD_PITCH, SHEET_PITCH, GAP, TITLE = 1.36, 1.4, 0.06, 0.25
#: Points of all text but titles.
TEXT = 7.0
#: Side of a picture in the GIF of training, in pixels.
FRAME = 128


def card(shown: ShownImages, networks: Sequence[NetworkMaps], index: int) -> Figure:
    """One image, and beside it of every network what it says and of every method overlay, map and score."""
    found = [(network, maps) for network in networks for maps in network.methods]
    bands = [found[first : first + ABREAST] for first in range(0, len(found), ABREAST)]
    pixels = _pixels(shown.data.images[index])
    size = _fitted(pixels, CARD_PITCH)
    texts = [_band_texts(shown, band, index) for band in bands]
    over, under = (height_of(max(_lines(text) for band in texts for text in band[part]), TEXT) for part in (0, 1))
    band_height = over + 2 * size[1] + under + 4 * GAP
    board = Board(CARD_PITCH * (1 + max(len(band) for band in bands)), TITLE + len(bands) * band_height)
    label = shown.label(index)
    board.text(f"{shown.data.sample_ids[index]}: {'class not known' if label is None else label}", GAP, GAP, size=8.0)
    board.picture(pixels, GAP, TITLE + over, size)
    _legend(board, GAP, TITLE + over + size[1] + GAP, size[0])
    for number, (band, (heads, scores)) in enumerate(zip(bands, texts, strict=True)):
        top = TITLE + number * band_height + over
        for column, (_, maps) in enumerate(band, start=1):
            left, values = GAP + column * CARD_PITCH, maps.maps[index]
            board.text(heads[column - 1], left, top - height_of(_lines(heads[column - 1]), TEXT), size=TEXT)
            board.picture(_blended(pixels, values), left, top, size)
            board.picture(coloured(values.float().cpu().numpy()), left, top + size[1] + GAP, size)
            board.text(scores[column - 1], left, top + 2 * (size[1] + GAP), size=TEXT)
    return board.figure()


def _band_texts(
    shown: ShownImages, band: Sequence[tuple[NetworkMaps, MethodMaps]], index: int
) -> tuple[list[str], list[str]]:
    """What stands over each overlay of a band, the network over the first of its own, and under each map."""
    heads, scores = [], []
    for number, (network, maps) in enumerate(band):
        first = number == 0 or network is not band[number - 1][0]
        who = [wrapped(network.run.name), wrapped(says(shown, network, index))] if first else []
        heads.append("\n".join([*who, wrapped(maps.label)]))
        lines = [*score_parts(maps, index), wrapped(asked_for(shown, network, index).strip())]
        scores.append("\n".join(filter(None, lines)))
    return heads, scores


def card_width(networks: Sequence[NetworkMaps]) -> int:
    """CSS pixels that a card takes for its text to be read."""
    return 115 * (1 + min(ABREAST, sum(len(network.methods) for network in networks)))


def overlay_sheet(shown: ShownImages, networks: Sequence[NetworkMaps], indices: Sequence[int]) -> Figure:
    """Images side by side; below each of them the overlay of every network and method, with what it says."""
    rows = [(network, maps) for network in networks for maps in network.methods]
    pictures = [_pixels(shown.data.images[index]) for index in indices]
    sizes = [_fitted(pixels, SHEET_PITCH) for pixels in pictures]
    labels = [wrapped(shown.label(index) or "class not known") for index in indices]
    texts = [[_sheet_text(shown, network, maps, index) for index in indices] for network, maps in rows]
    tall = max(height for _, height in sizes)
    head = height_of(max(map(_lines, labels)), TEXT) + GAP
    under = height_of(max(_lines(text) for row in texts for text in row), TEXT)
    row_height = height_of(1, TEXT) + tall + under + 3 * GAP
    board = Board(SHEET_PITCH * len(indices) + 2 * GAP, head + tall + 2 * GAP + len(rows) * row_height)
    for column, (pixels, size, index) in enumerate(zip(pictures, sizes, indices, strict=True)):
        left, top = GAP + column * SHEET_PITCH, head
        board.text(labels[column], left, GAP, size=TEXT, bold=True)
        board.picture(pixels, left, top, size)
        for row, (network, maps) in enumerate(rows):
            top = head + tall + 2 * GAP + row * row_height
            if column == 0:
                board.text(f"{network.run.name}: {maps.label}", left, top, size=TEXT, bold=True)
            top += height_of(1, TEXT) + GAP
            board.picture(_blended(pixels, maps.maps[index]), left, top, size)
            board.text(texts[row][column], left, top + tall + GAP / 2, size=TEXT)
    return board.figure()


def _sheet_text(shown: ShownImages, network: NetworkMaps, maps: MethodMaps, index: int) -> str:
    lines = [wrapped(says(shown, network, index)), *score_parts(maps, index)]
    return "\n".join(filter(None, [*lines, wrapped(asked_for(shown, network, index).strip())]))


def says(shown: ShownImages, network: NetworkMaps, index: int) -> str:
    """What a network says of an image, how surely, and whether that is right."""
    predicted = int(network.predicted[index])
    label = shown.label(index)
    name = shown.data.class_names[predicted]
    right = "" if label is None else " (right)" if label == name else " (wrong)"
    return f"says {name} {network.probabilities[index, predicted]:.0%}{right}"


def score_parts(maps: MethodMaps, index: int) -> tuple[str, str]:
    """The score of deletion, and that of random order."""
    own, chance = float(maps.deletion[index]), float(maps.chance[index])
    return f"deletion {own:.2f} ({maps.faster(index):+.0%})", f"random {chance:.2f}"


def asked_for(shown: ShownImages, network: NetworkMaps, index: int) -> str:
    """ " for CLASS", where maps and scores are not for the class that the network says."""
    asked = int(network.classes[index])
    return "" if asked == int(network.predicted[index]) else f" for {shown.data.class_names[asked]}"


def training_strip(
    shown: ShownImages, stages: Sequence[tuple[int, Float[Tensor, "images map_rows map_cols"]]], title: str
) -> Figure:
    """Overlays at the states of a run, one below the image for each step."""
    count = min(COLUMNS, len(shown.data))
    figure, axes = plain_axes(1.2 * count + 0.8, 1.22 * (1 + len(stages)) + 0.5, count, 1 + len(stages), ruled=False)
    for column in range(count):
        pixels = _pixels(shown.data.images[column])
        axes[column].imshow(pixels, interpolation="nearest")
        label = wrapped(shown.label(column) or "class not known")
        axes[column].set_title(label, fontsize=7)
        for axis, (_, maps) in zip(axes[count + column :: count], stages, strict=True):
            axis.imshow(_blended(pixels, maps[column]), interpolation="nearest")
    for axis, (step, _) in zip(axes[count::count], stages, strict=True):
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
        sizes = [(FRAME, round(FRAME * tile.shape[0] / tile.shape[1])) for tile in tiles]
        row = np.concatenate([resized(*one) for one in zip(tiles, sizes, strict=True)], axis=1)
        bar = np.full((6, row.shape[1], 3), 255, dtype=np.uint8)
        bar[:, : round(row.shape[1] * step / max(last, 1))] = (0, 114, 178)
        frames.append(Image.fromarray(np.concatenate([row, bar])))
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=[700] * (len(frames) - 1) + [2000], loop=0)
    return path


def _pixels(image: Tensor) -> Float[np.ndarray, "rows cols 3"]:
    return in_colours(image) / 255


def _legend(board: Board, left: float, top: float, width: float) -> None:
    board.picture(coloured(np.linspace(0, 1, 256)[None]), left, top, (width, 0.1))
    board.text("least", left, top + 0.1 + GAP / 2, size=TEXT)
    board.text("greatest", left + width, top + 0.1 + GAP / 2, size=TEXT, right=True)


def _fitted(pixels: np.ndarray, pitch: float) -> tuple[float, float]:
    """(width, height) of a picture in a column, in inches."""
    side = pitch - GAP
    rows, cols = pixels.shape[:2]
    return (side, side * rows / cols) if cols >= rows else (side * cols / rows, side)


def _lines(text: str) -> int:
    return text.count("\n") + 1


def _blended(pixels: np.ndarray, values: Tensor) -> Float[np.ndarray, "rows cols 3"]:
    """The map, from its least to its greatest value, over the image without its colours: the more, the denser."""
    size = (pixels.shape[0], pixels.shape[1])
    heat = resize_maps(values[None].float(), size)[0].cpu().numpy()
    grey = np.repeat(pixels @ np.array([[0.299], [0.587], [0.114]]), 3, axis=2)
    share = (OPACITY[0] + (OPACITY[1] - OPACITY[0]) * scaled(heat))[..., None]
    return np.clip((1 - share) * grey + share * coloured(heat), 0, 1)
