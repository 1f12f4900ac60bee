"""Corruptions: more at a higher level, the same from the same seed, any size and number of channels."""

from itertools import pairwise

import pytest
import torch

from vit_vs_cnn.comparison.corruptions import CHUNK, CORRUPTIONS, LEVELS, corrupted
from vit_vs_cnn.data.drawn.objects import draw_objects


@pytest.fixture(scope="module")
def pictures():
    return draw_objects(29, seed=3, image_size=(32, 40)).images.images


def _distortion(spoiled, images) -> float:
    return float((spoiled.double() - images.double()).square().mean())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_higher_level_distorts_more(pictures, name):
    distortions = [_distortion(corrupted(pictures, name, level), pictures) for level in LEVELS]
    assert distortions[0] > 1
    assert all(less < more for less, more in pairwise(distortions))


@pytest.mark.parametrize("side", [8, 16])
def test_each_level_of_each_corruption_changes_small_images(side):
    images = draw_objects(11, seed=3, image_size=side).images.images
    for name in CORRUPTIONS:
        distortions = [_distortion(corrupted(images, name, level), images) for level in LEVELS]
        assert distortions[0] > 1 and distortions[-1] > distortions[0], name


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_is_spoiled_alike_whatever_comes_behind_it(name):
    images = draw_objects(CHUNK + 3, seed=4, image_size=16).images.images
    whole = corrupted(images, name, 3, seed=5)
    assert torch.equal(whole, corrupted(images, name, 3, seed=5))
    assert torch.equal(whole[:7], corrupted(images[:7], name, 3, seed=5))
    assert torch.equal(whole[: CHUNK + 1], corrupted(images[: CHUNK + 1], name, 3, seed=5))


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(1, 11, 17), (3, 64, 48), (4, 13, 8)])
def test_any_size_and_number_of_channels(name, shape):
    images = torch.randint(0, 256, (2, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    spoiled = corrupted(images, name, 5)
    assert spoiled.shape == images.shape
    assert spoiled.dtype == torch.uint8


def test_what_is_drawn_changes_with_the_seed(pictures):
    drawn = [name for name in CORRUPTIONS if not torch.equal(*(corrupted(pictures, name, 3, seed=s) for s in (0, 1)))]
    without = {"gaussian_blur", "defocus_blur", "zoom_blur", "brightness", "contrast", "saturate", "pixelate", "jpeg"}
    assert set(drawn) == set(CORRUPTIONS) - without


def test_two_images_of_a_batch_are_not_given_the_same_noise():
    images = torch.full((2, 3, 16, 16), 128, dtype=torch.uint8)
    for name in ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "fog"):
        first, second = corrupted(images, name, 3)
        assert not torch.equal(first, second), name


def test_a_flat_image_stays_flat_where_pixels_only_move_or_mix():
    images = torch.full((3, 3, 16, 24), 77, dtype=torch.uint8)
    for name in ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "elastic", "pixelate"):
        assert (corrupted(images, name, 5).int() - 77).abs().max() <= 1, name


def test_noise_has_the_strength_that_it_says():
    images = torch.full((40, 3, 32, 32), 128, dtype=torch.uint8)
    noise = corrupted(images, "gaussian_noise", 3).double() / 255 - 128 / 255
    assert float(noise.std()) == pytest.approx(0.08, rel=0.01)
    impulses = corrupted(images, "impulse_noise", 5)
    assert float((impulses != 128).double().mean()) == pytest.approx(0.11, rel=0.05)
    assert set(impulses.unique().tolist()) == {0, 128, 255}


def test_an_unknown_corruption_or_level_is_named():
    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    for name, level in (("rain", 1), ("fog", 6)):
        with pytest.raises(ValueError, match=rf"'{name}' at level {level}"):
            corrupted(images, name, level)
