"""Near-duplicates: copies of an image, perhaps resized, re-encoded, mirrored, brighter or darker."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor
from torch.nn import functional as F

from vit_vs_cnn.data.images import LabelledImages

#: Changes with the pairs that are found, so that a stored result of another version is not used.
ALGORITHM_VERSION = 6
MIN_SIMILARITY = 0.95
_SIDE, _NEIGHBORHOOD = 16, 5  # sides of the compared images and of the neighborhood of a pixel, in pixels
_NOISE = 5.0  # noise of an encoding, in gray levels
_BATCH, _MAX_SIMILARITIES = 500, 2**24  # images that are read, and similarities that are computed, at a time
_MAX_PARTNERS, _MAX_COLOR_DIFFERENCE = 64, 0.6  # near-duplicates of one image, and their relative difference in chroma
Planes = Float32[Tensor, "_ _ _ _"]  # (images, channels, rows, cols)
Report = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class DuplicatePairs:
    """Pairs of a test image and a training image of which one is a copy of the other.

    Arguments:
        test, train: indices of the two images, ``(pairs,)``. Within one set, ``test`` is the earlier image.
        similarity: correlation of their detail, ``MIN_SIMILARITY`` to 1.
    """

    test: Int64[Tensor, "pairs"]
    train: Int64[Tensor, "pairs"]
    similarity: Float32[Tensor, "pairs"]


def near_duplicate_pairs(
    test: LabelledImages, train: LabelledImages | None = None, report_progress: Report = lambda text: None
) -> DuplicatePairs:
    """All pairs of a test image and a similar training image; without ``train``, all pairs within one set.

    Images are resized to 16 x 16 pixels. The detail of a pixel is (gray - mean) / (deviation + 5 gray levels) over the
    5 x 5 pixels around it, so that a faint background counts as much as a strong outline. The similarity of two images
    is the correlation of their detail, mirrored or not, whichever is higher. A pair is a near-duplicate if

    1. the similarity is at least 0.95;
    2. the colors agree. Chroma is averaged over blocks of 2 x 2 pixels. The root mean square of its difference is
       below 0.6 x (that of the larger chroma + 5 gray levels).

    Only the 64 most similar images are checked for each test image. An image of one color has no near-duplicate.
    ``python -m benchmarks.near_duplicates`` measures precision and recall.
    """
    details, chromas = _describe(test)
    detail, chroma = (details, chromas) if train is None else _describe(train)
    results = [[torch.empty(2, 0, dtype=torch.int64), torch.empty(0)]]
    size = max(1, _MAX_SIMILARITIES // max(1, len(detail)))
    for start in range(0, len(details), size):
        parts = [planes[start : start + size] for planes in (details, chromas)]
        views = parts, [part.flip(-1) for part in parts]
        offset = start if train is None else 0  # within one set, each pair once
        similarity = torch.maximum(*(view.flatten(1) @ detail[offset:].flatten(1).T for view, _ in views))
        if train is None:
            similarity.triu_(1)
        found = torch.nonzero((similarity >= MIN_SIMILARITY).any(1))[:, 0]
        values, partners = similarity[found].topk(min(_MAX_PARTNERS, similarity.shape[1]), dim=1)
        row, rank = torch.nonzero(values >= MIN_SIMILARITY, as_tuple=True)
        first, second = found[row], offset + partners[row, rank]
        difference = torch.minimum(*(_color_difference(view[first], chroma[second]) for _, view in views))
        pairs = torch.stack([start + first, second]), values[row, rank]
        results.append([part[..., difference < _MAX_COLOR_DIFFERENCE] for part in pairs])
        report_progress(f"searching for duplicates: {min(start + size, len(details)):,} of {len(details):,} images")
    (first, second), similarities = (torch.cat(parts, dim=-1) for parts in zip(*results, strict=True))
    return DuplicatePairs(first, second, similarities.clamp(max=1))


def _describe(images: LabelledImages) -> tuple[Planes, Planes]:
    """Detail, of length 1 and without a mean, and chroma of all images; a few images are read at a time."""

    def local_mean(planes: Planes) -> Planes:
        return F.avg_pool2d(planes, _NEIGHBORHOOD, 1, _NEIGHBORHOOD // 2, count_include_pad=False)

    details, chromas = [], []
    for batch in images.batches(images.limit_batch(_BATCH)):
        planes = F.interpolate(batch.float(), (_SIDE, _SIDE), mode="bilinear", antialias=True).expand(-1, 3, -1, -1)
        gray = planes.mean(1, keepdim=True)
        difference = gray - local_mean(gray)
        detail = difference / (local_mean(difference.square()).sqrt() + _NOISE)
        detail = (detail - detail.mean((2, 3), keepdim=True)).flatten(2)
        length = detail.norm(dim=2, keepdim=True)
        details.append(torch.where(length > 1, detail / length, 0).view(gray.shape))
        chromas.append(F.avg_pool2d(planes - gray, 2))
    return torch.cat(details), torch.cat(chromas)


def _color_difference(first: Planes, second: Planes) -> Float32[Tensor, "_"]:
    difference, *chromas = (part.square().sum(1).mean((1, 2)).sqrt() for part in (first - second, first, second))
    return difference / (torch.maximum(*chromas) + _NOISE)


def find_copies(
    images: LabelledImages, splits: Sequence[str], blank: Bool[Tensor, "_"], report_progress: Report = lambda text: None
) -> tuple[DuplicatePairs, Bool[Tensor, "pairs"]]:
    """Pairs of exact copies and of near-duplicates, blank images left out.

    Of images with the same pixels, class and split, only the first is compared with other images, and each copy is
    paired with it alone. So the number of pairs is linear in the number of copies.

    Returns:
        The pairs, the earlier image as ``test``; and a mask of those with the same pixels, whose similarity is 1.
    """
    hashes = images.hashes()
    by_pixels: dict[int, dict[tuple[int, str], list[int]]] = {}
    for index, key in enumerate(zip(images.labels.tolist(), splits, strict=True)):
        if not blank[index]:
            by_pixels.setdefault(int(hashes[index]), {}).setdefault(key, []).append(index)
    firsts = [[copies[0] for copies in groups.values()] for groups in by_pixels.values()]
    exact = [pair for of_pixels in firsts for pair in itertools.combinations(of_pixels, 2)]
    exact += [(one, copy) for groups in by_pixels.values() for one, *rest in groups.values() for copy in rest]
    indices = torch.tensor(sorted(itertools.chain(*firsts)), dtype=torch.int64)
    near = near_duplicate_pairs(images.subset(indices), report_progress=report_progress)
    test, train = indices[near.test], indices[near.train]
    differ = torch.from_numpy(hashes[test.numpy()] != hashes[train.numpy()])
    same = torch.tensor(exact, dtype=torch.int64).reshape(-1, 2)
    first, second = torch.cat([same, torch.stack([test, train], dim=1)[differ]]).T
    similarity = torch.cat([torch.ones(len(same)), near.similarity[differ]])
    return DuplicatePairs(first, second, similarity), torch.arange(len(first)) < len(same)
