"""Where a convolution looks, axis by axis: what its attention needs to know of kernels, paddings and strides."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vit_vs_cnn.attention.checks import check_choice, rows_and_cols
from vit_vs_cnn.attention.shapes import Sizes

PADDING_MODES = ("zeros", "replicate", "circular", "reflect")


class Axis(NamedTuple):
    """A convolution along the rows, or along the columns, and the window of the attention that computes it.

    Arguments:
        window: places of the window, no fewer; the kernel lies in its middle, as near to the start as it can.
        before: tokens of padding before the first.
        after: tokens of padding behind the last.
        mode: what the padding holds; one of ``PADDING_MODES``.
    """

    kernel: int
    window: int
    stride: int
    dilation: int
    before: int
    after: int
    mode: str

    @property
    def lead(self) -> int:
        """Places of the window before the first one of the kernel."""
        return (self.window - 1) // 2 - (self.kernel - 1) // 2

    @property
    def start(self) -> int:
        """The coordinate of the first key of the first window; the first token of the image has 0."""
        return -self.before - self.lead * self.dilation

    @property
    def query_place(self) -> int:
        """How far behind the first key of its window a query lies."""
        return (self.window - 1) // 2 * self.dilation

    def count(self, size: int) -> int:
        """Number of queries.

        Raises:
            ValueError: if the kernel is larger than the padded image, or a reflection reaches beyond the image.
        """
        reach = size + self.before + self.after - self.dilation * (self.kernel - 1) - 1
        if reach < 0:
            raise ValueError(
                f"a kernel of {self.kernel} places, {self.dilation} apart, is larger than the image of {size} tokens "
                f"with {self.before} + {self.after} of padding"
            )
        count = reach // self.stride + 1
        last = self.start + self.length(count) - 1
        if self.mode == "reflect" and (-self.start >= size or last - (size - 1) >= size):
            raise ValueError(f'padding_mode="reflect" reaches beyond the opposite side of an image of {size} tokens')
        return count

    def length(self, count: int) -> int:
        """Number of tokens that the windows of ``count`` queries span."""
        return (count - 1) * self.stride + (self.window - 1) * self.dilation + 1

    def sources(self, size: int, start: int, length: int, device: torch.device) -> Int[Tensor, " keys"]:
        """The token that each of ``length`` coordinates from ``start`` holds; -1 for a token of zeros."""
        keys = torch.arange(start, start + length, device=device)
        if self.mode == "zeros":
            return keys.where((keys >= 0) & (keys < size), -1)
        if self.mode == "circular":
            return keys % size
        if self.mode == "reflect":
            keys = size - 1 - (size - 1 - keys.abs()).abs()
        return keys.clamp(0, size - 1)

    def pad(self, images: Tensor, dim: int, start: int, length: int) -> Tensor:
        """The tokens at ``length`` coordinates from ``start`` along one dimension."""
        size = images.shape[dim]
        if self.mode != "zeros":
            return images.index_select(dim, self.sources(size, start, length, images.device))
        sides = [0, 0] * (images.ndim - 1 - dim) + [-start, start + length - size]
        return F.pad(images, sides) if any(sides) else images

    def quadratic_keys(self, size: int) -> tuple[int, int]:
        """First coordinate and number of the tokens that global attention sees.

        None is added for "replicate" (the nearest token wins where the target lies outside) and "circular".
        """
        if self.mode in ("replicate", "circular"):
            return 0, size
        return -self.before, size + self.before + self.after


def fold_copies(
    weights: Float[Tensor, "*rows keys"], sources: Int[Tensor, "... keys"], tokens: int
) -> Float[Tensor, "*rows tokens"]:
    """Give the weights of padded keys to the tokens that they copy; those of zeros (source -1) are dropped."""
    sources = sources.where(sources >= 0, tokens).expand(weights.shape)
    folded = weights.new_zeros(*weights.shape[:-1], tokens + 1)
    return folded.scatter_add(-1, sources, weights)[..., :-1]


class Geometry(NamedTuple):
    """Both axes."""

    rows: Axis
    cols: Axis

    @property
    def heads(self) -> int:
        """Offsets of the kernel."""
        return self.rows.kernel * self.cols.kernel

    @property
    def places(self) -> int:
        """Places of the window."""
        return self.rows.window * self.cols.window

    def counts(self, images: Tensor) -> tuple[int, int]:
        """(rows, cols) of the queries for images ``(batch, channels, rows, cols)``."""
        return self.rows.count(images.shape[2]), self.cols.count(images.shape[3])

    def targets(self, device: torch.device) -> Int[Tensor, " heads"]:
        """The place of the window, row by row, that each offset of the kernel is."""
        rows, cols = (
            axis.lead + torch.arange(axis.kernel, device=device).view(shape)
            for axis, shape in ((self.rows, (-1, 1)), (self.cols, (1, -1)))
        )
        return (rows * self.cols.window + cols).flatten()

    def offsets(self, device: torch.device) -> Float[Tensor, "heads 2"]:
        """Every offset of the kernel (rows, cols), in tokens, row by row."""
        axes = ((torch.arange(axis.kernel, device=device) - (axis.kernel - 1) // 2) * axis.dilation for axis in self)
        return torch.cartesian_prod(*axes).to(torch.get_default_dtype())

    def queries(self, images: Tensor) -> Tensor:
        """The token at every query, ``(batch, channels, rows, cols)``."""
        counts = self.counts(images)
        for dim, (axis, count) in enumerate(zip(self, counts, strict=True), start=2):
            length = (count - 1) * axis.stride + 1
            images = axis.pad(images, dim, axis.start + axis.query_place, length)
            images = images[(slice(None),) * dim + (slice(None, None, axis.stride),)]
        return images

    def padded(self, images: Tensor, counts: tuple[int, int]) -> Tensor:
        """All tokens that the windows of ``counts`` queries reach, ``(batch, channels, rows, cols)``."""
        for dim, (axis, count) in enumerate(zip(self, counts, strict=True), start=2):
            images = axis.pad(images, dim, axis.start, axis.length(count))
        return images

    def window_sources(self, size: tuple[int, int], device: torch.device) -> Int[Tensor, "queries places"]:
        """The token of the image at every place of every window, -1 for one of zeros."""
        by_axis = []
        for axis, tokens in zip(self, size, strict=True):
            count = axis.count(tokens)
            sources = axis.sources(tokens, axis.start, axis.length(count), device)
            by_axis.append(sources.unfold(0, (axis.window - 1) * axis.dilation + 1, axis.stride)[:, :: axis.dilation])
        rows, cols = by_axis[0][:, None, :, None], by_axis[1][None, :, None, :]
        tokens = (rows * size[1] + cols).where((rows >= 0) & (cols >= 0), -1)
        return tokens.flatten(2).flatten(0, 1)


def windows_of(geometry: Geometry, padded: Tensor) -> Tensor:
    """A view of the window of every query, ``(batch, channels, rows, cols, place_rows, place_cols)``."""
    for dim, axis in enumerate(geometry, start=2):
        padded = padded.unfold(dim, (axis.window - 1) * axis.dilation + 1, axis.stride)
    return padded[..., :: geometry.rows.dilation, :: geometry.cols.dilation]


def read_geometry(
    *,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes | Sequence[Sequence[int]],
    dilation: Sizes,
    padding_mode: str,
    window_size: Sizes | None,
) -> Geometry:
    """Read and check what the user gave."""
    check_choice("padding_mode", padding_mode, PADDING_MODES)
    kernel = rows_and_cols("kernel_size", kernel_size)
    window = kernel if window_size is None else rows_and_cols("window_size", window_size)
    if kernel == (1, 1):
        window = kernel
    if window[0] < kernel[0] or window[1] < kernel[1]:
        raise ValueError(f"window_size must not be smaller than the kernel of {kernel}, but is {window_size}")
    strides, dilations = rows_and_cols("stride", stride), rows_and_cols("dilation", dilation)
    sides = (padding, padding) if isinstance(padding, int) else padding
    pads = [rows_and_cols("padding", side, least=0) for side in sides]
    if len(pads) != 2:
        raise ValueError(f"padding must be a number or (rows, cols), but is {padding}")
    rows, cols = (Axis(kernel[i], window[i], strides[i], dilations[i], *pads[i], padding_mode) for i in (0, 1))
    return Geometry(rows, cols)
