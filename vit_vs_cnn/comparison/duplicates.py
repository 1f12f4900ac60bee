"""Test images that lie among the training images, too: the same picture, perhaps re-encoded, shifted or mirrored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from scipy import fft
from torch import Tensor
from torch.nn import functional as F

#: Changes with what is found, so that an outcome that was kept is not taken for another's.
METHOD = 4

_SIDE = 32  # pixels that images are compared at
_FREQUENCIES = 8  # along each axis, of the cosine transform that finds candidates
_REACH = 2  # pixels by which one image may be shifted against the other
_BLUR = 5  # side of the neighbourhood whose mean is taken away to leave the detail
_NOISE = 5.0  # grey levels of detail that encoding alone may make
_CANDIDATES = 64  # training images looked at closely for one test image, at most
_FAINT = 3.0  # grey levels of colour that a picture may be called grey with
_ALIKE, _SAME, _SAME_DETAIL, _SAME_COLOUR = 0.8, 0.9, 0.6, 0.8
_SURE_DETAIL = 0.8  # as much as no two pictures share by chance, whatever their colours
_CHUNK = 500

Images = UInt8[Tensor, "_ _ _ _"]
Grey = Float32[Tensor, "_ 32 32"]
Planes = Float32[Tensor, "_ _ 32 32"]


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Pairs of a test image and a training image that show the same picture.

    Arguments:
        test: index of the test image, ``(pairs,)``, ascending.
        train: index of the training image.
        similarity: correlation of their detail, 0.6 to 1.
    """

    test: Int64[Tensor, "pairs"]
    train: Int64[Tensor, "pairs"]
    similarity: Float32[Tensor, "pairs"]

    def of_subset(self, indices: Int64[Tensor, "size"], test_count: int) -> Bool[Tensor, "{test_count}"]:
        """Which of the test images have a near-duplicate among these training images."""
        found = torch.zeros(test_count, dtype=torch.bool)
        found[self.test[torch.isin(self.train, indices)]] = True
        return found


def near_duplicates(test: Images, train: Images) -> Duplicates:
    """Every pair of a test and a training image that show the same picture.

    Images are brought to 32 x 32 grey pixels. Candidates are pairs whose perceptual hashes, left as real numbers, point
    the same way: the cosine of their lowest 8 x 8 coefficients of the discrete cosine transform, without the constant
    one, is above 0.8 (the 64 best for each test image). A candidate is a duplicate where, at the best of 25 shifts by
    up to two pixels, mirrored or not,

        corr(test, train) > 0.9    and    corr(detail of test, detail of train) > 0.6
        and    corr(colour of test, colour of train) > 0.8, as far as both have any; or the detail's is above 0.8,

    detail being (pixel - mean) / (deviation + 5) over the 5 x 5 neighbourhood, in all colours, so that a faint
    background counts as much as a strong outline; and colour what the three channels differ by from their mean, with a
    deviation of 3 grey levels at least. Correlations do not see brightness, contrast and a tint of the whole. The first
    condition alone takes any ship on a horizon for any other, the first two any disc in the middle for any other. An
    image of one colour has no duplicates; grey objects of one outline in one place may pass for each other.

    On CIFAR-10 it finds 3 % of the test images in the training set; all but a handful of the pairs are of one class.

    Reference: Zauner, "Implementation and benchmarking of perceptual image hash functions", 2010, for the hash.
    Differs: real coefficients instead of their signs, which a shift by one pixel flips; candidates are confirmed.

    Arguments:
        test: images that are tested on.
        train: images that are trained on; sizes may differ from those of ``test``.
    """
    theirs, found = _prepared(_grey(train)), []
    for shown in (test, test.flip(-1)):
        queries = _prepared(_grey(shown))
        for at, by in _candidates(queries.hashes, theirs.hashes):
            for pairs in zip(at.split(_CHUNK), by.split(_CHUNK), strict=True):
                at_alike, by_alike = _alike(queries, theirs, *pairs)
                detail, kept = _compared(shown[at_alike], train[by_alike])
                found.append((at_alike[kept], by_alike[kept], detail[kept]))
    return _unique(*(torch.cat(parts) for parts in zip(*found, strict=True)))


class _Prepared(NamedTuple):
    """Images as candidates are looked for among them."""

    hashes: Float32[Tensor, "_ 63"]
    grey: Grey


def _prepared(grey: Grey) -> _Prepared:
    return _Prepared(_hashes(grey), grey)


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
        crowded = (cosines > _ALIKE).sum(1) > _CANDIDATES
        if crowded.any():
            least = cosines[crowded].topk(_CANDIDATES, dim=1).values[:, -1:]
            cosines[crowded] = torch.where(cosines[crowded] >= least, cosines[crowded], 0.0)
        at, by = torch.nonzero(cosines > _ALIKE, as_tuple=True)
        yield at + start, by


def _alike(
    queries: _Prepared, theirs: _Prepared, at: Int64[Tensor, "pairs"], by: Int64[Tensor, "pairs"]
) -> tuple[Int64[Tensor, "kept"], Int64[Tensor, "kept"]]:
    """The pairs whose grey pixels correlate."""
    alike = _correlation(queries.grey[at][:, None], theirs.grey[by][:, None]) > _SAME
    return at[alike], by[alike]


def _compared(first: Images, second: Images) -> tuple[Float32[Tensor, "pairs"], Bool[Tensor, "pairs"]]:
    """How far pairs agree in detail, and whether that and their colours make them duplicates."""
    one, other = _planes(first), _planes(second)
    detail = _correlation(_detail(one), _detail(other))
    one, other = _colour(one), _colour(other)
    faint = torch.minimum(one.square().mean((1, 2, 3)), other.square().mean((1, 2, 3))) < _FAINT**2
    known = faint | (detail > _SURE_DETAIL) | (_correlation(one, other) > _SAME_COLOUR)
    return detail, (detail > _SAME_DETAIL) & known


def _planes(images: Images) -> Planes:
    """Three channels at 32 x 32."""
    return F.interpolate(images.float(), (_SIDE, _SIDE), mode="bilinear", antialias=True).expand(-1, 3, -1, -1)


def _detail(planes: Planes) -> Planes:
    """What the neighbourhood does not tell, by the deviation of all channels there."""
    left = planes - _blurred(planes)
    return left / (_blurred(left.square().mean(1, keepdim=True)).sqrt() + _NOISE)


def _blurred(planes: Planes) -> Planes:
    return F.avg_pool2d(planes, _BLUR, 1, _BLUR // 2, count_include_pad=False)


def _colour(planes: Planes) -> Planes:
    """What the channels differ by from their mean, and each from its own."""
    apart = planes - planes.mean(1, keepdim=True)
    return apart - apart.mean((2, 3), keepdim=True)


def _correlation(first: Planes, second: Planes) -> Float32[Tensor, "_"]:
    """Pearson's correlation of the inner part of ``first`` with the best placed part of ``second`` of the same size.

    Every plane has its own mean; all planes of an image have one shift.
    """
    if not len(first):
        return first.new_zeros(0)
    inner = _SIDE - 2 * _REACH
    second = second - second.mean((2, 3), keepdim=True)  # keeps the difference of squares below from cancelling
    template = first[:, :, _REACH:-_REACH, _REACH:-_REACH]
    template = template - template.mean((2, 3), keepdim=True)
    products = F.conv2d(second.flatten(0, 1)[None], template.contiguous(), groups=len(first))[0]
    variance = (_means(second.square(), inner) - _means(second, inner).square()).clamp_min(0).sum(1)
    scale = template.flatten(1).norm(dim=1)[:, None, None] * (variance * inner**2).sqrt()
    return torch.where(scale > 1, products / scale.clamp_min(1), 0.0).amax((1, 2))


def _means(planes: Planes, side: int) -> Float32[Tensor, "_ _ shifts shifts"]:
    """The mean of every square of that side."""
    return F.avg_pool2d(F.avg_pool2d(planes, (side, 1), 1), (1, side), 1)


def _unique(test: Int64[Tensor, "n"], train: Int64[Tensor, "n"], similarity: Float32[Tensor, "n"]) -> Duplicates:
    """In the order of the indices, each pair once; one that is found mirrored, too, keeps its higher similarity."""
    order = torch.argsort(similarity, descending=True, stable=True)
    order = order[torch.argsort(train[order], stable=True)]
    order = order[torch.argsort(test[order], stable=True)]
    test, train, similarity = test[order], train[order], similarity[order]
    first = torch.ones(len(test), dtype=torch.bool)
    first[1:] = (test[1:] != test[:-1]) | (train[1:] != train[:-1])
    return Duplicates(test[first], train[first], similarity[first])
