"""Crops, flips, affine maps, erasing, mixup and CutMix, with different parameters for each image of a batch.

Crops, flips and affine maps are one integer look-up: every output pixel has the index of an input pixel, and pixels
from outside are black. Coordinates are integers (affine coefficients in units of 2^-16), so all devices give the same
bytes.

Mixup and CutMix are one formula. Image and partner (the image before it in the batch) are joined with a weight for
each pixel, ``(1 - w) x + w x'``: that of mixup is the same everywhere, that of CutMix is one in a box and zero
elsewhere. The labels are joined with the mean of the weights. A box is ``(first row, end row, first col, end col)``,
ends excluded; a batch of boxes has shape ``(4, batch)``.

Reference: Zhang et al., mixup (2018); Yun et al., CutMix (2019).
Differs: the share of mixing is sampled for each image, not for each batch; so is the choice between the two.
"""

import math

import torch
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64
from scipy.special import betaincinv
from torch import Tensor

from vit_vs_cnn.data.images import ImageBytes

FRACTION_BITS = 16
"""Affine coefficients are integers in units of 2^-16 pixels. 32 bits are enough for images of 8,000 pixels a side."""
CROP_RATIO = (3 / 4, 4 / 3)  # width to height of resized crops
ERASED_AREA, ERASED_RATIO = (0.02, 0.33), (0.3, 3.3)  # share of the image; height to width


def crop_and_flip(images: ImageBytes, offsets: Int64[Tensor, "2 batch"], flips: Bool[Tensor, "batch"]) -> ImageBytes:
    """Crop of the zero-padded image, then horizontal flip, in one look-up.

    ``out[r, c] = image[r + offset_row, c + offset_col]`` and, where flipped, ``image[r + offset_row, C - 1 - c +
    offset_col]``; black outside. An offset of ``-p`` to ``p`` is a crop of the image padded by ``p``.
    """
    num_rows, num_cols = images.shape[-2:]
    rows = torch.arange(num_rows, device=images.device) + offsets[0][:, None]
    cols = torch.arange(num_cols, device=images.device).repeat(len(images), 1)
    cols = torch.where(flips[:, None], num_cols - 1 - cols, cols) + offsets[1][:, None]
    return _looked_up(images, rows[:, :, None], cols[:, None, :])


def crop_and_resize(images: ImageBytes, boxes: Float32[Tensor, "4 batch"]) -> ImageBytes:
    """A part of each image, resized bilinearly to the size of the image: first between rows, then between columns.

    ``out[r, c] = image[top + (r + 1/2) h / R - 1/2, left + (c + 1/2) w / C - 1/2]`` for a part of ``h x w`` pixels of
    an image of ``R x C``, kept within the part, and rounded. It equals
    ``torchvision.transforms.v2.functional.resized_crop`` up to rounding: antialiasing does not change enlarged images.
    """
    num_rows, num_cols = images.shape[2:]
    above, below, rows = _between(boxes[0], boxes[1], num_rows)
    left, right, cols = _between(boxes[2], boxes[3], num_cols)
    lines = _gathered(images, 2, above).float().lerp(_gathered(images, 2, below).float(), rows[:, None, :, None])
    return _gathered(lines, 3, left).lerp(_gathered(lines, 3, right), cols[:, None, None, :]).round_().byte()


def _gathered(images: Tensor, dim: int, indices: Int64[Tensor, "batch side"]) -> Tensor:
    """Rows or columns of each image."""
    return images.gather(dim, indices[:, None, :, None].transpose(2, dim).expand(images.shape))


def _between(first: Tensor, end: Tensor, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """The two neighbours of each of ``side`` positions in a part, and the weight of the second."""
    length = (end - first)[:, None]
    centres = (torch.arange(side, device=first.device) + 0.5) * (length / side) - 0.5
    centres = torch.minimum(centres.clamp_(min=0), length - 1)
    lower = centres.floor()
    upper = torch.minimum(lower + 1, length - 1)
    return (first[:, None] + lower).long(), (first[:, None] + upper).long(), centres - lower


def resized_crop_boxes(
    draws: Float64[Tensor, "4 batch"], area: tuple[float, float], grid_size: tuple[int, int]
) -> Tensor:
    """Boxes whose share of the image's area is uniform and whose ratio of width to height is log-uniform, 3/4 to 4/3.

    Reference: Szegedy et al., Going Deeper with Convolutions (2015), section 6, as torchvision's RandomResizedCrop.
    Differs: a box that is higher or wider than the image is cut to it. torchvision samples again, up to ten times.

    Arguments:
        draws: uniform numbers in [0, 1) for area, aspect ratio, row and column.
        area: smallest and largest share.
    """
    areas, ratios = _areas_and_ratios(draws[:2], area, CROP_RATIO, grid_size)
    heights = (areas / ratios).sqrt_().round_().clamp_(1, grid_size[0])
    widths = (areas * ratios).sqrt_().round_().clamp_(1, grid_size[1])
    return _placed_boxes(draws[2:], heights, widths, grid_size)


def _areas_and_ratios(
    draws: Tensor, area: tuple[float, float], ratio: tuple[float, float], grid_size: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    low, high = (math.log(end) for end in ratio)
    areas = grid_size[0] * grid_size[1] * (area[0] + (area[1] - area[0]) * draws[0])
    return areas, torch.exp(low + (high - low) * draws[1])


def _placed_boxes(draws: Tensor, heights: Tensor, widths: Tensor, grid_size: tuple[int, int]) -> Tensor:
    tops = (draws[0] * (grid_size[0] - heights + 1)).floor_()
    lefts = (draws[1] * (grid_size[1] - widths + 1)).floor_()
    return torch.stack([tops, tops + heights, lefts, lefts + widths])


def affine(images: ImageBytes, coefficients: Int32[Tensor, "batch 6"]) -> ImageBytes:
    """Affine maps with nearest-neighbour interpolation, black outside.

    ``out[r, c] = image[floor(d c + e r + f), floor(a c + b r + t)]`` for coefficients ``(a, b, t, d, e, f)``, which
    `affine_coefficients` gives in units of 2^-16.

    Differs: torchvision computes the same in float32 and rounds halves to even; here halves go up. The two show
    neighbouring pixels where a source falls halfway between them, to within 1/1000 pixel. A shear by 0.2 has such
    sources in every fifth row or column: up to 13 % of the pixels differ there.
    """
    num_rows, num_cols = images.shape[-2:]
    rows = torch.arange(num_rows, dtype=torch.int32, device=images.device)[:, None]
    cols = torch.arange(num_cols, dtype=torch.int32, device=images.device)
    a, b, t, d, e, f = coefficients[:, :, None, None].unbind(1)
    source_cols = (a * cols + (b * rows + t)) >> FRACTION_BITS
    source_rows = (d * cols + (e * rows + f)) >> FRACTION_BITS
    return _looked_up(images, source_rows, source_cols)


def _looked_up(images: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """``out[n, :, r, c] = images[n, :, rows[n, r, c], cols[n, r, c]]``, zero outside of the image."""
    num_rows, num_cols = images.shape[-2:]
    nearest_rows, nearest_cols = rows.clamp(0, num_rows - 1), cols.clamp(0, num_cols - 1)
    # Products of bytes, not "and" of flags: three times as fast on the CPU.
    inside = (rows == nearest_rows).view(torch.uint8) * (cols == nearest_cols).view(torch.uint8)
    pixels = nearest_rows * num_cols + nearest_cols
    pixels = pixels.long().flatten(1)[:, None].expand(-1, images.shape[1], -1)
    picked = images.flatten(2).gather(2, pixels)
    return picked.mul_(inside.flatten(1)[:, None]).view(images.shape)


def affine_coefficients(operation: str, magnitude: float, grid_size: tuple[int, int]) -> list[int]:
    """The inverse map (output pixel to input pixel) of one operation, in units of 2^-16 pixels.

    Arguments:
        operation: ``ShearX``, ``ShearY`` (about the upper left corner; magnitude: pixels per pixel), ``TranslateX``,
            ``TranslateY`` (whole pixels, the fraction is dropped), ``Rotate`` (degrees, counterclockwise, about the
            centre); every other name is the identity.
    """
    rows, cols = grid_size
    # In pixel centres about the image's centre: source = [[a, b], [d, e]] (col, row) + (t, f).
    a, b, t, d, e, f = 1.0, 0.0, 0.0, 0.0, 1.0, 0.0
    match operation:
        case "ShearX":
            b, t = magnitude, magnitude * rows / 2
        case "ShearY":
            d, f = magnitude, magnitude * cols / 2
        case "TranslateX":
            t = -float(int(magnitude))
        case "TranslateY":
            f = -float(int(magnitude))
        case "Rotate":
            angle = math.radians(magnitude)
            a, b, d, e = math.cos(angle), -math.sin(angle), math.sin(angle), math.cos(angle)
    # From indices to centred coordinates and back; the half makes floor round to the nearest.
    middle_row, middle_col = (rows - 1) / 2, (cols - 1) / 2
    t += middle_col - a * middle_col - b * middle_row + 0.5
    f += middle_row - d * middle_col - e * middle_row + 0.5
    return [round(coefficient * 2**FRACTION_BITS) for coefficient in (a, b, t, d, e, f)]


def erasing_boxes(draws: Float64[Tensor, "5 batch"], probability: float, grid_size: tuple[int, int]) -> Tensor:
    """Boxes of random erasing; empty where nothing is erased.

    Reference: Zhong et al., Random Erasing Data Augmentation (2017).
    Differs: a side as long as the image becomes one pixel shorter. torchvision samples again.

    Arguments:
        draws: uniform numbers for the decision, area, aspect ratio, row and column.
    """
    areas, ratios = _areas_and_ratios(draws[1:3], ERASED_AREA, ERASED_RATIO, grid_size)
    is_erased = draws[0] < probability
    heights = (areas * ratios).sqrt_().round_().clamp_(max=max(grid_size[0] - 1, 1)) * is_erased
    widths = (areas / ratios).sqrt_().round_().clamp_(max=max(grid_size[1] - 1, 1)) * is_erased
    return _placed_boxes(draws[3:], heights, widths, grid_size)


def beta_quantiles(draws: Float64[Tensor, "batch"], alpha: float) -> Float64[Tensor, "batch"]:
    """Beta(alpha, alpha) numbers from uniform ones."""
    if alpha == 1:
        return draws
    return torch.from_numpy(betaincinv(alpha, alpha, draws.numpy()))


def cutmix_boxes(
    draws: Float64[Tensor, "2 batch"], shares: Float64[Tensor, "batch"], grid_size: tuple[int, int]
) -> Tensor:
    """Boxes with the image's aspect ratio and (before clipping) the area ``share``, centred on a random pixel.

    Reference: Yun et al., CutMix (2019), equation 2.
    """
    rows, cols = grid_size
    half_rows, half_cols = (0.5 * shares.sqrt() * rows).floor_(), (0.5 * shares.sqrt() * cols).floor_()
    tops, lefts = (draws[0] * rows).floor_() - half_rows, (draws[1] * cols).floor_() - half_cols
    bottoms, rights = (tops + 2 * half_rows).clamp(max=rows), (lefts + 2 * half_cols).clamp(max=cols)
    return torch.stack([tops.clamp(min=0), bottoms, lefts.clamp(min=0), rights])


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

    An image takes part in one of the two, each with probability 1/2: a mixup has an empty box, a CutMix the weight 0.

    Arguments:
        draws: uniform numbers: one that is unused, then for the choice between the two, share, row and column.
        mixup, cutmix: alpha; 0 = none.
    """
    _, choice, share, *centre = draws
    boxed = (choice < 0.5) if mixup > 0 and cutmix > 0 else torch.full_like(choice, cutmix > 0, dtype=torch.bool)
    boxes = torch.zeros_like(draws[:4])
    if cutmix > 0:
        boxes = cutmix_boxes(torch.stack(centre), beta_quantiles(share, cutmix), grid_size) * boxed
    weights = torch.zeros_like(share)
    if mixup > 0:
        weights = beta_quantiles(share, mixup) * ~boxed
    top, bottom, left, right = boxes
    covered = (bottom - top) * (right - left) / (grid_size[0] * grid_size[1])
    return torch.cat([boxes, weights[None], (weights + covered)[None]])


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
