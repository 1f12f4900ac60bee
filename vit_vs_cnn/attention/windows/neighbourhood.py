"""Sliding windows: which keys each query of a grid attends to, and the entry of the bias for each pair."""

from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Int
from torch import Tensor

from vit_vs_cnn.attention.arguments import Size2d, as_rows_and_cols, check_choice

BOUNDARIES = ("mask", "zero", "shift", "circular")


class Neighbourhood(NamedTuple):
    """Grid, sliding window and boundary rule; see ``local_attention``."""

    grid_size: tuple[int, int]
    window_size: tuple[int, int]
    boundary: str

    @property
    def patches(self) -> int:
        """Number of tokens of the grid."""
        return self.grid_size[0] * self.grid_size[1]

    @property
    def has_halo(self) -> bool:
        """True if windows at the edge include keys outside the grid."""
        return self.boundary in ("zero", "circular")

    @property
    def bias_size(self) -> tuple[int, int]:
        """(rows, cols) of the offsets from a query to its keys; shifted windows extend to either side."""
        rows, cols = self.window_size
        return (2 * rows - 1, 2 * cols - 1) if self.boundary == "shift" else (rows, cols)

    @property
    def offsets(self) -> tuple[range, range]:
        """Offsets from a query to its keys, by rows and by cols."""
        if self.boundary == "shift":
            rows, cols = (range(1 - size, size) for size in self.window_size)
        else:
            rows, cols = (range(-((size - 1) // 2), size // 2 + 1) for size in self.window_size)
        return rows, cols

    def check_shapes(self, queries: Tensor, bias: Tensor | None) -> None:
        """Raise ValueError unless there is a query for each patch, and the bias has an entry for each offset."""
        if queries.shape[2] != self.patches:
            raise ValueError(
                f"queries must have rows * cols = {self.patches} tokens for grid_size={self.grid_size}, but have "
                f"{queries.shape[2]}"
            )
        expected = (queries.shape[1], *self.bias_size)
        if bias is not None and bias.shape != expected:
            raise ValueError(f"bias must be (heads, offset_rows, offset_cols) = {expected}, but is {tuple(bias.shape)}")


def window_keys(
    size: int, window: int, boundary: str = "mask"
) -> tuple[Int[Tensor, "queries window"], Bool[Tensor, "queries window"]]:
    """Keys that each query of one axis attends to, and a mask of those inside the axis.

    ``key[q, s] = q + s - (window - 1) // 2``: the offsets of an odd window are symmetric, those of an even one extend
    one further to the right. At the edges "circular" takes it modulo ``size``; "shift" moves the whole window inwards,
    and cuts one that is larger than the axis.

    Reference: Hassani et al. 2023 (neighbourhood attention), equation 1, for "shift".
    """
    queries = torch.arange(size)[:, None]
    starts = queries - (window - 1) // 2
    if boundary == "shift":
        starts = starts.clamp(max=size - window).clamp(min=0)
    keys = starts + torch.arange(window)
    if boundary == "circular":
        keys = keys % size
    return keys, (keys >= 0) & (keys < size)


class WindowTables(NamedTuple):
    """Tables of all windows of a grid, the positions of a window row by row.

    Arguments:
        keys: token of the grid at each position of each window; the number of tokens where there is none.
        inside: True where there is a token.
        bias_index: entry of the flattened bias.
    """

    keys: Int[Tensor, "queries positions"]
    inside: Bool[Tensor, "queries positions"]
    bias_index: Int[Tensor, "queries positions"]


def window_tables(neighbourhood: Neighbourhood, device: torch.device) -> WindowTables:
    """Windows of the grid, as the product of those of its rows and those of its columns."""
    keys, inside, bias_index = zip(*(_axis_tables(neighbourhood, axis) for axis in (0, 1)), strict=True)

    def product(rows: Tensor, cols: Tensor) -> tuple[Tensor, Tensor]:
        rows, cols = torch.broadcast_tensors(rows[:, None, :, None], cols[None, :, None, :])
        return rearrange(rows, "r c y x -> (r c) (y x)"), rearrange(cols, "r c y x -> (r c) (y x)")

    row_inside, col_inside = product(*inside)
    row_keys, col_keys = product(*keys)
    row_index, col_index = product(*bias_index)
    is_inside = row_inside & col_inside
    tokens = (row_keys * neighbourhood.grid_size[1] + col_keys).where(is_inside, neighbourhood.patches)
    entries = row_index * neighbourhood.bias_size[1] + col_index
    return WindowTables(tokens.to(device), is_inside.to(device), entries.to(device))


def bias_index_matrix(neighbourhood: Neighbourhood, device: torch.device) -> Int[Tensor, "queries keys"]:
    """Entry of the flattened bias for each pair of patches; the number of entries for pairs outside a window."""
    axes = []
    for axis, size in enumerate(neighbourhood.grid_size):
        keys, inside, index = _axis_tables(neighbourhood, axis)
        matrix = torch.full((size, size + 1), -1)
        axes.append(matrix.scatter_(1, keys.where(inside, size), index.where(inside, -1))[:, :size].to(device))
    rows, cols = axes[0][:, None, :, None], axes[1][None, :, None, :]
    entries = neighbourhood.bias_size[0] * neighbourhood.bias_size[1]
    index = (rows * neighbourhood.bias_size[1] + cols).where((rows >= 0) & (cols >= 0), entries)
    return index.flatten(2).flatten(0, 1)


def _axis_tables(neighbourhood: Neighbourhood, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    size, window = neighbourhood.grid_size[axis], neighbourhood.window_size[axis]
    keys, inside = window_keys(size, window, neighbourhood.boundary)
    index = torch.arange(window).expand_as(keys)
    if neighbourhood.boundary == "shift":
        index = keys - torch.arange(size)[:, None] + window - 1
    return keys, inside, index


def make_neighbourhood(grid_size: Size2d, window_size: Size2d, boundary: str = "mask") -> Neighbourhood:
    """Checked neighbourhood.

    Raises:
        ValueError: if a size is not positive, the boundary is unknown, or a window on a torus is larger than the grid.
    """
    check_choice("boundary", boundary, BOUNDARIES)
    grid = as_rows_and_cols("grid_size", grid_size)
    window = as_rows_and_cols("window_size", window_size)
    if boundary == "circular" and (window[0] > grid[0] or window[1] > grid[1]):
        raise ValueError(f'window_size must fit into grid_size={grid} with boundary="circular", but is {window}')
    return Neighbourhood(grid, window, boundary)
