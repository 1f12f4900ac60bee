"""Random erasing, mixup and CutMix, with different parameters for each image of a batch.

Reference: Zhang et al., mixup (2018); Yun et al., CutMix (2019).
Differs: the share of mixing is sampled for each image, not for each batch; so is the choice between the two.

Both are one formula. Image and partner (the image before it in the batch) are joined with a weight for each pixel,
``(1 - w) x + w x'``: that of mixup is the same everywhere, that of CutMix is one in a box and zero elsewhere. The
labels are joined with the mean of the weights.

A box is ``(first row, end row, first col, end col)``, ends excluded; a batch of boxes has shape ``(4, batch)``. All is
a pure function of uniform numbers in [0, 1).
"""

import math

import torch
from jaxtyping import Float, Float32, Float64, Int64
from scipy.special import betaincinv
from torch import Tensor

ERASED_AREA = (0.02, 0.33)
ERASED_RATIO = (0.3, 3.3)


def erasing_boxes(draws: Float64[Tensor, "5 batch"], probability: float, grid_size: tuple[int, int]) -> Tensor:
    """Boxes of random erasing; empty where nothing is erased.

    Reference: Zhong et al., Random Erasing Data Augmentation (2017).
    Differs: a side as long as the image becomes one pixel shorter. torchvision samples again.

    Arguments:
        draws: uniform numbers for the decision, area, aspect ratio, row and column.
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


def beta_quantiles(draws: Float64[Tensor, "batch"], alpha: float) -> Float64[Tensor, "batch"]:
    """Beta(alpha, alpha) numbers from uniform ones."""
    if alpha == 1:
        return draws
    return torch.from_numpy(betaincinv(alpha, alpha, draws.numpy()))


def cutmix_boxes(
    draws: Float64[Tensor, "2 batch"], shares: Float64[Tensor, "batch"], grid_size: tuple[int, int]
) -> Tensor:
    """Boxes with the image's aspect ratio and, before clipping, the area ``share``, centred on a random pixel.

    Reference: Yun et al., CutMix (2019), equation 2.
    """
    rows, cols = grid_size
    half_rows, half_cols = (0.5 * shares.sqrt() * rows).floor_(), (0.5 * shares.sqrt() * cols).floor_()
    tops, lefts = (draws[0] * rows).floor_() - half_rows, (draws[1] * cols).floor_() - half_cols
    bottoms, rights = (tops + 2 * half_rows).clamp(max=rows), (lefts + 2 * half_cols).clamp(max=cols)
    return torch.stack([tops.clamp(min=0), bottoms, lefts.clamp(min=0), rights])


def box_area_fraction(boxes: Float64[Tensor, "4 batch"], grid_size: tuple[int, int]) -> Float64[Tensor, "batch"]:
    """The part of the image that each box covers."""
    top, bottom, left, right = boxes
    return (bottom - top) * (right - left) / (grid_size[0] * grid_size[1])


def box_mask(boxes: Float[Tensor, "4 batch"], grid_size: tuple[int, int]) -> Float32[Tensor, "batch 1 rows cols"]:
    """1 where a box covers a pixel, 0 elsewhere."""
    top, bottom, left, right = boxes[:, :, None]
    rows, cols = (torch.arange(side, device=boxes.device) for side in grid_size)
    in_rows = ((rows >= top) & (rows < bottom)).float()
    in_cols = ((cols >= left) & (cols < right)).float()
    return (in_rows[:, :, None] * in_cols[:, None, :])[:, None]


def mixing_plan(
    draws: Float64[Tensor, "5 batch"], mixup: float, cutmix: float, grid_size: tuple[int, int]
) -> Float64[Tensor, "6 batch"]:
    """Parameters of mixing: CutMix's box (4 rows), mixup's weight, the share of the partner in the label.

    An image takes part in one of the two at most: a mixup has an empty box, a CutMix the weight zero.

    Arguments:
        draws: uniform numbers: one that is unused, then for the choice between the two, share, row and column.
        mixup: alpha of mixup; 0 = none.
        cutmix: alpha of CutMix; 0 = none. With both, each image takes one of them with probability 1/2.
    """
    _, choice, share, *centre = draws
    boxed = (choice < 0.5) if mixup > 0 and cutmix > 0 else torch.full_like(choice, cutmix > 0, dtype=torch.bool)
    boxes = torch.zeros_like(draws[:4])
    if cutmix > 0:
        boxes = cutmix_boxes(torch.stack(centre), beta_quantiles(share, cutmix), grid_size) * boxed
    weights = torch.zeros_like(share)
    if mixup > 0:
        weights = beta_quantiles(share, mixup) * ~boxed
    return torch.cat([boxes, weights[None], (weights + box_area_fraction(boxes, grid_size))[None]])


def mix_images(
    images: Float32[Tensor, "batch channels rows cols"], plan: Float32[Tensor, "6 batch"]
) -> Float32[Tensor, "batch channels rows cols"]:
    """Each image joined with the one before it, by ``mixing_plan``."""
    rows, cols = images.shape[-2:]
    weights = torch.maximum(box_mask(plan[:4], (rows, cols)), plan[4][:, None, None, None])
    return torch.lerp(images, images.roll(1, 0), weights)


def mix_labels(
    labels: Int64[Tensor, "batch"], plan: Float32[Tensor, "6 batch"], num_classes: int
) -> Float32[Tensor, "batch classes"]:
    """Soft labels: each row is a distribution over the classes."""
    # Not F.one_hot, which makes the CPU wait for a GPU.
    targets = (labels[:, None] == torch.arange(num_classes, device=labels.device)).float()
    return torch.lerp(targets, targets.roll(1, 0), plan[5][:, None])
