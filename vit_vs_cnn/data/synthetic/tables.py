"""Tables of cells, in whole numbers: silhouettes of ten classes and of fragments, ten textures, and value noise."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt8, UInt64

from vit_vs_cnn.counter_random import counter_key, split_keys

#: Cells on a table's side. Coordinates below run from -512 to 512 over it, u to the right and v downward.
TABLE_SIDE = 512

Grid = Int64[np.ndarray, "side side"]
Inside = Bool[np.ndarray, "side side"]
Points = Sequence[tuple[int, int]]


def _disc(u: Grid, v: Grid, radius: int, centre: tuple[int, int] = (0, 0)) -> Inside:
    return (u - centre[0]) ** 2 + (v - centre[1]) ** 2 <= radius**2


def _polygon(u: Grid, v: Grid, corners: Points) -> Inside:
    """Even-odd rule, with the crossing of each edge compared by products, so that nothing is divided."""
    inside = np.zeros(u.shape, dtype=bool)
    for (u0, v0), (u1, v1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        spans = (v0 > v) != (v1 > v)
        left = (u - u0) * (v1 - v0) < (v - v0) * (u1 - u0)
        inside ^= spans & (left if v1 > v0 else ~left)
    return inside


def _mirrored(right_half: Points) -> Points:
    """A polygon from its corners at the right of the vertical axis, listed from top to bottom."""
    return [*right_half, *[(-u, v) for u, v in reversed(right_half) if u != 0]]


def _heart(u: Grid, v: Grid) -> Inside:
    lobes = _disc(u, v, 225, (200, -150)) | _disc(u, v, 225, (-200, -150))
    return lobes | _polygon(u, v, _mirrored([(0, -252), (362, 5), (0, 450)])) | _disc(u, v, 60, (0, -150))


#: Every shape nearly fills the circle of its reach (512), so the extent of an object is not a cue.
_CLASSES: dict[str, Callable[[Grid, Grid], Inside]] = {
    "disc": lambda u, v: _disc(u, v, 430),
    "hourglass": lambda u, v: (abs(v) <= 380) & (abs(u) <= 40 + abs(v) * 3 // 4),
    "triangle": lambda u, v: _polygon(u, v, [(0, -500), (433, 250), (-433, 250)]),
    "cross": lambda u, v: (np.minimum(abs(u), abs(v)) <= 105) & (np.maximum(abs(u), abs(v)) <= 475),
    "star": lambda u, v: _polygon(
        u, v, _mirrored([(0, -505), (135, -186), (480, -156), (219, 71), (297, 409), (0, 230)])
    ),
    "ring": lambda u, v: _disc(u, v, 470) & ~_disc(u, v, 300),
    "crescent": lambda u, v: _disc(u, v, 450, (30, 0)) & ~_disc(u, v, 370, (245, 0)),
    "heart": _heart,
    "arrow": lambda u, v: _polygon(u, v, _mirrored([(0, -490), (380, -60), (130, -60), (130, 440)])),
    "ell": lambda u, v: _polygon(u, v, [(-290, -405), (-70, -405), (-70, 185), (300, 185), (300, 405), (-290, 405)]),
}

_FRAGMENTS: dict[str, Callable[[Grid, Grid], Inside]] = {
    "bar": lambda u, v: (abs(u) <= 500) & (abs(v) <= 90),
    "wedge": lambda u, v: _disc(u, v, 600, (-300, -300)) & (u >= -300) & (v >= -300),
    "line": lambda u, v: abs(v) <= 45,
    "arc": lambda u, v: _disc(u, v, 500, (0, 220)) & ~_disc(u, v, 340, (0, 220)) & (v <= 120),
    "blob": lambda u, v: _disc(u, v, 260, (-180, -60)) | _disc(u, v, 200, (170, 160)) | _disc(u, v, 150, (150, -210)),
    "hook": lambda u, v: _polygon(u, v, [(-460, 180), (0, -260), (460, 180), (340, 300), (0, -20), (-340, 300)]),
}

SHAPE_NAMES = tuple(_CLASSES)
FRAGMENT_NAMES = tuple(_FRAGMENTS)


def _tables(family: dict[str, Callable[[Grid, Grid], Inside]]) -> UInt8[np.ndarray, "kinds side side"]:
    axis = 2 * np.arange(TABLE_SIDE, dtype=np.int64) + 1 - TABLE_SIDE
    v, u = np.meshgrid(axis, axis, indexing="ij")
    return np.stack([inside(u, v) for inside in family.values()]).astype(np.uint8)


@cache
def shape_tables() -> UInt8[np.ndarray, "shapes side side"]:
    """1 inside each of the ten shapes, 0 outside (and on every border cell), in the order of ``SHAPE_NAMES``."""
    return _tables(_CLASSES)


@cache
def fragment_tables() -> UInt8[np.ndarray, "fragments side side"]:
    """1 inside each fragment, 0 outside, in the order of ``FRAGMENT_NAMES``; the line alone runs on over the border."""
    return _tables(_FRAGMENTS)


#: Cells on a tile's side. A tile holds four periods of a regular texture: 64 cells each.
TILE_SIDE = 256
TILE_PERIODS = 4
_PERIOD = TILE_SIDE // TILE_PERIODS
#: Cells along a side of each octave of value noise.
OCTAVES = (2, 5, 11)

Values = Int64[np.ndarray, "side side"]


def _wave(values: Grid) -> Grid:
    """Distance to the nearest multiple of the period: 0 to 32."""
    return _PERIOD // 2 - abs(values % _PERIOD - _PERIOD // 2)


def _smooth_noise(u: Grid, v: Grid, spacing: int, seed: int) -> Values:
    """Periodic value noise, 0 to 255: random values every ``spacing`` cells, bilinear between them."""
    points = TILE_SIDE // spacing
    random_bytes = split_keys(counter_key(seed), np.arange(points * points)) >> np.uint64(56)
    lattice = random_bytes.astype(np.int64).reshape(points, points)
    row, col, down, right = v // spacing, u // spacing, v % spacing, u % spacing
    upper = lattice[row, col] * (spacing - right) + lattice[row, (col + 1) % points] * right
    row = (row + 1) % points
    lower = lattice[row, col] * (spacing - right) + lattice[row, (col + 1) % points] * right
    return (upper * (spacing - down) + lower * down) // spacing**2


def _bricks(u: Grid, v: Grid) -> Values:
    row = v // (_PERIOD // 2)
    joint = (v % (_PERIOD // 2) < 9) | ((u + row * (_PERIOD // 2)) % _PERIOD < 9)
    return 255 * ~joint


def _rings(u: Grid, v: Grid) -> Values:
    """Concentric rings about the centre of every quarter of the tile."""
    side = TILE_SIDE // 2
    squared = (u % side - side // 2) ** 2 + (v % side - side // 2) ** 2
    return 255 * ((squared < 14**2) | ((squared >= 28**2) & (squared < 44**2)) | (squared >= 60**2))


_TEXTURES: dict[str, Callable[[Grid, Grid], Values]] = {
    "plain": lambda u, v: 0 * u + 128,
    "stripes": lambda u, v: 255 * (_wave(v) < 16),
    "checks": lambda u, v: 255 * ((_wave(u) < 16) ^ (_wave(v) < 16)),
    "dots": lambda u, v: 255 * (_wave(u) ** 2 + _wave(v) ** 2 < 20**2),
    "mesh": lambda u, v: 255 * ((_wave(u) < 8) | (_wave(v) < 8)),
    "zigzag": lambda u, v: 255 * (_wave(v + 2 * _wave(u)) < 16),
    "bricks": _bricks,
    "rings": _rings,
    "blotches": lambda u, v: np.clip((_smooth_noise(u, v, 32, 1) - 128) * 8 + 128, 0, 255),
    "speckle": lambda u, v: np.clip((_smooth_noise(u, v, 16, 2) - 170) * 8, 0, 255),
}

TEXTURE_NAMES = tuple(_TEXTURES)


@cache
def texture_tables() -> UInt8[np.ndarray, "textures side side"]:
    """A periodic tile of each texture, 0 (its first colour) to 255 (its second), in the order of ``TEXTURE_NAMES``."""
    axis = np.arange(TILE_SIDE, dtype=np.int64)
    v, u = np.meshgrid(axis, axis, indexing="ij")
    return np.stack([values(u, v) for values in _TEXTURES.values()]).astype(np.uint8)


def value_noise(keys: UInt64[np.ndarray, "count"], image_size: tuple[int, int]) -> Int32[np.ndarray, "count rows cols"]:
    """Value noise, 0 to 255: octave j has ``OCTAVES[j]`` random cells along a side and weight ``2^-(j + 1)``.

    Reference: Perlin, "An image synthesizer", SIGGRAPH 1985; the lattice values are interpolated bilinearly.
    """
    total = np.zeros((len(keys), *image_size), dtype=np.int32)
    for octave, cells in enumerate(OCTAVES):
        stream = split_keys(keys, np.array([octave]))[:, 0]
        words = split_keys(stream, np.arange((cells + 1) ** 2)) >> np.uint64(56)
        lattice = words.astype(np.int32).reshape(-1, cells + 1, cells + 1)
        smooth = _stretch(_stretch(lattice, image_size[0]).swapaxes(1, 2), image_size[1]).swapaxes(1, 2)
        total += smooth >> (octave + 1)
    return total


def _stretch(values: Int32[np.ndarray, "count points width"], size: int) -> Int32[np.ndarray, "count {size} width"]:
    """Linear interpolation of the lattice points to ``size`` pixel centres, in 1/256 of a cell."""
    positions = ((2 * np.arange(size) + 1) * (values.shape[1] - 1) * 256) // (2 * size)
    left, weight = positions >> 8, (positions & 255).astype(np.int32)[None, :, None]
    return (values[:, left] * (256 - weight) + values[:, left + 1] * weight) >> 8
