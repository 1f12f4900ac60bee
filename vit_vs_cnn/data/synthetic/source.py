"""Synthetic images as a source: bit-identical on every machine, with masks and with two cues, shape and texture."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt64
from torch import Tensor

from vit_vs_cnn.bounds import as_rows_and_cols
from vit_vs_cnn.counter_random import balanced_labels, counter_key, split_keys, to_integers
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import Split, SyntheticOptions
from vit_vs_cnn.data.synthetic.scenes import (
    Keys,
    Purpose,
    RenderedScenes,
    Words,
    render_pair_scenes,
    render_scenes,
    sample_words,
)
from vit_vs_cnn.data.synthetic.tables import SHAPE_NAMES

_CHUNK_PIXELS = 1 << 16  # pixels rendered at a time: bounds the memory, and keeps the work within a processor's cache
_SPLITS: tuple[Split, ...] = ("train", "test")
#: Shapes of a pair, which differ clearly where they are small.
PAIR_SHAPES = ("disc", "triangle", "cross", "ring")
PAIR_CLASSES = ("different", "same")
Key = UInt64[np.ndarray, "1"]
Numbers = Int64[np.ndarray, "count"]


class SyntheticObjects(NamedTuple):
    """Synthetic images with masks of the pixels at least half inside of an object, and the shape and texture of each.

    Shapes and textures are indices in ``SHAPE_NAMES`` and ``TEXTURE_NAMES``.
    """

    images: LabelledImages
    shapes: Int64[Tensor, "count"]
    textures: Int64[Tensor, "count"]


class SyntheticSource:
    """The synthetic images as a source. Nothing is downloaded."""

    def __init__(self, options: SyntheticOptions | None = None) -> None:
        self.options = options or SyntheticOptions()

    def train(self) -> LabelledImages:
        return self._render(self.options.train_images, "train")

    def validation(self) -> None:
        return None

    def test(self) -> LabelledImages:
        return self._render(self.options.test_images, "test")

    def provenance(self) -> dict[str, Any]:
        """The source and all options, which decide the images."""
        return {"source": "synthetic", **asdict(self.options)}

    def _render(self, count: int, split: Split) -> LabelledImages:
        options = self.options
        look: dict[str, Any] = {"image_size": options.image_size, "difficulty": options.difficulty}
        if options.task == "same_different":
            key = counter_key(options.seed, _SPLITS.index(split), 2)
            return render_pairs(count, key=key, prefix=split, distance=options.distance, **look)
        shape, texture = options.agreements(split)
        look |= {"shape_agreement": shape, "texture_agreement": texture}
        return render_objects(count, seed=options.seed, split=split, **look).images


def render_objects(
    count: int,
    *,
    seed: int = 0,
    split: Split = "train",
    start: int = 0,
    image_size: int | tuple[int, int] = 32,
    shape_agreement: float = 1.0,
    texture_agreement: float = 0.1,
    difficulty: float = 0.5,
) -> SyntheticObjects:
    """Images ``start`` to ``start + count - 1`` of a seed and split.

    Image i is a pure function of the seed, the split, i and the other arguments, computed in whole numbers: the same
    bits on every machine. Ten images from a multiple of ten on hold each class once.

    Arguments:
        split: one of the two independent random streams of the seed.
        image_size: side in pixels, or (rows, cols); each 8 to 1024.
        shape_agreement, texture_agreement, difficulty: as in ``SyntheticOptions``.
    """
    size, level = as_rows_and_cols("image_size", image_size), round(difficulty * 256)
    numbers = np.arange(start, start + count, dtype=np.int64)
    keys = split_keys(counter_key(seed, _SPLITS.index(split)), numbers)[0]
    labels = balanced_labels(counter_key(seed, _SPLITS.index(split), 1), numbers, len(SHAPE_NAMES))
    shapes = _agreeing(sample_words(keys, Purpose.SHAPE, 2), labels, shape_agreement)
    textures = _agreeing(sample_words(keys, Purpose.TEXTURE, 2), labels, texture_agreement)
    images = _rendered(
        lambda part: render_scenes(keys[part], shapes[part], textures[part], size, level),
        size,
        labels,
        SHAPE_NAMES,
        [f"{split}-{number:06d}" for number in numbers.tolist()],
    )
    return SyntheticObjects(images, torch.from_numpy(shapes), torch.from_numpy(textures))


def _rendered(
    render: Callable[[slice], RenderedScenes],
    image_size: tuple[int, int],
    labels: Numbers,
    class_names: tuple[str, ...],
    names: list[str],
) -> LabelledImages:
    """The images of all slices that ``render`` returns."""
    pixels = np.empty((len(labels), 3, *image_size), dtype=np.uint8)
    masks = np.empty((len(labels), *image_size), dtype=bool)
    chunk = max(1, _CHUNK_PIXELS // (image_size[0] * image_size[1]))
    for first in range(0, len(labels), chunk):
        part = slice(first, first + chunk)
        pixels[part], masks[part] = render(part)
    images, of_class, objects = map(torch.from_numpy, (pixels, labels, masks))
    return LabelledImages(images, of_class, class_names, names, objects)


def _agreeing(words: Words, labels: Numbers, probability: float) -> Numbers:
    """Sample for each image its label with the given probability, otherwise one of the nine other classes."""
    classes = len(SHAPE_NAMES)
    # A product with a power of two is exact, so the threshold is the same everywhere.
    agrees = (words[:, 0] >> np.uint64(32)).astype(np.int64) < int(probability * 2**32)
    return np.where(agrees, labels, (labels + to_integers(words[:, 1], 1, classes - 1)) % classes)


def sample_pairs(count: int, key: Key) -> tuple[Keys, Numbers, Int64[np.ndarray, "count 2"]]:
    """Random keys of the images of ``render_pairs``, their labels, and their two shapes (indices in ``PAIR_SHAPES``).

    Each shape alone is uniformly distributed for both labels. A network that adds evidence g of places with one object
    decides by g(i) + g(j). It is right on at most two images of three. Attention compares two places in one layer.
    """
    streams = split_keys(key, np.arange(2))[0]
    numbers = np.arange(count, dtype=np.int64)
    keys = split_keys(streams[:1], numbers)[0]
    labels = balanced_labels(streams[1:], numbers, len(PAIR_CLASSES))
    words = sample_words(keys, Purpose.SHAPE, 2)
    first = to_integers(words[:, 0], 0, len(PAIR_SHAPES) - 1)
    different = (first + to_integers(words[:, 1], 1, len(PAIR_SHAPES) - 1)) % len(PAIR_SHAPES)
    return keys, labels, np.stack([first, np.where(labels == 1, first, different)], axis=1)


def render_pairs(
    count: int, *, key: Key, prefix: str, image_size: int = 32, difficulty: float = 0.5, distance: float = 1.0
) -> LabelledImages:
    """The first ``count`` images of two objects in opposite quarters. The label is whether their shapes are equal.

    Image i is a pure function of the key, i and the other arguments, in whole numbers. The mask covers both objects.
    """
    keys, labels, kinds = sample_pairs(count, key)
    shapes = np.array([SHAPE_NAMES.index(name) for name in PAIR_SHAPES])[kinds]
    level, distance_256, size = round(difficulty * 256), round(distance * 256), (image_size, image_size)
    return _rendered(
        lambda part: render_pair_scenes(keys[part], shapes[part], size, level, distance_256),
        size,
        labels,
        PAIR_CLASSES,
        [f"{prefix}-{number:06d}" for number in range(count)],
    )
