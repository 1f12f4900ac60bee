"""Nested, stratified subsets of a labelled set, the validation part of each, whole groups set apart, and test folds."""

import hashlib
import heapq
import os
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from vit_vs_cnn.counter_random import counter_key, permutation
from vit_vs_cnn.errors import InputError

Labels = Int64[Tensor, "count"]
#: Numbers of images, or of the fold or group of each image.
Numbers = Int64[Tensor, "_"]


def nested_subsets(labels: Labels | Sequence[int] | np.ndarray, sizes: Sequence[int], seed: int) -> dict[int, Numbers]:
    """For each size, the indices of a subset: the prefix of that length of ``nested_order(labels, seed)``.

    A smaller subset begins the larger. Of a class with c of the N images, a subset of n images holds n c / N images, up
    to a difference below one.

    Arguments:
        labels: class number of each image, as a tensor, array or list.

    Raises:
        InputError: labels are not whole numbers, or a size is not between 1 and the number of images.

    Example:
        >>> labels = [0, 1, 2] * 10
        >>> subsets = nested_subsets(labels, sizes=[6, 12], seed=0)
        >>> [sorted(labels[index] for index in subsets[6]), set(subsets[6].tolist()) < set(subsets[12].tolist())]
        [[0, 0, 1, 1, 2, 2], True]
    """
    labels = torch.as_tensor(labels)
    if labels.ndim != 1 or labels.is_floating_point():
        raise InputError(f"labels: {tuple(labels.shape)} of {labels.dtype}; needed: one whole number for each image")
    for size in sizes:
        if not 1 <= size <= len(labels):
            raise InputError(f"train size is {size}; allowed: 1 to {len(labels)}, the number of images there are")
    order = nested_order(labels, seed)
    return {size: order[:size].clone() for size in sizes}


def nested_order(labels: Labels, seed: int) -> Labels:
    """One total order of the images of which every prefix is stratified to within one image per class.

    Within a class the images come in a random permutation keyed by (seed, class). Which class is next is Tijdeman's
    schedule for K classes with shares c / N: the class's image of rank r (from 0) may be placed from position

        ceil (N (r + e) / c)    up to    floor(N (r + 1 - e) / c) + 1,        e = 1 / (2K - 2),

    and of the images that may be placed, the one whose span ends first is; ties go by a random order of the classes
    that the seed gives. Every class's count in every prefix then differs from its proportional share by at most 1 - e.

    Reference: Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980), 323-330.
    Differs: the end of a span is rounded to whole positions, which keeps the bound (earliest deadline first is optimal
    for unit jobs). Sorting by (r + 1/2) / c would miss the bound where class sizes differ.
    """
    values, inverse = np.unique(labels.numpy(), return_inverse=True)
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    # Keyed by the label itself: an absent class moves no other.
    keys = [counter_key(seed, 0, value) for value in values.tolist()]
    queues = [group[permutation(key, len(group))] for group, key in zip(members, keys, strict=True)]
    ties = permutation(counter_key(seed, 1), len(queues)).tolist()
    return torch.from_numpy(np.array(_interleave(queues, ties), dtype=np.int64))


def _interleave(queues: list[np.ndarray], ties: list[int]) -> list[int]:
    """The queues merged by earliest deadline first, in exact integers."""
    total, span = sum(len(queue) for queue in queues), max(2 * len(queues) - 2, 2)
    waiting = [(0, place) for place in range(len(queues))]  # (position from which it may be placed, queue)
    ready: list[tuple[int, int, int]] = []  # (position before the last allowed one, tie, queue)
    counts_taken, order = [0] * len(queues), []
    for position in range(1, total + 1):
        while waiting and waiting[0][0] <= position:
            place = heapq.heappop(waiting)[1]
            deadline = total * (counts_taken[place] * span + span - 1) // (len(queues[place]) * span)
            heapq.heappush(ready, (deadline, ties[place], place))
        place = heapq.heappop(ready)[2]
        order.append(int(queues[place][counts_taken[place]]))
        counts_taken[place] += 1
        if counts_taken[place] < len(queues[place]):
            release = -(-total * (counts_taken[place] * span + 1) // (len(queues[place]) * span))
            heapq.heappush(waiting, (release, place))
    return order


def split_validation(subset: Numbers, labels: Labels, fraction: float) -> tuple[Numbers, Numbers]:
    """Divide a subset into (training indices, validation indices), both in the subset's order.

    The image at place i (from 0) of its class in the subset is for validation if

        floor((i + 1) f) > floor(i f),

    so a class with m images gives floor(m f) of them, and both parts nest as the subset, in ``nested_order``, grows.
    The arithmetic is exact: the fraction f is the decimal that is written.
    """
    exact = Fraction(str(fraction))
    chosen = labels[subset].numpy()
    by_class = np.argsort(chosen, kind="stable")
    starts = np.searchsorted(chosen[by_class], chosen[by_class])
    place = np.empty(len(chosen), dtype=np.int64)
    place[by_class] = np.arange(len(chosen)) - starts
    floors = np.array([i * exact.numerator // exact.denominator for i in range(len(chosen) + 1)], dtype=np.int64)
    held_out = torch.from_numpy(floors[place + 1] > floors[place])
    return subset[~held_out], subset[held_out]


def hold_out_groups(labels: Labels, groups: Labels, fraction: float, order: Sequence[int]) -> Bool[Tensor, "count"]:
    """Mask of held-out images: about a fraction f of every class, in whole groups.

    With ``h`` of the ``m`` images of each class held out, the next group of ``order`` is held out, too, if that lowers

        sum over classes of (h / m - f)^2

    and leaves every class images in other groups. At least one group is held out if f is above 0 and one can be spared.

    Arguments:
        groups: number of the group of each image, from 0 without gaps.
    """
    by_group = _count_by_group(labels, groups)
    counts = by_group.sum(0)
    held_counts, is_chosen = np.zeros(len(counts), np.int64), np.zeros(len(by_group), bool)

    def gain(group: int) -> float:
        classes = by_group[group].nonzero()[0]
        held, size = held_counts[classes], counts[classes]
        after = held + by_group[group][classes]
        return float(((held / size - fraction) ** 2).sum() - ((after / size - fraction) ** 2).sum())

    def can_be_spared(group: int) -> bool:
        rest = counts - held_counts
        return not is_chosen[group] and bool((rest > by_group[group])[by_group[group] > 0].all())

    def set_apart(group: int) -> None:
        held_counts[:] += by_group[group]
        is_chosen[group] = True

    for group in order:
        if fraction > 0 and gain(group) > 0 and can_be_spared(group):
            set_apart(group)
    if fraction > 0 and not is_chosen.any() and (able := [group for group in order if can_be_spared(group)]):
        set_apart(max(able, key=gain))
    return torch.from_numpy(is_chosen[groups.numpy()])


def _count_by_group(labels: Labels, groups: Labels) -> Int64[np.ndarray, "groups classes"]:
    """Number of images of each class in each group."""
    counts = np.zeros((int(groups.max()) + 1, int(labels.max()) + 1), np.int64)
    np.add.at(counts, (groups.numpy(), labels.numpy()), 1)
    return counts


def stratified_folds(labels: Labels, order: Labels, folds: int) -> Labels:
    """Number of the fold of each image, from 0.

    Two folds differ by one image at most, and by one image of each class at most. The images of a class, in ``order``,
    are cut into consecutive blocks. Blocks that are one image longer begin after the longer blocks of the class before.
    """
    result = torch.empty_like(labels)
    longer = 0  # fold that gets the next block with one image more
    for label in labels.unique().tolist():
        members = order[labels[order] == label]
        size, more = divmod(len(members), folds)
        sizes = torch.full((folds,), size)
        sizes[(longer + torch.arange(more)) % folds] += 1
        result[members] = torch.arange(folds).repeat_interleave(sizes)
        longer = (longer + more) % folds
    return result


def grouped_folds(labels: Labels, groups: Labels, order: Sequence[int], folds: int) -> Labels:
    """``stratified_folds`` that keep the images of a group together.

    Large groups come first, then ``order`` decides. With ``h_fc`` of the ``m_c`` images of class c in fold f, a group
    joins the fold that raises

        sum over folds and classes of (h_fc / m_c)^2

    the least, of equal ones the fold with the fewest images. It joins no fold that has all other images of one of its
    classes, if another fold is left. So a class of two groups or more is nearly always in several folds.

    Reference: ``sklearn.model_selection.StratifiedGroupKFold``.
    Differs: it minimises the standard deviation of class shares over folds, and has no rule against whole classes.
    """
    by_group = _count_by_group(labels, groups)
    counts = by_group.sum(0)
    held_counts, fold_of = np.zeros((folds, len(counts)), np.int64), np.zeros(len(by_group), np.int64)
    for group in sorted(order, key=lambda group: -by_group[group].sum()):
        own = by_group[group]
        takes_all = ((held_counts + own == counts) & (own > 0) & (own < counts)).any(1)
        rise = (held_counts * own / np.maximum(counts, 1) ** 2).sum(1)
        fold_of[group] = np.lexsort((held_counts.sum(1), rise, takes_all))[0]
        held_counts[fold_of[group]] += own
    return torch.from_numpy(fold_of[groups.numpy()])


def assign_folds(
    names: Sequence[str], labels: Labels, *, fraction: float, seed: int, groups: Sequence[str] | None = None
) -> Labels:
    """Test fold of each image: ``1 / fraction`` folds, rounded, at least two and at most one for each image or group.

    Images are ordered by SHA-256(seed, name), groups by SHA-256(seed, group): a later image moves few others.
    """
    units = list(names) if groups is None else sorted(set(groups))
    count = max(2, min(round(1 / fraction), len(units)))
    order = sorted(range(len(units)), key=lambda i: hashlib.sha256(os.fsencode(f"{seed}/{units[i]}")).digest())
    if groups is None:
        return stratified_folds(labels, torch.tensor(order), count)
    numbers = {name: number for number, name in enumerate(units)}
    return grouped_folds(labels, torch.tensor([numbers[name] for name in groups]), order, count)


def merge_copies(groups: Sequence[str], hashes: Sequence[bytes | None]) -> list[str]:
    """Group of each image after groups with copies of one image are merged, under the alphabetically first name.

    Arguments:
        hashes: hash of the pixels of each image; None for an image without copies.

    Example:
        >>> merge_copies(["a", "b", "c", "d"], [b"1", b"2", b"2", None])
        ['a', 'b', 'b', 'd']
    """
    from scipy.cluster.hierarchy import DisjointSet  # takes half a second to load

    merged, group_of_pixels = DisjointSet(groups), dict[bytes, str]()
    for group, pixels in zip(groups, hashes, strict=True):
        if pixels is not None:
            merged.merge(group_of_pixels.setdefault(pixels, group), group)
    names = {group: min(subset) for subset in merged.subsets() for group in subset}
    return [names[group] for group in groups]


def subset_hash(indices: Numbers) -> str:
    """SHA-256 (first 16 hex digits) of the sorted indices as little-endian 64-bit integers: the set, not its order."""
    return hashlib.sha256(np.sort(indices.numpy()).astype("<i8").tobytes()).hexdigest()[:16]
