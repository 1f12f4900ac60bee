"""A scene: one object on a textured, cluttered background, painted in whole numbers alone."""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt8, UInt64

from vit_vs_cnn.data.counter_random import split_keys, to_integers
from vit_vs_cnn.data.drawn.placements import PIXEL, TURN, Placement
from vit_vs_cnn.data.drawn.shapes import FRAGMENT_NAMES, fragment_tables, shape_tables
from vit_vs_cnn.data.drawn.textures import TEXTURE_NAMES, TILE_PERIODS, texture_tables, value_noise

_CHUNK_PIXELS = 1 << 16  # pixels drawn at a time: bounds the memory, and keeps the work within a processor's cache
_OBJECT_SAMPLES, _OTHER_SAMPLES = 4, 2  # points along a pixel's side: edges in 16 steps, clutter and surfaces in 4

Keys = UInt64[np.ndarray, "count"]
Words = UInt64[np.ndarray, "count words"]
Canvas = Int32[np.ndarray, "count 3 rows cols"]
Surface = Int32[np.ndarray, "count rows cols"]


#: Images, and in each where its objects cover at least half of the pixel.
Painted: TypeAlias = tuple[UInt8[np.ndarray, "count 3 rows cols"], Bool[np.ndarray, "count rows cols"]]


class Purpose(IntEnum):
    """What a stream of random words decides. Each quantity has its own, so that a dial moves that quantity alone."""

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


def purpose_words(keys: Keys, purpose: Purpose, number: int) -> Words:
    """``number`` random words of each image for one purpose, ``(count, number)``."""
    return split_keys(split_keys(keys, np.array([purpose]))[:, 0], np.arange(number))


def paint_in_chunks(count: int, image_size: tuple[int, int], paint: Callable[[slice], Painted]) -> Painted:
    """Images and masks of all scenes, a slice of them at a time painted by ``paint``."""
    pixels = np.empty((count, 3, *image_size), dtype=np.uint8)
    masks = np.empty((count, *image_size), dtype=bool)
    chunk = max(1, _CHUNK_PIXELS // (image_size[0] * image_size[1]))
    for first in range(0, count, chunk):
        part = slice(first, first + chunk)
        pixels[part], masks[part] = paint(part)
    return pixels, masks


def _between(easy: int, hard: int, dial: int) -> int:
    """The setting at ``dial`` / 256 of the way from the easy value to the hard one."""
    return easy + ((hard - easy) * dial >> 8)


def _slow(dial: int) -> int:
    """The fourth power of the difficulty, for what a network without built-in invariance learns slowest.

    With place, angle and sign of contrast spread over their whole ranges, a small ViT is still at chance after 400
    steps on clean images that a CNN has solved after 100: at the default difficulty they have to vary little.
    """
    return dial**4 >> 24


def paint_scenes(
    keys: Keys,
    shapes: Int64[np.ndarray, "count"],
    textures: Int64[np.ndarray, "count"],
    image_size: tuple[int, int],
    dial: int,
) -> Painted:
    """Background, fragments, object, light and noise, in that order; and the object's mask.

    Arguments:
        shapes: the shape of each object, an index in ``SHAPE_NAMES``.
        textures: the texture that fills it, an index in ``TEXTURE_NAMES``.
        dial: the difficulty in 1/256.
    """
    colours = _Colours(purpose_words(keys, Purpose.COLOUR, 18), dial)
    canvas = _background(keys, colours, image_size, dial)
    _add_fragments(canvas, keys, colours, dial)
    coverage = _object_place(keys, image_size, dial).sample(
        shape_tables(), shapes, image_size, samples=_OBJECT_SAMPLES, periodic=False
    )
    surface = _surface(purpose_words(keys, Purpose.SURFACE, 4), textures, image_size, periods=(5, 8))
    _cover(canvas, _blend(colours.object_pair, surface), coverage, _OBJECT_SAMPLES)
    return _finished(canvas, keys, dial), 2 * coverage >= _OBJECT_SAMPLES**2


def paint_pairs(
    keys: Keys, shapes: Int64[np.ndarray, "count 2"], image_size: tuple[int, int], dial: int, apart: int = 256
) -> Painted:
    """Two upright objects of one colour each in opposite quarters of a background; and the mask of both.

    The arguments are those of ``paint_scenes``, with two shapes for each image.

    Arguments:
        apart: how far each is from the middle, in 256ths of the way to the middle of its quarter.
    """
    colours = _Colours(purpose_words(keys, Purpose.COLOUR, 18), dial)
    canvas = _background(keys, colours, image_size, dial)
    rows, cols = image_size
    side, reach = min(rows, cols) * PIXEL, min(rows, cols) * PIXEL * 52 // 256
    words = purpose_words(keys, Purpose.PAIR, 1 + 2 * 6)
    quarter, wander = to_integers(words[:, 0], 0, 3), side * _between(2, 8, dial) // 256
    mask = np.zeros((len(keys), rows, cols), dtype=bool)
    for number in range(2):
        own = words[:, 1 + 6 * number : 7 + 6 * number]
        lower, right = (quarter >> 1 ^ number) & 1, (quarter ^ number) & 1
        placement = Placement(
            row=rows * PIXEL * (512 + apart * (2 * lower - 1)) // 1024 + to_integers(own[:, 0], -wander, wander),
            col=cols * PIXEL * (512 + apart * (2 * right - 1)) // 1024 + to_integers(own[:, 1], -wander, wander),
            reach=np.full(len(keys), reach),
            angle=np.zeros(len(keys), dtype=np.int64),
        )
        coverage = placement.sample(
            shape_tables(), shapes[:, number], image_size, samples=_OBJECT_SAMPLES, periodic=False
        )
        paint = colours.fragment(own[:, 2:])[:, 0, :, None, None].astype(np.int32)
        _cover(canvas, paint, coverage, _OBJECT_SAMPLES)
        mask |= 2 * coverage >= _OBJECT_SAMPLES**2
    return _finished(canvas, keys, dial), mask


def _finished(canvas: Canvas, keys: Keys, dial: int) -> UInt8[np.ndarray, "count 3 rows cols"]:
    _light(canvas, purpose_words(keys, Purpose.LIGHT, 4), dial)
    _noise(canvas, keys, dial)
    return np.clip(canvas, 0, 255).astype(np.uint8)


class _Colours:
    """The colours of an image: two of the background, two of the object, and how far the fragments stand out.

    The object's mean grey is a drawn step away from the background's, upward or (the more often the harder) downward;
    the hues are free. Some objects are camouflaged: their texture is in the background's own two colours.
    """

    def __init__(self, words: Words, dial: int) -> None:
        self.grey = to_integers(words[:, 0], 80, 144)
        self.step = to_integers(words[:, 1], _between(112, 40, dial), _between(128, 96, dial))
        sign = np.where(to_integers(words[:, 2], 0, 255) < _between(256, 128, _slow(dial)), 1, -1)
        # The two colours of a textured object stay on the same side of the background, so the silhouette stays whole.
        swing = to_integers(words[:, 3], 0, self.step * _between(32, 192, dial) // 256)
        swing = swing * (to_integers(words[:, 4], 0, 1) * 2 - 1)
        self.background_pair = self._pair(self.grey, _between(8, 32, dial), words[:, 5:11])
        own = self._pair(self.grey + sign * self.step, swing, words[:, 11:17])
        camouflaged = to_integers(words[:, 17], 0, 255) < _between(0, 56, dial)
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
        """A colour that stands out of the background as much as the object's, ``(count, 1, 3)``."""
        hues = to_integers(words[:, :3], -48, 48)
        hues = hues - hues.sum(axis=1, keepdims=True) // 3
        sign = to_integers(words[:, 3], 0, 1) * 2 - 1
        return (self.grey + sign * self.step)[:, None, None] + hues[:, None]


def _blend(pair: Int64[np.ndarray, "count 2 3"], surface: Surface) -> Canvas:
    low, high = pair[:, 0, :, None, None].astype(np.int32), pair[:, 1, :, None, None].astype(np.int32)
    return low + ((high - low) * surface[:, None] >> 8)


def _cover(canvas: Canvas, paint: Int32[np.ndarray, "count 3 _ _"], coverage: Surface, samples: int) -> None:
    """Lay paint over the canvas, in place, by the share of each pixel that is covered."""
    canvas += (paint - canvas) * coverage[:, None] // samples**2


def _surface(
    words: Words, kinds: Int64[np.ndarray, "count"], image_size: tuple[int, int], periods: tuple[int, int]
) -> Surface:
    """A texture at random place, angle and scale: as many periods as lie between the two along the shorter side."""
    side = min(image_size) * PIXEL
    tiles = (side * TILE_PERIODS) // periods[1], (side * TILE_PERIODS) // periods[0]
    row, col = (to_integers(words[:, place], 0, tiles[1]) for place in (0, 1))
    placement = Placement(row, col, to_integers(words[:, 2], *tiles), to_integers(words[:, 3], 0, TURN - 1))
    total = placement.sample(texture_tables(), kinds, image_size, samples=_OTHER_SAMPLES, periodic=True)
    return total // _OTHER_SAMPLES**2


def _background(keys: Keys, colours: _Colours, image_size: tuple[int, int], dial: int) -> Canvas:
    """Value noise between two colours, with a texture of any kind mixed in by a random share."""
    words = purpose_words(keys, Purpose.BACKGROUND, 6)
    noise = value_noise(split_keys(keys, np.array([Purpose.BACKGROUND_NOISE]))[:, 0], image_size)
    noise = np.clip((noise - 112) * 2 + 128, 0, 255)
    kinds = to_integers(words[:, 4], 0, len(TEXTURE_NAMES) - 1)
    texture = _surface(words[:, :4], kinds, image_size, periods=(3, 9))
    share = to_integers(words[:, 5], 0, _between(64, 224, dial)).astype(np.int32)[:, None, None]
    return _blend(colours.background_pair, noise + ((texture - noise) * share >> 8))


def _add_fragments(canvas: Canvas, keys: Keys, colours: _Colours, dial: int) -> None:
    """Pieces that belong to no class, of the object's contrast; each is there in three images of four."""
    rows, cols = canvas.shape[2:]
    stream = split_keys(keys, np.array([Purpose.FRAGMENTS]))[:, 0]
    side = min(rows, cols) * PIXEL
    for number in range(_between(0, 5, dial)):
        words = split_keys(split_keys(stream, np.array([number]))[:, 0], np.arange(10))
        row, col = to_integers(words[:, 0], 0, rows * PIXEL), to_integers(words[:, 1], 0, cols * PIXEL)
        reach = to_integers(words[:, 2], side * 16 // 256, side * 40 // 256)
        placement = Placement(row, col, reach, to_integers(words[:, 3], 0, TURN - 1))
        kinds = to_integers(words[:, 4], 0, len(FRAGMENT_NAMES) - 1)
        coverage = placement.sample(fragment_tables(), kinds, (rows, cols), samples=_OTHER_SAMPLES, periodic=False)
        coverage *= (to_integers(words[:, 5], 0, 3) > 0).astype(np.int32)[:, None, None]
        paint = colours.fragment(words[:, 6:])[:, 0, :, None, None].astype(np.int32)
        _cover(canvas, paint, coverage, _OTHER_SAMPLES)


def _object_place(keys: Keys, image_size: tuple[int, int], dial: int) -> Placement:
    """Large, central and upright where it is easy; where it is hard, of any angle, at any place that holds it whole."""
    words = purpose_words(keys, Purpose.PLACE, 4)
    rows, cols = image_size
    side = min(rows, cols) * PIXEL
    reach = to_integers(words[:, 0], side * _between(108, 60, dial) // 256, side * _between(124, 112, dial) // 256)
    dial = _slow(dial)
    share, turn = _between(64, 256, dial), _between(8, TURN // 2, dial)
    room = [np.maximum(size * PIXEL // 2 - PIXEL - reach, 0) * share >> 8 for size in (rows, cols)]
    row = rows * PIXEL // 2 + to_integers(words[:, 1], -room[0], room[0])
    col = cols * PIXEL // 2 + to_integers(words[:, 2], -room[1], room[1])
    return Placement(row, col, reach, to_integers(words[:, 3], -turn, turn))


def _light(canvas: Canvas, words: Words, dial: int) -> None:
    """Contrast about mid-grey, brightness, and a shade that falls linearly across the image; in place."""
    rows, cols = canvas.shape[2:]
    spread = _between(8, 64, dial)
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


def _noise(canvas: Canvas, keys: Keys, dial: int) -> None:
    """Triangular noise, independent in every pixel and channel, of standard deviation ``amplitude / sqrt 6``; in place.

    One word gives the six bytes of a pixel.
    """
    rows, cols = canvas.shape[2:]
    words = purpose_words(keys, Purpose.NOISE, rows * cols).reshape(-1, rows, cols)
    amplitude = _between(4, 28, dial)
    for channel in range(3):
        pair = ((words >> np.uint64(16 * channel)) & np.uint64(0xFFFF)).astype(np.int32)
        canvas[:, channel] += ((pair & 255) + (pair >> 8) - 255) * amplitude // 256
