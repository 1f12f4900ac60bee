"""The explorer: a page on which one points at a patch and sees where it attends. No server, no network."""

import base64
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vit_vs_cnn.files import write_text
from vit_vs_cnn.inspection.attention_weights import AttentionMaps
from vit_vs_cnn.inspection.look import MethodMaps, NetworkMaps, attention_of
from vit_vs_cnn.inspection.runs import InspectedRun, ShownImages
from vit_vs_cnn.inspection.saliency import resize_maps
from vit_vs_cnn.models.resized import crops
from vit_vs_cnn.reporting.document import Document, Raw, Text
from vit_vs_cnn.reporting.figures.drawing import in_colours
from vit_vs_cnn.reporting.page import page_of
from vit_vs_cnn.told import listed

#: Of the whole file, in bytes; and the share of it that is not the page's own: weights, images, maps.
BUDGET, REST = 10_000_000, 0.94
#: Images that sizes are judged by, the first ones.
TRIED = 3
#: Steps between nothing and the greatest weight of a row, the finest that fits.
LEVELS = (255, 127, 63, 31, 15)
#: Scales of rows are stored as shares of 1 in so many steps.
SCALES = 65535
#: Of maps of pixels, at most; larger ones are averaged.
MAP_SIDE = 56
COLOUR_MAPS = ("viridis", "cividis")
#: Methods that the page computes itself, from any token and not only from what the classifier reads.
OWN = {"raw_attention", "rollout", "rollout_max", "rollout_min"}


#: By the number of a network: the weights on one image as text, and the largest error of any.
_Packed: TypeAlias = dict[int, tuple[str, float]]


@dataclass(frozen=True)
class Explorer:
    """What was written.

    Arguments:
        levels: steps that weights are rounded to, between nothing and the greatest of their row.
        error: the largest difference of a weight on the page from the network's own.
    """

    page: Path
    images: int
    levels: int
    error: float


def write_explorer(
    shown: ShownImages, networks: Sequence[NetworkMaps], path: Path, *, title: str, budget: int = BUDGET
) -> Explorer:
    """The page, as fine as the budget allows: weights rounded more coarsely first, then fewer images.

    A weight is stored as ``round(levels A / s)``, with s the greatest weight of its row (rounded up to a multiple of
    1/65535): it is right to ``s / (2 levels)``. What the page shows is computed from these.

    ``budget`` is of its bytes; a single image is shown even so.
    """
    count = min([len(shown.data), *(len(n.attention.logits) for n in networks if n.attention is not None)])
    levels, packed = _fitting(networks, count, REST * budget, _rest(shown, networks, count) / count)
    count = len(packed)
    weights = {f"w{number}-{index}": text for index, one in enumerate(packed) for number, (text, _) in one.items()}
    error = max([0.0, *(error for one in packed for _, error in one.values())])
    data = {
        "images": [_image(shown, index) for index in range(count)],
        "models": [_model(shown, network, count) for network in networks],
        "levels": levels,
        "scales": SCALES,
        "error": error,
        "colours": {name: _base64(_colours(name)) for name in COLOUR_MAPS},
    }
    lead = f"Point at a patch to see where it attends: {listed([network.run.name for network in networks])}."
    document = Document(title, lead, assets=("explorer.css", "explorer.js"))
    document.add(Raw("explorer.html", {"weights": weights, "data": data}))
    document.add(Text(_honesty(shown, count, levels, error, networks, budget), note=True))
    write_text(path, page_of(document))
    return Explorer(path, count, levels, error)


def most_images(runs: Sequence[InspectedRun], shown: ShownImages, budget: int = BUDGET) -> int:
    """How many images' weights a page of so many bytes could hold at most: those of more need not be kept."""
    first = shown.data.images[:TRIED]  # later ones may take less: a quarter more are allowed for
    found = [attention_of(run, run.normalise(first))[0] for run in runs]
    size = sum(_size_of_image(attention, LEVELS[-1]) for attention in found if attention is not None)
    return min(len(shown.data), max(1, int(1.25 * budget / size))) if size else len(shown.data)


def pack_weights(weights: Sequence[Float[Tensor, "heads tokens tokens"]], levels: int) -> tuple[bytes, float]:
    """The weights of all layers for one image, compressed; and the largest error of any.

    First the scales of all rows, two bytes each (little-endian), then a byte for each weight, both layer by layer;
    deflated as zlib does.
    """
    scales, bytes_, error = [], [], 0.0
    for layer in weights:
        values = layer.detach().cpu().double().clamp_min(0.0).numpy()
        scale = np.ceil(np.round(values.max(axis=-1) * SCALES, 6)).clip(1, SCALES)
        rounded = np.rint(levels * values * SCALES / scale[..., None]).clip(0, levels)
        error = max(error, float(np.abs(rounded / levels * scale[..., None] / SCALES - values).max()))
        scales.append(scale.astype("<u2").tobytes())
        bytes_.append(rounded.astype(np.uint8).tobytes())
    return zlib.compress(b"".join([*scales, *bytes_]), 9), error


def _fitting(networks: Sequence[NetworkMaps], count: int, room: float, each: float) -> tuple[int, list[_Packed]]:
    """The finest levels at which all images fit, or the coarsest and as many images as do; ``each`` has other bytes."""
    attentions = {number: one.attention for number, one in enumerate(networks) if one.attention is not None}
    if not attentions:
        return LEVELS[0], [{}] * count
    packed: list[_Packed] = []
    for levels in LEVELS:
        likely = sum(_size_of_image(attention, levels) for attention in attentions.values())
        if (likely + each) * count > room and levels != LEVELS[-1]:
            continue
        packed = _packed(attentions, levels, count, room, each)
        if len(packed) == count:
            return levels, packed
    return LEVELS[-1], packed


def _packed(
    attentions: Mapping[int, AttentionMaps], levels: int, count: int, room: float, each: float
) -> list[_Packed]:
    packed: list[_Packed] = []
    for index in range(count):
        one: _Packed = {}
        for number, attention in attentions.items():
            data, error = pack_weights([layer[index] for layer in attention.weights], levels)
            one[number] = (_base64(data), error)
        room -= each + sum(len(text) + 60 for text, _ in one.values())
        if packed and room < 0:
            break
        packed.append(one)
    return packed


def _size_of_image(attention: AttentionMaps, levels: int) -> float:
    tried = range(min(TRIED, len(attention.logits)))
    sizes = [len(pack_weights([layer[i] for layer in attention.weights], levels)[0]) for i in tried]
    return 4 / 3 * sum(sizes) / len(sizes) + 60


def _rest(shown: ShownImages, networks: Sequence[NetworkMaps], count: int) -> int:
    pictures = sum(len(_picture(shown, index)) for index in range(count))
    return pictures + len(json.dumps([_model(shown, network, count) for network in networks]))


def _model(shown: ShownImages, network: NetworkMaps, count: int) -> dict[str, Any]:
    attention = network.attention
    return {
        "name": network.run.name,
        "kind": type(network.run.network).__name__,
        "attention": None if attention is None else _attention(attention, count),
        "says": [_says(shown, network, index) for index in range(count)],
        "maps": [_map(found, count, shown, network) for found in network.methods if not _is_own(found, network)],
        "scores": {found.method: _scores(found, count) for found in network.methods if _is_own(found, network)},
    }


def _is_own(found: MethodMaps, network: NetworkMaps) -> bool:
    return network.attention is not None and found.method in OWN


def _scores(found: MethodMaps, count: int) -> list[list[float]]:
    """Of each image: deletion, that of random maps, and how much lower it is."""
    scores = [(float(found.deletion[i]), float(found.chance[i]), found.faster(i)) for i in range(count)]
    return [[round(value, 3) for value in of_image] for of_image in scores]


def _attention(attention: AttentionMaps, count: int) -> dict[str, Any]:
    """The shape of the weights, and what the classifier reads: once where it is the same for all images."""
    query = attention.query[:count].double().cpu()
    same = bool((query == query[:1]).all())
    return {
        "grid": list(attention.grid_size),
        "extra": attention.extra_tokens,
        "heads": [layer.shape[1] for layer in attention.weights],
        "query": [[round(share, 7) for share in row] for row in (query[:1] if same else query).tolist()],
    }


def _says(shown: ShownImages, network: NetworkMaps, index: int) -> dict[str, Any]:
    predicted, label = int(network.predicted[index]), shown.label(index)
    name, share = shown.data.class_names[predicted], float(network.probabilities[index, predicted])
    return {"class": name, "share": round(share, 4), "right": None if label is None else label == name}


def _map(found: MethodMaps, count: int, shown: ShownImages, network: NetworkMaps) -> dict[str, Any]:
    """The maps for the class that was asked for, and for the true class of those images where that is another one."""
    others = [index for index in found.of_label if index < count]
    labels = {"places": others, **_levels(torch.stack([found.of_label[i] for i in others]))} if others else None
    return {
        "method": found.method,
        "about": found.description,
        "specific": found.class_specific,
        "classes": [shown.data.class_names[int(network.classes[index])] for index in range(count)],
        "score": _scores(found, count),
        "labels": labels,
        **_levels(found.maps[:count]),
    }


def _levels(maps: Float[Tensor, "images map_rows map_cols"]) -> dict[str, Any]:
    """Maps as bytes between the least and the greatest value of each."""
    maps = maps.float().cpu()
    if max(maps.shape[1:]) > MAP_SIDE:
        rows, cols = (min(side, MAP_SIDE) for side in maps.shape[1:])
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


def _image(shown: ShownImages, index: int) -> dict[str, Any]:
    rows, cols = shown.data.images.shape[2:]
    told = {"name": shown.data.sample_ids[index], "label": shown.label(index)}
    return {**told, "size": [rows, cols], "src": _picture(shown, index)}


def _picture(shown: ShownImages, index: int) -> str:
    """As PNG where it is small, so that every pixel is right, and as JPEG else."""
    pixels = in_colours(shown.data.images[index])
    kind = "PNG" if max(pixels.shape[:2]) <= 64 else "JPEG"
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, quality=88)
    return f"data:image/{kind.lower()};base64,{_base64(file.getvalue())}"


def _colours(name: str) -> bytes:
    return np.rint(255 * mpl.colormaps[name](np.linspace(0, 1, 256))[:, :3]).astype(np.uint8).tobytes()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _honesty(  # noqa: PLR0917 (what a sentence is made of)
    shown: ShownImages, count: int, levels: int, error: float, networks: Sequence[NetworkMaps], budget: int
) -> str:
    said = [f"{count} images, {shown.whence}."]
    if count < len(shown.data):
        said.append(f"{len(shown.data) - count} more did not fit into {budget / 1e6:g} MB.")
    if any(network.attention is not None for network in networks):
        said.append(
            f"Weights are rounded to {levels} steps between zero and the greatest of their row; the largest error "
            f"on this page is {error:.1e}. Rollout, and everything else made of attention alone, is class-agnostic: "
            "no change of the classifier moves it. Attention is not an explanation: see the scores beside it."
        )
    cropped = [network.run.name for network in networks if crops(network.run.network)]
    if cropped:
        said.append(f"The patches of {listed(cropped)} lie over the middle of an image alone, but are drawn over all.")
    return " ".join(said)
