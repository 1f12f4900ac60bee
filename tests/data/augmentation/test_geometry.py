"""Crops, flips and affine maps beside torchvision's, one image at a time."""

import math

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


def test_quarter_turn_of_a_square_is_exact():
    image = torch.randint(0, 256, (1, 3, 31, 31), dtype=torch.uint8)
    coefficients = torch.tensor([affine_coefficients("Rotate", 90.0, (31, 31))], dtype=torch.int32)
    assert torch.equal(affine(image, coefficients), torch.rot90(image, 1, (2, 3)))


@pytest.mark.parametrize(("operation", "axis"), [("ShearX", 0), ("ShearY", 1)])
def test_shear_equals_torchvision_but_for_rounding_ties(images, operation, axis):
    # None of these puts a source exactly halfway between two pixels.
    magnitudes = [-0.99, -0.31, -0.09, 0.0, 0.13, 0.27, 0.83]
    for image, ours, magnitude in zip(images, mapped(images, operation, magnitudes), magnitudes, strict=True):
        shear = [0.0, 0.0]
        shear[axis] = torch.tensor(magnitude).double().atan().rad2deg().item()
        expected = TF.affine(image, angle=0, translate=[0, 0], scale=1, shear=shear, center=[0, 0])
        assert (ours != expected).float().mean() < 0.002


@pytest.mark.parametrize("operation", ["ShearX", "ShearY", "Rotate"])
def test_pixels_that_differ_from_torchvisions_have_a_source_halfway_between_two(images, operation):
    most = (30.0, 135.0) if operation == "Rotate" else (0.3, 0.99)  # of RandAugment and of TrivialAugmentWide
    rows, cols = torch.arange(ROWS)[:, None].double(), torch.arange(COLS).double()
    differing = 0
    for magnitude in torch.cat([torch.linspace(-end, end, 31) for end in most]).tolist():
        (ours,) = mapped(images[:1], operation, [magnitude])
        if operation == "Rotate":
            expected = TF.rotate(images[0], magnitude)
        else:
            shear = [math.degrees(math.atan(magnitude)) * (operation == name) for name in ("ShearX", "ShearY")]
            expected = TF.affine(images[0], angle=0, translate=[0, 0], scale=1, shear=shear, center=[0, 0])
        a, b, t, d, e, f = (one / 2**16 for one in affine_coefficients(operation, magnitude, (ROWS, COLS)))
        sources = torch.stack([a * cols + b * rows + t, d * cols + e * rows + f])  # of which floor is taken
        halfway = ((sources - sources.round()).abs() < 1e-3).any(0)
        differs = (ours != expected).any(0)
        assert not (differs & ~halfway).any()
        differing += int(differs.sum())
    assert differing  # else the test tells nothing


def test_other_operations_leave_the_pixels(images):
    assert torch.equal(mapped(images, "Brightness", [0.7] * 7), images)
