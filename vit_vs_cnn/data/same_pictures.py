"""Pictures that are there more than once: with the same pixels, or nearly, whatever their classes and splits."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.near_duplicates import Duplicates, duplicates_within

#: Standard deviation in grey levels up to which a channel has one colour: what JPEG alone makes of a plain surface.
BLANK = 2.0
_CHUNK = 500


def colours(images: LabelledImages) -> tuple[Float32[Tensor, "count channels"], Float32[Tensor, "count"]]:
    """Mean of each channel of each image, 0 to 255, and the largest standard deviation of a channel."""
    if not len(images):
        return torch.zeros(0, images.image_shape[0]), torch.zeros(0)
    means, deviations = [], []
    for part in images.batches(_CHUNK):
        planes = part.float().flatten(2)
        means.append(planes.mean(2))
        deviations.append(planes.std(2, correction=0).amax(1))
    return torch.cat(means), torch.cat(deviations)


def same_pictures(
    images: LabelledImages,
    splits: Sequence[str],
    blank: Bool[Tensor, "count"],
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[Duplicates, Bool[Tensor, "pairs"]]:
    """Every pair of images that show the same picture, but for copies of copies.

    Of images with the same pixels, class and split, each copy is paired with the first of them alone, and this one
    stands for all in the search for near-duplicates (``duplicates_within``): the pairs are linear in the copies.

    Arguments:
        splits: of each image.
        blank: images that are left out, as they show nothing.
        tell: is told how far the search is.

    Returns:
        The pairs, the earlier image as ``test``, with a similarity of 1 for the same pixels; and which of them have the
        same pixels.
    """
    hashes = images.hashes()
    labels = images.labels.tolist()
    by_pixels: dict[int, dict[tuple[int, str], list[int]]] = {}
    for place in np.flatnonzero(~blank.numpy()).tolist():
        alike = by_pixels.setdefault(int(hashes[place]), {})
        alike.setdefault((labels[place], splits[place]), []).append(place)
    firsts = [[places[0] for places in alike.values()] for alike in by_pixels.values()]
    same = [pair for group in firsts for pair in itertools.combinations(sorted(group), 2)]
    same += [(places[0], copy) for alike in by_pixels.values() for places in alike.values() for copy in places[1:]]
    kept = torch.tensor(sorted(place for group in firsts for place in group), dtype=torch.int64)
    near = _near(images, kept, tell)
    other = torch.from_numpy(hashes[near.test.numpy()] != hashes[near.train.numpy()])
    exact = torch.tensor(same, dtype=torch.int64).reshape(-1, 2)
    return Duplicates(
        torch.cat([exact[:, 0], near.test[other]]),
        torch.cat([exact[:, 1], near.train[other]]),
        torch.cat([torch.ones(len(exact)), near.similarity[other]]),
    ), torch.arange(len(exact) + int(other.sum())) < len(exact)


def _near(images: LabelledImages, kept: Int64[Tensor, "kept"], tell: Callable[[str], None]) -> Duplicates:
    if len(kept) < 2:
        return Duplicates(kept[:0], kept[:0], torch.zeros(0))
    found = duplicates_within(images.subset(kept).batches(_CHUNK), tell)
    return Duplicates(kept[found.test], kept[found.train], found.similarity)
