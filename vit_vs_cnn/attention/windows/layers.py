"""Windows as layers: what ``MultiHeadAttention`` calls in place of attention of all tokens to all."""

from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.relative import RelativePosition
from vit_vs_cnn.attention.shapes import AttendedHeads, Heads, HeadValues, Sizes
from vit_vs_cnn.attention.windows.blocks import block_attention
from vit_vs_cnn.attention.windows.neighbourhood import neighbourhood
from vit_vs_cnn.attention.windows.sliding import local_attention


class SlidingWindow(GridLayer):
    """``local_attention`` with a fixed window, the bias read from a relative position.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        window_size: (rows, cols) of the window, or one number for both.
        boundary: see ``local_attention``.

    Raises:
        ValueError: if a size is not positive or the boundary is unknown.
    """

    def __init__(
        self, grid_size: tuple[int, int], window_size: Sizes, boundary: str = "mask", extra_tokens: int = 0
    ) -> None:
        super().__init__(grid_size, extra_tokens)
        self.window_size = neighbourhood(grid_size, window_size, 1, boundary, extra_tokens).window_size
        self.boundary = boundary

    def forward(
        self,
        queries: Heads,
        keys: Heads,
        values: HeadValues,
        *,
        relative: RelativePosition | None = None,
        return_weights: bool = False,
    ) -> AttendedHeads:
        """What each token gathers; with ``return_weights`` also the weights ``(batch, heads, tokens, tokens)``."""
        return local_attention(
            queries,
            keys,
            values,
            grid_size=self.grid_size,
            window_size=self.window_size,
            boundary=self.boundary,
            bias=None if relative is None else relative.at_offsets(*self._offsets()),
            extra_tokens=self.extra_tokens,
            extra_bias=None if relative is None else relative.extra_bias(),
            return_weights=return_weights,
        )

    def extra_repr(self) -> str:
        return f'window_size={self.window_size}, boundary="{self.boundary}"'

    def _offsets(self) -> tuple[range, range]:
        """From a query to its keys, by rows and by cols; a window that is shifted may lie on either side."""
        if self.boundary == "shift":
            rows, cols = (range(1 - size, size) for size in self.window_size)
        else:
            rows, cols = (range(-((size - 1) // 2), size // 2 + 1) for size in self.window_size)
        return rows, cols


class BlockWindow(GridLayer):
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

    def forward(
        self,
        queries: Heads,
        keys: Heads,
        values: HeadValues,
        *,
        relative: RelativePosition | None = None,
        return_weights: bool = False,
    ) -> AttendedHeads:
        """What each token gathers; with ``return_weights`` also the weights ``(batch, heads, tokens, tokens)``."""
        pairs = zip(self.window_size, self.grid_size, strict=True)
        window = tuple(min(pair) for pair in pairs)
        whole = [size <= length for size, length in zip(self.grid_size, window, strict=True)]
        shift = [0 if fits or not self.shifted else size // 2 for fits, size in zip(whole, window, strict=True)]
        return block_attention(
            queries,
            keys,
            values,
            grid_size=self.grid_size,
            window_size=window,
            shift=shift,
            bias=None if relative is None else relative.at_offsets(*(range(1 - size, size) for size in window)),
            extra_tokens=self.extra_tokens,
            extra_bias=None if relative is None else relative.extra_bias(),
            return_weights=return_weights,
        )

    def extra_repr(self) -> str:
        return f"window_size={self.window_size}, shifted={self.shifted}"
