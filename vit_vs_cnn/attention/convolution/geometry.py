"""Geometry of a convolution along each axis, and of the windows of the attention that computes it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vit_vs_cnn.attention.arguments import Images
from vit_vs_cnn.bounds import Size2d, as_rows_and_cols


class ConvolutionAxis(NamedTuple):
    """Convolution along the rows or along the columns, and the window of the attention that computes it.

    Arguments:
        kernel: number of positions of the kernel.
        window: number of positions of the window, at least ``kernel``. The kernel is in the middle of the window.
        stride, dilation: as of ``nn.Conv2d``.
        before: tokens of padding before the first token.
        after: tokens of padding after the last token.
    """

    kernel: int
    window: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def lead(self) -> int:
        """Number of positions of the window before the first position of the kernel."""
        return (self.window - 1) // 2 - (self.kernel - 1) // 2

    def num_queries(self, size: int) -> int:
        """Number of queries. Raises ValueError if the kernel is larger than the padded image."""
        reach = size + self.before + self.after - self.dilation * (self.kernel - 1) - 1
        if reach < 0:
            raise ValueError(
                f"a kernel of {self.kernel} positions, {self.dilation} apart, is larger than the image of {size} "
                f"tokens with {self.before} + {self.after} of padding"
            )
        return reach // self.stride + 1

    def window_padding(self, size: int, num_queries: int) -> tuple[int, int]:
        """Tokens of padding before and after ``size`` tokens for the windows of ``num_queries`` queries."""
        before = self.before + self.lead * self.dilation
        span = (num_queries - 1) * self.stride + (self.window - 1) * self.dilation + 1
        return before, span - before - size

    def quadratic_weights(
        self, size: int, sharpness: float, like: Tensor
    ) -> Float[Tensor, "kernel queries padded_tokens"]:
        """Softmax of ``-sharpness (k - q - D)^2`` over the padded tokens k, for each query q and kernel offset D."""
        exact = torch.promote_types(like.dtype, torch.float32)  # squares beyond 256 do not fit into bfloat16
        keys = torch.arange(size + self.before + self.after, device=like.device)
        targets = torch.arange(self.num_queries(size), device=like.device) * self.stride
        targets = targets + torch.arange(self.kernel, device=like.device)[:, None] * self.dilation
        distances = (keys - targets[..., None]).to(exact)
        return (-sharpness * distances.square()).softmax(dim=-1).to(like.dtype)


class ConvolutionGeometry(NamedTuple):
    """Both axes of a convolution."""

    rows: ConvolutionAxis
    cols: ConvolutionAxis

    @property
    def offsets(self) -> int:
        """Number of kernel offsets, rows times columns."""
        return self.rows.kernel * self.cols.kernel

    @property
    def positions(self) -> int:
        """Number of window positions, rows times columns."""
        return self.rows.window * self.cols.window

    def num_queries(self, images: Images) -> tuple[int, int]:
        """(rows, cols) of the queries."""
        return self.rows.num_queries(images.shape[2]), self.cols.num_queries(images.shape[3])

    def targets(self, device: torch.device) -> Int[Tensor, " offsets"]:
        """Window position of each kernel offset, row by row."""
        rows, cols = (axis.lead + torch.arange(axis.kernel, device=device) for axis in self)
        return (rows[:, None] * self.cols.window + cols).flatten()

    def coordinates(self, device: torch.device) -> Float[Tensor, "positions 2"]:
        """(row, col) of each window position relative to the middle of the window, in steps of the kernel."""
        rows, cols = (torch.arange(axis.window, device=device) - (axis.window - 1) // 2 for axis in self)
        return torch.cartesian_prod(rows, cols).view(-1, 2).float()

    def pad(self, images: Images) -> Float[Tensor, "batch channels padded_rows padded_cols"]:
        """Images with the padding of the convolution."""
        rows, cols = self
        return F.pad(images, (cols.before, cols.after, rows.before, rows.after))

    def pad_for_windows(
        self, images: Images, num_queries: tuple[int, int]
    ) -> Float[Tensor, "batch channels padded_rows padded_cols"]:
        """All tokens in the windows of ``num_queries`` queries."""
        sizes = zip(self, images.shape[2:], num_queries, strict=True)
        rows, cols = (axis.window_padding(size, count) for axis, size, count in sizes)
        return F.pad(images, (*cols, *rows)) if any((*cols, *rows)) else images

    def unfold_windows(self, padded: Tensor, first: int = 2) -> Float[Tensor, "batch _ _ _ window_rows window_cols"]:
        """View of the window of every query, from ``pad_for_windows``. Rows are dimension ``first``, then columns."""
        for dim, axis in enumerate(self, start=first):
            padded = padded.unfold(dim, (axis.window - 1) * axis.dilation + 1, axis.stride)
        return padded[..., :: self.rows.dilation, :: self.cols.dilation]


def make_geometry(
    kernel_size: Size2d,
    window_size: Size2d | None,
    *,
    stride: Size2d,
    padding: Size2d | Sequence[Sequence[int]],
    dilation: Size2d,
) -> ConvolutionGeometry:
    """Check the arguments of ``ConvolutionalAttention``, and make the geometry of both axes."""
    kernel = as_rows_and_cols("kernel_size", kernel_size)
    window = kernel if window_size is None else as_rows_and_cols("window_size", window_size)
    if kernel == (1, 1):
        window = kernel
    if window[0] < kernel[0] or window[1] < kernel[1]:
        raise ValueError(f"window_size must not be smaller than the kernel of {kernel}, but is {window_size}")
    strides, dilations = as_rows_and_cols("stride", stride), as_rows_and_cols("dilation", dilation)
    sides = (padding, padding) if isinstance(padding, int) else padding
    pads = [as_rows_and_cols("padding", side, minimum=0) for side in sides]
    if len(pads) != 2:
        raise ValueError(f"padding must be a number or (rows, cols), but is {padding}")
    rows, cols = (ConvolutionAxis(kernel[i], window[i], strides[i], dilations[i], *pads[i]) for i in (0, 1))
    return ConvolutionGeometry(rows, cols)
