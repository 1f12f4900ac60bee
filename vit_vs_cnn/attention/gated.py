"""Gated positional self-attention: a learned gate mixes attention to content and to positions."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import Heads, HeadValues, TokenWeights, check_positive
from vit_vs_cnn.attention.functional import masked_softmax, scaled_dot_product_attention
from vit_vs_cnn.attention.positions import GridLayer
from vit_vs_cnn.attention.relative import RelativePosition, kernel_offsets


class OffsetPositionBias(RelativePosition):
    """Bias of the scores that is a learned linear map of the offset and its length.

    ``B_h[d] = v_h . r_d``, ``r_d = (|d|^2, d_1, d_2)``; it starts at ``v_h = -(1, -2 D_h1, -2 D_h2)``, where ``B_h[d] =
    -|d - D_h|^2 + |D_h|^2``: head h prefers the offset D_h.

    Reference: d'Ascoli et al. 2021 (ConViT), sections 2 and 3; Cordonnier et al. 2020, equation 9.
    Differs: the offsets D_h belong to the smallest square kernel that has one for each head, nearest first, so that the
    number of heads need not be a square. The initial sharpness is 1.

    Raises:
        ValueError: if ``num_heads`` is not positive.
    """

    def __init__(self, grid_size: tuple[int, int], num_heads: int, num_prefix_tokens: int = 0) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        check_positive(num_heads=num_heads)
        centres = torch.tensor(kernel_offsets(num_heads), dtype=torch.get_default_dtype())
        self.projection = nn.Parameter(torch.cat([-torch.ones(num_heads, 1), 2 * centres], dim=1))

    def bias_at_offsets(self, rows: range, cols: range) -> Float[Tensor, "heads offset_rows offset_cols"]:
        row, col = (torch.tensor(offsets).to(self.projection) for offsets in (rows, cols))
        squared, down, right = self.projection[:, :, None].unbind(dim=1)
        row_part = squared * row.square() + down * row
        col_part = squared * col.square() + right * col
        return row_part[:, :, None] + col_part[:, None, :]


class GatedAttention(GridLayer):
    """Gated positional self-attention (GPSA): every head mixes attention to content and to positions.

    ``A_h = (1 - sigma(l_h)) softmax(Q_h K_h^T / sqrt(d)) + sigma(l_h) softmax(v_h . r)``, its rows normalized to one;
    ``head_h = A_h V_h``. ``MultiHeadAttention`` takes it as ``inner_attention``. With the weights of
    ``initialize_gated`` the layer starts near a convolution; the gate ``l_h`` of each head is learned and starts at 1.

    Reference: d'Ascoli et al. 2021 (ConViT), section 3.
    Differs: a prefix token, such as the class token, has no offset: its row is that of content alone (what is left when
    the rows are normalized), and patches attend to it by content alone, with weight 1 - sigma(l_h). In ConViT the class
    token enters after the last gated layer, and the last two layers are plain.
    """

    def __init__(self, grid_size: tuple[int, int], num_heads: int, num_prefix_tokens: int = 0) -> None:
        super().__init__(grid_size, num_prefix_tokens)
        self.position = OffsetPositionBias(grid_size, num_heads, num_prefix_tokens)
        self.gate = nn.Parameter(torch.ones(num_heads))

    def positional_weights(self) -> Float[Tensor, "heads tokens tokens"]:
        """``softmax(v_h . r)`` between all tokens; zero from and to prefix tokens."""
        scores = self.position.token_bias()
        is_patch = torch.arange(scores.shape[-1], device=scores.device) >= self.num_prefix_tokens
        return masked_softmax(scores, is_patch[:, None] & is_patch if self.num_prefix_tokens else None)

    def forward(
        self, queries: Heads, keys: Heads, values: HeadValues, *, return_weights: bool = False
    ) -> HeadValues | tuple[HeadValues, TokenWeights]:
        """Attend to content and to positions; with ``return_weights`` also the weights. The prefix tokens are first."""
        positional = self.positional_weights()
        gate = self.gate.sigmoid()[:, None, None]
        # The row of a prefix token has no positional weights and takes no share of them: rows sum to one.
        is_patch = torch.arange(queries.shape[-2], device=gate.device) >= self.num_prefix_tokens
        share = gate * is_patch[:, None] if self.num_prefix_tokens else gate
        if return_weights:
            _, content_weights = scaled_dot_product_attention(queries, keys, values, return_weights=True)
            weights = (1 - share) * content_weights + gate * positional
            return weights.to(values.dtype) @ values, weights
        output = scaled_dot_product_attention(queries, keys, values)
        # One product per head for all images, which share these weights.
        means = positional.to(values.dtype) @ rearrange(values, "b heads n d -> heads n (b d)")
        means = rearrange(means, "heads n (b d) -> b heads n d", d=values.shape[-1])
        return (1 - share) * output + gate * means
