"""Sliding windows: the keys that each query of a grid attends to, and the index of the bias for each pair."""

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import NamedTuple, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vit_vs_cnn.attention.arguments import Size2d, as_rows_and_cols, check_choice

BOUNDARIES = ("mask", "zero")

Arguments = ParamSpec("Arguments")
Table = TypeVar("Table")


def cache_tables(make: Callable[Arguments, Table]) -> Callable[Arguments, Table]:
    """Cache of a function that makes constant tensors, such as tables of windows, from hashable arguments.

    Compiled and exported programs make their own tensors.
    """
    cached = lru_cache(maxsize=64)(make)

    @wraps(make)
    def get(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Table:
        if torch.compiler.is_compiling():
            return make(*args, **kwargs)
        with torch.inference_mode(False), torch.no_grad():  # the tables may be used for training later
            return cached(*args, **kwargs)

    return get


class Neighbourhood(NamedTuple):
    """Grid of tokens and a sliding window around each of them, for ``local_attention``.

    Arguments:
        grid_size: (rows, cols) of tokens.
        window_size: (rows, cols) of tokens in a window.
        boundary: treatment of the part of a window that is outside of the grid, "mask" or "zero".
    """

    grid_size: tuple[int, int]
    window_size: tuple[int, int]
    boundary: str

    @property
    def patches(self) -> int:
        """Number of tokens of the grid."""
        return self.grid_size[0] * self.grid_size[1]

    @property
    def offsets(self) -> tuple[range, range]:
        """Offsets from a query to its keys, by rows and by cols."""
        rows, cols = (range(-((size - 1) // 2), size // 2 + 1) for size in self.window_size)
        return rows, cols

    def bias_table(
        self, bias: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> Float[Tensor, "bias_heads entries"]:
        """Flattened bias, and minus infinity for pairs outside the window; one row for all heads without a bias."""
        entries = torch.zeros(1, math.prod(self.window_size), device=device) if bias is None else bias.flatten(1)
        return F.pad(entries.to(dtype), (0, 1), value=-torch.inf)

    def check_shapes(self, queries: Tensor, bias: Tensor | None) -> None:
        """Raise ValueError unless there is a query for each patch, and the bias has an entry for each offset."""
        if queries.shape[2] != self.patches:
            raise ValueError(
                f"queries must have rows * cols = {self.patches} tokens for grid_size={self.grid_size}, but have "
                f"{queries.shape[2]}"
            )
        expected = (queries.shape[1], *self.window_size)
        if bias is not None and bias.shape != expected:
            raise ValueError(f"bias must be (heads, offset_rows, offset_cols) = {expected}, but is {tuple(bias.shape)}")


def window_keys(size: int, window: int) -> tuple[Int[Tensor, "queries window"], Bool[Tensor, "queries window"]]:
    """Keys that each query of one axis attends to, and a mask of those inside the axis.

    ``key[q, s] = q + s - (window - 1) // 2``: the offsets of an odd window are symmetric, those of an even one extend
    one further to the right.
    """
    keys = torch.arange(size)[:, None] - (window - 1) // 2 + torch.arange(window)
    return keys, (keys >= 0) & (keys < size)


class WindowTables(NamedTuple):
    """Tables of all windows of a grid, the positions of a window row by row.

    Arguments:
        keys: index of the token at each position of each window; the number of tokens outside the grid.
        inside: True for positions inside the grid.
    """

    keys: Int[Tensor, "queries positions"]
    inside: Bool[Tensor, "queries positions"]


@cache_tables
def window_tables(neighbourhood: Neighbourhood, device: torch.device) -> WindowTables:
    """Windows of the grid, as the product of those of its rows and those of its columns."""
    sizes = zip(neighbourhood.grid_size, neighbourhood.window_size, strict=True)
    keys, inside = zip(*(window_keys(size, window) for size, window in sizes), strict=True)

    def product(rows: Tensor, cols: Tensor) -> tuple[Tensor, Tensor]:
        rows, cols = torch.broadcast_tensors(rows[:, None, :, None], cols[None, :, None, :])
        return rearrange(rows, "r c y x -> (r c) (y x)"), rearrange(cols, "r c y x -> (r c) (y x)")

    row_inside, col_inside = product(*inside)
    row_keys, col_keys = product(*keys)
    is_inside = row_inside & col_inside
    tokens = (row_keys * neighbourhood.grid_size[1] + col_keys).where(is_inside, neighbourhood.patches)
    return WindowTables(tokens.to(device), is_inside.to(device))


@cache_tables
def bias_index_matrix(neighbourhood: Neighbourhood, device: torch.device) -> Int[Tensor, "queries keys"]:
    """Index into the flattened bias for each pair of patches; the number of biases for pairs outside a window."""
    axes = []
    for size, window in zip(neighbourhood.grid_size, neighbourhood.window_size, strict=True):
        index = torch.arange(size) - torch.arange(size)[:, None] + (window - 1) // 2
        axes.append(index.where((index >= 0) & (index < window), -1).to(device))
    rows, cols = axes[0][:, None, :, None], axes[1][None, :, None, :]
    entries = neighbourhood.window_size[0] * neighbourhood.window_size[1]
    index = (rows * neighbourhood.window_size[1] + cols).where((rows >= 0) & (cols >= 0), entries)
    return index.flatten(2).flatten(0, 1)


def make_neighbourhood(grid_size: Size2d, window_size: Size2d, boundary: str = "mask") -> Neighbourhood:
    """Checked neighbourhood.

    Raises:
        ValueError: if a size is not positive, or the boundary is unknown.
    """
    check_choice("boundary", boundary, BOUNDARIES)
    grid = as_rows_and_cols("grid_size", grid_size)
    window = as_rows_and_cols("window_size", window_size)
    return Neighbourhood(grid, window, boundary)
