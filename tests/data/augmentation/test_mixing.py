"""Mixup and CutMix: labels follow the pixels."""

import pytest
import torch
from scipy.stats import beta, kstest

from vit_vs_cnn.data.augmentation.mixing import beta_quantiles, mixed_images, mixed_labels, mixing_plan

SIZE = (29, 23)


def uniform(rows, count):
    return torch.rand(rows, count, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_quantiles_follow_the_beta_distribution(alpha):
    assert kstest(beta_quantiles(uniform(1, 4999)[0], alpha).numpy(), beta(alpha, alpha).cdf).pvalue > 0.01


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_label_shares_are_the_pixel_shares(mixup, cutmix):
    # Images of ones and zeros in turn: the mean of a mixed image is the share of its ones.
    images = torch.zeros(10, 5, *SIZE)
    images[::2] = 1
    labels = torch.arange(10) % 2
    plan = mixing_plan(uniform(5, 10), mixup, cutmix, 1.0, SIZE).float()
    targets = mixed_labels(labels, plan, 2)
    torch.testing.assert_close(mixed_images(images, plan).mean(dim=(1, 2, 3)), targets[:, 0])
    torch.testing.assert_close(targets.sum(1), torch.ones(10))


def test_mixup_joins_with_the_image_before():
    images, plan = torch.rand(7, 3, *SIZE), mixing_plan(uniform(5, 7), 0.8, 0.0, 1.0, SIZE).float()
    weights = plan[4][:, None, None, None]
    torch.testing.assert_close(mixed_images(images, plan), (1 - weights) * images + weights * images.roll(1, 0))


def test_cutmix_pixels_are_either_the_images_or_the_partners():
    images, plan = torch.rand(7, 3, *SIZE), mixing_plan(uniform(5, 7), 0.0, 1.0, 1.0, SIZE).float()
    mixed = mixed_images(images, plan)
    assert ((mixed == images) | (mixed == images.roll(1, 0))).all()


def test_each_image_takes_one_of_the_two_with_probability_a_half():
    plan = mixing_plan(uniform(5, 9999), 0.8, 1.0, 1.0, SIZE)
    boxed, blended = (plan[1] > plan[0]) & (plan[3] > plan[2]), plan[4] > 0
    assert not (boxed & blended).any()
    assert abs(blended.double().mean() - 0.5) < 0.02


def test_mix_probability_is_the_share_of_mixed_images():
    plan = mixing_plan(uniform(5, 9999), 0.8, 0.0, 0.3, SIZE)
    assert abs((plan[5] > 0).double().mean() - 0.3) < 0.02


def test_expected_share_of_the_partner_is_a_half_in_mixup():
    assert abs(mixing_plan(uniform(5, 9999), 0.4, 0.0, 1.0, SIZE)[5].mean() - 0.5) < 0.02
