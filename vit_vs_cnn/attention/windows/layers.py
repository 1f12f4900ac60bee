"""Windows as layers, which ``MultiHeadAttention`` calls in place of global attention."""

import torch.nn.functional as F
from torch import Tensor

from vit_vs_cnn.attention.arguments import Heads, HeadValues, Size2d, TokenWeights, as_rows_and_cols
from vit_vs_cnn.attention.functional import attend
from vit_vs_cnn.attention.positions import GridLayer
from vit_vs_cnn.attention.relative import RelativePosition
from vit_vs_cnn.attention.windows.blocks import block_attention, window_mask
from vit_vs_cnn.attention.windows.neighbourhood import make_neighbourhood
from vit_vs_cnn.attention.windows.sliding import local_attention, masked_window_attention


class WindowLayer(GridLayer):
    """Attention of each token to its window, with the bias of a relative position.

    With prefix tokens, which attend to all tokens and are attended to by all, and where weights are returned, this is
    one masked product of all tokens with all.
    """

    def forward(
        self,
        queries: Heads,
        keys: Heads,
        values: HeadValues,
        *,
        relative_position: RelativePosition | None = None,
        grid_size: tuple[int, int] | None = None,
        return_weights: bool = False,
    ) -> tuple[HeadValues, TokenWeights | None]:
        """Output, and the weights ``(batch, heads, tokens, tokens)`` with ``return_weights``, else None."""
        raise NotImplementedError


class SlidingWindow(WindowLayer):
    """``local_attention`` with a fixed window.

    Arguments:
        grid_size, num_prefix_tokens: as in ``GridLayer``.
        window_size: (rows, cols) of the window, or one number for both.
        boundary: as in ``local_attention``.

    Raises:
        ValueError: if a size is not positive, or the boundary is unknown.
    """

    def __init__(
        self, grid_size: tuple[int, int], window_size: Size2d, boundary: str = "mask", num_prefix_tokens: int = 0
    ) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        self.window_size = make_neighbourhood(grid_size, window_size, boundary).window_size
        self.boundary = boundary

    def forward(
        self,
        queries: Heads,
        keys: Heads,
        values: HeadValues,
        *,
        relative_position: RelativePosition | None = None,
        grid_size: tuple[int, int] | None = None,
        return_weights: bool = False,
    ) -> tuple[HeadValues, TokenWeights | None]:
        neighbourhood = make_neighbourhood(grid_size or self.grid_size, self.window_size, self.boundary)
        bias = prefix_bias = None
        if relative_position is not None:
            bias = relative_position.bias_at_offsets(*neighbourhood.offsets)
            prefix_bias = relative_position.prefix_bias()
        if self.num_prefix_tokens or return_weights:
            return masked_window_attention(
                queries,
                keys,
                values,
                neighbourhood,
                bias=bias,
                prefix_bias=prefix_bias,
                return_weights=return_weights,
            )
        size, window = neighbourhood.grid_size, neighbourhood.window_size
        output = local_attention(
            queries, keys, values, grid_size=size, window_size=window, boundary=self.boundary, bias=bias
        )
        return output, None

    def extra_repr(self) -> str:
        return f'window_size={self.window_size}, boundary="{self.boundary}"'


class BlockWindow(WindowLayer):
    """``block_attention`` with a fixed window and shift.

    Reference: Liu et al. 2021 (Swin), section 3.2.
    Differs: a window is cut to the grid along an axis that is not longer than it, and not shifted there (as in their
    code, where the shorter axis decides for both).

    Arguments:
        grid_size, num_prefix_tokens: as in ``GridLayer``.
        window_size: (rows, cols) of a window, or one number for both.
        shifted: move the borders by half a window.

    Raises:
        ValueError: if a size is not positive.
    """

    def __init__(
        self, grid_size: tuple[int, int], window_size: Size2d, shifted: bool = False, num_prefix_tokens: int = 0
    ) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        self.window_size = as_rows_and_cols("window_size", window_size)
        self.shifted = shifted

    def forward(
        self,
        queries: Heads,
        keys: Heads,
        values: HeadValues,
        *,
        relative_position: RelativePosition | None = None,
        grid_size: tuple[int, int] | None = None,
        return_weights: bool = False,
    ) -> tuple[HeadValues, TokenWeights | None]:
        rows, cols = size = grid_size or self.grid_size
        window = min(self.window_size[0], rows), min(self.window_size[1], cols)
        shift = (
            window[0] // 2 if self.shifted and window[0] < rows else 0,
            window[1] // 2 if self.shifted and window[1] < cols else 0,
        )
        if self.num_prefix_tokens or return_weights:
            bias = None if relative_position is None else relative_position.token_bias(size)
            mask = self._pad(window_mask(size, window, shift)).to(queries.device)
            return attend(queries, keys, values, mask=mask, bias=bias, return_weights=return_weights)
        bias = None
        if relative_position is not None:
            bias = relative_position.bias_at_offsets(range(1 - window[0], window[0]), range(1 - window[1], window[1]))
        return block_attention(queries, keys, values, grid_size=size, window_size=window, shift=shift, bias=bias)

    def _pad(self, mask: Tensor) -> Tensor:
        return F.pad(mask, (self.num_prefix_tokens, 0, self.num_prefix_tokens, 0), value=True)

    def extra_repr(self) -> str:
        return f"window_size={self.window_size}, shifted={self.shifted}"
