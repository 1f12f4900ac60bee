"""Attention within a sliding window: every token of a grid sees its neighbourhood, and the extra tokens."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Literal, Required, TypedDict, Unpack, overload

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vit_vs_cnn.attention.differentiation import is_transformed
from vit_vs_cnn.attention.functional import (
    attended,
    masked_softmax,
    quickest_attention,
    scaled_dot_product_attention,
)
from vit_vs_cnn.attention.shapes import AttendedHeads, Heads, HeadValues, Sizes
from vit_vs_cnn.attention.tracing import is_tracing, kept
from vit_vs_cnn.attention.windows.neighbourhood import Neighbourhood, neighbourhood, slot_matrix, window_places
from vit_vs_cnn.attention.windows.tiles import Layout, TiledAttention, Way, layout

#: Exported and compiled programs use dense attention up to this many tokens, and gathered windows above.
TRACED_DENSE_TOKENS = 256
#: Tiles are used from 576 tokens on, if dense attention computes more than 4 times as many scores. Measured on one
#: thread, forward and with backward (``benchmarks.local_attention --sweep``). The number of threads or images plays no
#: part.
MIN_TOKENS_FOR_TILES, MIN_SCORE_RATIO_FOR_TILES = 576, 4
#: Weights that the backward pass may always find kept, in bytes.
KEPT_BYTES = 2**22

#: How many bytes of weights are kept for the backward pass; see ``local_attention``.
Memory = int | str

#: Added to the scores: for every head and every place in the window.
WindowBias = Float[Tensor, "heads places"] | Float[Tensor, "heads place_rows place_cols"]


class Window(TypedDict, total=False):
    """What ``neighbourhood`` takes by name."""

    grid_size: Required[Sizes]
    window_size: Required[Sizes]
    dilation: Sizes
    boundary: str
    extra_tokens: int


class Options(Window, total=False):
    """What ``local_attention`` takes by name, for type checkers."""

    bias: WindowBias | None
    extra_bias: Float[Tensor, "heads 3"] | None
    memory: Memory


@overload
def local_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: Literal[False] = False, **options: Unpack[Options]
) -> Tensor: ...


@overload
def local_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, return_weights: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...


def local_attention(
    queries: Heads,
    keys: Heads,
    values: HeadValues,
    *,
    grid_size: Sizes,
    window_size: Sizes,
    dilation: Sizes = 1,
    boundary: str = "mask",
    bias: WindowBias | None = None,
    extra_tokens: int = 0,
    extra_bias: Float[Tensor, "heads 3"] | None = None,
    memory: Memory = "auto",
    return_weights: bool = False,
) -> AttendedHeads:
    """Attention of each token of a grid to the window around it.

    ``O[q] = sum_s w[q, s] V[key(q, s)]``, ``w[q, s] = softmax_s(Q[q] . K[key(q, s)] / sqrt(head_dim) + bias[s])``, with
    ``key`` of ``window_keys`` along the rows and along the columns, and s running over the places of the window.

    Reference: Ramachandran et al. 2019, equation 2 (windows); Hassani et al. 2023 ("shift"); Beltagy et al. 2020
    (dilated windows, global tokens).
    Differs: four rules for the edge of the grid; windows may be even, and larger than the grid.

    Computed as one masked product of all with all, or in tiles, whose time and memory are linear in the tokens:
    whichever is quicker, as measured. The transforms of ``torch.func`` and second derivatives go by plain operations.

    Arguments:
        queries, keys, values: ``(batch, heads, tokens, head_dim)``: the extra tokens, then the grid row by row.
        grid_size: (rows, cols); or the length of a sequence, whose windows are bands.
        window_size: (rows, cols) of the window, or one number for both axes; odd or even.
        dilation: (rows, cols) from one key of the window to the next, or one number.
        boundary: what lies outside the grid. "mask": nothing. "zero": tokens whose keys and values are zero; their
            score is the bias, and they take their share of the softmax. "shift": nothing, and windows move inwards to
            keep their size. "circular": the opposite side; a window larger than the grid sees a key as often as it
            comes across it.
        bias: added to the scores, per head and place of the window, ``(heads, rows * cols)`` or ``(heads, rows,
            cols)``; minus infinity masks. With "shift" a place is counted from the first key of the shifted window;
            ``(heads, 2 rows - 1, 2 cols - 1)`` instead holds a bias per offset from query to key.
        extra_tokens: how many tokens, first in the sequence, have no place: they see all and are seen by all.
        extra_bias: added per head to the scores of (a grid token looking at an extra one, an extra one looking at a
            grid token, an extra one looking at an extra one).
        memory: how many bytes of weights tiles may keep for the backward pass, if these are all of them; else they are
            computed again. "low": none. "auto": as many as queries, keys and values take, or 4 MiB.
        return_weights: also return the weights, tokens x tokens with zeros outside the windows, computed explicitly.
            With "zero" the share of the tokens outside is missing from the rows.

    Raises:
        ValueError: if a size is not positive, the boundary or the memory is unknown, or a shape does not fit.
    """
    check_memory(memory)
    around = neighbourhood(grid_size, window_size, dilation, boundary, extra_tokens).of(queries, bias)
    plain = bias is None and extra_bias is None
    table = None if plain else bias_table(around, queries, bias, extra_bias)
    gathers = around.repeats_keys
    if not return_weights and (is_tracing() or torch.compiler.is_compiling()):
        # tiles are cut by the number of images, and written into views, which compiled programs get wrong
        gathers = gathers or around.patches > TRACED_DENSE_TOKENS
    elif not return_weights and (gathers or tiles_are_quicker(around, queries.shape[2], queries.device)):
        if not is_transformed():
            return _tiled(around, (queries, keys, values), table, memory)
        gathers = True
    if gathers:
        table = bias_table(around, queries, bias, extra_bias)
        return _gathered(around, queries, keys, values, table, return_weights=return_weights)
    return _dense(around, queries, keys, values, table, return_weights=return_weights)


def tiles_are_quicker(around: Neighbourhood, tokens: int, device: torch.device) -> bool:
    """True if tiles take less time than one masked product of all with all."""
    # the cheap test first: the layout is not computed for few tokens
    return tokens >= MIN_TOKENS_FOR_TILES and tokens**2 > MIN_SCORE_RATIO_FOR_TILES * layout(around, device).scores


def check_memory(memory: Memory) -> None:
    """Raise a ``ValueError`` unless ``memory`` is one that ``local_attention`` knows."""
    if (isinstance(memory, str) and memory not in ("auto", "low")) or (isinstance(memory, int) and memory < 0):
        raise ValueError(f'memory must be "auto", "low", or a number of bytes, but is {memory!r}')


def keeps_weights(cut: Layout, inputs: Sequence[Tensor], memory: Memory) -> bool:
    """Whether tiles keep their weights: a backward pass may follow, and they fit."""
    if memory == "low" or not torch.is_grad_enabled() or not any(x.requires_grad for x in inputs):
        return False
    batch, heads = inputs[0].shape[:2]
    allowed = max(KEPT_BYTES, sum(x.nbytes for x in inputs)) if isinstance(memory, str) else memory
    return batch * heads * cut.scores * inputs[0].element_size() <= allowed


def local_attention_reference(
    queries: Heads,
    keys: Heads,
    values: HeadValues,
    *,
    bias: WindowBias | None = None,
    extra_bias: Float[Tensor, "heads 3"] | None = None,
    return_weights: bool = False,
    **window: Unpack[Window],
) -> AttendedHeads:
    """``local_attention`` as its equation reads: the keys and values of every window are gathered, then attended to."""
    around = neighbourhood(**window).of(queries, bias)
    table = bias_table(around, queries, bias, extra_bias)
    return _gathered(around, queries, keys, values, table, return_weights=return_weights)


def bias_table(
    around: Neighbourhood, queries: Tensor, bias: Tensor | None, extra_bias: Tensor | None
) -> Float[Tensor, "bias_heads slots"]:
    """All that may be added to a score, side by side: the places, minus infinity for outside, the extra tokens' three.

    One row for all heads if there is nothing to add.
    """
    places = around.places[0] * around.places[1]
    heads = 1 if bias is None and extra_bias is None else queries.shape[1]
    parts = [
        queries.new_zeros(heads, places) if bias is None else bias.flatten(1).to(queries.dtype),
        queries.new_full((heads, 1), -torch.inf),
        queries.new_zeros(heads, 3) if extra_bias is None else extra_bias.to(queries.dtype),
    ]
    return torch.cat(parts, dim=1)


def _gathered(
    around: Neighbourhood, queries: Tensor, keys: Tensor, values: Tensor, table: Tensor, *, return_weights: bool
) -> Tensor | tuple[Tensor, Tensor]:
    """The equation, place by place: outputs, and weights between all tokens if they are asked for."""
    extra, outside = around.extra_tokens, table.shape[1] - 4
    key_of, inside, slots = window_places(around, queries.device)
    scaled = queries * queries.shape[-1] ** -0.5
    window_keys, window_values = (F.pad(x[:, :, extra:], (0, 0, 0, 1))[:, :, key_of] for x in (keys, values))
    scores = torch.einsum("bhnd,bhnpd->bhnp", scaled[:, :, extra:], window_keys)
    to_extra = scaled[:, :, extra:] @ keys[:, :, :extra].mT
    bias = torch.cat([table[:, None, [outside + 1]].expand(-1, len(slots), extra), table[:, slots]], dim=-1)
    allowed = bias != -torch.inf
    if around.boundary != "zero":
        allowed = allowed & F.pad(inside, (extra, 0), value=True)
    weights = masked_softmax(torch.cat([to_extra, scores], dim=-1) + bias, allowed)
    output = weights[..., :extra] @ values[:, :, :extra]
    output = output + torch.einsum("bhnp,bhnpd->bhnd", weights[..., extra:], window_values)
    matrix = _between_tokens(weights, extra, key_of) if return_weights else None
    if extra:
        added = extra_queries_bias(table[:, -3:], extra, around.patches)
        first = scaled_dot_product_attention(queries[:, :, :extra], keys, values, bias=added, return_weights=True)
        output = torch.cat([first[0], output], dim=2)
        matrix = None if matrix is None else torch.cat([first[1], matrix], dim=2)
    return output if matrix is None else (output, matrix)


def _between_tokens(
    weights: Tensor, extra: int, key_of: Int[Tensor, "queries places"]
) -> Float[Tensor, "batch heads queries tokens"]:
    """Weights of the extra tokens and the places of a window as weights between tokens."""
    matrix = weights.new_zeros(*weights.shape[:3], len(key_of) + 1)
    matrix = matrix.scatter_add(-1, key_of.expand(*weights.shape[:2], -1, -1), weights[..., extra:])
    return torch.cat([weights[..., :extra], matrix[..., :-1]], dim=-1)


def _dense(
    around: Neighbourhood, queries: Tensor, keys: Tensor, values: Tensor, table: Tensor | None, *, return_weights: bool
) -> Tensor | tuple[Tensor, Tensor]:
    """All tokens with all, what lies outside masked. ``table`` None: nothing is added within the windows.

    With the boundary "zero" the tokens outside are one more key and value, both zero, whose score is the logarithm of
    the sum of their exponentials.
    """
    tokens = queries.shape[2]
    if around.boundary == "zero":
        keys, values = F.pad(keys, (0, 0, 0, 1)), F.pad(values, (0, 0, 0, 1))
    if table is None:
        bias = plain_bias(around, queries.dtype, queries.device)
        if not return_weights:  # no row is empty: a token sees itself
            return quickest_attention(queries, keys, values, bias)
    else:
        bias = _dense_bias(around, table)
    output, weights = attended(queries, keys, values, bias=bias, return_weights=return_weights)
    return output if weights is None else (output, weights[..., :tokens])


@kept
def plain_bias(around: Neighbourhood, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The bias of all tokens with all where nothing is added within the windows."""
    return _dense_bias(around, bias_table(around, torch.empty(1, 1, 1, 1, dtype=dtype, device=device), None, None))


def _dense_bias(around: Neighbourhood, table: Tensor) -> Float[Tensor, "1 bias_heads tokens keys"]:
    slots = slot_matrix(around, table.device)
    # Four dimensions, or torch's fused kernel refuses it.
    bias = table.index_select(1, slots.flatten()).view(1, len(table), *slots.shape)
    if around.boundary != "zero":
        return bias
    _, inside, places = window_places(around, table.device)
    outside = table[:, places].masked_fill(inside, -torch.inf)
    missing = (outside == -torch.inf).all(dim=-1)
    # Rows without a token outside bypass the logarithm: its gradient there is not a number.
    total = outside.masked_fill(missing.unsqueeze(-1), 0.0).logsumexp(dim=-1).masked_fill(missing, -torch.inf)
    total = F.pad(total, (around.extra_tokens, 0), value=-torch.inf)
    return torch.cat([bias, total[None, ..., None]], dim=-1)


def _tiled(
    around: Neighbourhood, inputs: tuple[Tensor, Tensor, Tensor], table: Tensor | None, memory: Memory
) -> Tensor:
    """The grid in tiles, the extra tokens' own queries by themselves."""
    extra = around.extra_tokens
    queries, keys, values = inputs
    device = queries.device.type
    is_cast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if is_cast:  # the backward pass is not under autocast: what it reads must be of one type
        queries, keys, values = (x.to(torch.get_autocast_dtype(device)) for x in inputs)
    cut = layout(around, queries.device)
    if table is None:
        patterns = plain_patterns(around, queries.dtype, queries.device)
    else:
        patterns = _bias_patterns(cut, table.to(queries.dtype))
    # The gradient of a slice is a copy, even where the slice is all or nothing: none are taken without extra tokens.
    grids = [(x[:, :, extra:] if extra else x).unflatten(2, around.grid_size) for x in (queries, keys, values)]
    extras = [x[:, :, :extra] if extra else x.detach()[:, :, :0] for x in (keys, values)]
    if around.has_halo:
        grids[1:] = (_with_halo(grid, around) for grid in grids[1:])
    way = Way(biased=table is not None, keeps=keeps_weights(cut, inputs, memory))
    with torch.autocast(device, enabled=False) if is_cast else nullcontext():  # CUDA's would make softmax float32
        output = TiledAttention.apply(*grids, *extras, patterns, cut, way)
    assert isinstance(output, Tensor)
    if not extra:
        return output.flatten(2, 3)
    added = None if table is None else extra_queries_bias(table[:, -3:], extra, around.patches)
    first = scaled_dot_product_attention(queries[:, :, :extra], keys, values, bias=added)
    return torch.cat([first, output.flatten(2, 3)], dim=2)


@kept
def plain_patterns(around: Neighbourhood, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The bias of tiles where nothing is added within the windows."""
    cut = layout(around, device)
    return _bias_patterns(cut, bias_table(around, torch.empty(1, 1, 1, 1, dtype=dtype, device=device), None, None))


def _bias_patterns(cut: Layout, table: Tensor) -> Float[Tensor, "bias_heads patterns queries keys"]:
    return table.index_select(1, cut.slots.flatten()).view(-1, *cut.slots.shape)


def _with_halo(grid: Tensor, around: Neighbourhood) -> Tensor:
    """The grid of keys, and what the windows of its outermost queries see around it."""
    rows, cols = around.margins
    if around.boundary == "zero":
        return F.pad(grid, (0, 0, *cols, *rows))
    for axis, (before, after) in enumerate((rows, cols), start=2):
        size = grid.shape[axis]
        grid = grid.index_select(axis, torch.arange(-before, size + after, device=grid.device) % size)
    return grid


def extra_queries_bias(
    extra_bias: Float[Tensor, "bias_heads 3"] | None, extra_tokens: int, patches: int
) -> Float[Tensor, "bias_heads 1 tokens"] | None:
    """What is added to the scores of the extra tokens with all; ``extra_bias`` as in ``local_attention``."""
    if extra_bias is None:
        return None
    to_patches, to_extra = extra_bias[:, 1:2], extra_bias[:, 2:3]
    return torch.cat([to_extra.expand(-1, extra_tokens), to_patches.expand(-1, patches)], dim=1).unsqueeze(1)
