"""Embedded images of shapes on clutter: drawn from a seed, bit-identical on every machine, with masks and two cues."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt64
from torch import Tensor

from vit_vs_cnn.bounds import AT_LEAST_0, AT_LEAST_1, SHARE, check_numbers
from vit_vs_cnn.data.counter_random import balanced_labels, counter_key, split_keys, to_integers
from vit_vs_cnn.data.drawn.scenes import (
    Painted,
    Purpose,
    Words,
    paint_in_chunks,
    paint_pairs,
    paint_scenes,
    purpose_words,
)
from vit_vs_cnn.data.drawn.shapes import SHAPE_NAMES
from vit_vs_cnn.data.drawn.textures import TEXTURE_NAMES
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import ALLOWED, PIXELS, ObjectsOptions, Split
from vit_vs_cnn.errors import InputError

_SPLITS: tuple[Split, ...] = ("train", "test")
#: The shapes that may stand in a pair: told apart where they are small.
KINDS = ("disc", "triangle", "cross", "ring")
RELATIONS = ("different", "same")


@dataclass(frozen=True, eq=False)
class ObjectsDraw:
    """Drawn images, and what was drawn.

    Arguments:
        images: the images with labels and masks; the mask is where the object covers at least half of the pixel.
        shapes: index in ``SHAPE_NAMES`` of the shape drawn, ``(count,)``.
        textures: index in ``TEXTURE_NAMES`` of the texture that fills it, ``(count,)``.
    """

    images: LabelledImages
    shapes: Int64[Tensor, "count"]
    textures: Int64[Tensor, "count"]


class ObjectsSource:
    """The embedded images as a source: ten shapes on clutter, nothing downloaded."""

    def __init__(self, options: ObjectsOptions | None = None) -> None:
        self.options = options or ObjectsOptions()

    def train(self) -> LabelledImages:
        return self._draw(self.options.train_images, "train")

    def validation(self) -> None:
        return None

    def test(self) -> LabelledImages:
        return self._draw(self.options.test_images, "test")

    def provenance(self) -> dict[str, Any]:
        """The source and every option: all that decides the images."""
        return {"source": "objects", **asdict(self.options)}

    def _draw(self, count: int, split: Split) -> LabelledImages:
        options = self.options
        if options.task == "same_different":
            key = counter_key(options.seed, _SPLITS.index(split), 2)
            dials = {"image_size": options.image_size, "difficulty": options.difficulty, "distance": options.distance}
            return draw_relations(count, key=key, prefix=split, **dials).images
        agreements = dict(zip(("shape_agreement", "texture_agreement"), options.agreements(split), strict=True))
        dials = {"image_size": options.image_size, "difficulty": options.difficulty, **agreements}
        images = draw_objects(count, seed=options.seed, split=split, **dials).images
        return images if options.task == "shape" else replace(images, class_names=TEXTURE_NAMES)


def draw_objects(
    count: int,
    *,
    seed: int = 0,
    split: Split = "train",
    start: int = 0,
    image_size: int | tuple[int, int] = 32,
    shape_agreement: float = 1.0,
    texture_agreement: float = 0.1,
    difficulty: float = 0.5,
) -> ObjectsDraw:
    """Draw images ``start`` to ``start + count - 1`` of a seed and split.

    Image i is a pure function of the seed, the split, i and the dials, computed in whole numbers alone: the same bits
    on every machine, and a longer draw begins with the shorter. Every run of ten images that starts at a multiple of
    ten holds each class once. The dials of shape and texture change no pixel outside the object.

    Arguments:
        seed, split: the family of images, and which of its two independent streams.
        image_size: side in pixels, or (rows, cols); each 8 to 1024.
        shape_agreement: probability that the shape is that of the label; otherwise another, uniformly.
        texture_agreement: probability that the texture is that of the label; otherwise another, uniformly.
        difficulty: 0 to 1, see ``ObjectsOptions``.
    """
    rows, cols = (image_size, image_size) if isinstance(image_size, int) else image_size
    numbers = {"count": count, "start": start, "rows": rows, "cols": cols, "difficulty": difficulty}
    numbers |= {"shape_agreement": shape_agreement, "texture_agreement": texture_agreement}
    whole = {"count": AT_LEAST_1, "start": AT_LEAST_0, "rows": PIXELS, "cols": PIXELS}
    check_numbers(numbers, ALLOWED, **dict.fromkeys(numbers, SHARE) | whole)
    if split not in _SPLITS:
        raise InputError(f"split is {split!r}; allowed: {', '.join(_SPLITS)}")

    numbers = np.arange(start, start + count, dtype=np.int64)
    stream = counter_key(seed, _SPLITS.index(split))
    keys = split_keys(stream, numbers)[0]
    labels = balanced_labels(counter_key(seed, _SPLITS.index(split), 1), numbers, len(SHAPE_NAMES))
    shapes = _agreeing(purpose_words(keys, Purpose.SHAPE, 2), labels, shape_agreement)
    textures = _agreeing(purpose_words(keys, Purpose.TEXTURE, 2), labels, texture_agreement)

    dial = round(difficulty * 256)
    painted = paint_in_chunks(
        count, (rows, cols), lambda part: paint_scenes(keys[part], shapes[part], textures[part], (rows, cols), dial)
    )
    images = _labelled(painted, labels, SHAPE_NAMES, split, numbers)
    return ObjectsDraw(images, torch.from_numpy(shapes), torch.from_numpy(textures))


def _labelled(
    painted: Painted, labels: np.ndarray, class_names: tuple[str, ...], prefix: str, numbers: np.ndarray
) -> LabelledImages:
    pixels, masks = map(torch.from_numpy, painted)
    ids = [f"{prefix}-{number:06d}" for number in numbers.tolist()]
    return LabelledImages(pixels, torch.from_numpy(labels), class_names, ids, masks)


def _agreeing(words: Words, labels: Int64[np.ndarray, "count"], probability: float) -> Int64[np.ndarray, "count"]:
    """The label with the given probability, otherwise one of the nine others."""
    classes = len(SHAPE_NAMES)
    # A product with a power of two is exact, so the threshold is the same everywhere.
    agrees = (words[:, 0] >> np.uint64(32)).astype(np.int64) < int(probability * 2**32)
    return np.where(agrees, labels, (labels + to_integers(words[:, 1], 1, classes - 1)) % classes)


@dataclass(frozen=True, eq=False)
class RelationsDraw:
    """Drawn images, and what was drawn.

    Arguments:
        images: the images with their labels; the mask is where either object covers at least half of the pixel.
        kinds: index in ``KINDS`` of the shape of each of the two, ``(count, 2)``.
    """

    images: LabelledImages
    kinds: Int64[Tensor, "count 2"]


def draw_relations(
    count: int,
    *,
    key: UInt64[np.ndarray, "1"],
    prefix: str,
    image_size: int = 32,
    difficulty: float = 0.5,
    distance: float = 1.0,
) -> RelationsDraw:
    """Draw the first ``count`` images of two objects in opposite quarters; the label is whether their shapes are equal.

    Each object by itself is of every kind equally often, whatever the label: so a network that sums up what it sees
    from places that hold no more than one object can be right on two images of three at most. With g(k) as the
    evidence of kind k, it decides by g(i) + g(j), and the best it can do is to tell two of the four kinds from the
    others. Attention compares the two places in one layer.

    Image i is a pure function of the key, i and the dials, in whole numbers alone.

    Arguments:
        difficulty: 0 to 1: contrast of the background, light, noise and how far the objects stray.
        distance: of the objects, see ``ObjectsOptions``; it moves them and changes nothing else.
    """
    numbers = np.arange(count, dtype=np.int64)
    streams = split_keys(key, np.arange(2))[0]
    keys = split_keys(streams[:1], numbers)[0]
    labels = balanced_labels(streams[1:], numbers, len(RELATIONS))
    words = purpose_words(keys, Purpose.SHAPE, 2)
    first = to_integers(words[:, 0], 0, len(KINDS) - 1)
    other = (first + to_integers(words[:, 1], 1, len(KINDS) - 1)) % len(KINDS)
    kinds = np.stack([first, np.where(labels == 1, first, other)], axis=1)
    shapes = np.array([SHAPE_NAMES.index(kind) for kind in KINDS])[kinds]

    dial, apart, size = round(difficulty * 256), round(distance * 256), (image_size, image_size)
    painted = paint_in_chunks(count, size, lambda part: paint_pairs(keys[part], shapes[part], size, dial, apart))
    return RelationsDraw(_labelled(painted, labels, RELATIONS, prefix, numbers), torch.from_numpy(kinds))
