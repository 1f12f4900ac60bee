"""Attention that starts as a convolution and may leave it: content and position mixed by a learned gate."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import check_positive
from vit_vs_cnn.attention.functional import masked_softmax, scaled_dot_product_attention
from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.relative import RelativePosition, kernel_offsets
from vit_vs_cnn.attention.shapes import AnyMask, AttendedHeads, Heads, HeadValues


class OffsetProjection(RelativePosition):
    """A learned linear map of the offset and its length.

    ``B_h[d] = v_h . r_d``, ``r_d = (|d|^2, d_1, d_2)``; it starts at ``v_h = -alpha (1, -2 D_h1, -2 D_h2)``, where
    ``B_h[d] = -alpha |d - D_h|^2 + alpha |D_h|^2``: head h prefers the offset D_h.

    Reference: d'Ascoli et al. 2021 (ConViT), sections 2 and 3; Cordonnier et al. 2020, equation 9.
    Differs: the offsets D_h are those of the smallest square kernel that has one for each head, nearest first, so that
    the number of heads need not be a square.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        num_heads: attention heads.
        locality: alpha, how sharply a head first prefers its offset.

    Raises:
        ValueError: if ``num_heads`` or ``locality`` is not positive.
    """

    def __init__(
        self, grid_size: tuple[int, int], num_heads: int, extra_tokens: int = 0, locality: float = 1.0
    ) -> None:
        super().__init__(grid_size, extra_tokens)
        check_positive(num_heads=num_heads)
        if locality <= 0.0:
            raise ValueError(f"locality must be positive, but is {locality}")
        centres = torch.tensor(kernel_offsets(num_heads), dtype=torch.get_default_dtype())
        self.projection = nn.Parameter(locality * torch.cat([-torch.ones(num_heads, 1), 2 * centres], dim=1))

    def at_offsets(self, rows: range, cols: range) -> Float[Tensor, "heads offset_rows offset_cols"]:
        by_row, by_col = (torch.tensor(offsets).to(self.projection) for offsets in (rows, cols))
        squared, down, right = self.projection[:, :, None].unbind(dim=1)
        row_part = squared * by_row.square() + down * by_row
        col_part = squared * by_col.square() + right * by_col
        return row_part[:, :, None] + col_part[:, None, :]


class GatedAttention(GridLayer):
    """Gated positional self-attention (GPSA): every head mixes what the patches show and where they lie.

    ``A_h = (1 - sigma(l_h)) softmax(Q_h K_h^T / sqrt(d)) + sigma(l_h) softmax(v_h . r)``, its rows normalised to one;
    ``head_h = A_h V_h``. ``MultiHeadAttention`` takes it as ``attend``; with the weights of ``initialise_gated`` the
    layer starts near a convolution, and each head may leave it by its gate ``l_h``, 1 at first.

    Reference: d'Ascoli et al. 2021 (ConViT), section 3.
    Differs: a token that stands for no patch, such as the class token, has no offset: its row is that of content alone
    (what is left when the rows are normalised), and it is reached by content alone, with weight 1 - sigma(l_h); in
    ConViT it enters after the last gated layer, and the last two are plain.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        num_heads: attention heads.
        locality: alpha, how sharply a head first prefers its offset; see ``OffsetProjection``.

    Raises:
        ValueError: if ``num_heads`` or ``locality`` is not positive.
    """

    def __init__(
        self, grid_size: tuple[int, int], num_heads: int, extra_tokens: int = 0, *, locality: float = 1.0
    ) -> None:
        super().__init__(grid_size, extra_tokens)
        self.position = OffsetProjection(grid_size, num_heads, extra_tokens, locality)
        self.gate = nn.Parameter(torch.ones(num_heads))

    def positional_weights(self) -> Float[Tensor, "heads tokens tokens"]:
        """``softmax(v_h . r)`` between all tokens; zero from and to those that stand for no patch."""
        return self._softmax_of_positions(self._pairs_of_patches(None, self.grid_size), self.grid_size)

    def forward(
        self,
        queries: Heads,
        keys: Heads,
        values: HeadValues,
        *,
        mask: AnyMask | None = None,
        return_weights: bool = False,
        grid_size: tuple[int, int] | None = None,
    ) -> AttendedHeads:
        """What each token gathers; with ``return_weights`` also the weights.

        Arguments:
            queries, keys, values: of the patches of the grid, after the extra tokens.
            mask: True where a query may attend, broadcast against ``(batch, heads, tokens, tokens)``; position counts
                for nothing where it allows no patch.
            return_weights: compute explicitly, and return the weights too.
            grid_size: of these tokens; the layer's own if None.

        Raises:
            ValueError: if the tokens are not those of the grid.
        """
        grid_size = grid_size or self.grid_size
        tokens = self.extra_tokens + grid_size[0] * grid_size[1]
        if queries.shape[-2] != tokens:
            raise ValueError(
                f"there must be extra_tokens + rows * cols = {tokens} tokens for grid_size={grid_size}, but there "
                f"are {queries.shape[-2]}"
            )
        pairs = self._pairs_of_patches(mask, grid_size)
        positional = self._softmax_of_positions(pairs, grid_size)
        gate = self.gate.sigmoid()[:, None, None]
        # Where position has nothing to say, its row is zero and so is its share: the sum is one without a division.
        share = gate if pairs is None else gate * pairs.any(dim=-1, keepdim=True)
        if return_weights:
            _, content = scaled_dot_product_attention(queries, keys, values, mask=mask, return_weights=True)
            weights = (1 - share) * content + gate * positional
            return weights.to(values.dtype) @ values, weights
        gathered = scaled_dot_product_attention(queries, keys, values, mask=mask)
        return (1 - share) * gathered + gate * _gather(positional.to(values.dtype), values)

    def _softmax_of_positions(self, pairs: Tensor | None, grid_size: tuple[int, int]) -> Tensor:
        """``(heads, tokens, tokens)``, or ``(batch, heads, tokens, tokens)`` if the images differ in their masks."""
        scores = self.position.bias(grid_size)
        if pairs is not None:
            scores = scores.expand(torch.broadcast_shapes(scores.shape, pairs.shape))
        return masked_softmax(scores, pairs)

    def _pairs_of_patches(self, mask: Tensor | None, grid_size: tuple[int, int]) -> Tensor | None:
        """True between two patches that ``mask`` allows; None if that is everywhere."""
        if not self.extra_tokens:
            return mask
        tokens = self.extra_tokens + grid_size[0] * grid_size[1]
        patches = torch.arange(tokens, device=self.gate.device) >= self.extra_tokens
        pairs = patches[:, None] & patches
        return pairs if mask is None else pairs & mask


def _gather(weights: Tensor, values: Tensor) -> Tensor:
    """``weights @ values``; weights that all images share meet all of them in one product per head."""
    if weights.ndim == values.ndim:
        return weights @ values
    side_by_side = weights @ rearrange(values, "b heads n d -> heads n (b d)")
    return rearrange(side_by_side, "heads n (b d) -> b heads n d", d=values.shape[-1])
