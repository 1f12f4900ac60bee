"""Wrappers that change the input of a network: resized images, permuted blocks of pixels, or normalized values."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Images, Logits, check_choice
from vit_vs_cnn.bounds import Size2d, as_rows_and_cols
from vit_vs_cnn.counter_random import counter_key, permutation
from vit_vs_cnn.errors import InputError

#: Interpolations of resizing.
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")


class ResizedInput(nn.Module):
    """Network whose images are resized to its input size.

    In evaluation, as timm prepares images: the sides are resized to the input size divided by ``crop_pct``, and the
    centre of the input size is cropped. In training the whole image is resized; augmentation crops.

    Reference: Wightman, timm, ``create_transform`` (crop_pct, interpolation).
    Differs: both sides are resized, as the images of a run have one shape. Values are interpolated after the
    normalization, which is linear, with antialiasing, and not rounded to bytes in between.

    Arguments:
        network: network that classifies; its outputs are returned unchanged.
        image_size: input size of the network, one number or (rows, cols).
        interpolation: "bilinear", "bicubic" or "nearest".
        crop_pct: share of each side that is visible in evaluation; above 0, at most 1.

    Raises:
        ValueError: if the interpolation is unknown, or a size or ``crop_pct`` is out of range.
    """

    def __init__(
        self, network: nn.Module, image_size: Size2d, interpolation: str = "bicubic", crop_pct: float = 1.0
    ) -> None:
        super().__init__()
        check_choice("interpolation", interpolation, INTERPOLATIONS)
        if not 0 < crop_pct <= 1:
            raise ValueError(f"crop_pct must be a fraction above 0 and at most 1, such as 0.875, but is {crop_pct}")
        self.network = network
        self.image_size = as_rows_and_cols("input_size", image_size)
        self.interpolation = interpolation
        self.crop_pct = crop_pct

    def resize(self, images: Images) -> Float[Tensor, "batch channels new_rows new_cols"]:
        size = self.image_size if self.training else self.resize_size
        if (images.shape[-2], images.shape[-1]) != size:
            smooth = {} if self.interpolation == "nearest" else {"antialias": True}
            wide = images if images.dtype == torch.float64 else images.float()  # no antialiasing of bfloat16 on CPUs
            images = F.interpolate(wide, size=size, mode=self.interpolation, **smooth).to(images.dtype)
        if size == self.image_size:
            return images
        (row, col), (rows, cols) = self.corner, self.image_size
        return images[..., row : row + rows, col : col + cols]

    def forward(self, images: Images, **options: Any) -> Any:
        return self.network(self.resize(images), **options)

    @property
    def resize_size(self) -> tuple[int, int]:
        """(rows, cols) of the image in evaluation before the crop."""
        rows, cols = self.image_size
        return math.floor(rows / self.crop_pct), math.floor(cols / self.crop_pct)

    @property
    def corner(self) -> tuple[int, int]:
        """(top, left) of the crop, in pixels of the resized image."""
        (rows, cols), (all_rows, all_cols) = self.image_size, self.resize_size
        return round((all_rows - rows) / 2), round((all_cols - cols) / 2)


class PermutedInput(nn.Module):
    """Network whose input images have their blocks of pixels permuted, in the same order for all images.

    The smaller the blocks, the less of the local structure of an image remains. A ViT whose patch size divides the
    block size gets the same patches in another order.

    Arguments:
        network: network that gets the permuted images; its outputs are returned unchanged.
        image_size: one number or (rows, cols) of the images.
        block_size: side of a block in pixels.
        seed: seed of the permutation.

    Raises:
        ValueError: the block size does not divide the image size, or there is only one block.
    """

    order: Int64[Tensor, "blocks"]

    def __init__(self, network: nn.Module, image_size: Size2d, block_size: int, seed: int = 0) -> None:
        super().__init__()
        rows, cols = as_rows_and_cols("image_size", image_size)
        if block_size < 1 or rows % block_size or cols % block_size or block_size >= max(rows, cols):
            raise ValueError(f"permute_blocks must divide {rows} x {cols} pixels into blocks, but is {block_size}")
        self.network = network
        self.image_size = (rows, cols)
        self.block_size = block_size
        count = (rows // block_size) * (cols // block_size)
        order = torch.tensor(permutation(counter_key(seed, count), count).tolist())
        self.register_buffer("order", order, persistent=False)

    def permuted(self, images: Images) -> Images:
        size = self.block_size
        blocks = rearrange(images, "b c (r p) (k q) -> b (r k) c p q", p=size, q=size)
        blocks = blocks.index_select(1, self.order.to(images.device))
        return rearrange(blocks, "b (r k) c p q -> b c (r p) (k q)", r=images.shape[-2] // size)

    def forward(self, images: Images, **options: Any) -> Any:
        return self.network(self.permuted(images), **options)


def list_wrappers(network: nn.Module) -> list[ResizedInput | PermutedInput]:
    """The ``ResizedInput`` and ``PermutedInput`` around a network, compiled or not, the outermost first."""
    wrappers, network = [], getattr(network, "_orig_mod", network)
    while isinstance(network, ResizedInput | PermutedInput):
        wrappers.append(network)
        network = network.network
    return wrappers


def unwrap(network: nn.Module) -> nn.Module:
    """Network without ``torch.compile``, ``ResizedInput`` and ``PermutedInput``."""
    wrappers = list_wrappers(network)
    return wrappers[-1].network if wrappers else getattr(network, "_orig_mod", network)


def resize_for(network: nn.Module, images: Tensor) -> Tensor:
    """Images as the wrappers of a network change them, for ``unwrap(network)``."""
    for wrapper in list_wrappers(network):
        images = wrapper.permuted(images) if isinstance(wrapper, PermutedInput) else wrapper.resize(images)
    return images


def find_center_crop(network: nn.Module) -> ResizedInput | None:
    """The wrapper that lets only the centre of an image through in evaluation, if the network has one."""
    resized = [wrapper for wrapper in list_wrappers(network) if isinstance(wrapper, ResizedInput)]
    return next((wrapper for wrapper in resized if wrapper.resize_size != wrapper.image_size), None)


def check_positions(network: nn.Module) -> None:
    """Raise InputError if the network permutes blocks: tokens and feature maps then have no place in the image."""
    if any(isinstance(wrapper, PermutedInput) for wrapper in list_wrappers(network)):
        raise InputError("permute_blocks moves the blocks of the images, so tokens and maps have no position in them")


class NormalizedInput(nn.Module):
    """Network for export, which normalizes pixel values first, as in training.

    ``logits = f((images - mean) / std)``, with the mean and standard deviation of each channel, in [0, 1].
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, *, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, images: Images) -> Logits:
        """Logits of images whose pixels run from 0 (black) to 1 (white)."""
        return self.network((images - self.mean) / self.std)
