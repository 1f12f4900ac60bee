"""Crops, flips, resized crops and affine maps, with different parameters for each image of a batch.

Crops, flips and affine maps are one integer look-up: every output pixel has the index of an input pixel, and pixels
from outside are black. Coordinates are integers (affine coefficients in units of 2^-16), so all devices give the same
bytes.
"""

import math

import torch
from jaxtyping import Bool, Float32, Float64, Int32, Int64
from torch import Tensor

from vit_vs_cnn.data.images import ImageBytes

FRACTION_BITS = 16
"""Affine coefficients are integers in units of 2^-16 pixels. 32 bits are enough for images of 8,000 pixels a side."""
CROP_RATIO = (3 / 4, 4 / 3)  # width to height of resized crops


def crop_and_flip(images: ImageBytes, offsets: Int64[Tensor, "2 batch"], flips: Bool[Tensor, "batch"]) -> ImageBytes:
    """Crop of the zero-padded image, then horizontal flip, in one look-up.

    ``out[r, c] = image[r + offset_row, c + offset_col]`` and, where flipped, ``image[r + offset_row, C - 1 - c +
    offset_col]``; black outside. An offset of ``-p`` to ``p`` is a crop of the image padded by ``p``.

    Arguments:
        offsets: first row and first column of each crop, in pixels of the unpadded image.
    """
    num_rows, num_cols = images.shape[-2:]
    rows = torch.arange(num_rows, device=images.device) + offsets[0][:, None]
    cols = torch.arange(num_cols, device=images.device).repeat(len(images), 1)
    cols = torch.where(flips[:, None], num_cols - 1 - cols, cols) + offsets[1][:, None]
    return _looked_up(images, rows[:, :, None], cols[:, None, :])


def crop_and_resize(images: ImageBytes, boxes: Float32[Tensor, "4 batch"]) -> ImageBytes:
    """A part of each image, resized bilinearly to the size of the image: first along rows, then along columns.

    ``out[r, c] = image[top + (r + 1/2) h / R - 1/2, left + (c + 1/2) w / C - 1/2]`` for a part of ``h x w`` pixels of
    an image of ``R x C``, kept within the part, and rounded. It equals
    ``torchvision.transforms.v2.functional.resized_crop`` up to rounding: antialiasing does not change enlarged images.

    Arguments:
        boxes: first row, row after the last, first column, column after the last.
    """
    batch, channels, num_rows, num_cols = images.shape
    above, below, rows = _between(boxes[0], boxes[1], num_rows)
    left, right, cols = _between(boxes[2], boxes[3], num_cols)

    def of_rows(indices: Tensor) -> Tensor:
        return images.gather(2, indices[:, None, :, None].expand(batch, channels, num_rows, num_cols)).float()

    lines = torch.lerp(of_rows(above), of_rows(below), rows[:, None, :, None])

    def of_cols(indices: Tensor) -> Tensor:
        return lines.gather(3, indices[:, None, None, :].expand(batch, channels, num_rows, num_cols))

    return torch.lerp(of_cols(left), of_cols(right), cols[:, None, None, :]).round_().byte()


def _between(first: Tensor, end: Tensor, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """The two neighbours of each of ``side`` positions in a part, and the weight of the second."""
    length = (end - first)[:, None]
    centres = (torch.arange(side, device=first.device) + 0.5) * (length / side) - 0.5
    centres = torch.minimum(centres.clamp_(min=0), length - 1)
    lower = centres.floor()
    upper = torch.minimum(lower + 1, length - 1)
    return (first[:, None] + lower).long(), (first[:, None] + upper).long(), centres - lower


def resized_crop_boxes(
    draws: Float64[Tensor, "4 batch"],
    area: tuple[float, float],
    grid_size: tuple[int, int],
) -> Tensor:
    """Boxes whose share of the image's area is uniform and whose ratio of width to height is log-uniform, 3/4 to 4/3.

    Reference: Szegedy et al., Going Deeper with Convolutions (2015), section 6, as torchvision's RandomResizedCrop.
    Differs: a box that is higher or wider than the image is cut to it. torchvision samples again, up to ten times.

    Arguments:
        draws: uniform numbers in [0, 1) for area, aspect ratio, row and column.
        area: smallest and largest share.

    Returns:
        Boxes as of ``crop_and_resize``.
    """
    rows, cols = grid_size
    areas = rows * cols * (area[0] + (area[1] - area[0]) * draws[0])
    low, high = (math.log(end) for end in CROP_RATIO)
    ratios = torch.exp(low + (high - low) * draws[1])
    heights = (areas / ratios).sqrt_().round_().clamp_(1, rows)
    widths = (areas * ratios).sqrt_().round_().clamp_(1, cols)
    tops = (draws[2] * (rows - heights + 1)).floor_()
    lefts = (draws[3] * (cols - widths + 1)).floor_()
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
