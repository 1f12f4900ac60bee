"""Corruptions: levels, reproducibility, strength, and images of any size and number of channels."""

import itertools

import pytest
import torch
from torch import nn

from tests.comparison.entries import CLASSES, entry, synthetic_images
from vit_vs_cnn.comparison.compare import compare_corruptions, spread_subset
from vit_vs_cnn.comparison.corruptions import CHUNK, CORRUPTIONS, LEVELS, corrupt
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.synthetic.source import render_objects


@pytest.fixture(scope="module")
def image_files():
    return render_objects(29, seed=3, image_size=(32, 40)).images.images


@pytest.mark.parametrize("side", [8, 16])
def test_each_level_changes_small_images_more_than_the_one_before(side):
    images = render_objects(11, seed=3, image_size=side).images.images
    for name in CORRUPTIONS:
        distortions = [float((corrupt(images, name, level).double() - images).square().mean()) for level in LEVELS]
        assert distortions[0] > 1, name
        assert all(after > before for before, after in itertools.pairwise(distortions)), name


#: Mean absolute change at each level, in grey values of 255, with random seed 0. Another strength is another benchmark.
CHANGES = {
    "gaussian_noise": (8.121, 12.17, 16.22, 20.25, 28.18),
    "shot_noise": (8.563, 12.36, 16.18, 20.18, 25.59),
    "impulse_noise": (1.344, 2.598, 5.103, 8.932, 13.98),
    "speckle_noise": (7.418, 11.13, 15.76, 21.33, 27.82),
    "gaussian_blur": (5.189, 6.67, 7.936, 9.319, 10.73),
    "defocus_blur": (5.705, 6.748, 7.928, 8.958, 10.14),
    "glass_blur": (7.792, 8.449, 9.712, 10.95, 12.32),
    "motion_blur": (5.193, 6.86, 8.104, 9.616, 11.16),
    "zoom_blur": (6.159, 8.237, 9.807, 11.57, 13.91),
    "fog": (17.69, 26.53, 35.37, 44.21, 54.82),
    "brightness": (13.8, 28.34, 44.12, 63.58, 87.6),
    "contrast": (6.441, 12.88, 15.46, 18.03, 21.9),
    "saturate": (3.885, 6.475, 9.065, 11.01, 12.95),
    "elastic": (6.899, 8.927, 10.79, 12.8, 14.68),
    "pixelate": (4.537, 6.336, 7.151, 8.258, 9.641),
    "jpeg": (6.881, 7.699, 8.401, 9.31, 10.94),
}


def _apply(name, images, strength, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CORRUPTIONS[name][0](images, strength)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_strengths_are_fixed(name):
    images = render_objects(11, seed=3, image_size=(48, 56)).images.images / 255
    changes = [float((_apply(name, images, strength) - images).abs().mean()) for strength in CORRUPTIONS[name][1]]
    tolerance = 0.03 if name == "jpeg" else 0.002  # encoders differ
    assert [255 * change for change in changes] == pytest.approx(CHANGES[name], rel=tolerance)


#: Strengths at which nothing changes.
NEUTRAL = dict.fromkeys(CORRUPTIONS, 0.0) | {"shot_noise": 1e12, "gaussian_blur": 0.01}
NEUTRAL |= dict.fromkeys("zoom_blur brightness contrast saturate pixelate".split(), 1.0)
del NEUTRAL["glass_blur"], NEUTRAL["jpeg"]  # they always blur or compress


@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize("channels", [1, 3])
def test_without_strength_nothing_changes(name, channels):
    images = torch.rand(3, channels, 37, 41, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(_apply(name, images, NEUTRAL[name]), images, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["glass_blur", "elastic"])
def test_displacements_have_no_direction(name):
    """In images that get lighter to the right or downwards, displacements show as changes of the grey value."""
    ramp = torch.linspace(0, 1, 64).expand(50, 1, 64, 64)
    shifts = [(_apply(name, images, 2.0) - images)[..., 8:-8, 8:-8] * 63 for images in (ramp, ramp.mT)]
    reach = torch.stack(shifts).abs().mean()
    assert reach > 0.5
    assert all(abs(shift.mean()) < 0.1 * reach for shift in shifts)
    assert abs(torch.corrcoef(torch.stack([shift.flatten() for shift in shifts]))[0, 1]) < 0.1


@pytest.mark.parametrize("name", ["gaussian_blur", "brightness", "contrast", "jpeg"])
def test_images_of_two_channels_are_changed_as_two_grey_images(name, image_files):
    channels = image_files[:, :2]
    expected = [corrupt(channels[:, channel : channel + 1], name, 3) for channel in range(2)]
    assert torch.equal(corrupt(channels, name, 3), torch.cat(expected, dim=1))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruption_of_an_image_does_not_depend_on_later_images_or_change_the_global_random_state(name):
    images = render_objects(CHUNK + 3, seed=4, image_size=16).images.images
    before = torch.get_rng_state()
    whole = corrupt(images, name, 3, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(whole, corrupt(images, name, 3, seed=5))
    assert torch.equal(whole[:7], corrupt(images[:7], name, 3, seed=5))
    assert torch.equal(whole[: CHUNK + 1], corrupt(images[: CHUNK + 1], name, 3, seed=5))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_random_corruptions_differ_between_equal_images(name, image_files):
    first, second = corrupt(image_files[:1].expand(2, -1, -1, -1), name, 5)
    is_random = name.endswith("noise") or name in ("glass_blur", "motion_blur", "fog", "elastic")
    assert torch.equal(first, second) != is_random


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(1, 11, 17), (3, 64, 48), (4, 13, 8)])
def test_corruptions_keep_the_shape_and_type_of_images(name, shape):
    images = torch.randint(0, 256, (2, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    spoiled = corrupt(images, name, 5)
    assert (spoiled.shape, spoiled.dtype) == (images.shape, torch.uint8)


def test_noise_has_its_nominal_strength_and_fog_is_light_grey_to_white():
    foggy = corrupt(torch.zeros(3, 3, 32, 32, dtype=torch.uint8), "fog", 5).float() / 255 / 0.62
    assert foggy.amin((1, 2, 3)).tolist() == pytest.approx([0.6] * 3, abs=0.01)
    assert foggy.amax((1, 2, 3)).tolist() == pytest.approx([1.0] * 3, abs=0.01)
    images = torch.full((40, 3, 32, 32), 128, dtype=torch.uint8)
    noise = corrupt(images, "gaussian_noise", 3).double() / 255 - 128 / 255
    assert float(noise.std()) == pytest.approx(0.08, rel=0.01)
    impulses = corrupt(images, "impulse_noise", 5)
    assert float((impulses != 128).double().mean()) == pytest.approx(0.11, rel=0.05)
    assert set(impulses.unique().tolist()) == {0, 128, 255}


class FromCorner(nn.Module):
    """Predicts the class of the upper left pixel: 0 for black, one more for every 36 levels of grey."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(50.0))

    def forward(self, images):
        level = images[:, 0, 0, 0, None] * 255 / 36
        return -self.scale * (level - torch.arange(7)).square()


def test_accuracy_on_corrupted_images_is_a_mean_over_corruptions_and_levels(tmp_path):
    pixels, labels = torch.full((70, 3, 16, 16), 250, dtype=torch.uint8), torch.arange(70) % 7
    pixels[:, :, 0, 0] = (36 * labels).byte()[:, None]
    images = LabelledImages(pixels, labels, CLASSES, [str(number) for number in range(70)])
    corner = entry(tmp_path, "corner", network=FromCorner(), mean=0.0, std=1.0, test=images)
    found = compare_corruptions({"corner": [corner], "cnn": [entry(tmp_path, test=images)]}, len(images))
    assert found.clean["corner"] == 1.0
    assert set(found.accuracy["corner"]) == set(CORRUPTIONS)
    assert found.accuracy["corner"]["brightness"][4] < 0.4
    mean = torch.tensor(list(found.accuracy["corner"].values())).mean()
    assert found.mean["corner"].value == pytest.approx(found.by_network["corner-s0"]) == pytest.approx(float(mean))


def test_a_subset_is_spread_over_all_images():
    images = synthetic_images(53)
    assert list(spread_subset(images, 5).sample_ids) == ["t/0", "t/13", "t/26", "t/39", "t/52"]
    assert spread_subset(images, 53) is images
