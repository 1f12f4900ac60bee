"""Deletion and insertion on networks with known probabilities."""

import pytest
import torch
from torch import nn

from vit_vs_cnn.inspection.deletion import (
    FILLS,
    DeletionTest,
    area_under_curve,
    deletion_grid,
    limit_grid_size,
    replacement_images,
)
from vit_vs_cnn.inspection.saliency import descending_ranks, image_noise
from vit_vs_cnn.models import VisionTransformer

GRID, SIZE = (3, 5), (12, 20)


class Counting(nn.Module):
    """The probability of class 0 is the share of pixels that are 1."""

    def forward(self, images):
        share = (images == 1).float().mean(dim=(1, 2, 3)).clamp(1e-6, 1 - 1e-6)
        return torch.stack([share.log(), (1 - share).log()], dim=1)


def test_tokens_are_deleted_and_inserted_in_the_order_of_the_map():
    images = torch.zeros(1, 2, *SIZE)
    images[:, :, :4, :4] = 1.0  # one token of 15
    maps = torch.zeros(1, *GRID)
    maps[:, 0, 0] = 1.0
    test = DeletionTest(Counting(), images, torch.zeros(1, dtype=torch.long), grid_size=GRID, steps=15)
    deleted, inserted = test.curves(maps), test.curves(maps, insert=True)
    expected = torch.tensor([[1 / 15] + [0.0] * 15])
    torch.testing.assert_close(deleted, expected, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(inserted, 1 / 15 - expected, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(test.areas(maps, insert=True), torch.tensor([14.5 / 15 / 15]), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(test.curves(-maps), torch.tensor([[1 / 15] * 15 + [0.0]]), rtol=0.0, atol=1e-5)


def test_the_greedy_order_is_the_best_one_where_tokens_add_up():
    """Each of 15 tokens has another number of pixels of value 1."""
    counts = torch.randperm(15, generator=torch.Generator().manual_seed(0)).view(GRID)
    images = (torch.arange(16) < counts[..., None]).view(*GRID, 4, 4).permute(0, 2, 1, 3).reshape(1, 1, *SIZE).float()
    test = DeletionTest(Counting(), images, torch.zeros(1, dtype=torch.long), grid_size=GRID, steps=5)
    for insert in (False, True):
        greedy = test.areas(test.greedy_maps(insert=insert), insert=insert)
        torch.testing.assert_close(greedy, test.areas(counts[None].float(), insert=insert))


def test_steps_are_weighted_by_the_tokens_that_they_change():
    """Seven tokens are removed in three steps of 2, 2 and 3, so the points are at 0, 2/7, 4/7 and 1."""
    by_hand = (2 * (1.0 + 0.5) / 2 + 2 * (0.5 + 0.3) / 2 + 3 * (0.3 + 0.1) / 2) / 7
    torch.testing.assert_close(area_under_curve(torch.tensor([[1.0, 0.5, 0.3, 0.1]]), 7), torch.tensor([by_hand]))
    torch.testing.assert_close(area_under_curve(1 - torch.tensor([[0.0, 2.0, 4.0, 7.0]]) / 7, 7), torch.tensor([0.5]))


def test_deletion_removes_tokens_of_the_network_or_8_by_8_and_none_without_a_pixel():
    vit = VisionTransformer((12, 20), 4, num_classes=3, embed_dim=6, depth=1, num_heads=1)
    assert deletion_grid(Counting(), (31, 17)) == (8, 8)
    assert deletion_grid(Counting(), (5, 17)) == (5, 8)
    assert deletion_grid(vit, (12, 20)) == (3, 5)
    assert limit_grid_size((7, 11), (5, 13)) == (5, 11)
    assert limit_grid_size((7, 11), (13, 5)) == (7, 5)


@pytest.mark.parametrize("fill", FILLS)
def test_the_fill_keeps_the_mean_and_depends_on_the_image_only(fill):
    images = torch.randn(3, 2, *SIZE, generator=torch.Generator().manual_seed(0))
    background = replacement_images(images, fill)
    assert background.shape == images.shape
    assert (background != images).any()
    close = 0.2 if fill == "noise" else 0.1
    torch.testing.assert_close(background.mean(dim=(2, 3)), images.mean(dim=(2, 3)), rtol=0.0, atol=close)
    torch.testing.assert_close(replacement_images(images[1:2], fill), background[1:2])
    if fill == "blur":
        assert (background.std(dim=(2, 3)) < 0.4 * images.std(dim=(2, 3))).all()
    if fill == "noise":
        torch.testing.assert_close(background.std(dim=(2, 3)), images.std(dim=(2, 3)), rtol=0.2, atol=0.0)


def test_ranks_equal_a_sort_with_ties_broken_by_noise():
    ties = image_noise(torch.randn(500, 1, 1, 5, generator=torch.Generator().manual_seed(0)), "ties").flatten(1)
    ranks = descending_ranks(torch.tensor([[3.0, 1.0, 2.0, 1.0, 1.0]] * 500), ties)
    assert (ranks[:, 0] == 0).all()
    assert (ranks[:, 2] == 1).all()
    assert torch.stack([(ranks[:, place] == 2).sum() for place in (1, 3, 4)]).min() > 130
