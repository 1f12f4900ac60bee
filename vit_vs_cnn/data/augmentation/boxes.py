"""Random rectangles in images: what random erasing, cutout and CutMix cover.

A box is ``(first row, end row, first col, end col)``, ends excluded; a batch of boxes has shape ``(4, batch)``. All is
a pure function of uniform numbers in [0, 1).
"""

import math

import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor

ERASED_AREA = (0.02, 0.33)
ERASED_RATIO = (0.3, 3.3)


def erasing_boxes(draws: Float64[Tensor, "5 batch"], probability: float, grid_size: tuple[int, int]) -> Tensor:
    """Boxes of random erasing; empty where nothing is erased.

    Reference: Zhong et al., Random Erasing Data Augmentation (2017).
    Differs: a side that would reach the image's own is cut to one pixel less, where torchvision draws anew.

    Arguments:
        draws: whether, area, aspect ratio, row and column.
    """
    rows, cols = grid_size
    area = rows * cols * (ERASED_AREA[0] + (ERASED_AREA[1] - ERASED_AREA[0]) * draws[1])
    low, high = (math.log(ratio) for ratio in ERASED_RATIO)
    ratio = torch.exp(low + (high - low) * draws[2])
    erased = draws[0] < probability
    heights = (area * ratio).sqrt_().round_().clamp_(max=max(rows - 1, 1)) * erased
    widths = (area / ratio).sqrt_().round_().clamp_(max=max(cols - 1, 1)) * erased
    tops = (draws[3] * (rows - heights + 1)).floor_()
    lefts = (draws[4] * (cols - widths + 1)).floor_()
    return torch.stack([tops, tops + heights, lefts, lefts + widths])


def resized_crop_boxes(
    draws: Float64[Tensor, "4 batch"],
    area: tuple[float, float],
    ratio: tuple[float, float],
    grid_size: tuple[int, int],
) -> Tensor:
    """Parts of images whose share of the area is uniform and whose ratio of width to height is log-uniform.

    Reference: Szegedy et al., Going Deeper with Convolutions (2015), section 6, as torchvision's RandomResizedCrop.
    Differs: a part that is higher or wider than the image is cut to it, where torchvision draws anew, ten times.

    Arguments:
        draws: area, aspect ratio, row and column.
        area: least and most share of the image's.
        ratio: least and most ratio of width to height.

    Returns:
        First row, row behind the last, first column, column behind the last of each part.
    """
    rows, cols = grid_size
    areas = rows * cols * (area[0] + (area[1] - area[0]) * draws[0])
    low, high = (math.log(end) for end in ratio)
    ratios = torch.exp(low + (high - low) * draws[1])
    heights = (areas / ratios).sqrt_().round_().clamp_(1, rows)
    widths = (areas * ratios).sqrt_().round_().clamp_(1, cols)
    tops = (draws[2] * (rows - heights + 1)).floor_()
    lefts = (draws[3] * (cols - widths + 1)).floor_()
    return torch.stack([tops, tops + heights, lefts, lefts + widths])


def cutout_boxes(draws: Float64[Tensor, "2 batch"], side: int, grid_size: tuple[int, int]) -> Tensor:
    """Squares about a uniformly drawn pixel; what hangs over the border is cut off.

    Reference: DeVries and Taylor, Improved Regularization of CNNs with Cutout (2017).
    """
    rows, cols = grid_size
    tops, lefts = (draws[0] * rows).floor_() - side // 2, (draws[1] * cols).floor_() - side // 2
    return _clipped(tops, lefts, side, side, grid_size)


def cutmix_boxes(
    draws: Float64[Tensor, "2 batch"], shares: Float64[Tensor, "batch"], grid_size: tuple[int, int]
) -> Tensor:
    """Boxes with the image's aspect ratio and (before clipping) the area ``share``, about a uniformly drawn pixel.

    Reference: Yun et al., CutMix (2019), equation 2.
    """
    rows, cols = grid_size
    half_rows, half_cols = (0.5 * shares.sqrt() * rows).floor_(), (0.5 * shares.sqrt() * cols).floor_()
    tops, lefts = (draws[0] * rows).floor_() - half_rows, (draws[1] * cols).floor_() - half_cols
    return _clipped(tops, lefts, 2 * half_rows, 2 * half_cols, grid_size)


def _clipped(
    tops: Tensor, lefts: Tensor, heights: Tensor | int, widths: Tensor | int, grid_size: tuple[int, int]
) -> Tensor:
    rows, cols = grid_size
    ends = [tops.clamp(min=0), (tops + heights).clamp(max=rows), lefts.clamp(min=0), (lefts + widths).clamp(max=cols)]
    return torch.stack(ends)


def area_shares(boxes: Float64[Tensor, "4 batch"], grid_size: tuple[int, int]) -> Float64[Tensor, "batch"]:
    """The part of the image that each box covers."""
    top, bottom, left, right = boxes
    return (bottom - top) * (right - left) / (grid_size[0] * grid_size[1])


def inside(boxes: Float[Tensor, "4 batch"], grid_size: tuple[int, int]) -> Float32[Tensor, "batch 1 rows cols"]:
    """1 where a box covers a pixel, 0 elsewhere."""
    top, bottom, left, right = boxes[:, :, None]
    rows, cols = (torch.arange(side, device=boxes.device) for side in grid_size)
    in_rows = ((rows >= top) & (rows < bottom)).float()
    in_cols = ((cols >= left) & (cols < right)).float()
    return (in_rows[:, :, None] * in_cols[:, None, :])[:, None]
