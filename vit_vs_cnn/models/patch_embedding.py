"""Embedding of an image as a grid of tokens."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Images, Tokens, check_choice
from vit_vs_cnn.attention.multihead import NORM_EPS
from vit_vs_cnn.bounds import Size2d, as_rows_and_cols

STEMS = ("patch", "shifted", "conv", "conv_pool")
#: Channels between the convolutions of the stem "conv_pool".
HIDDEN_CHANNELS = 64


class PatchEmbedding(nn.Module):
    """Projection of each patch of an image to a token.

    ``tokens[row * cols + col] = W patch(row, col) + b``: tokens in row-major order.

    Reference: Dosovitskiy et al. 2021, equation 1; stem "shifted": see ``ShiftedPatches``; stem "conv": Xiao et al.
    2021, section 4; stem "conv_pool": Hassani et al. 2021 (CCT), equation 1.
    Differs: the conv stem has log2(patch_size) convolutions of stride 2, independent of the depth of the encoder.

    Arguments:
        image_size: size of the images in pixels, one number or (rows, cols).
        patch_size: size of a patch in pixels, one number or (rows, cols) that divide ``image_size``.
        stem: "patch" is one linear map per patch (the weights of ``conv2d`` with that stride, flattened). "shifted" is
            one linear map per patch of the image and of its shifts (``ShiftedPatches``). "conv" is a sequence of 3x3
            convolutions with batch norm and ReLU, then a 1x1 convolution. Its strides multiply to ``patch_size``.
            "conv_pool" is log2(patch_size) times a 3x3 convolution without bias, ReLU and a 3x3 max-pool of stride 2.
            It has 64 channels, and ``embed_dim`` after the last convolution.
        bias: add a bias in the map to a token; ignored by "conv_pool".

    Raises:
        ValueError: if the patches do not tile the image, or the stem is unknown. For convolutional stems also if
            ``patch_size`` is not a square power of two (at least 2 for "conv_pool"), for "shifted" if a side is 1.
    """

    def __init__(
        self,
        image_size: Size2d,
        patch_size: Size2d,
        in_channels: int,
        embed_dim: int,
        stem: str = "patch",
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.patch_size = as_rows_and_cols("patch_size", patch_size)
        self.image_size = (0, 0)
        self.grid_size = (0, 0)
        self.resize(image_size)
        self.in_channels = in_channels
        self.dynamic = False  # True for images of any size that the patches tile
        check_choice("stem", stem, STEMS)
        self.projection = nn.Linear(in_channels * self.patch_size[0] * self.patch_size[1], embed_dim, bias=bias)
        self.stem = None
        if stem == "shifted":
            self.stem = ShiftedPatches(self.patch_size, in_channels)
            self.projection = nn.Linear(self.stem.norm.normalized_shape[0], embed_dim, bias=bias)
        if stem == "conv":
            self.stem = _conv_stem(self.patch_size, in_channels, embed_dim)
            self.projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        if stem == "conv_pool":
            self.stem = _conv_pool_stem(self.patch_size, in_channels, embed_dim)
            self.projection = None

    def resize(self, image_size: Size2d) -> None:
        """Change the size of the images in place; the weights do not depend on it."""
        rows, cols = size = as_rows_and_cols("image_size", image_size)
        patch_rows, patch_cols = self.patch_size
        if rows % patch_rows or cols % patch_cols:
            sizes = f"image_size={size} and patch_size={self.patch_size} (rows, cols)"
            raise ValueError(f"patch_size must divide image_size, but {sizes}")
        self.grid_size = (rows // patch_rows, cols // patch_cols)
        self.image_size = size

    def grid_of(self, images: Images) -> tuple[int, int]:
        return images.shape[2] // self.patch_size[0], images.shape[3] // self.patch_size[1]

    def forward(self, images: Images) -> Tokens:
        patch_rows, patch_cols = self.patch_size
        if self.dynamic and (images.shape[2] % patch_rows or images.shape[3] % patch_cols):
            raise ValueError(f"rows and cols of images must be multiples of {self.patch_size}, but are {images.shape}")
        if images.shape[1:] != (self.in_channels, *(images.shape[2:] if self.dynamic else self.image_size)):
            expected = f"(any, {(self.in_channels, *self.image_size)})"
            raise ValueError(f"images must be (batch, channels, rows, cols) = {expected}, but are {images.shape}")
        if not images.is_floating_point():
            raise ValueError(f"images must be normalized floats, but are {images.dtype}")
        if self.stem is not None:
            tokens = rearrange(self.stem(images), "b d rows cols -> b (rows cols) d")
            return tokens if self.projection is None else self.projection(tokens)
        assert self.projection is not None, "only convolutional stems have no projection"
        # A product, not conv2d: a quarter faster on a CPU, forward and backward.
        patches = rearrange(images, "b c (rows y) (cols x) -> b (rows cols) (c y x)", y=patch_rows, x=patch_cols)
        return self.projection(patches)


class ShiftedPatches(nn.Module):
    """Patches of an image and of four copies of it, which are shifted diagonally by half a patch; layer norm of each.

    ``S(x) = LN(P([x; s_1; s_2; s_3; s_4]))``: the image and its shifts side by side along the channels, P the division
    into patches. Outside of the image are zeros. The receptive field of a token has twice the rows and columns of its
    patch.

    Reference: Lee, Lee & Song 2021 (arXiv 2112.13492), section 3.2 (shifted patch tokenization).
    Differs: half of an odd patch size is rounded down.

    Raises:
        ValueError: if a side of the patches is 1.
    """

    def __init__(self, patch_size: tuple[int, int], in_channels: int) -> None:
        super().__init__()
        if min(patch_size) < 2:
            raise ValueError(f'patch_size must be at least 2 with stem="shifted", but is {patch_size} (rows, cols)')
        self.patch_size = patch_size
        self.norm = nn.LayerNorm(5 * in_channels * patch_size[0] * patch_size[1], eps=NORM_EPS)

    def forward(self, images: Images) -> Float[Tensor, "batch pixels grid_rows grid_cols"]:
        rows, cols = images.shape[2:]
        down, right = (side // 2 for side in self.patch_size)
        padded = F.pad(images, (right, right, down, down))
        corners = [(top, left) for top in (0, 2 * down) for left in (0, 2 * right)]
        shifted = [padded[..., top : top + rows, left : left + cols] for top, left in corners]
        row_size, col_size = self.patch_size
        stacked = torch.cat([images, *shifted], dim=1)
        patches = rearrange(stacked, "b c (rows y) (cols x) -> b rows cols (c y x)", y=row_size, x=col_size)
        return rearrange(self.norm(patches), "b rows cols pixels -> b pixels rows cols")


def _halvings(patch_size: tuple[int, int], stem: str) -> int:
    """Number of convolutions of stride 2, or of pools, that reduce a patch to one token: log2(patch_size)."""
    rows, cols = patch_size
    halvings = rows.bit_length() - 1
    if rows != cols or rows != 2**halvings:
        raise ValueError(f'patch_size must be a square power of two with stem="{stem}", but is {patch_size}')
    return halvings


def _conv_pool_stem(patch_size: tuple[int, int], in_channels: int, embed_dim: int) -> nn.Sequential:
    """Kaiming-normal 3x3 convolutions of stride 1, each followed by a max-pool that halves the image."""
    count = _halvings(patch_size, "conv_pool")
    if not count:
        raise ValueError(f'patch_size must be at least 2 with stem="conv_pool", but is {patch_size} (rows, cols)')
    layers: list[nn.Module] = []
    for before, after in pairwise([in_channels, *[HIDDEN_CHANNELS] * (count - 1), embed_dim]):
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(convolution.weight)
        layers += [convolution, nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    return nn.Sequential(*layers)


def _conv_stem(patch_size: tuple[int, int], in_channels: int, embed_dim: int) -> nn.Sequential:
    """Stem of 3x3 convolutions of stride 2, the width doubling up to ``embed_dim``; one of stride 1 for 1x1 patches."""
    halvings = _halvings(patch_size, "conv")
    count = max(halvings, 1)
    widths = [in_channels, *(embed_dim // 2**i for i in reversed(range(count)))]
    if min(widths) < 1:
        raise ValueError(f'embed_dim must be at least {2 ** (count - 1)} with stem="conv", but is {embed_dim}')
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        convolution = nn.Conv2d(before, after, 3, stride=2 if halvings else 1, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
