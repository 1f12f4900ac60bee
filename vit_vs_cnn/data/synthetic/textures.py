"""Surfaces as periodic tables of cells: ten kinds that may fill an object or a background, and smooth value noise."""

from collections.abc import Callable
from functools import cache

import numpy as np
from jaxtyping import Int32, Int64, UInt8, UInt64

from vit_vs_cnn.counter_random import counter_key, split_keys

#: Cells on a tile's side. A tile holds four periods of a regular texture: 64 cells each.
TILE_SIDE = 256
TILE_PERIODS = 4
_PERIOD = TILE_SIDE // TILE_PERIODS

Grid = Int64[np.ndarray, "side side"]
Values = Int64[np.ndarray, "side side"]


def _wave(values: Grid) -> Grid:
    """Distance to the nearest multiple of the period: 0 to 32."""
    return _PERIOD // 2 - abs(values % _PERIOD - _PERIOD // 2)


def _smooth_noise(u: Grid, v: Grid, spacing: int, seed: int) -> Values:
    """Periodic value noise, 0 to 255: random values every ``spacing`` cells, bilinear between them."""
    points = TILE_SIDE // spacing
    drawn = split_keys(counter_key(seed), np.arange(points * points)) >> np.uint64(56)
    lattice = drawn.astype(np.int64).reshape(points, points)
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


def value_noise(
    keys: UInt64[np.ndarray, "count"], image_size: tuple[int, int], octaves: tuple[int, ...] = (2, 5, 11)
) -> Int32[np.ndarray, "count rows cols"]:
    """Value noise, 0 to 255: octave j has ``octaves[j]`` random cells along a side and weight ``2^-(j + 1)``.

    Reference: Perlin, "An image synthesizer", SIGGRAPH 1985; the lattice values are interpolated bilinearly.
    """
    total = np.zeros((len(keys), *image_size), dtype=np.int32)
    for octave, cells in enumerate(octaves):
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
