"""Where a key is, seen from its query: what is added to the score depends on the offset between the two."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.windows.neighbourhood import neighbourhood, slot_matrix


class RelativePosition(GridLayer):
    """A bias on the scores, per head and offset from query to key.

    A subclass says what the bias is at given offsets; this class lays it out for all pairs of tokens. Tokens that stand
    for no patch have no offset: their pairs read ``extra_bias``.
    """

    def at_offsets(self, rows: range, cols: range) -> Float[Tensor, "heads offset_rows offset_cols"]:
        """The bias where the key lies ``rows`` below and ``cols`` right of the query."""
        raise NotImplementedError

    def extra_bias(self) -> Float[Tensor, "heads 3"] | None:
        """The bias where (a patch looks at an extra token, that at a patch, that at an extra token); None for zero."""
        return None

    def bias(self, grid_size: tuple[int, int] | None = None) -> Float[Tensor, "heads tokens tokens"]:
        """The bias between all tokens, the extra ones first and then the grid row by row.

        Arguments:
            grid_size: of the tokens; the layer's own if None.
        """
        rows, cols = grid = grid_size or self.grid_size
        by_offset = self.at_offsets(range(1 - rows, rows), range(1 - cols, cols))
        extra = self.extra_bias()
        extra = by_offset.new_zeros(len(by_offset), 3) if extra is None else extra
        # A window that reaches from any token to any other has a place for every offset; none is outside.
        around = neighbourhood(grid, (2 * rows - 1, 2 * cols - 1), extra_tokens=self.extra_tokens)
        slots = slot_matrix(around, by_offset.device)
        table = torch.cat([by_offset.flatten(1), torch.zeros_like(extra[:, :1]), extra], dim=1)
        return table.index_select(1, slots.flatten()).unflatten(1, slots.shape)


class RelativeBias(RelativePosition):
    """A learned number per head and offset.

    ``scores[q, k] = Q[q] . K[k] / sqrt(head_dim) + B_h[row_k - row_q, col_k - col_q]``.

    Reference: Liu et al. 2021 (Swin), equation 4; Shaw et al. 2018 for the idea; class token as in Bao et al. 2022
    (BEiT), three numbers per head.
    Differs: over the whole grid, or any window of it.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        num_heads: attention heads.
    """

    def __init__(self, grid_size: tuple[int, int], num_heads: int, extra_tokens: int = 0) -> None:
        super().__init__(grid_size, extra_tokens)
        rows, cols = grid_size
        self.table = nn.Parameter(torch.empty(num_heads, 2 * rows - 1, 2 * cols - 1))
        self.extra = nn.Parameter(torch.empty(num_heads, 3)) if extra_tokens else None
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)

    def at_offsets(self, rows: range, cols: range) -> Float[Tensor, "heads offset_rows offset_cols"]:
        """See ``RelativePosition``; offsets that the grid does not have read the nearest that it has."""
        table = self.table
        for axis, (size, offsets) in enumerate(zip(self.grid_size, (rows, cols), strict=True), start=1):
            if offsets != range(1 - size, size):
                places = (torch.tensor(offsets, device=table.device) + size - 1).clamp(0, 2 * size - 2)
                table = table.index_select(axis, places)
        return table

    def extra_bias(self) -> Float[Tensor, "heads 3"] | None:
        return self.extra

    @torch.no_grad()
    def resize(self, grid_size: tuple[int, int]) -> None:
        """Move to another grid in place, by bicubic interpolation in every head; the parameter is a new one."""
        if grid_size != self.grid_size:
            shape = [2 * size - 1 for size in grid_size]
            table = F.interpolate(self.table[None], size=shape, mode="bicubic")[0]
            self.table = nn.Parameter(table, requires_grad=self.table.requires_grad)
        super().resize(grid_size)


class QuadraticBias(RelativePosition):
    """Every head prefers one offset, and how strongly is learned.

    ``B_h[d] = -alpha_h |d - D_h|^2``: as alpha grows the head looks at offset D_h alone, and the layer convolves.

    Reference: Cordonnier et al. 2020, equation 9.
    Differs: added to scores of content instead of replacing them; the centres start as the offsets of the smallest
    square kernel that has one for each head, nearest first, instead of at random. Extra tokens get zero.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        num_heads: attention heads.
    """

    def __init__(self, grid_size: tuple[int, int], num_heads: int, extra_tokens: int = 0) -> None:
        super().__init__(grid_size, extra_tokens)
        self.sharpness = nn.Parameter(torch.ones(num_heads))
        self.centres = nn.Parameter(torch.tensor(kernel_offsets(num_heads), dtype=torch.get_default_dtype()))

    def at_offsets(self, rows: range, cols: range) -> Float[Tensor, "heads offset_rows offset_cols"]:
        by_row, by_col = (torch.tensor(offsets).to(self.centres) for offsets in (rows, cols))
        row_distance = (by_row - self.centres[:, :1]).square()
        col_distance = (by_col - self.centres[:, 1:]).square()
        return -self.sharpness[:, None, None] * (row_distance[:, :, None] + col_distance[:, None, :])


def kernel_offsets(count: int) -> list[tuple[int, int]]:
    """The first ``count`` offsets (rows, cols) of the smallest odd square kernel that has as many, nearest first."""
    reach = math.ceil(math.sqrt(count)) // 2
    offsets = [(row, col) for row in range(-reach, reach + 1) for col in range(-reach, reach + 1)]
    return sorted(offsets, key=lambda offset: (offset[0] ** 2 + offset[1] ** 2, offset))[:count]
