"""Random erasing, mixup and CutMix: boxes stay in the image, and labels follow the pixels."""

import pytest
import torch
from scipy.stats import beta, kstest

from vit_vs_cnn.data.augmentation.geometry import (
    beta_quantiles,
    erasing_boxes,
    mix_images,
    mix_labels,
    mixing_plan,
)

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
    plan = mixing_plan(uniform(5, 10), mixup, cutmix, SIZE).float()
    targets = mix_labels(labels, plan, 2)
    torch.testing.assert_close(mix_images(images, plan).mean(dim=(1, 2, 3)), targets[:, 0])
    torch.testing.assert_close(targets.sum(1), torch.ones(10))


def test_each_image_takes_one_of_the_two_with_probability_a_half():
    plan = mixing_plan(uniform(5, 9999), 0.8, 1.0, SIZE)
    boxed, blended = (plan[1] > plan[0]) & (plan[3] > plan[2]), plan[4] > 0
    assert not (boxed & blended).any()
    assert abs(blended.double().mean() - 0.5) < 0.02


def test_erased_area_and_ratio_keep_their_ranges():
    top, bottom, left, right = erasing_boxes(uniform(5, 9999), 1.0, (997, 991))
    area = (bottom - top) * (right - left) / (997 * 991)
    ratio = (bottom - top) / (right - left)
    assert (top >= 0).all() and (bottom <= 997).all() and (left >= 0).all() and (right <= 991).all()
    assert area.min() > 0.019 and area.max() < 0.331
    assert ratio.min() > 0.29 and ratio.max() < 3.32
    assert abs(area.mean() - (0.02 + 0.33) / 2) < 0.005
