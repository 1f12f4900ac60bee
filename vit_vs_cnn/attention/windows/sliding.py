"""Attention within a sliding window: each token of a grid attends to its neighbourhood."""

from typing import Literal, Required, TypedDict, Unpack, overload

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vit_vs_cnn.attention.arguments import Heads, HeadValues, TokenWeights
from vit_vs_cnn.attention.functional import attend_nonempty, masked_softmax, scaled_dot_product_attention
from vit_vs_cnn.attention.positions import GridLayer
from vit_vs_cnn.attention.relative import RelativePosition, add_prefix_bias
from vit_vs_cnn.attention.windows.neighbourhood import (
    Neighbourhood,
    bias_index_matrix,
    cache_tables,
    check_shapes,
    make_neighbourhood,
    token_index,
)
from vit_vs_cnn.attention.windows.tiles import tiled_attention
from vit_vs_cnn.bounds import Size2d

#: Number of tokens up to which the masked product of all tokens with all is used. Measured on one thread, forward and
#: with backward (results/speed/README.md, "Tables").
MAX_DENSE_TOKENS = 575
#: The same limit in compiled and exported programs. Above it they gather the keys of every window.
MAX_DENSE_TOKENS_COMPILED = 256

#: Number added to the scores for each head and each offset from query to key; minus infinity masks.
OffsetBias = Float[Tensor, "heads offset_rows offset_cols"]


class WindowOptions(TypedDict, total=False):
    """Keyword arguments of ``local_attention``, for type checkers."""

    grid_size: Required[Size2d]
    window_size: Required[Size2d]
    boundary: str
    bias: OffsetBias | None


@overload
def local_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    return_weights: Literal[False] = False,
    **options: Unpack[WindowOptions],
) -> Tensor: ...


@overload
def local_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: Literal[True], **options: Unpack[WindowOptions]
) -> tuple[Tensor, Tensor]: ...


def local_attention(
    queries: Heads,
    keys: Heads,
    values: HeadValues,
    *,
    grid_size: Size2d,
    window_size: Size2d,
    boundary: str = "mask",
    bias: OffsetBias | None = None,
    return_weights: bool = False,
) -> HeadValues | tuple[HeadValues, TokenWeights]:
    """Attention of each token of a grid to the window around it.

    ``O[q] = sum_s w[q, s] V[key(q, s)]``, ``w[q, s] = softmax_s(Q[q] . K[key(q, s)] / sqrt(head_dim) + bias[s])``, with
    ``key`` of ``window_keys`` along the rows and along the columns, and s running over the window.

    Reference: Ramachandran et al. 2019, equation 2.
    Differs: two rules for the edge of the grid; windows may be even, and larger than the grid.

    Small grids use one masked product of all tokens with all. Large grids are cut into tiles, whose time and memory are
    linear in the number of tokens. For second derivatives and the transforms of ``torch.func`` on large grids, use
    ``local_attention_reference``.

    Arguments:
        queries, keys, values: ``(batch, heads, tokens, head_dim)``, the tokens of the grid row by row.
        grid_size: (rows, cols), or one number for both; a sequence is a grid of one column.
        window_size: (rows, cols) of the window, or one number for both; odd or even.
        boundary: rule for keys outside the grid. "mask": there are none. "zero": their keys and values are zero; their
            score is the bias, and they take their share of the softmax.
        bias: added to the scores for each head and offset from query to key, ``(heads, rows, cols)`` of the window;
            minus infinity masks.
        return_weights: also return the weights, tokens x tokens with zeros outside the windows. With "zero" the share
            of the tokens outside the grid is missing from the rows.

    Raises:
        ValueError: if a size is not positive, the boundary is unknown, or a shape does not fit.

    Example:
        >>> tokens = torch.randn(2, 4, 35, 8)  # a grid of 5 x 7 tokens, row by row
        >>> output, weights = local_attention(
        ...     tokens, tokens, tokens, grid_size=(5, 7), window_size=3, return_weights=True
        ... )
        >>> output.shape, int((weights[0, 0, 17] > 0).sum())  # the middle token attends to 3 x 3 tokens
        (torch.Size([2, 4, 35, 8]), 9)
    """
    neighbourhood = make_neighbourhood(grid_size, window_size, boundary)
    check_shapes(queries, bias, neighbourhood.grid_size, neighbourhood.window_size)
    return _attend_in_windows(queries, keys, values, neighbourhood, bias=bias, return_weights=return_weights)


def local_attention_reference(
    queries: Heads,
    keys: Heads,
    values: HeadValues,
    *,
    grid_size: Size2d,
    window_size: Size2d,
    boundary: str = "mask",
    bias: OffsetBias | None = None,
) -> tuple[HeadValues, TokenWeights]:
    """Output and weights of ``local_attention`` by its equation: keys and values are gathered for every window."""
    neighbourhood = make_neighbourhood(grid_size, window_size, boundary)
    check_shapes(queries, bias, neighbourhood.grid_size, neighbourhood.window_size)
    output, weights = _gathered_attention(queries, keys, values, neighbourhood, bias)
    tokens = token_index(neighbourhood, queries.device)
    matrix = weights.new_zeros(*weights.shape[:3], neighbourhood.patches + 1)
    matrix = matrix.scatter_add(-1, tokens.expand(*weights.shape[:2], -1, -1), weights)
    return output, matrix[..., :-1]


def _gathered_attention(
    queries: Tensor, keys: Tensor, values: Tensor, neighbourhood: Neighbourhood, bias: Tensor | None
) -> tuple[HeadValues, Float[Tensor, "batch heads queries positions"]]:
    """Output, and weights of the positions of each window."""
    tokens = token_index(neighbourhood, queries.device)
    keys, values = (F.pad(x, (0, 0, 0, 1))[:, :, tokens] for x in (keys, values))
    scores = torch.einsum("bhnd,bhnpd->bhnp", queries * queries.shape[-1] ** -0.5, keys)
    mask = (tokens < neighbourhood.patches) | (neighbourhood.boundary == "zero")
    if bias is not None:
        window_bias = bias.flatten(1).to(queries.dtype).unsqueeze(1)
        scores, mask = scores + window_bias, mask & (window_bias != -torch.inf)
    weights = masked_softmax(scores, mask)
    return torch.einsum("bhnp,bhnpd->bhnd", weights, values), weights


def _attend_in_windows(
    queries: Heads,
    keys: Heads,
    values: HeadValues,
    neighbourhood: Neighbourhood,
    *,
    bias: OffsetBias | None,
    prefix_bias: Float[Tensor, "heads 3"] | None = None,
    return_weights: bool,
) -> HeadValues | tuple[HeadValues, TokenWeights]:
    """Output, and the weights with ``return_weights``.

    Prefix tokens attend to all tokens, and all tokens attend to them. With the boundary "zero" the tokens outside the
    grid are one more key and value, both zero. Its score is the log-sum-exp of their scores.
    """
    tokens = queries.shape[2]
    num_prefix_tokens = tokens - neighbourhood.patches
    if not (num_prefix_tokens or return_weights or neighbourhood.patches <= MAX_DENSE_TOKENS_COMPILED):
        if torch.compiler.is_compiling():  # tiles are written into views, which compiled programs get wrong
            return _gathered_attention(queries, keys, values, neighbourhood, bias)[0]
        if neighbourhood.patches > MAX_DENSE_TOKENS:
            return tiled_attention(queries, keys, values, neighbourhood, bias)
    if neighbourhood.boundary == "zero":
        keys, values = F.pad(keys, (0, 0, 0, 1)), F.pad(values, (0, 0, 0, 1))
    if bias is None and prefix_bias is None:
        token_bias = _token_bias_of_zeros(neighbourhood, num_prefix_tokens, queries.dtype, queries.device)
        if not return_weights:  # every token may attend to itself
            return attend_nonempty(queries, keys, values, token_bias)
    else:
        table = neighbourhood.bias_table(bias, queries.dtype, queries.device)
        token_bias = _token_bias(neighbourhood, table, prefix_bias, num_prefix_tokens)
    if not return_weights:
        return scaled_dot_product_attention(queries, keys, values, bias=token_bias)
    _, weights = scaled_dot_product_attention(queries, keys, values, bias=token_bias, return_weights=True)
    weights = weights[..., :tokens]
    return weights @ values[:, :, :tokens], weights  # the weights that are returned, so that gradients reach them


def _token_bias(
    neighbourhood: Neighbourhood, table: Tensor, prefix_bias: Tensor | None, num_prefix_tokens: int
) -> Float[Tensor, "1 bias_heads tokens keys"]:
    """Bias between all tokens, minus infinity outside the windows; with "zero" one more key for the tokens outside."""
    index = bias_index_matrix(neighbourhood, table.device)
    bias = table.index_select(1, index.flatten()).view(len(table), *index.shape)
    bias = add_prefix_bias(bias, prefix_bias, num_prefix_tokens)
    if neighbourhood.boundary == "zero":
        tokens = token_index(neighbourhood, table.device)
        outside = (
            table[:, None, :-1].expand(-1, len(tokens), -1).masked_fill(tokens < neighbourhood.patches, -torch.inf)
        )
        is_empty = (outside == -torch.inf).all(dim=-1)
        # Rows without a token outside bypass the logarithm, whose gradient there is not a number.
        outside = outside.masked_fill(is_empty.unsqueeze(-1), 0.0).logsumexp(dim=-1).masked_fill(is_empty, -torch.inf)
        outside = F.pad(outside, (num_prefix_tokens, 0), value=-torch.inf)
        bias = torch.cat([bias, outside.expand(len(bias), -1)[..., None]], dim=-1)
    return bias[None]  # torch's fused kernels need four dimensions


@cache_tables
def _token_bias_of_zeros(
    neighbourhood: Neighbourhood, num_prefix_tokens: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "1 1 tokens keys"]:
    """Bias between all tokens where nothing is added within the windows."""
    return _token_bias(neighbourhood, neighbourhood.bias_table(None, dtype, device), None, num_prefix_tokens)


class SlidingWindow(GridLayer):
    """Layer of ``local_attention`` with a fixed window, in place of global attention.

    Prefix tokens attend to all tokens, and all tokens attend to them. With prefix tokens, or if weights are returned,
    attention is computed as one masked product of all tokens with all. Arguments and errors are as of that function.
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
        return_weights: bool = False,
    ) -> HeadValues | tuple[HeadValues, TokenWeights]:
        """Attend within the windows; with ``return_weights`` also the weights ``(batch, heads, tokens, tokens)``."""
        neighbourhood = Neighbourhood(self.grid_size, self.window_size, self.boundary)
        bias = prefix_bias = None
        if relative_position is not None:
            bias = relative_position.bias_at_offsets(*neighbourhood.offsets)
            prefix_bias = relative_position.prefix_bias()
        check_shapes(queries[:, :, self.num_prefix_tokens :], bias, self.grid_size, self.window_size)
        return _attend_in_windows(
            queries, keys, values, neighbourhood, bias=bias, prefix_bias=prefix_bias, return_weights=return_weights
        )
