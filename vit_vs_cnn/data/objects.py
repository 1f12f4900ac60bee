"""Embedded images of shapes on clutter: drawn from a seed, bit-identical on every machine, with masks and two cues."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from vit_vs_cnn.data.counter_random import balanced_labels, counter_key, split_keys, to_integers
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.relations import draw_relations
from vit_vs_cnn.data.scenes import Purpose, Words, paint_in_chunks, paint_scenes, purpose_words
from vit_vs_cnn.data.shapes import SHAPE_NAMES
from vit_vs_cnn.data.textures import TEXTURE_NAMES
from vit_vs_cnn.errors import InputError

Split = Literal["train", "test"]
Task = Literal["shape", "texture", "same_different"]

_SPLITS: tuple[Split, ...] = ("train", "test")
_SMALLEST, _LARGEST = 8, 1024
#: They are held in memory.
MOST_IMAGES = 2_000_000


@dataclass(frozen=True)
class ObjectsOptions:
    """What the embedded images are, and how many.

    Arguments:
        train_images: images that may be trained on.
        test_images: images that only evaluation sees, of streams that no training image uses.
        image_size: pixels along the side of the square images, 8 to 1024.
        shape_agreement: probability that the shape drawn is that of the label; otherwise it is another, uniformly.
            0.1 makes shape uninformative.
        texture_agreement: probability that the object's texture is that of the label; otherwise it is another,
            uniformly. 0.1 makes texture uninformative; 0 with a shape agreement of 1 is a conflict of the two cues.
        test_texture_agreement: the same for the test images alone; null for the one above. 1 in training and 0 here
            makes the cues conflict: it finds out who has learned shapes.
        difficulty: from 0 to 1: more clutter and noise, weaker contrast, smaller, displaced and turned objects, and a
            growing share (0.11 at 0.5, 0.22 at 1) of objects camouflaged in the background's colours, few of which
            can be told.
        seed: the family of images; every image is a pure function of seed, split and its number.
        task: what the label is. shape: that of the object. texture: that of its surface, which is seen locally; the
            shape tells nothing. same_different: whether the shapes in two opposite corners are the same, which no part
            of the image tells by itself. The agreements belong to the task shape.

    Raises:
        InputError: a value is outside its range, or an agreement is set for a task that has none.
    """

    train_images: int = 4000
    test_images: int = 2000
    image_size: int = 32
    shape_agreement: float = 1.0
    texture_agreement: float = 0.1
    difficulty: float = 0.5
    seed: int = 0
    task: Task = "shape"
    test_texture_agreement: float | None = None

    def __post_init__(self) -> None:
        for name in ("train_images", "test_images"):
            _check_count(name, getattr(self, name), least=1)
            if getattr(self, name) > MOST_IMAGES:
                raise InputError(f"{name} is {getattr(self, name)}; allowed: up to {MOST_IMAGES}")
        _check_size(self.image_size)
        for name in ("shape_agreement", "texture_agreement", "difficulty"):
            _check_fraction(name, getattr(self, name))
        if self.test_texture_agreement is not None:
            _check_fraction("test_texture_agreement", self.test_texture_agreement)
        if self.task not in get_args(Task):
            raise InputError(f"task is {self.task!r}; allowed: {', '.join(get_args(Task))}")
        if self.task != "shape" and not self._has_default_agreements:
            raise InputError(f"task {self.task} has no agreements; they belong to the task shape")

    @property
    def _has_default_agreements(self) -> bool:
        return (self.shape_agreement, self.texture_agreement, self.test_texture_agreement) == (1.0, 0.1, None)

    def agreements(self, split: Split) -> tuple[float, float]:
        """Of shape and of texture with the label, in a split of the task shape or texture."""
        if self.task == "texture":
            return 0.1, 1.0
        is_apart = split == "test" and self.test_texture_agreement is not None
        texture = self.test_texture_agreement if is_apart else self.texture_agreement
        assert texture is not None
        return self.shape_agreement, texture


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
    """The embedded images as a source: ten shapes on clutter, nothing downloaded.

    Arguments:
        options: how many images, and which.
    """

    def __init__(self, options: ObjectsOptions | None = None) -> None:
        self.options = options or ObjectsOptions()

    def train(self) -> LabelledImages:
        """The images that may be trained on."""
        return self._draw(self.options.train_images, "train")

    def validation(self) -> None:
        """None: validation images are held out of ``train``."""
        return None

    def test(self) -> LabelledImages:
        """The images that only evaluation may see."""
        return self._draw(self.options.test_images, "test")

    def provenance(self) -> dict[str, Any]:
        """The source and every option: all that decides the images."""
        return {"source": "objects", **asdict(self.options)}

    def _draw(self, count: int, split: Split) -> LabelledImages:
        options = self.options
        if options.task == "same_different":
            key = counter_key(options.seed, _SPLITS.index(split), 2)
            return draw_relations(
                count, key=key, prefix=split, image_size=options.image_size, difficulty=options.difficulty
            ).images
        shape_agreement, texture_agreement = options.agreements(split)
        images = draw_objects(
            count,
            seed=options.seed,
            split=split,
            image_size=options.image_size,
            shape_agreement=shape_agreement,
            texture_agreement=texture_agreement,
            difficulty=options.difficulty,
        ).images
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
        count: images to draw.
        seed, split: the family of images, and which of its two independent streams.
        start: number of the first image.
        image_size: side in pixels, or (rows, cols); each 8 to 1024.
        shape_agreement: probability that the shape is that of the label; otherwise another, uniformly.
        texture_agreement: probability that the texture is that of the label; otherwise another, uniformly.
        difficulty: 0 to 1, see ``ObjectsOptions``.

    Raises:
        InputError: a value is outside its range.
    """
    rows, cols = (image_size, image_size) if isinstance(image_size, int) else image_size
    _check_count("count", count, least=1)
    _check_count("start", start, least=0)
    _check_size(rows)
    _check_size(cols)
    _check_fraction("difficulty", difficulty)
    if split not in _SPLITS:
        raise InputError(f"split is {split!r}; allowed: {', '.join(_SPLITS)}")

    numbers = np.arange(start, start + count, dtype=np.int64)
    stream = counter_key(seed, _SPLITS.index(split))
    keys = split_keys(stream, numbers)[0]
    labels = balanced_labels(counter_key(seed, _SPLITS.index(split), 1), numbers, len(SHAPE_NAMES))
    shapes = _agreeing(purpose_words(keys, Purpose.SHAPE, 2), labels, "shape_agreement", shape_agreement)
    textures = _agreeing(purpose_words(keys, Purpose.TEXTURE, 2), labels, "texture_agreement", texture_agreement)

    dial = round(difficulty * 256)
    pixels, masks = paint_in_chunks(
        count, (rows, cols), lambda part: paint_scenes(keys[part], shapes[part], textures[part], (rows, cols), dial)
    )
    images = LabelledImages(
        images=torch.from_numpy(pixels),
        labels=torch.from_numpy(labels),
        class_names=SHAPE_NAMES,
        sample_ids=[f"{split}-{number:06d}" for number in numbers.tolist()],
        masks=torch.from_numpy(masks),
    )
    return ObjectsDraw(images=images, shapes=torch.from_numpy(shapes), textures=torch.from_numpy(textures))


def _agreeing(
    words: Words, labels: Int64[np.ndarray, "count"], name: str, probability: float
) -> Int64[np.ndarray, "count"]:
    """The label with the given probability, otherwise one of the nine others."""
    _check_fraction(name, probability)
    classes = len(SHAPE_NAMES)
    # A product with a power of two is exact, so the threshold is the same everywhere.
    agrees = (words[:, 0] >> np.uint64(32)).astype(np.int64) < int(probability * 2**32)
    return np.where(agrees, labels, (labels + to_integers(words[:, 1], 1, classes - 1)) % classes)


def _check_count(name: str, value: int, *, least: int) -> None:
    if value < least:
        raise InputError(f"{name} is {value}; allowed: whole numbers of at least {least}")


def _check_size(value: int) -> None:
    if not _SMALLEST <= value <= _LARGEST:
        raise InputError(f"image_size is {value}; allowed: {_SMALLEST} to {_LARGEST} pixels")


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name} is {value}; allowed: 0 to 1")
