"""Silhouettes as tables of cells: ten classes, and fragments that belong to no class. Integers throughout."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from jaxtyping import Bool, Int64, UInt8

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


#: Every shape nearly fills the circle of its reach (512), whatever its area: the object's extent tells no class.
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
