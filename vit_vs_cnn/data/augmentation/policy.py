"""RandAugment and TrivialAugmentWide: random operations, another choice for each image of a batch.

Reference: Cubuk et al., RandAugment (2020); Müller and Hutter, TrivialAugment (2021), the wide space. Operations,
ranges and bins are those of ``torchvision.transforms.v2``.

All that a policy can do to images of one size is one table with an entry for each operation, strength and sign. What
happens to a batch is then a list of entry numbers. Before each round the batch is sorted by operation, so that an
operation works on a slice; which slice is known on the CPU, and a GPU is never waited for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float32, Int32, Int64
from torch import Tensor

from vit_vs_cnn.data.augmentation import photometry
from vit_vs_cnn.data.augmentation.geometry import affine, affine_coefficients
from vit_vs_cnn.data.images import Bytes
from vit_vs_cnn.data.options import NUM_BINS

GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
PHOTOMETRIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Brightness": photometry.brightness,
    "Color": photometry.saturation,
    "Contrast": photometry.contrast,
    "Sharpness": photometry.sharpness,
    "Posterize": photometry.posterize,
    "Solarize": photometry.solarize,
    "AutoContrast": photometry.autocontrast,
    "Equalize": photometry.equalize,
}
OPERATIONS = ("Identity", *GEOMETRIC, *PHOTOMETRIC)
"""In the order in which a sorted batch holds them: geometric operations stand together, one look-up does them all."""


class Ranges(NamedTuple):
    """Strength at the last bin.

    Arguments:
        shear: pixels per pixel.
        translate: pixels along rows and columns, as functions of the image's side.
        rotate: degrees.
        blend: distance of the factor of brightness, colour, contrast and sharpness from 1.
        posterize: bits taken away.
    """

    shear: float
    translate: Callable[[int], float]
    rotate: float
    blend: float
    posterize: int


RANGES = {
    "randaugment": Ranges(shear=0.3, translate=lambda side: 150 / 331 * side, rotate=30.0, blend=0.9, posterize=4),
    "trivialaugment": Ranges(shear=0.99, translate=lambda side: 32.0, rotate=135.0, blend=0.99, posterize=6),
}


@dataclass(frozen=True)
class PolicyTable:
    """What each entry ``(operation * bins + bin) * 2 + sign`` does.

    Arguments:
        coefficients: of its affine map, as `geometry.affine` takes them.
        levels: of its change of grey levels, as the functions of `photometry` take them.
    """

    coefficients: Int32[Tensor, "entries 6"]
    levels: Float32[Tensor, "entries"]

    def to(self, device: torch.device) -> "PolicyTable":
        return PolicyTable(self.coefficients.to(device), self.levels.to(device))


def tabulated(policy: str, bins: list[float], grid_size: tuple[int, int]) -> PolicyTable:
    """The table of a policy for images of one size.

    Arguments:
        policy: a key of `RANGES`.
        bins: the strengths that occur, 0 to 30; a fraction lies between its neighbours.
    """
    entries = [
        (affine_coefficients(name, sign * magnitude, grid_size), _level(name, sign * magnitude))
        for name in OPERATIONS
        for magnitude in (_magnitude(name, RANGES[policy], position, grid_size) for position in bins)
        for sign in (1, -1)
    ]
    coefficients, levels = zip(*entries, strict=True)
    return PolicyTable(torch.tensor(coefficients, dtype=torch.int32), torch.tensor(levels, dtype=torch.float32))


def _magnitude(name: str, ranges: Ranges, position: float, grid_size: tuple[int, int]) -> float:
    if name == "Posterize":
        return float(round(8 - position * ranges.posterize / (NUM_BINS - 1)))
    if name in ("Identity", "AutoContrast", "Equalize"):
        return 0.0
    first, last = {
        "ShearX": (0.0, ranges.shear),
        "ShearY": (0.0, ranges.shear),
        "TranslateX": (0.0, ranges.translate(grid_size[1])),
        "TranslateY": (0.0, ranges.translate(grid_size[0])),
        "Rotate": (0.0, ranges.rotate),
        "Solarize": (1.0, 0.0),
    }.get(name, (0.0, ranges.blend))
    # torchvision's own steps, in float32: a product in float64 may fall on the other side of a whole pixel.
    steps = torch.linspace(first, last, NUM_BINS)
    below = min(int(position), NUM_BINS - 2)
    return float(torch.lerp(steps[below], steps[below + 1], position - below))


def _level(name: str, magnitude: float) -> float:
    """What the photometric function takes; bits and thresholds have no sign."""
    if name == "Posterize":
        return abs(magnitude)
    if name == "Solarize":
        return 255 * abs(magnitude)
    return 1 + magnitude


def sorted_moves(operations: Int64[Tensor, "rounds batch"]) -> Int64[Tensor, "rounds_and_one batch"]:
    """Rearrangements that sort the batch by operation before each round, and the one that restores it at the end.

    Applied one after the other: round ``k`` finds the batch in the order of ``argsort(operations[k])``.
    """
    orders = torch.argsort(operations, dim=1, stable=True)
    places = torch.argsort(orders, dim=1)
    moves = [orders[0], *(place[order] for place, order in zip(places[:-1], orders[1:], strict=True)), places[-1]]
    return torch.stack(moves)


def apply_round(images: Bytes, entries: Int64[Tensor, "batch"], counts: list[int], table: PolicyTable) -> None:
    """One operation for each image, in place.

    Arguments:
        images: sorted by operation.
        counts: how many images each of `OPERATIONS` has.
    """
    bounds = dict(zip(OPERATIONS, pairwise(accumulate(counts, initial=0)), strict=True))
    first, last = bounds[GEOMETRIC[0]][0], bounds[GEOMETRIC[-1]][1]
    if first < last:
        images[first:last] = affine(images[first:last], table.coefficients[entries[first:last]])
    levels = table.levels[entries]
    for name, function in PHOTOMETRIC.items():
        first, last = bounds[name]
        if first < last:
            images[first:last] = function(images[first:last], levels[first:last])
