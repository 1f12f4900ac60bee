"""Windows as layers: what ``MultiHeadAttention`` calls in place of attention of all tokens to all."""

from collections.abc import Callable
from typing import Any

from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.relative import RelativePosition
from vit_vs_cnn.attention.shapes import AttendedHeads, Heads, HeadValues, Sizes
from vit_vs_cnn.attention.windows.blocks import block_attention
from vit_vs_cnn.attention.windows.neighbourhood import neighbourhood
from vit_vs_cnn.attention.windows.sliding import Memory, check_memory, local_attention


class Window(GridLayer):
    """Attention of each token to its window, the bias read from a relative position; a subclass says to which."""

    def forward(
        self,
        queries: Heads,
        keys: Heads,
        values: HeadValues,
        *,
        relative: RelativePosition | None = None,
        return_weights: bool = False,
        grid_size: tuple[int, int] | None = None,
    ) -> AttendedHeads:
        """What each token gathers; with ``return_weights`` also the weights ``(batch, heads, tokens, tokens)``."""
        grid_size = grid_size or self.grid_size
        attention, window, offsets = self.attended(grid_size)
        if relative is not None:
            window |= {"bias": relative.at_offsets(*offsets), "extra_bias": relative.extra_bias()}
        window |= {"grid_size": grid_size, "extra_tokens": self.extra_tokens}
        return attention(queries, keys, values, return_weights=return_weights, **window)

    def attended(self, grid_size: tuple[int, int]) -> tuple[Callable[..., Any], dict[str, Any], list[range]]:
        """The function, its options, and the offsets from a query to its keys, by rows and by cols, on a grid."""
        raise NotImplementedError


class SlidingWindow(Window):
    """``local_attention`` with a fixed window, the bias read from a relative position.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        window_size: (rows, cols) of the window, or one number for both.
        boundary, memory: see ``local_attention``.

    Raises:
        ValueError: if a size is not positive, or the boundary or the memory is unknown.
    """

    def __init__(
        self,
        grid_size: tuple[int, int],
        window_size: Sizes,
        boundary: str = "mask",
        extra_tokens: int = 0,
        memory: Memory = "auto",
    ) -> None:
        super().__init__(grid_size, extra_tokens)
        self.window_size = neighbourhood(grid_size, window_size, 1, boundary, extra_tokens).window_size
        self.boundary = boundary
        check_memory(memory)
        self.memory = memory

    def attended(self, grid_size: tuple[int, int]) -> tuple[Callable[..., Any], dict[str, Any], list[range]]:
        if self.boundary == "shift":  # the window may lie on either side
            offsets = [range(1 - size, size) for size in self.window_size]
        else:
            offsets = [range(-((size - 1) // 2), size // 2 + 1) for size in self.window_size]
        options = {"window_size": self.window_size, "boundary": self.boundary, "memory": self.memory}
        return local_attention, options, offsets

    def extra_repr(self) -> str:
        return f'window_size={self.window_size}, boundary="{self.boundary}"'


class BlockWindow(Window):
    """``block_attention`` with a fixed window and shift, the bias read from a relative position.

    Reference: Liu et al. 2021 (Swin), section 3.2.
    Differs: a window is cut to the grid along an axis that is not longer than it, and not shifted there (as in their
    code, where the shorter axis decides for both).

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        window_size: (rows, cols) of a window, or one number for both.
        shifted: whether the cuts are moved by half a window.

    Raises:
        ValueError: if a size is not positive.
    """

    def __init__(
        self, grid_size: tuple[int, int], window_size: Sizes, shifted: bool = False, extra_tokens: int = 0
    ) -> None:
        super().__init__(grid_size, extra_tokens)
        self.window_size = neighbourhood(grid_size, window_size, extra_tokens=extra_tokens).window_size
        self.shifted = shifted

    def attended(self, grid_size: tuple[int, int]) -> tuple[Callable[..., Any], dict[str, Any], list[range]]:
        window = [min(pair) for pair in zip(self.window_size, grid_size, strict=True)]
        whole = [size <= length for size, length in zip(grid_size, window, strict=True)]
        shift = [0 if fits or not self.shifted else size // 2 for fits, size in zip(whole, window, strict=True)]
        return block_attention, {"window_size": window, "shift": shift}, [range(1 - size, size) for size in window]

    def extra_repr(self) -> str:
        return f"window_size={self.window_size}, shifted={self.shifted}"
