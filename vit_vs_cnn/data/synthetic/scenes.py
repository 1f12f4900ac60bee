"""Scenes: objects on a textured, cluttered background, rendered in whole numbers.

A table of cells (a shape or a texture) is placed in an image by fixed-point positions, sizes and angles.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt8, UInt64

from vit_vs_cnn.counter_random import split_keys, to_integers
from vit_vs_cnn.data.synthetic.tables import (
    FRAGMENT_NAMES,
    TEXTURE_NAMES,
    TILE_PERIODS,
    fragment_tables,
    shape_tables,
    texture_tables,
    value_noise,
)

_CHUNK_PIXELS = 1 << 16  # pixels drawn at a time: bounds the memory, and keeps the work within a processor's cache
_OBJECT_SAMPLES, _OTHER_SAMPLES = 4, 2  # points along a pixel's side: edges in 16 steps, clutter and surfaces in 4

#: Key of the random numbers of each image.
Keys = UInt64[np.ndarray, "count"]
#: Random 64-bit integers of each image.
Words = UInt64[np.ndarray, "count words"]
Canvas = Int32[np.ndarray, "count 3 rows cols"]
#: One number for each pixel, such as the level of a texture or the covered share.
Surface = Int32[np.ndarray, "count rows cols"]
#: Images, and the pixels of each that are at least half inside of an object.
RenderedScenes: TypeAlias = tuple[UInt8[np.ndarray, "count 3 rows cols"], Bool[np.ndarray, "count rows cols"]]


UNITS_PER_TURN = 256
UNITS_PER_PIXEL = 64
#: Number of table cells along the reach of a placement.
REACH_CELLS = 256

#: round(2^14 sin(2 pi k / 256)) for k = 0 .. 64: constants, because libm differs between machines.
QUARTER_SINES = (
    *(0, 402, 804, 1205, 1606, 2006, 2404, 2801, 3196, 3590, 3981, 4370, 4756, 5139, 5520, 5897, 6270),
    *(6639, 7005, 7366),
    *(7723, 8076, 8423, 8765, 9102, 9434, 9760, 10080, 10394, 10702, 11003, 11297, 11585, 11866, 12140, 12406, 12665),
    *(12916, 13160, 13395, 13623, 13842, 14053, 14256, 14449, 14635, 14811, 14978, 15137, 15286, 15426, 15557, 15679),
    *(15791, 15893, 15986, 16069, 16143, 16207, 16261, 16305, 16340, 16364, 16379, 16384),
)


def sines(steps: Int64[np.ndarray, "*shape"]) -> Int64[np.ndarray, "*shape"]:
    """``2^14 sin(2 pi steps / 256)`` rounded to whole numbers."""
    half = np.array([*QUARTER_SINES, *QUARTER_SINES[-2:0:-1]], dtype=np.int64)
    return np.concatenate([half, -half])[steps % UNITS_PER_TURN]


#: Summands of rows or columns of an image in a cell's position, in 1/64 cell.
Parts = Int32[np.ndarray, "count _"]


@dataclass(frozen=True, eq=False)
class Placement:
    """Similarity transform of each image, from pixels to the cells of a table, the raster of a shape or of a texture.

    Cell (0, 0) is the centre of the table.

        u = ( dx cos a + dy sin a) 256 / reach        (dx, dy) = pixel - (col, row)
        v = (-dx sin a + dy cos a) 256 / reach

    Arguments:
        row, col: position of the origin, in 1/64 pixel from the image's upper left corner, ``(count,)``.
        reach: length of 256 cells in the image, in 1/64 pixel, ``(count,)``.
        angle: rotation in 1/256 of a turn, ``(count,)``.
    """

    row: Int64[np.ndarray, "count"]
    col: Int64[np.ndarray, "count"]
    reach: Int64[np.ndarray, "count"]
    angle: Int64[np.ndarray, "count"]

    def _cells(
        self, row_positions: Int64[np.ndarray, "rows"], col_positions: Int64[np.ndarray, "cols"]
    ) -> tuple[tuple[Parts, Parts], tuple[Parts, Parts]]:
        """The cells at positions in 1/64 pixel.

        The map is linear, so rows and columns are scaled separately, and each pixel needs only a sum.

        Returns:
            For u and for v the summands of rows and of columns, in 1/64 cell: ``u = (row + col) >> 6``.
        """
        sin, cos = sines(self.angle)[:, None], sines(self.angle + UNITS_PER_TURN // 4)[:, None]
        dx, dy = col_positions[None] - self.col[:, None], row_positions[None] - self.row[:, None]

        def scaled(products: np.ndarray) -> Parts:
            return ((products * REACH_CELLS) // (self.reach[:, None] << 8)).astype(np.int32)

        return (scaled(dy * sin), scaled(dx * cos)), (scaled(dy * cos), scaled(-dx * sin))

    def sample(
        self,
        tables: UInt8[np.ndarray, "kinds side side"],
        kinds: Int64[np.ndarray, "count"],
        image_size: tuple[int, int],
        *,
        samples: int,
        periodic: bool,
    ) -> Int32[np.ndarray, "count rows cols"]:
        """The sum of the table's values over ``samples x samples`` points spread evenly in each pixel.

        Arguments:
            tables: one square table of cells per kind, with a power of two as its side.
            kinds: index of the table of each image.
            samples: points along a pixel's side; a divisor of 32.
            periodic: whether the table repeats outside of its borders; otherwise its border cells do.
        """
        side, count = tables.shape[-1], len(kinds)
        middle, shift = side // 2 << 6, side.bit_length() - 1
        flat, offsets = tables.reshape(-1), (kinds << 2 * shift)[:, None, None]
        points = (2 * np.arange(samples) + 1)[:, None] * (UNITS_PER_PIXEL // (2 * samples))
        positions = [(points + np.arange(size, dtype=np.int64) * UNITS_PER_PIXEL).reshape(-1) for size in image_size]
        (u_rows, u_cols), (v_rows, v_cols) = self._cells(*positions)
        u_rows, v_rows = (part.reshape(count, samples, -1, 1) for part in (u_rows + middle, v_rows + middle))
        u_cols, v_cols = (part.reshape(count, samples, 1, -1) for part in (u_cols, v_cols))

        # In place, and with one index a point: most of the time of rendering is spent here.
        total, u, v = (np.zeros((count, *image_size), dtype=np.int32) for _ in range(3))
        index, values = np.empty(total.shape, dtype=np.intp), np.empty(total.shape, dtype=np.uint8)
        for row, col in np.ndindex(samples, samples):
            for cell, rows, cols in ((u, u_rows, u_cols), (v, v_rows, v_cols)):
                np.right_shift(rows[:, row] + cols[:, col], 6, out=cell)
                if periodic:
                    np.bitwise_and(cell, side - 1, out=cell)
                else:
                    np.clip(cell, 0, side - 1, out=cell)
            np.add(v << shift, u + offsets, out=index)
            total += np.take(flat, index, out=values, mode="clip")  # other modes make a copy
        return total


class Purpose(IntEnum):
    """Quantities that random numbers decide. Each has its own stream, so that other quantities do not depend on it."""

    SHAPE = 0
    TEXTURE = 1
    PLACE = 2
    COLOUR = 3
    SURFACE = 4
    BACKGROUND = 5
    BACKGROUND_NOISE = 6
    FRAGMENTS = 7
    LIGHT = 8
    NOISE = 9
    PAIR = 10


def sample_words(keys: Keys, purpose: Purpose, number: int) -> Words:
    """``number`` random 64-bit integers of each image, ``(count, number)``, independent for each purpose."""
    return split_keys(split_keys(keys, np.array([purpose]))[:, 0], np.arange(number))


def render_in_chunks(
    count: int, image_size: tuple[int, int], render: Callable[[slice], RenderedScenes]
) -> RenderedScenes:
    """Images and masks of all scenes; ``render`` returns one slice."""
    pixels = np.empty((count, 3, *image_size), dtype=np.uint8)
    masks = np.empty((count, *image_size), dtype=bool)
    chunk = max(1, _CHUNK_PIXELS // (image_size[0] * image_size[1]))
    for first in range(0, count, chunk):
        part = slice(first, first + chunk)
        pixels[part], masks[part] = render(part)
    return pixels, masks


def _interpolate(easy: int, hard: int, difficulty_256: int) -> int:
    """The setting at ``difficulty_256`` / 256 of the way from the easy value to the hard one."""
    return easy + ((hard - easy) * difficulty_256 >> 8)


def _difficulty_to_fourth(difficulty_256: int) -> int:
    """The fourth power of the difficulty, for what a small ViT learns slowest: place, angle and sign of contrast."""
    return difficulty_256**4 >> 24


def render_scenes(
    keys: Keys,
    shapes: Int64[np.ndarray, "count"],
    textures: Int64[np.ndarray, "count"],
    image_size: tuple[int, int],
    difficulty_256: int,
) -> RenderedScenes:
    """Background, fragments, object, light and noise, in that order; and the object's mask."""
    colours = _Colours(sample_words(keys, Purpose.COLOUR, 18), difficulty_256)
    canvas = _background(keys, colours, image_size, difficulty_256)
    _add_fragments(canvas, keys, colours, difficulty_256)
    coverage = _object_place(keys, image_size, difficulty_256).sample(
        shape_tables(), shapes, image_size, samples=_OBJECT_SAMPLES, periodic=False
    )
    surface = _surface(sample_words(keys, Purpose.SURFACE, 4), textures, image_size, periods=(5, 8))
    _cover(canvas, _blend(colours.object_pair, surface), coverage, _OBJECT_SAMPLES)
    return _finished(canvas, keys, difficulty_256), 2 * coverage >= _OBJECT_SAMPLES**2


def render_pair_scenes(
    keys: Keys,
    shapes: Int64[np.ndarray, "count 2"],
    image_size: tuple[int, int],
    difficulty_256: int,
    distance_256: int = 256,
) -> RenderedScenes:
    """Two upright objects of one colour each in opposite quarters of a background, and the mask of either one.

    With ``distance_256`` = 256 they are around the centers of the quarters, with less they are closer together.
    """
    colours = _Colours(sample_words(keys, Purpose.COLOUR, 18), difficulty_256)
    canvas = _background(keys, colours, image_size, difficulty_256)
    rows, cols = image_size
    side, reach = min(rows, cols) * UNITS_PER_PIXEL, min(rows, cols) * UNITS_PER_PIXEL * 52 // 256
    words = sample_words(keys, Purpose.PAIR, 1 + 2 * 6)
    quarter, wander = to_integers(words[:, 0], 0, 3), side * _interpolate(2, 8, difficulty_256) // 256
    mask = np.zeros((len(keys), rows, cols), dtype=bool)
    for number in range(2):
        own = words[:, 1 + 6 * number : 7 + 6 * number]
        lower, right = (quarter >> 1 ^ number) & 1, (quarter ^ number) & 1
        placement = Placement(
            row=rows * UNITS_PER_PIXEL * (512 + distance_256 * (2 * lower - 1)) // 1024
            + to_integers(own[:, 0], -wander, wander),
            col=cols * UNITS_PER_PIXEL * (512 + distance_256 * (2 * right - 1)) // 1024
            + to_integers(own[:, 1], -wander, wander),
            reach=np.full(len(keys), reach),
            angle=np.zeros(len(keys), dtype=np.int64),
        )
        coverage = placement.sample(
            shape_tables(), shapes[:, number], image_size, samples=_OBJECT_SAMPLES, periodic=False
        )
        paint = colours.fragment(own[:, 2:])[:, 0, :, None, None].astype(np.int32)
        _cover(canvas, paint, coverage, _OBJECT_SAMPLES)
        mask |= 2 * coverage >= _OBJECT_SAMPLES**2
    return _finished(canvas, keys, difficulty_256), mask


def _finished(canvas: Canvas, keys: Keys, difficulty_256: int) -> UInt8[np.ndarray, "count 3 rows cols"]:
    _light(canvas, sample_words(keys, Purpose.LIGHT, 4), difficulty_256)
    _noise(canvas, keys, difficulty_256)
    return np.clip(canvas, 0, 255).astype(np.uint8)


class _Colours:
    """The colours of an image: two of the background, two of the object, and the contrast of the fragments.

    The object's mean grey differs from the background's by a random step. The step is upward or, more often at higher
    difficulty, downward. Hues are uniform. Some objects are camouflaged: their texture has the two colours of the
    background.
    """

    def __init__(self, words: Words, difficulty_256: int) -> None:
        self.grey = to_integers(words[:, 0], 80, 144)
        self.step = to_integers(
            words[:, 1], _interpolate(112, 40, difficulty_256), _interpolate(128, 96, difficulty_256)
        )
        sign = np.where(
            to_integers(words[:, 2], 0, 255) < _interpolate(256, 128, _difficulty_to_fourth(difficulty_256)), 1, -1
        )
        # The two colours of a textured object stay on the same side of the background, so the silhouette stays whole.
        swing = to_integers(words[:, 3], 0, self.step * _interpolate(32, 192, difficulty_256) // 256)
        swing = swing * (to_integers(words[:, 4], 0, 1) * 2 - 1)
        self.background_pair = self._pair(self.grey, _interpolate(8, 32, difficulty_256), words[:, 5:11])
        own = self._pair(self.grey + sign * self.step, swing, words[:, 11:17])
        camouflaged = to_integers(words[:, 17], 0, 255) < _interpolate(0, 56, difficulty_256)
        self.object_pair = np.where(camouflaged[:, None, None], self.background_pair, own)

    @staticmethod
    def _pair(
        grey: Int64[np.ndarray, "count"], swing: int | Int64[np.ndarray, "count"], words: Words
    ) -> Int64[np.ndarray, "count 2 3"]:
        """Two colours ``swing`` below and above the grey, of one random hue each (the channels' mean is kept)."""
        hues = to_integers(words.reshape(-1, 2, 3), -48, 48)
        hues = hues - hues.sum(axis=2, keepdims=True) // 3
        levels = np.stack([grey - swing, grey + swing], axis=1)
        return levels[:, :, None] + hues

    def fragment(self, words: Words) -> Int64[np.ndarray, "count 1 3"]:
        """A colour with the contrast of the object to the background, ``(count, 1, 3)``."""
        hues = to_integers(words[:, :3], -48, 48)
        hues = hues - hues.sum(axis=1, keepdims=True) // 3
        sign = to_integers(words[:, 3], 0, 1) * 2 - 1
        return (self.grey + sign * self.step)[:, None, None] + hues[:, None]


def _blend(pair: Int64[np.ndarray, "count 2 3"], surface: Surface) -> Canvas:
    low, high = pair[:, 0, :, None, None].astype(np.int32), pair[:, 1, :, None, None].astype(np.int32)
    return low + ((high - low) * surface[:, None] >> 8)


def _cover(canvas: Canvas, colours: Int32[np.ndarray, "count 3 _ _"], coverage: Surface, samples: int) -> None:
    """Blend colours into the canvas, in place, by the share of each pixel that is covered."""
    canvas += (colours - canvas) * coverage[:, None] // samples**2


def _surface(
    words: Words, kinds: Int64[np.ndarray, "count"], image_size: tuple[int, int], periods: tuple[int, int]
) -> Surface:
    """A texture at random place, angle and scale: as many periods as lie between the two along the shorter side."""
    side = min(image_size) * UNITS_PER_PIXEL
    tiles = (side * TILE_PERIODS) // periods[1], (side * TILE_PERIODS) // periods[0]
    row, col = (to_integers(words[:, place], 0, tiles[1]) for place in (0, 1))
    placement = Placement(row, col, to_integers(words[:, 2], *tiles), to_integers(words[:, 3], 0, UNITS_PER_TURN - 1))
    total = placement.sample(texture_tables(), kinds, image_size, samples=_OTHER_SAMPLES, periodic=True)
    return total // _OTHER_SAMPLES**2


def _background(keys: Keys, colours: _Colours, image_size: tuple[int, int], difficulty_256: int) -> Canvas:
    """Value noise between two colours, with a texture of any kind mixed in by a random share."""
    words = sample_words(keys, Purpose.BACKGROUND, 6)
    noise = value_noise(split_keys(keys, np.array([Purpose.BACKGROUND_NOISE]))[:, 0], image_size)
    noise = np.clip((noise - 112) * 2 + 128, 0, 255)
    kinds = to_integers(words[:, 4], 0, len(TEXTURE_NAMES) - 1)
    texture = _surface(words[:, :4], kinds, image_size, periods=(3, 9))
    share = to_integers(words[:, 5], 0, _interpolate(64, 224, difficulty_256)).astype(np.int32)[:, None, None]
    return _blend(colours.background_pair, noise + ((texture - noise) * share >> 8))


def _add_fragments(canvas: Canvas, keys: Keys, colours: _Colours, difficulty_256: int) -> None:
    """Add fragments that belong to no class, with the contrast of the object, each with probability 3/4; in place."""
    rows, cols = canvas.shape[2:]
    stream = split_keys(keys, np.array([Purpose.FRAGMENTS]))[:, 0]
    side = min(rows, cols) * UNITS_PER_PIXEL
    for number in range(_interpolate(0, 5, difficulty_256)):
        words = split_keys(split_keys(stream, np.array([number]))[:, 0], np.arange(10))
        row, col = (
            to_integers(words[:, 0], 0, rows * UNITS_PER_PIXEL),
            to_integers(words[:, 1], 0, cols * UNITS_PER_PIXEL),
        )
        reach = to_integers(words[:, 2], side * 16 // 256, side * 40 // 256)
        placement = Placement(row, col, reach, to_integers(words[:, 3], 0, UNITS_PER_TURN - 1))
        kinds = to_integers(words[:, 4], 0, len(FRAGMENT_NAMES) - 1)
        coverage = placement.sample(fragment_tables(), kinds, (rows, cols), samples=_OTHER_SAMPLES, periodic=False)
        coverage *= (to_integers(words[:, 5], 0, 3) > 0).astype(np.int32)[:, None, None]
        paint = colours.fragment(words[:, 6:])[:, 0, :, None, None].astype(np.int32)
        _cover(canvas, paint, coverage, _OTHER_SAMPLES)


def _object_place(keys: Keys, image_size: tuple[int, int], difficulty_256: int) -> Placement:
    """Placement of the object: large, central and upright if easy; at any angle and place if hard."""
    words = sample_words(keys, Purpose.PLACE, 4)
    rows, cols = image_size
    side = min(rows, cols) * UNITS_PER_PIXEL
    reach = to_integers(
        words[:, 0],
        side * _interpolate(108, 60, difficulty_256) // 256,
        side * _interpolate(124, 112, difficulty_256) // 256,
    )
    difficulty_256 = _difficulty_to_fourth(difficulty_256)
    share, turn = _interpolate(64, 256, difficulty_256), _interpolate(8, UNITS_PER_TURN // 2, difficulty_256)
    room = [np.maximum(size * UNITS_PER_PIXEL // 2 - UNITS_PER_PIXEL - reach, 0) * share >> 8 for size in (rows, cols)]
    row = rows * UNITS_PER_PIXEL // 2 + to_integers(words[:, 1], -room[0], room[0])
    col = cols * UNITS_PER_PIXEL // 2 + to_integers(words[:, 2], -room[1], room[1])
    return Placement(row, col, reach, to_integers(words[:, 3], -turn, turn))


def _light(canvas: Canvas, words: Words, difficulty_256: int) -> None:
    """Change contrast and brightness, and add a linear gradient across the image; in place."""
    rows, cols = canvas.shape[2:]
    spread = _interpolate(8, 64, difficulty_256)
    gain = to_integers(words[:, 0], 256 - spread, 256 + spread // 2).astype(np.int32)[:, None, None, None]
    brightness = to_integers(words[:, 1], -spread // 3, spread // 3).astype(np.int32)
    slopes = [to_integers(words[:, place], -spread // 2, spread // 2).astype(np.int32) for place in (2, 3)]
    across_rows = (2 * np.arange(rows, dtype=np.int32) + 1 - rows) * slopes[0][:, None] // (2 * rows)
    across_cols = (2 * np.arange(cols, dtype=np.int32) + 1 - cols) * slopes[1][:, None] // (2 * cols)
    shade = brightness[:, None, None] + across_rows[:, :, None] + across_cols[:, None, :]
    canvas -= 128
    canvas *= gain
    canvas >>= 8
    canvas += 128 + shade[:, None]


def _noise(canvas: Canvas, keys: Keys, difficulty_256: int) -> None:
    """Triangular noise in every pixel and channel, of standard deviation ``amplitude / sqrt 6``; in place."""
    rows, cols = canvas.shape[2:]
    words = sample_words(keys, Purpose.NOISE, rows * cols).reshape(-1, rows, cols)
    amplitude = _interpolate(4, 28, difficulty_256)
    for channel in range(3):
        pair = ((words >> np.uint64(16 * channel)) & np.uint64(0xFFFF)).astype(np.int32)
        canvas[:, channel] += ((pair & 255) + (pair >> 8) - 255) * amplitude // 256
