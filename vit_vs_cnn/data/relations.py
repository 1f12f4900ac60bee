"""Images of two objects far apart, labelled by a relation of the two that neither shows alone."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, UInt64
from torch import Tensor

from vit_vs_cnn.data.counter_random import balanced_labels, split_keys, to_integers
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.scenes import Purpose, paint_in_chunks, paint_pairs, purpose_words
from vit_vs_cnn.data.shapes import SHAPE_NAMES

#: The shapes that may stand in a pair: told apart where they are small.
KINDS = ("disc", "triangle", "cross", "ring")
RELATIONS = ("different", "same")


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
    count: int, *, key: UInt64[np.ndarray, "1"], prefix: str, image_size: int = 32, difficulty: float = 0.5
) -> RelationsDraw:
    """Draw the first ``count`` images of two objects in opposite quarters; the label is whether their shapes are equal.

    Each object by itself is of every kind equally often, whatever the label: so a network that sums up what it sees
    from places that hold no more than one object can be right on two images of three at most. With g(k) as the
    evidence of kind k, it decides by g(i) + g(j), and the best it can do is to tell two of the four kinds from the
    others. Attention compares the two places in one layer.

    Image i is a pure function of the key, i and the dials, in whole numbers alone.

    Arguments:
        difficulty: 0 to 1: contrast of the background, light, noise and how far the objects stray.
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

    dial, size = round(difficulty * 256), (image_size, image_size)
    pixels, masks = paint_in_chunks(count, size, lambda part: paint_pairs(keys[part], shapes[part], size, dial))
    images = LabelledImages(
        images=torch.from_numpy(pixels),
        labels=torch.from_numpy(labels),
        class_names=RELATIONS,
        sample_ids=[f"{prefix}-{number:06d}" for number in numbers.tolist()],
        masks=torch.from_numpy(masks),
    )
    return RelationsDraw(images, torch.from_numpy(kinds))
