"""Near-duplicates: images of one scene, perhaps re-encoded, shifted, cropped or mirrored, in two sets or in one."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from scipy import fft
from torch import Tensor
from torch.nn import functional as F

from vit_vs_cnn.data.images import LabelledImages

#: Changes with the pairs that are found, so that a stored result of another version is not used.
ALGORITHM_VERSION = 5
#: Standard deviation in grey levels up to which a channel has one colour: JPEG makes that much of a plain surface.
MAX_BLANK_DEVIATION = 2.0

_SIDE = 32  # side of the compared images, in pixels
_FREQUENCIES = 8  # coefficients of the cosine transform along each axis, for candidates
_REACH = 2  # largest shift between two images, in pixels
_INNER = _SIDE - 2 * _REACH  # side of the part that is compared at every shift
_CROPS = (30, 28)  # sides of one image within the other
_BLUR = 5  # side of the neighbourhood whose mean is subtracted for the detail
_BLOCK, _STEP = 7, 3  # side and distance of the squares that must all agree
_COLOUR_BLOCK = 4  # side of the squares whose mean colours are compared; JPEG blurs colours
_NOISE = 5.0  # noise of an encoding, in grey levels
_MAX_GREY_CHROMA = 3.0  # largest chroma of a grey image, in grey levels
_MAX_CANDIDATES = 64  # candidates for one image
_MIN_HASH_COSINE, _MIN_SHIFT_CORRELATION, _MIN_CORRELATION = 0.8, 0.84, 0.88
_MIN_DETAIL, _MIN_BLOCK, _MAX_COLOUR_DIFFERENCE = 0.62, 0.42, 0.6
_MIN_DETAIL_GREY = 0.9  # if one image is grey, so that colours cannot be compared
_CHUNK = 500

Images = UInt8[Tensor, "_ _ _ _"]
Grey = Float32[Tensor, "_ 32 32"]
Planes = Float32[Tensor, "_ _ _ _"]
Hashes = Float32[Tensor, "_ 63"]
Indices = Int64[Tensor, "_"]
Scores = Float32[Tensor, "_"]
Mask = Bool[Tensor, "_"]
Report = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class DuplicatePairs:
    """Pairs of a test image and a training image of one scene.

    Arguments:
        test: index of the test image, ``(pairs,)``, ascending.
        train: index of the training image.
        similarity: correlation of their detail, 0.62 to 1.
    """

    test: Int64[Tensor, "pairs"]
    train: Int64[Tensor, "pairs"]
    similarity: Float32[Tensor, "pairs"]


def near_duplicate_pairs(
    test: Images, train: Images | None = None, report_progress: Report = lambda text: None
) -> DuplicatePairs:
    """All pairs of a test and a training image that show one scene; without ``train``, all pairs within one set.

    Images are resized to 32 x 32 pixels. The candidates for an image are the 64 images with the most similar perceptual
    hashes: the cosine between their lowest 8 x 8 coefficients of the discrete cosine transform, without the constant
    one, is above 0.8. Each image is aligned with a candidate, mirrored or not: shifted by up to two pixels, or as a
    crop of 30 x 30 or 28 x 28 pixels, where the grey pixels correlate most. Both get one mean and one contrast.
    A pair is a duplicate if

    1. the grey pixels correlate: above 0.88, and above 0.84 by a shift alone, which saves time;
    2. the detail correlates, above 0.62: (pixel - mean) / (deviation + 5) over the 5 x 5 neighbourhood in all colours,
       so that a faint background counts as much as a strong outline;
    3. each 7 x 7 square agrees: (2 cov(a, b) + c) / (var a + var b + c) > 0.42, with c = 2 * 5**2 and grey pixels a and
       b (structure term of SSIM). Two apples, or two ships on a horizon, agree in some squares only;
    4. the colours agree: the root mean square of the difference in chroma, over means of 4 x 4 pixels, is below 0.6
       times the larger chroma + 5. If one image is grey, the detail must correlate above 0.9 instead.

    An image of one colour has no duplicates. ``python -m benchmarks.near_duplicates`` measures precision and recall.

    Reference: Zauner, "Implementation and benchmarking of perceptual image hash functions", 2010 (hash); Wang et al.,
        "Image quality assessment: from error visibility to structural similarity", 2004 (structure term).
    Differs: real coefficients instead of their signs, which a shift by one pixel flips; candidates are confirmed.
    """
    images = test if train is None else train
    if not len(test) or not len(images):
        nothing = torch.empty(0, dtype=torch.int64)
        return DuplicatePairs(nothing, nothing, torch.empty(0))
    grey, count, results = _grey(images), len(images), []
    hashes = _hashes(grey)
    for queries, name in ((test, "images"), (test.flip(-1), "mirrored images")):
        queries_grey, codes = _grey(queries), [torch.empty(0, dtype=torch.int64)]
        for pairs in _candidates(_hashes(queries_grey), hashes):
            first, second = pairs if train is not None else torch.stack(pairs).sort(0).values  # each pair once
            codes.append((first * count + second)[(first != second) | (train is not None)])
            searched = min((len(codes) - 1) * _CHUNK, len(test))
            report_progress(f"searching for duplicates: {searched:,} of {len(test):,} {name}")
        pairs = torch.cat(codes).unique()
        for number, part in enumerate(pairs.split(_CHUNK), start=1):
            compared = min(number * _CHUNK, len(pairs))
            report_progress(f"comparing similar images: {compared:,} of {len(pairs):,} pairs of {name}")
            left, right = part // count, part % count
            # First by a shift alone, which is fast.
            template = queries_grey[left][:, _REACH:-_REACH, _REACH:-_REACH]
            is_similar = _best_place(template, grey[right])[0] > _MIN_SHIFT_CORRELATION
            left, right = left[is_similar], right[is_similar]
            indices, similarity = _compare(queries[left], images[right])
            results.append((left[indices], right[indices], similarity))
    return _unique(*(torch.cat(parts) for parts in zip(*results, strict=True)))


def resize_for_comparison(batches: Iterable[Images]) -> Images:
    """Images resized to 32 x 32 bytes."""
    return torch.cat([_planes(batch).round().to(torch.uint8) for batch in batches])


def find_blank_images(images: LabelledImages) -> Mask:
    """Mask of the images of one colour: all channels deviate by at most ``MAX_BLANK_DEVIATION``."""
    planes = (batch.float().flatten(2) for batch in images.batches(images.limit_batch(_CHUNK)) if len(batch))
    masks = [part.std(2, correction=0).amax(1) <= MAX_BLANK_DEVIATION for part in planes]
    return torch.cat([torch.zeros(0, dtype=torch.bool), *masks])


def find_copies(
    images: LabelledImages, splits: Sequence[str], blank: Mask, report_progress: Report = lambda text: None
) -> tuple[DuplicatePairs, Mask]:
    """Pairs of images that show one scene: near-duplicates and exact copies, blank images left out.

    Of images with the same pixels, class and split, only the first is compared with other images, and each copy is
    paired with it alone. So the number of pairs is linear in the number of copies.

    Returns:
        The pairs, the earlier image as ``test``, with a similarity of 1 for the same pixels; and a mask of the pairs
        with the same pixels.
    """
    hashes = images.hashes()
    labels = images.labels.tolist()
    by_pixels: dict[int, dict[tuple[int, str], list[int]]] = {}
    for index in np.flatnonzero(~blank.numpy()).tolist():
        by_pixels.setdefault(int(hashes[index]), {}).setdefault((labels[index], splits[index]), []).append(index)
    firsts = [sorted(indices[0] for indices in copies.values()) for copies in by_pixels.values()]
    exact = [pair for of_pixels in firsts for pair in itertools.combinations(of_pixels, 2)]
    copied = [indices for copies in by_pixels.values() for indices in copies.values()]
    exact += [(indices[0], copy) for indices in copied for copy in indices[1:]]
    indices = torch.tensor(sorted(itertools.chain(*firsts)), dtype=torch.int64)
    compared = resize_for_comparison(images.take(part) for part in indices.split(images.limit_batch(_CHUNK)))
    near = near_duplicate_pairs(compared, report_progress=report_progress)
    test, train = indices[near.test], indices[near.train]
    differ = torch.from_numpy(hashes[test.numpy()] != hashes[train.numpy()])
    same = torch.tensor(exact, dtype=torch.int64).reshape(-1, 2)
    pairs = DuplicatePairs(
        torch.cat([same[:, 0], test[differ]]),
        torch.cat([same[:, 1], train[differ]]),
        torch.cat([torch.ones(len(same)), near.similarity[differ]]),
    )
    return pairs, torch.arange(len(pairs.test)) < len(same)


def _grey(images: Images) -> Grey:
    """Mean of the channels at 32 x 32, with antialiasing, so that a shift by part of a pixel changes little."""
    return torch.cat([_scaled(part.float().mean(1, keepdim=True), _SIDE)[:, 0] for part in images.split(_CHUNK)])


def _hashes(grey: Grey) -> Hashes:
    """Lowest coefficients as a unit vector, zero for an image of one colour."""
    spectrum = torch.from_numpy(fft.dctn(grey.numpy(), axes=(1, 2), norm="ortho"))
    lowest = spectrum[:, :_FREQUENCIES, :_FREQUENCIES].flatten(1)[:, 1:]
    length = lowest.norm(dim=1, keepdim=True)
    return torch.where(length > 1, lowest / length.clamp_min(1), 0.0)


def _candidates(queries: Hashes, hashes: Hashes) -> Iterator[tuple[Indices, Indices]]:
    for start in range(0, len(queries), _CHUNK):
        cosines = queries[start : start + _CHUNK] @ hashes.T
        has_many = (cosines > _MIN_HASH_COSINE).sum(1) > _MAX_CANDIDATES
        if has_many.any():
            threshold = cosines[has_many].topk(_MAX_CANDIDATES, dim=1).values[:, -1:]
            cosines[has_many] = torch.where(cosines[has_many] >= threshold, cosines[has_many], 0.0)
        first, second = torch.nonzero(cosines > _MIN_HASH_COSINE, as_tuple=True)
        yield first + start, second


def _compare(first: Images, second: Images) -> tuple[Indices, Scores]:
    """Indices of the pairs that are duplicates, and the correlation of their detail."""
    indices, first, second = _align(_planes(first), _planes(second))
    if not len(indices):
        return indices, torch.zeros(0)
    deviations = [planes.mean(1).std((1, 2)).clamp_min(1) for planes in (first, second)]
    common = (deviations[0] * deviations[1]).sqrt()  # both get one mean and one contrast
    first, second = (
        (planes - planes.mean((1, 2, 3), keepdim=True)) * (common / deviation)[:, None, None, None]
        for planes, deviation in zip((first, second), deviations, strict=True)
    )
    agrees = _min_structure(first.mean(1, keepdim=True), second.mean(1, keepdim=True)) > _MIN_BLOCK
    indices, first, second = indices[agrees], first[agrees], second[agrees]
    is_grey = torch.minimum(_strength(_chroma(first)), _strength(_chroma(second))) < _MAX_GREY_CHROMA
    first, second = (torch.where(is_grey[:, None, None, None], x.mean(1, keepdim=True), x) for x in (first, second))
    detail = _correlation(_detail(first), _detail(second))
    agrees = detail > torch.where(is_grey, _MIN_DETAIL_GREY, _MIN_DETAIL)
    chroma, other = _chroma(first), _chroma(second)
    strength = torch.maximum(_strength(chroma), _strength(other))
    agrees &= _strength(chroma - other) / (strength + _NOISE) < _MAX_COLOUR_DIFFERENCE
    return indices[agrees], detail[agrees]


def _planes(images: Images) -> Planes:
    return _scaled(images.float(), _SIDE).expand(-1, 3, -1, -1)


def _scaled(planes: Planes, side: int) -> Planes:
    if planes.shape[-2:] == (side, side):
        return planes
    return F.interpolate(planes, (side, side), mode="bilinear", antialias=True)


def _align(first: Planes, second: Planes) -> tuple[Indices, Planes, Planes]:
    """Indices of pairs whose grey pixels correlate, and the inner 28 x 28 pixels of both at their best alignment."""
    grey = first.mean(1, keepdim=True), second.mean(1, keepdim=True)
    results = [_best_place(template[:, 0], image[:, 0]) for template, image in _alignments(*grey)]
    correlations = torch.stack([correlation for correlation, _ in results])
    indices = torch.nonzero(correlations.amax(0) > _MIN_CORRELATION)[:, 0]
    aligned = torch.zeros(2, len(indices), first.shape[1], _INNER, _INNER)
    for number, (template, image) in enumerate(_alignments(first[indices], second[indices])):
        is_best = correlations[:, indices].argmax(0) == number
        side, place = template.shape[-1], results[number][1][indices][is_best]
        edge, shifts, steps = (side - _INNER) // 2, _SIDE - side + 1, torch.arange(_INNER)
        rows, cols = ((start + edge)[:, None] + steps for start in (place // shifts, place % shifts))
        pairs = torch.arange(len(place))[:, None, None]
        inner = image[is_best].permute(0, 2, 3, 1)[pairs, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)
        middle = template[is_best][:, :, edge : edge + _INNER, edge : edge + _INNER]
        aligned[:, is_best] = torch.stack([middle, inner])
    return indices, aligned[0], aligned[1]


def _alignments(first: Planes, second: Planes) -> list[tuple[Planes, Planes]]:
    """Ways to align two images: a template, and the image in which it is placed."""
    crops = [(_scaled(a, side), b) for side in _CROPS for a, b in ((first, second), (second, first))]
    return [(first[:, :, _REACH:-_REACH, _REACH:-_REACH], second), *crops]


def _best_place(template: Float32[Tensor, "n side side"], image: Grey) -> tuple[Scores, Indices]:
    """Pearson's correlation of ``template`` with the most similar part of ``image``, and the place of that part."""
    if not len(template):
        return template.new_zeros(0), torch.zeros(0, dtype=torch.int64)
    side = template.shape[-1]
    image = image - image.mean((1, 2), keepdim=True)  # keeps the difference of squares below from cancelling
    template = template - template.mean((1, 2), keepdim=True)
    products = F.conv2d(image[None], template[:, None].contiguous(), groups=len(template))[0]
    variance = (_means(image.square(), side) - _means(image, side).square()).clamp_min(0)
    scale = template.flatten(1).norm(dim=1)[:, None, None] * (variance * side**2).sqrt()
    best = torch.where(scale > 1, products / scale.clamp_min(1), 0.0).flatten(1).max(1)
    return best.values, best.indices


def _means(planes: Float32[Tensor, "n rows cols"], side: int) -> Float32[Tensor, "n shifts shifts"]:
    band = torch.ones(_SIDE - side + 1, _SIDE).triu().tril(side - 1) / side  # a product is faster than pooling
    return band @ planes @ band.T


def _detail(planes: Planes) -> Planes:
    """Difference from the mean of the neighbourhood, divided by the deviation of all channels in it."""
    difference = planes - _blurred(planes)
    return difference / (_blurred(difference.square().mean(1, keepdim=True)).sqrt() + _NOISE)


def _blurred(planes: Planes) -> Planes:
    return F.avg_pool2d(planes, _BLUR, 1, _BLUR // 2, count_include_pad=False)


def _correlation(first: Planes, second: Planes) -> Scores:
    """Pearson's correlation; every plane has its own mean."""
    first, second = (planes - planes.mean((2, 3), keepdim=True) for planes in (first, second))
    length = first.flatten(1).norm(dim=1) * second.flatten(1).norm(dim=1)
    return (first * second).sum((1, 2, 3)) / length.clamp_min(1e-3)


def _min_structure(first: Planes, second: Planes) -> Scores:
    def mean(planes: Planes) -> Planes:
        return F.avg_pool2d(planes, _BLOCK, _STEP)

    variances = mean(first * first) - mean(first).square() + mean(second * second) - mean(second).square()
    covariance = mean(first * second) - mean(first) * mean(second)
    return ((2 * covariance + 2 * _NOISE**2) / (variances + 2 * _NOISE**2)).amin((1, 2, 3))


def _chroma(planes: Planes) -> Planes:
    return F.avg_pool2d(planes - planes.mean(1, keepdim=True), _COLOUR_BLOCK)


def _strength(chroma: Planes) -> Scores:
    return chroma.square().sum(1).mean((1, 2)).sqrt()


def _unique(test: Indices, train: Indices, similarity: Scores) -> DuplicatePairs:
    """Pairs in the order of the indices, each once with its highest similarity."""
    count = int(train.max()) + 1 if len(train) else 1
    codes, place = (test * count + train).unique(return_inverse=True)
    highest = torch.zeros(len(codes)).scatter_reduce(0, place, similarity, "amax")
    return DuplicatePairs(codes // count, codes % count, highest)
