"""Mixup and CutMix, another share for each image of a batch.

Reference: Zhang et al., mixup (2018); Yun et al., CutMix (2019).
Differs: the share of mixing is drawn for each image, not for each batch; so is the choice between the two.

Both are one formula. Image and partner (the image before it in the batch) are joined with a weight for each pixel,
``(1 - w) x + w x'``: mixup's is the same everywhere, CutMix's is one in a box and zero elsewhere. The labels are joined
with the mean of the weights.
"""

import torch
from jaxtyping import Float32, Float64, Int64
from scipy.special import betaincinv
from torch import Tensor

from vit_vs_cnn.data.augmentation.boxes import area_shares, cutmix_boxes, inside


def beta_quantiles(draws: Float64[Tensor, "batch"], alpha: float) -> Float64[Tensor, "batch"]:
    """Beta(alpha, alpha) numbers from uniform ones."""
    if alpha == 1:
        return draws
    return torch.from_numpy(betaincinv(alpha, alpha, draws.numpy()))


def mixing_plan(
    draws: Float64[Tensor, "5 batch"], mixup: float, cutmix: float, probability: float, grid_size: tuple[int, int]
) -> Float64[Tensor, "6 batch"]:
    """How each image is mixed: CutMix's box (4 rows), mixup's weight, the share of the partner in the label.

    An image takes part in one of the two at most: a mixup has an empty box, a CutMix the weight zero.

    Arguments:
        draws: whether, which of the two, share, row and column.
        mixup: alpha of mixup; 0 = none.
        cutmix: alpha of CutMix; 0 = none. With both, each image takes one of them with probability 1/2.
    """
    whether, which, share, *centre = draws
    mixed = whether < probability
    boxed = mixed & ((which < 0.5) if mixup > 0 and cutmix > 0 else torch.full_like(mixed, cutmix > 0))
    boxes = torch.zeros_like(draws[:4])
    if cutmix > 0:
        boxes = cutmix_boxes(torch.stack(centre), beta_quantiles(share, cutmix), grid_size) * boxed
    weights = torch.zeros_like(share)
    if mixup > 0:
        weights = beta_quantiles(share, mixup) * (mixed & ~boxed)
    return torch.cat([boxes, weights[None], (weights + area_shares(boxes, grid_size))[None]])


def mixed_images(
    images: Float32[Tensor, "batch channels rows cols"], plan: Float32[Tensor, "6 batch"]
) -> Float32[Tensor, "batch channels rows cols"]:
    """Each image joined with the one before it, as `mixing_plan` says."""
    rows, cols = images.shape[-2:]
    weights = torch.maximum(inside(plan[:4], (rows, cols)), plan[4][:, None, None, None])
    return torch.lerp(images, images.roll(1, 0), weights)


def mixed_labels(
    labels: Int64[Tensor, "batch"], plan: Float32[Tensor, "6 batch"], num_classes: int
) -> Float32[Tensor, "batch classes"]:
    """Soft labels: each row is a distribution over the classes."""
    # Not F.one_hot, which makes the CPU wait for a GPU.
    targets = (labels[:, None] == torch.arange(num_classes, device=labels.device)).float()
    return torch.lerp(targets, targets.roll(1, 0), plan[5][:, None])
