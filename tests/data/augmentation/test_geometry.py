"""Crops, flips and affine maps beside torchvision's, one image at a time."""

import pytest
import torch
from torchvision.transforms.v2 import functional as TF

from vit_vs_cnn.data.augmentation.geometry import affine, affine_coefficients, crop_and_flip

ROWS, COLS = 29, 23


@pytest.fixture
def images():
    return torch.randint(0, 256, (7, 5, ROWS, COLS), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def mapped(images, operation, magnitudes):
    coefficients = [affine_coefficients(operation, magnitude, (ROWS, COLS)) for magnitude in magnitudes]
    return affine(images, torch.tensor(coefficients, dtype=torch.int32))


def test_shifted_equals_torchvision_pad_crop_and_flip(images):
    offsets = torch.tensor([[-4, -3, 0, 1, 4, 2, -1], [3, -4, 0, 4, -2, 1, 0]])
    flips = torch.tensor([True, False, False, True, True, False, True])
    for image, ours, offset, flip in zip(images, crop_and_flip(images, offsets, flips), offsets.T, flips, strict=True):
        row, col = offset.tolist()
        expected = TF.crop(TF.pad(image, [4, 4]), row + 4, col + 4, ROWS, COLS)
        assert torch.equal(ours, TF.horizontal_flip(expected) if flip else expected)


def test_shift_beyond_the_image_is_black(images):
    offsets = torch.tensor([[ROWS] * 7, [0] * 7])
    assert not crop_and_flip(images, offsets, torch.zeros(7, dtype=torch.bool)).any()


@pytest.mark.parametrize(("operation", "axis"), [("TranslateX", 0), ("TranslateY", 1)])
def test_translation_equals_torchvision_and_drops_fractions(images, operation, axis):
    magnitudes = [-40.0, -5.9, -1.0, 0.0, 0.9, 7.0, 22.5]
    for image, ours, magnitude in zip(images, mapped(images, operation, magnitudes), magnitudes, strict=True):
        translate = [0, 0]
        translate[axis] = int(magnitude)
        assert torch.equal(ours, TF.affine(image, angle=0, translate=translate, scale=1, shear=[0, 0]))


def test_rotation_equals_torchvision_but_for_rounding_ties(images):
    angles = [-135.0, -31.0, -9.0, 0.0, 4.5, 30.0, 101.0]
    for image, ours, angle in zip(images, mapped(images, "Rotate", angles), angles, strict=True):
        assert (ours != TF.rotate(image, angle)).float().mean() < 0.03


@pytest.mark.parametrize(("operation", "axis"), [("ShearX", 0), ("ShearY", 1)])
def test_shear_equals_torchvision_but_for_rounding_ties(images, operation, axis):
    # None of these puts a source exactly halfway between two pixels.
    magnitudes = [-0.99, -0.31, -0.09, 0.0, 0.13, 0.27, 0.83]
    for image, ours, magnitude in zip(images, mapped(images, operation, magnitudes), magnitudes, strict=True):
        shear = [0.0, 0.0]
        shear[axis] = torch.tensor(magnitude).double().atan().rad2deg().item()
        expected = TF.affine(image, angle=0, translate=[0, 0], scale=1, shear=shear, center=[0, 0])
        assert (ours != expected).float().mean() < 0.002
