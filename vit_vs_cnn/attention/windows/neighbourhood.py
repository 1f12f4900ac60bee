"""Sliding windows: the keys that each query of a grid attends to, and the index of the bias for each pair."""

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import NamedTuple, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vit_vs_cnn.attention.arguments import check_choice
from vit_vs_cnn.bounds import Size2d, as_rows_and_cols

BOUNDARIES = ("mask", "zero")

Arguments = ParamSpec("Arguments")
Table = TypeVar("Table")


def cache_tables(make: Callable[Arguments, Table]) -> Callable[Arguments, Table]:
    """Cache of a function that makes constant tensors, such as tables of windows, from hashable arguments.

    Compiled, exported and traced programs make their own tensors.
    """
    # Made without gradients, but not as inference tensors: the tables may be used for training later.
    cached = lru_cache(maxsize=64)(torch.inference_mode(False)(torch.no_grad()(make)))

    @wraps(make)
    def get(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Table:
        is_program = torch.compiler.is_compiling() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        return make(*args, **kwargs) if is_program else cached(*args, **kwargs)

    return get


class Neighbourhood(NamedTuple):
    """Grid of tokens and a sliding window around each of them. ``boundary`` is as in ``local_attention``."""

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


def check_shapes(queries: Tensor, bias: Tensor | None, grid_size: tuple[int, int], offsets: tuple[int, int]) -> None:
    """Raise ValueError unless there is a query for each patch, and the bias has an entry for each offset."""
    patches = grid_size[0] * grid_size[1]
    if queries.shape[2] != patches:
        raise ValueError(
            f"queries must have rows * cols = {patches} tokens for grid_size={grid_size}, but have {queries.shape[2]}: "
            f"(batch, heads, tokens, head_dim) = {tuple(queries.shape)}"
        )
    expected = (queries.shape[1], *offsets)
    if bias is not None and bias.shape != expected:
        raise ValueError(f"bias must be (heads, offset_rows, offset_cols) = {expected}, but is {tuple(bias.shape)}")


def window_keys(size: int, window: int) -> Int[Tensor, "queries window"]:
    """Keys that each query of one axis attends to, those outside the axis included.

    ``key[q, s] = q + s - (window - 1) // 2``: the offsets of an odd window are symmetric, those of an even one extend
    one further to the right.
    """
    return torch.arange(size)[:, None] - (window - 1) // 2 + torch.arange(window)


def flat_index(
    rows: Int[Tensor, "query_rows key_rows"], cols: Int[Tensor, "query_cols key_cols"], shape: tuple[int, int]
) -> Int[Tensor, "queries keys"]:
    """Index into a flattened array, from the rows and columns of all pairs; the size of the array for those outside."""
    is_row, is_col = (rows >= 0) & (rows < shape[0]), (cols >= 0) & (cols < shape[1])
    index = rows[:, None, :, None] * shape[1] + cols[:, None, :]
    index = index.where(is_row[:, None, :, None] & is_col[:, None, :], shape[0] * shape[1])
    return index.flatten(2).flatten(0, 1)


@cache_tables
def token_index(neighbourhood: Neighbourhood, device: torch.device) -> Int[Tensor, "queries positions"]:
    """Token at each position of each window; the number of patches for positions outside the grid."""
    sizes = zip(neighbourhood.grid_size, neighbourhood.window_size, strict=True)
    rows, cols = (window_keys(size, window) for size, window in sizes)
    return flat_index(rows, cols, neighbourhood.grid_size).to(device)


@cache_tables
def bias_index_matrix(neighbourhood: Neighbourhood, device: torch.device) -> Int[Tensor, "queries keys"]:
    """Index into the flattened bias for each pair of patches; the number of biases for pairs outside a window."""
    rows, cols = (
        torch.arange(size) - torch.arange(size)[:, None] + (window - 1) // 2
        for size, window in zip(neighbourhood.grid_size, neighbourhood.window_size, strict=True)
    )
    return flat_index(rows, cols, neighbourhood.window_size).to(device)


def make_neighbourhood(grid_size: Size2d, window_size: Size2d, boundary: str = "mask") -> Neighbourhood:
    """Neighbourhood; raise ValueError if a size is not positive, or the boundary is unknown."""
    check_choice("boundary", boundary, BOUNDARIES)
    grid, window = as_rows_and_cols("grid_size", grid_size), as_rows_and_cols("window_size", window_size)
    return Neighbourhood(grid, window, boundary)
