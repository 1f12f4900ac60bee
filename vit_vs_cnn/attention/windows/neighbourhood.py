"""Which keys a token of a grid sees, and which place of the bias it reads for each."""

from functools import lru_cache
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Int
from torch import Tensor

from vit_vs_cnn.attention.checks import check_choice
from vit_vs_cnn.attention.shapes import Sizes
from vit_vs_cnn.attention.tracing import kept

BOUNDARIES = ("mask", "zero", "shift", "circular")


class Neighbourhood(NamedTuple):
    """Which keys every query of a grid sees.

    Arguments:
        extra_tokens: tokens without a place, first in the sequence.
        by_offset: whether the bias has a place for every offset from query to key, ``2 size - 1`` per axis, instead of
            one for every place in the window. The two differ where windows are shifted.
    """

    grid_size: tuple[int, int]
    window_size: tuple[int, int]
    dilation: tuple[int, int]
    boundary: str
    extra_tokens: int
    by_offset: bool = False

    @property
    def patches(self) -> int:
        """Number of tokens that have a place."""
        return self.grid_size[0] * self.grid_size[1]

    def of(self, queries: Tensor, bias: Tensor | None = None) -> "Neighbourhood":
        """The same, checked against shapes; with a bias per offset if that is what is given.

        Raises:
            ValueError: if there are more or fewer queries than tokens, or the bias has another shape.
        """
        if queries.shape[2] != self.extra_tokens + self.patches:
            raise ValueError(
                f"queries must have extra_tokens + rows * cols = {self.extra_tokens + self.patches} tokens for "
                f"grid_size={self.grid_size}, but have {queries.shape[2]}"
            )
        if bias is None:
            return self
        heads, (rows, cols) = queries.shape[1], self.window_size
        if tuple(bias.shape) in ((heads, rows * cols), (heads, rows, cols)):
            return self
        if self.boundary == "shift" and tuple(bias.shape) == (heads, 2 * rows - 1, 2 * cols - 1):
            return self._replace(by_offset=True)
        raise ValueError(
            f"bias must be (heads, rows * cols) or (heads, rows, cols) = ({heads}, {rows}, {cols}), "
            f"but is {tuple(bias.shape)}"
        )

    @property
    def has_halo(self) -> bool:
        """Whether the grid of keys is larger than that of queries, by the windows of the outermost queries."""
        return self.boundary in ("zero", "circular")

    @property
    def places(self) -> tuple[int, int]:
        """(rows, cols) of the bias."""
        rows, cols = self.window_size
        return (2 * rows - 1, 2 * cols - 1) if self.by_offset else (rows, cols)

    @property
    def margins(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Tokens (before, after) the grid that the windows of the outermost queries reach, by rows and by cols."""
        rows, cols = (
            ((window - 1) // 2 * step, window // 2 * step)
            for window, step in zip(self.window_size, self.dilation, strict=True)
        )
        return rows, cols

    @property
    def repeats_keys(self) -> bool:
        """Whether windows reach around the torus and see a key twice."""
        if self.boundary != "circular":
            return False
        spans = zip(self.window_size, self.dilation, self.grid_size, strict=True)
        return any((window - 1) * step >= size for window, step, size in spans)


def window_keys(
    size: int, window: int, *, dilation: int = 1, boundary: str = "mask"
) -> tuple[Int[Tensor, "queries window"], Bool[Tensor, "queries window"]]:
    """The keys that each query of one axis sees, and whether there are such keys.

    ``key[q, s] = q + dilation (s - (window - 1) // 2)``: the offsets of an odd window are symmetric, those of an even
    one reach one further to the right. At the edges "circular" takes it modulo ``size``; "shift" moves the whole window
    inwards, in steps of ``dilation``, and cuts one that is larger than the axis.

    Reference: Hassani et al. 2023 (neighbourhood attention), equation 1, for "shift".
    """
    queries = torch.arange(size)[:, None]
    starts = queries - (window - 1) // 2 * dilation
    if boundary == "shift":
        lattice = queries % dilation
        last = lattice + (size - 1 - lattice) // dilation * dilation
        starts = starts.minimum(last - (window - 1) * dilation).maximum(lattice)
    keys = starts + dilation * torch.arange(window)
    if boundary == "circular":
        keys = keys % size
    return keys, (keys >= 0) & (keys < size)


class Places(NamedTuple):
    """What every query of the grid finds at every place of its window, the places row by row."""

    keys: Int[Tensor, "queries places"]  # the token of the grid, row by row; the number of tokens where there is none
    inside: Bool[Tensor, "queries places"]  # whether there is one
    slots: Int[Tensor, "queries places"]  # the column of the bias


@kept
def window_places(around: Neighbourhood, device: torch.device) -> Places:
    """The windows of a grid, as the products of those of its two axes."""
    keys, inside, slots = zip(*(_axis_places(around, axis) for axis in (0, 1)), strict=True)
    _, cols = around.places

    def product(by_row: Tensor, by_col: Tensor) -> Tensor:
        pairs = torch.stack(torch.broadcast_tensors(by_row[:, None, :, None], by_col[None, :, None, :]))
        return rearrange(pairs, "which r c y x -> which (r c) (y x)")

    here = product(*inside).all(dim=0)
    tokens = (product(*keys) * torch.tensor([around.grid_size[1], 1])[:, None, None]).sum(dim=0)
    columns = (product(*slots) * torch.tensor([cols, 1])[:, None, None]).sum(dim=0)
    tokens = tokens.where(here, around.patches)
    return Places(tokens.to(device), here.to(device), columns.to(device))


def _axis_places(around: Neighbourhood, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    size, window, dilation = around.grid_size[axis], around.window_size[axis], around.dilation[axis]
    keys, inside = window_keys(size, window, dilation=dilation, boundary=around.boundary)
    slots = torch.arange(window).expand_as(keys)
    if around.by_offset:
        slots = (keys - torch.arange(size)[:, None]) // dilation + window - 1
    return keys, inside, slots


@kept
def slot_matrix(around: Neighbourhood, device: torch.device) -> Int[Tensor, "queries keys"]:
    """The column of ``bias_table`` for each pair of all tokens; windows must not see a key twice."""
    keys, inside, slots = window_places(around, device)
    extra, patches = around.extra_tokens, around.patches
    outside = around.places[0] * around.places[1]
    of_grid = slots.new_full((patches, patches + 1), outside).scatter_(1, keys, slots.where(inside, outside))
    matrix = slots.new_full((extra + patches, extra + patches), outside + 3)
    matrix[extra:, :extra] = outside + 1
    matrix[:extra, extra:] = outside + 2
    matrix[extra:, extra:] = of_grid[:, :patches]
    return matrix


def neighbourhood(
    grid_size: Sizes, window_size: Sizes, dilation: Sizes = 1, boundary: str = "mask", extra_tokens: int = 0
) -> Neighbourhood:
    """Read and check what the user gave; a sequence becomes a grid of one column.

    Raises:
        ValueError: if a size is not positive, or the boundary is unknown.
    """
    grid_size = grid_size if isinstance(grid_size, int) else tuple(grid_size)
    window_size = window_size if isinstance(window_size, int) else tuple(window_size)
    dilation = dilation if isinstance(dilation, int) else tuple(dilation)
    return _neighbourhood(grid_size, window_size, dilation, boundary, extra_tokens)


@lru_cache
def _neighbourhood(
    grid_size: int | tuple[int, ...],
    window_size: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
    boundary: str,
    extra_tokens: int,
) -> Neighbourhood:
    check_choice("boundary", boundary, BOUNDARIES)
    if extra_tokens < 0:
        raise ValueError(f"extra_tokens must not be negative, but is {extra_tokens}")
    grid = (grid_size,) if isinstance(grid_size, int) else grid_size
    if len(grid) not in (1, 2) or min(grid) < 1:
        raise ValueError(f"grid_size must be (rows, cols) or the length of a sequence, positive, but is {grid_size}")
    window = _per_axis("window_size", window_size, len(grid))
    step = _per_axis("dilation", dilation, len(grid))
    rows, cols = (*grid, 1)[:2]
    return Neighbourhood((rows, cols), window, step, boundary, extra_tokens)


def _per_axis(name: str, given: int | tuple[int, ...], axes: int) -> tuple[int, int]:
    numbers = (given,) * axes if isinstance(given, int) else given
    if len(numbers) != axes or min(numbers) < 1:
        raise ValueError(f"{name} must be one positive number or one for each of {axes} axes, but is {given}")
    return (numbers[0], numbers[1]) if axes == 2 else (numbers[0], 1)
