"""Subsets of training images are nested, stratified, and determined by the seed."""

import hashlib
import itertools

import numpy as np
import pytest
import torch

from vit_vs_cnn.data.subsets import (
    assign_folds,
    grouped_folds,
    hold_out_groups,
    merge_copies,
    nested_order,
    nested_subsets,
    split_validation,
    stratified_folds,
    subset_hash,
)
from vit_vs_cnn.errors import InputError

PRIMES = (2, 3, 5, 7, 11, 13, 17)


def labels_of(counts, seed=0):
    """``counts[c]`` labels c, shuffled."""
    return torch.from_numpy(np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts)))


def class_counts(labels, subset, classes):
    return torch.bincount(labels[subset], minlength=classes)


def test_smaller_subsets_and_their_parts_are_prefixes_of_the_larger():
    labels = labels_of(PRIMES)
    subsets = nested_subsets(labels.tolist(), [41, 7, 58, 1, 23], seed=5)
    assert list(subsets) == [41, 7, 58, 1, 23]
    assert torch.equal(subsets[58], nested_subsets(labels.numpy(), [58], seed=5)[58])
    for small, large in [(1, 7), (7, 23), (23, 41), (41, 58)]:
        assert torch.equal(subsets[small], subsets[large][:small])
    labels = labels_of((31, 17, 53, 7))
    subsets = nested_subsets(labels, [13, 40, 77, 108], seed=6)
    for smaller, larger in itertools.pairwise([split_validation(subset, labels, 0.3) for subset in subsets.values()]):
        for part in (0, 1):
            assert torch.equal(smaller[part], larger[part][: len(smaller[part])])


@pytest.mark.parametrize(
    "counts",
    [PRIMES, (37,) * 7, (500, *(5,) * 100), (1, 1, 997), (2, 90), tuple(range(1, 30))],
    ids=lambda c: str(len(c)),
)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_prefix_is_within_tijdemans_bound_of_proportional(counts, seed):
    labels = labels_of(counts, seed)
    counts_so_far = np.eye(len(counts))[labels[nested_order(labels, seed)].numpy()].cumsum(axis=0)
    sizes = np.arange(1, len(labels) + 1)[:, None]
    bound = 1 - 1 / (2 * len(counts) - 2)
    assert abs(counts_so_far - sizes * np.array(counts) / len(labels)).max() <= bound + 1e-9


def test_renumbering_a_class_does_not_change_the_order_of_the_others():
    labels = torch.tensor([0, 2, 5] * 20)
    order = nested_order(labels, seed=0)
    renamed = nested_order(torch.where(labels == 2, 9, labels), seed=0)
    for selected in (0, 5):
        assert torch.equal(order[labels[order] == selected], renamed[labels[renamed] == selected])


def test_impossible_size_is_refused_with_value_and_rule():
    for size in (0, -3, 59):
        with pytest.raises(InputError, match=rf"{size}; allowed: 1 to 58"):
            nested_subsets(labels_of(PRIMES), [7, size], seed=0)


@pytest.mark.parametrize(("fraction", "tenths"), [(0.1, 1), (0.3, 3), (0.7, 7), (0.9, 9)])
def test_validation_holds_the_exact_decimal_share_of_each_class(fraction, tenths):
    labels = labels_of((50,) * 7)
    subset = nested_order(labels, seed=0)[:210]
    train, validation = split_validation(subset, labels, fraction)
    assert sorted([*train.tolist(), *validation.tolist()]) == sorted(subset.tolist())
    assert class_counts(labels, validation, 7).tolist() == [3 * tenths] * 7
    assert class_counts(labels, train, 7).tolist() == [30 - 3 * tenths] * 7


def test_hash_depends_on_the_set_and_not_its_order():
    indices = torch.tensor([5, 3, 258])
    expected = hashlib.sha256(b"".join(i.to_bytes(8, "little") for i in (3, 5, 258))).hexdigest()[:16]
    assert subset_hash(indices) == subset_hash(indices.flip(0)) == expected
    assert subset_hash(torch.tensor([5, 3])) != expected


def random_groups(seed):
    """Labels and groups of 1009 images, and an order of the groups."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, 97, (1009,), generator=generator).unique(return_inverse=True)[1]
    labels = torch.randint(0, 5, (1009,), generator=generator)
    return labels, groups, torch.randperm(int(groups.max()) + 1, generator=generator).tolist()


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_whole_groups_are_held_out_near_the_fraction_of_every_class(fraction):
    labels, groups, order = random_groups(7)
    held = hold_out_groups(labels, groups, fraction, order)
    assert not {*groups[held].tolist()} & {*groups[~held].tolist()}
    shares = [float(held[labels == label].float().mean()) for label in range(5)]
    assert max(abs(share - fraction) for share in shares) < 0.08


def test_a_class_in_one_group_is_never_held_out_and_one_of_two_groups_is_in_two_folds():
    labels, groups = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1]), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    held = hold_out_groups(labels, groups, 0.05, [2, 0, 1, 3])
    assert held.any() and not held[labels == 2].any()
    assert not hold_out_groups(labels, groups, 0.0, [2, 0, 1, 3]).any()
    labels, groups = torch.tensor([0, 0, 1, 1, 0, 1, 2, 2]), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    found = grouped_folds(labels, groups, [2, 0, 1, 3], 2)
    assert found[labels == 0].unique().numel() == found[labels == 1].unique().numel() == 2


@pytest.mark.parametrize("folds", [2, 5, 11])
def test_folds_contain_every_class_equally_often(folds):
    labels = labels_of(PRIMES)
    found = stratified_folds(labels, torch.from_numpy(np.random.default_rng(1).permutation(len(labels))), folds)
    counts = torch.stack([class_counts(labels, found == fold, len(PRIMES)) for fold in range(folds)])
    assert (counts.amax(0) - counts.amin(0)).max() <= 1
    assert counts.sum(1).max() - counts.sum(1).min() <= 1 and counts.sum() == len(labels)


@pytest.mark.parametrize("folds", [2, 5, 11])
def test_folds_split_no_group_and_are_nearly_stratified(folds):
    labels, groups, order = random_groups(folds)
    found = grouped_folds(labels, groups, order, folds)
    assert all(found[groups == group].unique().numel() == 1 for group in range(len(order)))
    shares = torch.stack([class_counts(labels, found == fold, 5) for fold in range(folds)]) / labels.bincount()
    assert (shares - 1 / folds).abs().max() < 0.3 / folds


@pytest.mark.parametrize(("fraction", "of_images", "of_groups"), [(0.9, 2, 2), (0.3, 3, 3), (0.2, 5, 5), (0.01, 13, 7)])
def test_folds_have_the_fraction_and_there_are_two_to_one_for_each_image_or_group(fraction, of_images, of_groups):
    names, groups = [f"{number}.png" for number in range(13)], [f"{number % 7}" for number in range(13)]
    for count, selected in ((of_images, None), (of_groups, groups)):
        found = assign_folds(names, torch.arange(13) % 2, fraction=fraction, seed=3, groups=selected)
        assert found.unique().tolist() == [*range(count)]


def test_groups_that_share_copies_directly_or_through_others_get_the_first_of_their_names():
    assert merge_copies(["d", "c", "b", "a", "e"], [b"1", b"1", b"2", b"2", None]) == ["c", "c", "a", "a", "e"]
    assert merge_copies(["c", "b", "b", "a"], [b"1", b"1", b"2", b"2"]) == ["a"] * 4
