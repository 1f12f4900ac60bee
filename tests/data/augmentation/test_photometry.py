"""Grey-level operations beside torchvision's, one image at a time."""

import pytest
import torch
from torchvision.transforms.v2 import functional as TF

from vit_vs_cnn.data.augmentation import policy


@pytest.fixture(params=[1, 3], ids=["grey", "colour"])
def images(request):
    """Noise, low contrast, a flat image, a ramp, few levels, black and white, two levels."""
    generator = torch.Generator().manual_seed(5)
    images = torch.randint(0, 256, (7, request.param, 29, 23), dtype=torch.uint8, generator=generator)
    images[1] = images[1] // 3 + 60
    images[2] = 77
    images[3] = torch.arange(23, dtype=torch.uint8) * 11
    images[4] = images[4] // 50 * 50
    images[5] = images[5] // 128 * 255
    images[6] = images[6] // 128 + 100
    return images


@pytest.mark.parametrize(
    ("ours", "reference"),
    [
        (policy.brightness, TF.adjust_brightness),
        (policy.saturation, TF.adjust_saturation),
        (policy.contrast, TF.adjust_contrast),
        (policy.sharpness, TF.adjust_sharpness),
    ],
)
def test_blends_equal_torchvision_within_one_grey_level(images, ours, reference):
    for levels in torch.linspace(0.01, 1.99, 14).view(2, 7):
        for image, result, level in zip(images, ours(images, levels), levels, strict=True):
            difference = result.int() - reference(image, level.item()).int()
            assert difference.abs().max() <= 1
            assert (difference != 0).float().mean() < 0.02


@pytest.mark.parametrize("operation", [policy.brightness, policy.saturation, policy.contrast, policy.sharpness])
def test_blend_of_level_one_is_the_image(images, operation):
    assert torch.equal(operation(images, torch.ones(7)), images)


def test_posterize_equals_torchvision(images):
    levels = [0, 1, 2, 4, 5, 7, 8]
    expected = torch.stack([TF.posterize(image, bits) for image, bits in zip(images, levels, strict=True)])
    assert torch.equal(policy.posterize(images, torch.tensor(levels).float()), expected)


def test_solarize_equals_torchvision(images):
    levels = torch.tensor([0.0, 10.5, 100.0, 178.49999, 200.0, 254.3, 255.0])
    expected = torch.stack([TF.solarize(image, level.item()) for image, level in zip(images, levels, strict=True)])
    assert torch.equal(policy.solarize(images, levels), expected)


def test_autocontrast_equals_torchvision(images):
    expected = torch.stack([TF.autocontrast(image) for image in images])
    assert torch.equal(policy.autocontrast(images, torch.ones(7)), expected)


def test_equalize_equals_torchvision(images):
    expected = torch.stack([TF.equalize(image) for image in images])
    assert torch.equal(policy.equalize(images, torch.ones(7)), expected)


def test_sharpness_of_an_image_two_pixels_wide_is_the_image():
    images = torch.randint(0, 256, (3, 3, 11, 2), dtype=torch.uint8)
    assert torch.equal(policy.sharpness(images, torch.full((3,), 0.5)), images)
