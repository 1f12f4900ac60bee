"""Scenes: objects on a textured, cluttered background, rendered in whole numbers.

A table of cells (a shape or a texture) is placed in an image by fixed-point positions, sizes and angles.
"""

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

_OBJECT_SAMPLES, _OTHER_SAMPLES = 4, 2  # points along a pixel's side: edges in 16 steps, clutter and surfaces in 4
UNITS_PER_TURN, UNITS_PER_PIXEL = 256, 64
#: Number of table cells along the reach of a placement.
REACH_CELLS = 256
#: 2^14 sin(2 pi k / 256). No value is within 0.005 of a half, so all machines round to the same numbers.
SINES = np.rint(2**14 * np.sin(2 * np.pi * np.arange(UNITS_PER_TURN) / UNITS_PER_TURN)).astype(np.int64)

#: Key of the random numbers of each image.
Keys = UInt64[np.ndarray, "count"]
#: Random 64-bit integers of each image.
Words = UInt64[np.ndarray, "count words"]
Counts = Int64[np.ndarray, "count"]
#: One number for each pixel, such as the level of a texture or the covered share.
Surface = Int32[np.ndarray, "count rows cols"]
Canvas = Int32[np.ndarray, "count 3 rows cols"]
Paint = Int32[np.ndarray, "count 3 _ _"]
#: Images, and the pixels of each that are at least half inside of an object.
RenderedScenes: TypeAlias = tuple[UInt8[np.ndarray, "count 3 rows cols"], Bool[np.ndarray, "count rows cols"]]


@dataclass(frozen=True, eq=False)
class Placement:
    """Similarity transform of each image, from pixels to the cells of a table, the raster of a shape or of a texture.

    Cell (0, 0) is the centre of the table.

        u = ( dx cos a + dy sin a) 256 / reach        (dx, dy) = pixel - (col, row)
        v = (-dx sin a + dy cos a) 256 / reach

    Arguments:
        row, col: position of the origin, in 1/64 pixel from the image's upper left corner.
        reach: length of 256 cells in the image, in 1/64 pixel.
        angle: rotation in 1/256 of a turn.
    """

    row: Counts
    col: Counts
    reach: Counts
    angle: Counts

    def sample(
        self, tables: UInt8[np.ndarray, "kinds side side"], kinds: Counts, image_size: tuple[int, int], samples: int
    ) -> Surface:
        """The sum of the table's values over ``samples x samples`` points spread evenly in each pixel.

        Arguments:
            tables: one square table of cells per kind, with a power of two as its side. Outside of its borders, a
                texture repeats, and a shape has its border cells.
            samples: points along a pixel's side; a divisor of 32.
        """
        side, count, is_periodic = tables.shape[-1], len(kinds), tables is texture_tables()
        middle, shift = side // 2 << 6, side.bit_length() - 1
        flat, offsets = tables.reshape(-1), (kinds << 2 * shift)[:, None, None]
        points = (2 * np.arange(samples) + 1)[:, None] * (UNITS_PER_PIXEL // (2 * samples))
        row_positions, col_positions = (
            (points + np.arange(size, dtype=np.int64) * UNITS_PER_PIXEL).reshape(-1) for size in image_size
        )
        sin, cos = SINES[self.angle % UNITS_PER_TURN], SINES[(self.angle + UNITS_PER_TURN // 4) % UNITS_PER_TURN]
        dx, dy = col_positions - self.col[:, None], row_positions - self.row[:, None]

        def scaled(distances: np.ndarray, factors: np.ndarray) -> np.ndarray:
            cells = (distances * factors[:, None] * REACH_CELLS) // (self.reach[:, None] << 8)
            return cells.astype(np.int32).reshape(count, samples, -1)

        # The map is linear, so rows and columns are scaled separately, and each pixel needs only a sum, in 1/64 cell.
        u_rows, u_cols = scaled(dy, sin) + middle, scaled(dx, cos)
        v_rows, v_cols = scaled(dy, cos) + middle, scaled(dx, -sin)
        # In place, and with one index a point: most of the time of rendering is spent here.
        total, u, v = (np.zeros((count, *image_size), dtype=np.int32) for _ in range(3))
        index, values = np.empty(total.shape, dtype=np.intp), np.empty(total.shape, dtype=np.uint8)
        for row, col in np.ndindex(samples, samples):
            for cell, rows, cols in ((u, u_rows, u_cols), (v, v_rows, v_cols)):
                np.right_shift(rows[:, row, :, None] + cols[:, col, None], 6, out=cell)
                if is_periodic:
                    np.bitwise_and(cell, side - 1, out=cell)
                else:
                    np.clip(cell, 0, side - 1, out=cell)
            np.add(v << shift, u + offsets, out=index)
            total += np.take(flat, index, out=values, mode="clip")  # other modes make a copy
        return total


#: Quantities that random numbers decide. Each has its own stream, so that other quantities do not depend on it.
Purpose = IntEnum(
    "Purpose",
    "SHAPE TEXTURE PLACE COLOUR SURFACE BACKGROUND BACKGROUND_NOISE FRAGMENTS LIGHT NOISE PAIR",
    start=0,
)


def sample_words(keys: Keys, purpose: Purpose, number: int) -> Words:
    """``number`` random 64-bit integers of each image, ``(count, number)``, independent for each purpose."""
    return split_keys(split_keys(keys, np.array([purpose]))[:, 0], np.arange(number))


def render_scenes(
    keys: Keys, shapes: Counts, textures: Counts, image_size: tuple[int, int], difficulty_256: int
) -> RenderedScenes:
    """Background, fragments, object, light and noise, in that order; and the object's mask."""
    scenes = _Scenes(keys, image_size, difficulty_256)
    scenes.add_fragments()
    colours = _blend(scenes.object_pair, scenes.surface(scenes.words(Purpose.SURFACE, 4), textures, periods=(5, 8)))
    mask = scenes.paint(scenes.object_place(), shape_tables(), shapes, colours, samples=_OBJECT_SAMPLES)
    return scenes.finished(), mask


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
    scenes = _Scenes(keys, image_size, difficulty_256)
    words = scenes.words(Purpose.PAIR, 1 + 2 * 6)
    quarter, wander = to_integers(words[:, 0], 0, 3), scenes.side * scenes.between(2, 8) // 256
    reach, angle = np.full(len(keys), scenes.side * 52 // 256), np.zeros(len(keys), dtype=np.int64)
    masks = []
    for number in range(2):
        numbers = words[:, 1 + 6 * number : 7 + 6 * number]
        far_sides = (quarter >> 1 ^ number) & 1, (quarter ^ number) & 1
        row, col = (
            size * UNITS_PER_PIXEL * (512 + distance_256 * (2 * is_far - 1)) // 1024
            + to_integers(numbers[:, axis], -wander, wander)
            for axis, (size, is_far) in enumerate(zip(image_size, far_sides, strict=True))
        )
        placement = Placement(row, col, reach, angle)
        colour = scenes.contrasting_colour(numbers[:, 2:])
        masks.append(scenes.paint(placement, shape_tables(), shapes[:, number], colour, samples=_OBJECT_SAMPLES))
    return scenes.finished(), masks[0] | masks[1]


class _Scenes:
    """Images that are painted step by step on ``canvas``, which begins with the background.

    The object's mean grey differs from the background's by a random step. The step is upward or, more often at higher
    difficulty, downward. Hues are uniform. Some objects are camouflaged: their texture has the two colours of the
    background.
    """

    def __init__(self, keys: Keys, image_size: tuple[int, int], difficulty_256: int) -> None:
        self.keys, self.image_size, self.difficulty = keys, image_size, difficulty_256
        self.side = min(image_size) * UNITS_PER_PIXEL
        words = self.words(Purpose.COLOUR, 18)
        self.grey = to_integers(words[:, 0], 80, 144)
        self.step = to_integers(words[:, 1], self.between(112, 40), self.between(128, 96))
        sign = np.where(to_integers(words[:, 2], 0, 255) < self.between(256, 128, is_steep=True), 1, -1)
        # The two colours of a textured object stay on the same side of the background, so the silhouette stays whole.
        swing = to_integers(words[:, 3], 0, self.step * self.between(32, 192) // 256)
        swing = swing * (to_integers(words[:, 4], 0, 1) * 2 - 1)
        background_pair = _colour_pair(self.grey, self.between(8, 32), words[:, 5:11])
        object_pair = _colour_pair(self.grey + sign * self.step, swing, words[:, 11:17])
        is_camouflaged = to_integers(words[:, 17], 0, 255) < self.between(0, 56)
        self.object_pair = np.where(is_camouflaged[:, None, None], background_pair, object_pair)
        self.canvas = self._background(background_pair)

    def words(self, purpose: Purpose, number: int) -> Words:
        return sample_words(self.keys, purpose, number)

    def between(self, easy: int, hard: int, *, is_steep: bool = False) -> int:
        """The setting at the difficulty, on the way from the easy value to the hard one.

        ``is_steep``: at its fourth power, for what a small ViT learns slowest: place, angle and sign of contrast.
        """
        return easy + ((hard - easy) * (self.difficulty**4 >> 24 if is_steep else self.difficulty) >> 8)

    def _background(self, colours: Int64[np.ndarray, "count 2 3"]) -> Canvas:
        """Value noise between two colours, with a texture of any kind mixed in by a random share."""
        words = self.words(Purpose.BACKGROUND, 6)
        noise = value_noise(split_keys(self.keys, np.array([Purpose.BACKGROUND_NOISE]))[:, 0], self.image_size)
        noise = np.clip((noise - 112) * 2 + 128, 0, 255)
        texture = self.surface(words[:, :4], to_integers(words[:, 4], 0, len(TEXTURE_NAMES) - 1), periods=(3, 9))
        share = to_integers(words[:, 5], 0, self.between(64, 224)).astype(np.int32)[:, None, None]
        return _blend(colours, noise + ((texture - noise) * share >> 8))

    def contrasting_colour(self, words: Words) -> Paint:
        """A colour with the contrast of the object to the background, ``(count, 3, 1, 1)``."""
        hues = to_integers(words[:, :3], -48, 48)
        hues = hues - hues.sum(axis=1, keepdims=True) // 3
        sign = to_integers(words[:, 3], 0, 1) * 2 - 1
        return ((self.grey + sign * self.step)[:, None] + hues)[:, :, None, None].astype(np.int32)

    def surface(self, words: Words, kinds: Counts, periods: tuple[int, int]) -> Surface:
        """A texture at random place, angle and scale: as many periods as lie between the two along the shorter side."""
        tiles = [self.side * TILE_PERIODS // number for number in reversed(periods)]
        row, col = (to_integers(words[:, place], 0, tiles[1]) for place in (0, 1))
        reach, angle = to_integers(words[:, 2], *tiles), to_integers(words[:, 3], 0, UNITS_PER_TURN - 1)
        total = Placement(row, col, reach, angle).sample(texture_tables(), kinds, self.image_size, _OTHER_SAMPLES)
        return total // _OTHER_SAMPLES**2

    def paint(
        self,
        placement: Placement,
        tables: UInt8[np.ndarray, "kinds side side"],
        kinds: Counts,
        colours: Paint,
        *,
        samples: int,
        is_shown: Bool[np.ndarray, "count"] | bool = True,
    ) -> Bool[np.ndarray, "count rows cols"]:
        """Blend colours into the canvas by the share of each pixel that is covered. Returns the mask."""
        coverage = placement.sample(tables, kinds, self.image_size, samples)
        coverage *= np.reshape(is_shown, (-1, 1, 1))
        self.canvas += (colours - self.canvas) * coverage[:, None] // samples**2
        return 2 * coverage >= samples**2

    def add_fragments(self) -> None:
        """Add fragments that belong to no class, with the contrast of the object, each with probability 3/4."""
        stream = split_keys(self.keys, np.array([Purpose.FRAGMENTS]))[:, 0]
        for number in range(self.between(0, 5)):
            words = split_keys(split_keys(stream, np.array([number]))[:, 0], np.arange(10))
            row, col = (to_integers(words[:, i], 0, self.image_size[i] * UNITS_PER_PIXEL) for i in (0, 1))
            reach = to_integers(words[:, 2], self.side * 16 // 256, self.side * 40 // 256)
            placement = Placement(row, col, reach, to_integers(words[:, 3], 0, UNITS_PER_TURN - 1))
            kinds = to_integers(words[:, 4], 0, len(FRAGMENT_NAMES) - 1)
            colour, is_shown = self.contrasting_colour(words[:, 6:]), to_integers(words[:, 5], 0, 3) > 0
            self.paint(placement, fragment_tables(), kinds, colour, samples=_OTHER_SAMPLES, is_shown=is_shown)

    def object_place(self) -> Placement:
        """Placement of the object: large, central and upright if easy; at any angle and place if hard."""
        words = self.words(Purpose.PLACE, 4)
        smallest, largest = (self.side * self.between(*sizes) // 256 for sizes in ((108, 60), (124, 112)))
        reach = to_integers(words[:, 0], smallest, largest)
        share = self.between(64, 256, is_steep=True)
        turn = self.between(8, UNITS_PER_TURN // 2, is_steep=True)
        middles = [size * UNITS_PER_PIXEL // 2 for size in self.image_size]
        margins = [np.maximum(middle - UNITS_PER_PIXEL - reach, 0) * share >> 8 for middle in middles]
        row, col = (middles[i] + to_integers(words[:, 1 + i], -margins[i], margins[i]) for i in (0, 1))
        return Placement(row, col, reach, to_integers(words[:, 3], -turn, turn))

    def finished(self) -> UInt8[np.ndarray, "count 3 rows cols"]:
        """The images with light and noise."""
        self._add_light()
        self._add_noise()
        return np.clip(self.canvas, 0, 255).astype(np.uint8)

    def _add_light(self) -> None:
        """Change contrast and brightness, and add a linear gradient across the image."""
        words, spread = self.words(Purpose.LIGHT, 4), self.between(8, 64)
        gain = to_integers(words[:, 0], 256 - spread, 256 + spread // 2).astype(np.int32)[:, None, None, None]
        brightness = to_integers(words[:, 1], -spread // 3, spread // 3).astype(np.int32)
        across_rows, across_cols = (
            (2 * np.arange(size, dtype=np.int32) + 1 - size)
            * to_integers(words[:, place], -spread // 2, spread // 2).astype(np.int32)[:, None]
            // (2 * size)
            for place, size in enumerate(self.image_size, start=2)
        )
        shade = brightness[:, None, None] + across_rows[:, :, None] + across_cols[:, None, :]
        self.canvas -= 128
        self.canvas *= gain
        self.canvas >>= 8
        self.canvas += 128 + shade[:, None]

    def _add_noise(self) -> None:
        """Add triangular noise to every pixel and channel, of standard deviation ``amplitude / sqrt 6``."""
        rows, cols = self.image_size
        words = self.words(Purpose.NOISE, rows * cols).reshape(-1, rows, cols)
        amplitude = self.between(4, 28)
        for channel in range(3):
            pair = ((words >> np.uint64(16 * channel)) & np.uint64(0xFFFF)).astype(np.int32)
            self.canvas[:, channel] += ((pair & 255) + (pair >> 8) - 255) * amplitude // 256


def _colour_pair(grey: Counts, swing: int | Counts, words: Words) -> Int64[np.ndarray, "count 2 3"]:
    """Two colours ``swing`` below and above the grey, of one random hue each (the channels' mean is kept)."""
    hues = to_integers(words.reshape(-1, 2, 3), -48, 48)
    hues = hues - hues.sum(axis=2, keepdims=True) // 3
    return np.stack([grey - swing, grey + swing], axis=1)[:, :, None] + hues


def _blend(pair: Int64[np.ndarray, "count 2 3"], surface: Surface) -> Canvas:
    low, high = pair[:, 0, :, None, None].astype(np.int32), pair[:, 1, :, None, None].astype(np.int32)
    return low + ((high - low) * surface[:, None] >> 8)
