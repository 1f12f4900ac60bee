"""Near-duplicates: images of one picture, perhaps re-encoded, shifted, cropped or mirrored, in two sets or in one."""

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

_SIDE = 32  # pixels that images are compared at
_FREQUENCIES = 8  # along each axis, of the cosine transform that finds candidates
_REACH = 2  # pixels by which one image may be shifted against the other
_INNER = _SIDE - 2 * _REACH  # pixels that are compared wherever the one lies on the other
_CROPS = (30, 28)  # sides that one image may have within the other
_BLUR = 5  # side of the neighbourhood whose mean is taken away to leave the detail
_BLOCK, _STEP = 7, 3  # side and distance of the squares that have to agree, each of them
_COLOURED = 4  # side of the squares whose mean colours are compared: what JPEG leaves of them
_NOISE = 5.0  # grey levels that encoding alone may make
_MAX_GREY_CHROMA = 3.0  # grey levels of colour that a picture may be called grey with
_CANDIDATES = 64  # training images looked at closely for one test image, at most
_MIN_HASH_COSINE, _MIN_SHIFT_CORRELATION, _MIN_CORRELATION = 0.8, 0.84, 0.88
_MIN_DETAIL, _MIN_BLOCK, _MAX_COLOUR_DIFFERENCE = 0.62, 0.42, 0.6
_MIN_DETAIL_GREY = 0.9  # where one picture is grey, and colours tell nothing
_CHUNK = 500

Images = UInt8[Tensor, "_ _ _ _"]
Grey = Float32[Tensor, "_ 32 32"]
Planes = Float32[Tensor, "_ _ _ _"]


@dataclass(frozen=True, eq=False)
class DuplicatePairs:
    """Pairs of a test image and a training image that show the same picture.

    Arguments:
        test: index of the test image, ``(pairs,)``, ascending.
        train: index of the training image.
        similarity: correlation of their detail, 0.62 to 1.
    """

    test: Int64[Tensor, "pairs"]
    train: Int64[Tensor, "pairs"]
    similarity: Float32[Tensor, "pairs"]

    def tests_matching(self, indices: Int64[Tensor, "size"], test_count: int) -> Bool[Tensor, "{test_count}"]:
        """Test images with a near-duplicate among these training images, as a mask."""
        found = torch.zeros(test_count, dtype=torch.bool)
        found[self.test[torch.isin(self.train, indices)]] = True
        return found


def near_duplicate_pairs(test: Images, train: Images) -> DuplicatePairs:
    """Every pair of a test and a training image that show the same picture.

    Images are brought to 32 x 32 pixels. Candidates are pairs whose perceptual hashes, left as real numbers, point the
    same way: the cosine of their lowest 8 x 8 coefficients of the discrete cosine transform of the grey image, without
    the constant one, is above 0.8 (the 64 best for each test image). One image, mirrored or not, is laid upon the other
    where their grey pixels correlate best: shifted by up to two pixels, or as a crop of 30 x 30 or 28 x 28 of it,
    brought to its size. Both are given one mean and one contrast. There, a pair is a duplicate if

    1. their grey pixels correlate, above 0.88 (and above 0.84 by a shift alone, which saves time);
    2. their detail correlates, above 0.62, that being (pixel - mean) / (deviation + 5) over the 5 x 5 neighbourhood in
       all colours, so that a faint background counts as much as a strong outline;
    3. every square agrees: (2 cov(a, b) + c) / (var a + var b + c) > 0.42 with c = 2 * 5**2 for the grey pixels a and b
       of each 7 x 7 square (the structure term of SSIM); two apples, or two ships on one horizon, agree in some alone;
    4. their colours do: the root mean square of the difference in chroma, over means of 4 x 4 pixels, is below 0.6
       times the larger one's chroma + 5. Where one of the two is grey, their detail has to correlate above 0.9 instead.

    An image of one colour has no duplicates. ``python -m benchmarks.near_duplicates`` measures precision and recall.

    Reference: Zauner, "Implementation and benchmarking of perceptual image hash functions", 2010, for the hash; Wang et
    al., "Image quality assessment: from error visibility to structural similarity", 2004, for the structure term.
    Differs: real coefficients instead of their signs, which a shift by one pixel flips; candidates are confirmed.

    Arguments:
        test: images that are tested on.
        train: images that are trained on; sizes may differ from those of ``test``.
    """
    if not len(test) or not len(train):
        nothing = torch.empty(0, dtype=torch.int64)
        return DuplicatePairs(nothing, nothing, torch.empty(0))
    theirs, results = _grey(train), []
    hashes = _hashes(theirs)
    for shown in (test, test.flip(-1)):
        grey = _grey(shown)
        for at, by in _candidates(_hashes(grey), hashes):
            results += _confirmed((shown, grey), (train, theirs), at, by)
    return _unique(*(torch.cat(parts) for parts in zip(*results, strict=True)))


def to_comparison_size(batches: Iterable[Images]) -> Images:
    """Images brought to 32 x 32 bytes."""
    return torch.cat([_planes(part).round().to(torch.uint8) for part in batches])


def near_duplicate_pairs_within(
    batches: Iterable[Images], report_progress: Callable[[str], None] = lambda text: None
) -> DuplicatePairs:
    """Every pair of images of one set that show the same picture, as ``near_duplicate_pairs`` finds them, once.

    Images are brought to 32 x 32 bytes first, as each is looked at in many pairs.

    Arguments:
        batches: the images, of one size, some at a time.
        report_progress: receives the progress: how many images and how many pairs have been compared.

    Returns:
        The pairs, the earlier image as ``test`` and the later one as ``train``.
    """
    images = to_comparison_size(batches)
    upright, count, results = _grey(images), len(images), []
    hashes = _hashes(upright)
    for shown, which in ((images, "images"), (images.flip(-1), "mirrored images")):
        grey, codes = _grey(shown), []
        for at, by in _candidates(_hashes(grey), hashes):
            codes.append((torch.minimum(at, by) * count + torch.maximum(at, by))[at != by])
            compared = min(len(codes) * _CHUNK, count)
            report_progress(f"searching for duplicates: {compared:,} of {count:,} {which}")
        pairs = torch.cat(codes).unique()
        for number, part in enumerate(pairs.split(_CHUNK)):
            results += _confirmed((shown, grey), (images, upright), part // count, part % count)
            compared = min((number + 1) * _CHUNK, len(pairs))
            report_progress(f"comparing similar images: {compared:,} of {len(pairs):,} pairs of {which}")
    return _unique(*(torch.cat(parts) for parts in zip(*results, strict=True)))


def channel_means_and_deviations(
    images: LabelledImages,
) -> tuple[Float32[Tensor, "count channels"], Float32[Tensor, "count"]]:
    """Mean of each channel of each image, 0 to 255, and the largest standard deviation of a channel."""
    if not len(images):
        return torch.zeros(0, images.image_shape[0]), torch.zeros(0)
    planes = (batch.float().flatten(2) for batch in images.batches(_CHUNK))
    means, deviations = zip(*((part.mean(2), part.std(2, correction=0).amax(1)) for part in planes), strict=True)
    return torch.cat(means), torch.cat(deviations)


def find_copies(
    images: LabelledImages,
    splits: Sequence[str],
    blank: Bool[Tensor, "count"],
    report_progress: Callable[[str], None] = lambda text: None,
) -> tuple[DuplicatePairs, Bool[Tensor, "pairs"]]:
    """Every pair of images of one picture, exact copies included.

    Of images with the same pixels, class and split, only the first is compared with other images, and each copy is
    paired with it alone. So the number of pairs is linear in the number of copies.

    Arguments:
        splits: split of each image.
        blank: images of one colour, which are left out.
        report_progress: receives the progress as text.

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
    kept = torch.tensor(sorted(itertools.chain(*firsts)), dtype=torch.int64)
    if len(kept) < 2:
        near = DuplicatePairs(kept[:0], kept[:0], torch.zeros(0))
    else:
        pairs = near_duplicate_pairs_within(images.subset(kept).batches(_CHUNK), report_progress)
        near = DuplicatePairs(kept[pairs.test], kept[pairs.train], pairs.similarity)
    differ = torch.from_numpy(hashes[near.test.numpy()] != hashes[near.train.numpy()])
    same = torch.tensor(exact, dtype=torch.int64).reshape(-1, 2)
    return DuplicatePairs(
        torch.cat([same[:, 0], near.test[differ]]),
        torch.cat([same[:, 1], near.train[differ]]),
        torch.cat([torch.ones(len(same)), near.similarity[differ]]),
    ), torch.arange(len(same) + int(differ.sum())) < len(same)


Found = tuple[Int64[Tensor, "pairs"], Int64[Tensor, "pairs"], Float32[Tensor, "pairs"]]


def _confirmed(
    shown: tuple[Images, Grey], train: tuple[Images, Grey], at: Int64[Tensor, "pairs"], by: Int64[Tensor, "pairs"]
) -> Iterator[Found]:
    """The candidates that are duplicates; each side as it is and in grey."""
    for pairs in zip(at.split(_CHUNK), by.split(_CHUNK), strict=True):
        at_alike, by_alike = _alike(shown[1], train[1], *pairs)
        kept, detail = _compared(shown[0][at_alike], train[0][by_alike])
        yield at_alike[kept], by_alike[kept], detail


def _grey(images: Images) -> Grey:
    """The mean of the channels at 32 x 32, filtered such that a shift by part of a pixel changes little."""
    size = (_SIDE, _SIDE)
    return torch.cat(
        [
            F.interpolate(part.float().mean(1, keepdim=True), size, mode="bilinear", antialias=True)[:, 0]
            for part in images.split(_CHUNK)
        ]
    )


def _hashes(grey: Grey) -> Float32[Tensor, "_ 63"]:
    """The lowest coefficients as a unit vector, zero for an image of one colour."""
    spectrum = torch.from_numpy(fft.dctn(grey.numpy(), axes=(1, 2), norm="ortho"))
    lowest = spectrum[:, :_FREQUENCIES, :_FREQUENCIES].flatten(1)[:, 1:]
    length = lowest.norm(dim=1, keepdim=True)
    return torch.where(length > 1, lowest / length.clamp_min(1), 0.0)


def _candidates(
    queries: Float32[Tensor, "n 63"], hashes: Float32[Tensor, "m 63"]
) -> Iterator[tuple[Int64[Tensor, "pairs"], Int64[Tensor, "pairs"]]]:
    for start in range(0, len(queries), _CHUNK):
        cosines = queries[start : start + _CHUNK] @ hashes.T
        crowded = (cosines > _MIN_HASH_COSINE).sum(1) > _CANDIDATES
        if crowded.any():
            least = cosines[crowded].topk(_CANDIDATES, dim=1).values[:, -1:]
            cosines[crowded] = torch.where(cosines[crowded] >= least, cosines[crowded], 0.0)
        at, by = torch.nonzero(cosines > _MIN_HASH_COSINE, as_tuple=True)
        yield at + start, by


def _alike(
    queries: Grey, theirs: Grey, at: Int64[Tensor, "pairs"], by: Int64[Tensor, "pairs"]
) -> tuple[Int64[Tensor, "kept"], Int64[Tensor, "kept"]]:
    """The pairs whose grey pixels correlate at some shift, nearly as much as those of a crop do."""
    template = queries[at][:, _REACH:-_REACH, _REACH:-_REACH]
    alike = _best_place(template, theirs[by])[0] > _MIN_SHIFT_CORRELATION
    return at[alike], by[alike]


def _compared(first: Images, second: Images) -> tuple[Int64[Tensor, "kept"], Float32[Tensor, "kept"]]:
    """Which pairs are duplicates, and how far they agree in detail."""
    places, one, other = _align(_planes(first), _planes(second))
    if not len(places):
        return places, torch.zeros(0)
    one, other = _of_one_contrast(one, other)
    agree = _least_structure(one.mean(1, keepdim=True), other.mean(1, keepdim=True)) > _MIN_BLOCK
    places, one, other = places[agree], one[agree], other[agree]
    faint = torch.minimum(_strength(_chroma(one)), _strength(_chroma(other))) < _MAX_GREY_CHROMA
    one, other = (torch.where(faint[:, None, None, None], x.mean(1, keepdim=True), x) for x in (one, other))
    detail = _correlation(_detail(one), _detail(other))
    kept = detail > torch.where(faint, _MIN_DETAIL_GREY, _MIN_DETAIL)
    kept &= _colour_apart(one, other) < _MAX_COLOUR_DIFFERENCE
    return places[kept], detail[kept]


def _planes(images: Images) -> Planes:
    return _scaled(images.float(), _SIDE).expand(-1, 3, -1, -1)


def _scaled(planes: Planes, side: int) -> Planes:
    if planes.shape[-2:] == (side, side):
        return planes
    return F.interpolate(planes, (side, side), mode="bilinear", antialias=True)


def _align(first: Planes, second: Planes) -> tuple[Int64[Tensor, "kept"], Planes, Planes]:
    """The pairs whose grey pixels correlate somewhere, and the inner 28 x 28 pixels of both where they do most."""
    grey = first.mean(1, keepdim=True), second.mean(1, keepdim=True)
    results = [_best_place(template[:, 0], ground[:, 0]) for template, ground in _ways(*grey)]
    best = torch.stack([same for same, _ in results])
    kept = torch.nonzero(best.amax(0) > _MIN_CORRELATION)[:, 0]
    laid = torch.zeros(2, len(kept), first.shape[1], _INNER, _INNER)
    for way, (template, ground) in enumerate(_ways(first[kept], second[kept])):
        chosen = best[:, kept].argmax(0) == way
        beneath = _windows(ground[chosen], results[way][1][kept][chosen], template.shape[-1])
        laid[:, chosen] = torch.stack([_middle(template[chosen]), _middle(beneath)])
    return kept, laid[0], laid[1]


def _ways(first: Planes, second: Planes) -> list[tuple[Planes, Planes]]:
    """How one may lie upon the other: what is laid, and the image that it is laid upon."""
    crops = [(_scaled(a, side), b) for side in _CROPS for a, b in ((first, second), (second, first))]
    return [(first[:, :, _REACH:-_REACH, _REACH:-_REACH], second), *crops]


def _best_place(
    template: Float32[Tensor, "n side side"], ground: Float32[Tensor, "n 32 32"]
) -> tuple[Float32[Tensor, "n"], Int64[Tensor, "n"]]:
    """Pearson's correlation of ``template`` with the best placed part of ``ground`` of its size, and that place."""
    if not len(template):
        return template.new_zeros(0), torch.zeros(0, dtype=torch.int64)
    side = template.shape[-1]
    ground = ground - ground.mean((1, 2), keepdim=True)  # keeps the difference of squares below from cancelling
    template = template - template.mean((1, 2), keepdim=True)
    products = F.conv2d(ground[None], template[:, None].contiguous(), groups=len(template))[0]
    variance = (_means(ground.square(), side) - _means(ground, side).square()).clamp_min(0)
    scale = template.flatten(1).norm(dim=1)[:, None, None] * (variance * side**2).sqrt()
    found = torch.where(scale > 1, products / scale.clamp_min(1), 0.0).flatten(1).max(1)
    return found.values, found.indices


def _means(planes: Float32[Tensor, "n rows cols"], side: int) -> Float32[Tensor, "n shifts shifts"]:
    band = torch.ones(_SIDE - side + 1, _SIDE).triu().tril(side - 1) / side  # a product is faster than pooling
    return band @ planes @ band.T


def _windows(ground: Planes, place: Int64[Tensor, "n"], side: int) -> Planes:
    shifts = _SIDE - side + 1
    steps = torch.arange(side)
    rows = (place // shifts)[:, None] + steps
    cols = (place % shifts)[:, None] + steps
    images = torch.arange(len(ground))[:, None, None]
    return ground.permute(0, 2, 3, 1)[images, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)


def _middle(planes: Planes) -> Planes:
    edge = (planes.shape[-1] - _INNER) // 2
    return planes[:, :, edge : edge + _INNER, edge : edge + _INNER]


def _of_one_contrast(first: Planes, second: Planes) -> tuple[Planes, Planes]:
    """Both without the mean of all their channels, and with the geometric mean of their deviations."""
    deviations = [planes.mean(1).std((1, 2)).clamp_min(1) for planes in (first, second)]
    common = (deviations[0] * deviations[1]).sqrt()
    fitted = [
        (planes - planes.mean((1, 2, 3), keepdim=True)) * (common / deviation)[:, None, None, None]
        for planes, deviation in zip((first, second), deviations, strict=True)
    ]
    return fitted[0], fitted[1]


def _detail(planes: Planes) -> Planes:
    """What the neighbourhood does not tell, by the deviation of all channels there."""
    left = planes - _blurred(planes)
    return left / (_blurred(left.square().mean(1, keepdim=True)).sqrt() + _NOISE)


def _blurred(planes: Planes) -> Planes:
    return F.avg_pool2d(planes, _BLUR, 1, _BLUR // 2, count_include_pad=False)


def _correlation(first: Planes, second: Planes) -> Float32[Tensor, "_"]:
    """Pearson's correlation; every plane has its own mean."""
    first, second = (planes - planes.mean((2, 3), keepdim=True) for planes in (first, second))
    length = first.flatten(1).norm(dim=1) * second.flatten(1).norm(dim=1)
    return (first * second).sum((1, 2, 3)) / length.clamp_min(1e-3)


def _least_structure(first: Planes, second: Planes) -> Float32[Tensor, "_"]:
    def mean(planes: Planes) -> Planes:
        return F.avg_pool2d(planes, _BLOCK, _STEP)

    variances = mean(first * first) - mean(first).square() + mean(second * second) - mean(second).square()
    covariance = mean(first * second) - mean(first) * mean(second)
    return ((2 * covariance + 2 * _NOISE**2) / (variances + 2 * _NOISE**2)).amin((1, 2, 3))


def _colour_apart(planes: Planes, other: Planes) -> Float32[Tensor, "_"]:
    """How far the chroma differs, by the chroma there is."""
    first, second = _chroma(planes), _chroma(other)
    return _strength(first - second) / (torch.maximum(_strength(first), _strength(second)) + _NOISE)


def _chroma(planes: Planes) -> Planes:
    return F.avg_pool2d(planes - planes.mean(1, keepdim=True), _COLOURED)


def _strength(chroma: Planes) -> Float32[Tensor, "_"]:
    return chroma.square().sum(1).mean((1, 2)).sqrt()


def _unique(test: Int64[Tensor, "n"], train: Int64[Tensor, "n"], similarity: Float32[Tensor, "n"]) -> DuplicatePairs:
    """In the order of the indices, each pair once; one that is found mirrored, too, keeps its higher similarity."""
    order = torch.argsort(similarity, descending=True, stable=True)
    order = order[torch.argsort(train[order], stable=True)]
    order = order[torch.argsort(test[order], stable=True)]
    test, train, similarity = test[order], train[order], similarity[order]
    first = torch.ones(len(test), dtype=torch.bool)
    first[1:] = (test[1:] != test[:-1]) | (train[1:] != train[:-1])
    return DuplicatePairs(test[first], train[first], similarity[first])
