"""Boxes of erasing, cutout and CutMix: where they lie and how large they are."""

import pytest
import torch

from vit_vs_cnn.data.augmentation.boxes import area_shares, cutmix_boxes, cutout_boxes, erasing_boxes, inside

SIZE = (29, 23)


def uniform(rows, count):
    return torch.rand(rows, count, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_inside_marks_the_slice_of_the_box():
    boxes = torch.tensor([[2.0, 5, 3, 11], [0, 29, 0, 23], [4, 4, 6, 9]]).T
    expected = torch.zeros(3, 1, *SIZE)
    expected[0, :, 2:5, 3:11] = 1
    expected[1] = 1
    assert torch.equal(inside(boxes, SIZE), expected)


@pytest.mark.parametrize(
    "boxes",
    [
        erasing_boxes(uniform(5, 999), 1.0, SIZE),
        cutout_boxes(uniform(2, 999), 11, SIZE),
        cutmix_boxes(uniform(2, 999), uniform(1, 999)[0], SIZE),
    ],
    ids=["erasing", "cutout", "cutmix"],
)
def test_boxes_stay_in_the_image_and_share_is_the_mean_of_the_mask(boxes):
    top, bottom, left, right = boxes
    assert (top >= 0).all() and (top <= bottom).all() and (bottom <= SIZE[0]).all()
    assert (left >= 0).all() and (left <= right).all() and (right <= SIZE[1]).all()
    masks = inside(boxes, SIZE).double()
    torch.testing.assert_close(masks.mean(dim=(1, 2, 3)), area_shares(boxes, SIZE))


def test_erased_area_and_ratio_keep_their_ranges():
    top, bottom, left, right = erasing_boxes(uniform(5, 9999), 1.0, (997, 991))
    area = (bottom - top) * (right - left) / (997 * 991)
    ratio = (bottom - top) / (right - left)
    assert area.min() > 0.019 and area.max() < 0.331
    assert ratio.min() > 0.29 and ratio.max() < 3.32
    assert abs(area.mean() - (0.02 + 0.33) / 2) < 0.005


def test_erasing_spares_the_share_of_images_it_should():
    boxes = erasing_boxes(uniform(5, 9999), 0.3, SIZE)
    assert abs((area_shares(boxes, SIZE) > 0).double().mean() - 0.3) < 0.02


def test_cutout_in_the_middle_is_a_whole_square():
    box = cutout_boxes(torch.full((2, 1), 0.5, dtype=torch.float64), 7, SIZE)
    assert box[:, 0].tolist() == [11, 18, 8, 15]


def test_cutout_in_the_corner_hangs_over():
    box = cutout_boxes(torch.zeros(2, 1, dtype=torch.float64), 7, SIZE)
    assert box[:, 0].tolist() == [0, 4, 0, 4]
