"""A network that was made for images of another size: it sees the images resized."""

import math
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import rows_and_cols
from vit_vs_cnn.attention.shapes import Images, Sizes

#: How an image is brought to another size.
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")


class ResizedInput(nn.Module):
    """The network, with its images brought to the size that it takes.

    In evaluation, as timm prepares them: with c the share ``crop_pct``, the sides become the wanted ones over c, and
    the middle of the wanted size is taken. In training the whole image is resized: crops are augmentation's.

    Reference: Wightman, timm, ``create_transform`` (crop_pct, interpolation).
    Differs: both sides are brought to size; images that reach a network here have their shape already. Values are
    interpolated behind the normalisation, which is linear, with antialiasing, and not rounded to bytes in between.

    Arguments:
        network: what classifies; whatever else it gives is given as it is.
        image_size: that it takes, one number or (rows, cols).
        interpolation: "bilinear", "bicubic" or "nearest".
        crop_pct: share of each side that it sees in evaluation; above 0, at most 1.

    Raises:
        ValueError: an unknown interpolation, a size or a share out of range.
    """

    def __init__(
        self, network: nn.Module, image_size: Sizes, interpolation: str = "bicubic", crop_pct: float = 1.0
    ) -> None:
        super().__init__()
        if interpolation not in INTERPOLATIONS:
            raise ValueError(f'interpolation must be one of {", ".join(INTERPOLATIONS)}, but is "{interpolation}"')
        if not 0 < crop_pct <= 1:
            raise ValueError(f"crop_pct must be above 0, and at most 1, but is {crop_pct}")
        self.network = network
        self.image_size = rows_and_cols("input_size", image_size)
        self.interpolation = interpolation
        self.crop_pct = crop_pct

    def resized(self, images: Images) -> Float[Tensor, "batch channels new_rows new_cols"]:
        """The images as the network sees them."""
        size = self.image_size if self.training else self.uncropped
        if (images.shape[-2], images.shape[-1]) != size:
            smooth = {} if self.interpolation == "nearest" else {"antialias": True}
            wide = images if images.dtype == torch.float64 else images.float()  # bfloat16 has no antialiasing on CPUs
            images = F.interpolate(wide, size=size, mode=self.interpolation, **smooth).to(images.dtype)
        if size == self.image_size:
            return images
        (top, left), (rows, cols) = self.corner, self.image_size
        return images[..., top : top + rows, left : left + cols]

    def forward(self, images: Images, **options: Any) -> Any:
        return self.network(self.resized(images), **options)

    @property
    def uncropped(self) -> tuple[int, int]:
        """(rows, cols) of the whole image as it is resized in evaluation, before its middle is taken."""
        rows, cols = self.image_size
        return math.floor(rows / self.crop_pct), math.floor(cols / self.crop_pct)

    @property
    def corner(self) -> tuple[int, int]:
        """(top, left) of the middle that it sees, in pixels of the whole resized image."""
        (rows, cols), (all_rows, all_cols) = self.image_size, self.uncropped
        return round((all_rows - rows) / 2), round((all_cols - cols) / 2)


def crops(network: nn.Module) -> TypeGuard[ResizedInput]:
    """Whether it sees but the middle of its images."""
    return isinstance(network, ResizedInput) and network.uncropped != network.image_size


def seen_size(network: nn.Module, size: tuple[int, int]) -> tuple[float, float]:
    """(rows, cols) of what it sees of images of this size, in pixels of the images."""
    (rows, cols), (all_rows, all_cols) = (network.image_size, network.uncropped) if crops(network) else (size, size)
    return size[0] * rows / all_rows, size[1] * cols / all_cols


def inner(network: nn.Module) -> nn.Module:
    """The network that computes, without what resizes its images."""
    return network.network if isinstance(network, ResizedInput) else network


def seen_by(network: nn.Module, images: Tensor) -> Tensor:
    """Images as ``inner(network)`` takes them."""
    return network.resized(images) if isinstance(network, ResizedInput) else images
