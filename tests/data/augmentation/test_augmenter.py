"""The augmentation pipeline is a pure function of its random numbers, for single images and batches."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import beta, kstest
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as TF

from tests.refused import refused
from vit_vs_cnn.data.augmentation.augmenter import Augmentation, Augmenter, CustomTransform
from vit_vs_cnn.data.augmentation.geometry import (
    beta_quantiles,
    crop_and_resize,
    erasing_boxes,
    mix_images,
    mix_labels,
    mixing_plan,
    resized_crop_boxes,
)

SIZE = (29, 23)
MEAN, STD = [0.49, 0.48, 0.45], [0.25, 0.24, 0.26]
EVERYTHING = {"policy": "randaugment", "num_ops": 3, "erasing": 0.5, "mixup": 0.2, "cutmix": 1.0}


def augmenter(**config):
    return Augmenter(Augmentation(**config), mean=MEAN, std=STD, num_classes=10)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    return torch.randint(0, 256, (53, 3, *SIZE), dtype=torch.uint8, generator=generator(8))


@pytest.fixture
def labels():
    return torch.randint(0, 10, (53,), generator=generator(9))


@pytest.mark.parametrize("padding", [0, 4])
@pytest.mark.parametrize("flip", [False, True])
def test_crops_flips_and_normalization_equal_torchvisions_and_can_be_disabled(padding, flip, images, labels):
    assert Augmentation() == Augmentation(crop_padding=4, flip=True)
    augment = augmenter(crop_padding=padding, flip=flip)
    draws = augment.draw(53, generator())
    result, targets = augment(images, labels, draws)
    assert torch.equal(targets, labels)
    for image, ours, draw in zip(images, result, draws, strict=True):
        row, col = (draw[:2] * (2 * padding + 1)).int().tolist()
        expected = TF.crop(TF.pad(image, [padding, padding]), row, col, *SIZE)
        expected = TF.horizontal_flip(expected) if flip and draw[2] < 0.5 else expected
        torch.testing.assert_close(ours, TF.normalize(TF.to_dtype(expected, torch.float32, scale=True), MEAN, STD))


@pytest.mark.parametrize("policy", ["randaugment", "trivialaugment"])
def test_an_augmented_image_depends_on_its_random_numbers_and_not_on_its_batch(policy, images, labels):
    augment, before = augmenter(policy=policy, erasing=0.5), images.clone()
    draws = augment.draw(53, generator())
    together, _ = augment(images, labels, draws)
    for k in range(53):
        alone, _ = augment(images[k : k + 1], labels[k : k + 1], draws[k : k + 1])
        assert torch.equal(alone[0], together[k])
    assert torch.equal(images, before)


def test_values_out_of_range_are_refused_by_name():
    values = {
        "crop_padding": -1,
        "num_ops": -2,
        "magnitude": 31.0,
        "erasing": 1.5,
        "mixup": -0.1,
        "cutmix": float("inf"),
    }
    areas = [("resized_crop", area) for area in ((0.0, 1.0), (0.5, 1.5), (0.9, 0.2))]
    for name, value in (*values.items(), *areas, ("transform", {"class_path": "x"})):
        with refused(name):
            Augmentation(**{name: value})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_gives_the_same_batch_as_the_cpu(images, labels):
    augment = augmenter(**EVERYTHING)
    draws = augment.draw(53, generator())
    expected, targets = augmenter(**EVERYTHING)(images, labels, draws)
    result, soft = augment(images.cuda(), labels.cuda(), draws)
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(soft.cpu(), targets)


@pytest.fixture
def tall():
    """Images of 19 x 11 pixels, smooth enough to distinguish interpolation filters."""
    coarse = torch.rand(23, 3, 5, 4, generator=generator())
    return (F.interpolate(coarse, (19, 11), mode="bicubic").clamp(0, 1) * 255).round().byte()


def _boxes(count, area=(0.08, 1.0)):
    return resized_crop_boxes(torch.rand(4, count, generator=generator(), dtype=torch.float64), area, (19, 11))


def test_resized_crops_are_torchvisions(tall):
    boxes = _boxes(23)
    ours = crop_and_resize(tall, boxes.float())
    for image, (top, bottom, left, right), one in zip(tall, boxes.T.int().tolist(), ours, strict=True):
        theirs = v2.functional.resized_crop(image, top, left, bottom - top, right - left, [19, 11])
        exact = F.interpolate(image[None, :, top:bottom, left:right].float(), (19, 11), mode="bilinear", antialias=True)
        assert (one.int() - theirs.int()).abs().max() <= 1
        assert (one - exact[0]).abs().max() <= 0.5 + 1e-3


def test_crops_have_the_requested_areas_and_are_inside_the_image():
    top, bottom, left, right = _boxes(20_000, (0.3, 0.5))
    assert (top >= 0).all() and (bottom <= 19).all() and (left >= 0).all() and (right <= 11).all()
    areas = (bottom - top) * (right - left) / (19 * 11)
    assert abs(float(areas.mean()) - 0.4) < 0.02
    assert ((top == 0) & (left == 0)).any() and ((bottom == 19) & (right == 11)).any()


class GlobalNoise:
    """Uses all global random generators."""

    def __call__(self, image):
        noise = torch.rand(()) + random.random() + np.random.rand()
        return (image.float() * float(noise) / 3).byte()


@pytest.mark.parametrize("transform", [GlobalNoise(), v2.RandomRotation(30), v2.ElasticTransform(sigma=0.9)])
def test_randomness_of_a_custom_transform_depends_on_the_image_index_only(tall, transform):
    hook = CustomTransform(transform, "mine")
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    together = hook(tall, range(100, 123))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # not compared for `random`, which beartype uses
    torch.rand(5), random.random()
    for place in (0, 7, 22):
        assert torch.equal(hook(tall[place : place + 1], [100 + place])[0], together[place])
    assert not torch.equal(hook(tall, range(23)), together)


def test_a_transform_with_a_wrong_output_or_an_error_is_refused(tall):
    for transform, message in (
        (lambda image: image.float(), "gives torch.float32 (3, 19, 11) for an image of torch.uint8"),
        (lambda image: image[:, 1:], "gives torch.uint8 (3, 18, 11)"),
        (lambda image: 1 // 0, "ZeroDivisionError"),
    ):
        with refused(message):
            CustomTransform(transform, "mine")(tall, range(23))


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
    plan = mixing_plan(uniform(5, 10), mixup, cutmix, SIZE).float()
    targets = mix_labels(torch.arange(10) % 2, plan, 2)
    torch.testing.assert_close(mix_images(images, plan).mean(dim=(1, 2, 3)), targets[:, 0])
    torch.testing.assert_close(targets.sum(1), torch.ones(10))


def test_mixup_and_cutmix_are_equally_likely_and_never_combined():
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
