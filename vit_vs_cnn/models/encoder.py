"""The transformer encoder: blocks of attention and MLP, each added to what it reads."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vit_vs_cnn.attention.functional import Bias
from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention
from vit_vs_cnn.attention.relative import RelativePosition
from vit_vs_cnn.attention.windows.layers import BlockWindow, SlidingWindow
from vit_vs_cnn.models.mlp import Mlp
from vit_vs_cnn.models.stochastic_depth import StochasticDepth


class EncoderBlock(nn.Module):
    """Pre-norm transformer block.

    ``Z' = Z + MHA(LN(Z))``, ``Z'' = Z' + MLP(LN(Z'))``.

    Reference: Dosovitskiy et al. 2021, equations 2 and 3; LayerScale: Touvron et al. 2021, equation 4.
    Differs: each branch may be scaled per channel (LayerScale) and dropped per image (stochastic depth).

    Arguments:
        embed_dim: width D of a token.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over that of a token.
        qkv_bias: whether queries, keys and values have a bias.
        qk_norm: layer norm on queries and keys.
        dropout: probability of dropping a value of either branch in training.
        attention_dropout: probability of dropping an attention weight in training.
        drop_path: probability of dropping a branch for an image in training.
        layer_scale: what the branches are first scaled by, a learned number per channel; None for no scaling.
        rotary, relative, window, attend: see ``MultiHeadAttention``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        mlp_ratio: float,
        *,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        rotary: nn.Module | None = None,
        relative: RelativePosition | None = None,
        window: SlidingWindow | BlockWindow | None = None,
        attend: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.attention = MultiHeadAttention(
            embed_dim,
            num_heads,
            bias=qkv_bias,
            output_bias=True,
            qk_norm=qk_norm,
            dropout=attention_dropout,
            rotary=rotary,
            relative=relative,
            window=window,
            attend=attend,
        )
        self.attention_scale = _layer_scale(embed_dim, layer_scale)
        self.mlp_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.mlp = Mlp(embed_dim, int(embed_dim * mlp_ratio), dropout)
        self.mlp_scale = _layer_scale(embed_dim, layer_scale)
        # Absent, not identities: a branch that does nothing costs nothing.
        self.dropout = nn.Dropout(dropout) if dropout > 0.0 else None
        self.drop_path = StochasticDepth(drop_path) if drop_path != 0.0 else None

    def forward(
        self,
        tokens: Float[Tensor, "batch tokens embed_dim"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        bias: Bias | None = None,
        return_weights: bool = False,
    ) -> (
        Float[Tensor, "batch tokens embed_dim"]
        | tuple[Float[Tensor, "batch tokens embed_dim"], Float[Tensor, "batch heads tokens tokens"]]
    ):
        """The tokens after the block; with ``return_weights`` also the attention weights."""
        weights = None
        branch = self.attention(self.attention_norm(tokens), mask=mask, bias=bias, return_weights=return_weights)
        if return_weights:
            branch, weights = branch
        if self.dropout is not None:
            branch = self.dropout(branch)
        tokens = tokens + self._shrink(branch, self.attention_scale)
        tokens = tokens + self._shrink(self.mlp(self.mlp_norm(tokens)), self.mlp_scale)
        return tokens if weights is None else (tokens, weights)

    def _shrink(self, branch: Tensor, scale: Tensor | None) -> Tensor:
        """LayerScale, then stochastic depth."""
        branch = branch if scale is None else branch * scale
        return branch if self.drop_path is None else self.drop_path(branch)


class Encoder(nn.Module):
    """Blocks one after another, the probability of dropping a branch growing linearly from 0 to ``drop_path``.

    ``Z_L = block_L(... block_1(Z_0))``.

    Reference: Dosovitskiy et al. 2021, section 3.1; the linear rule: Huang et al. 2016, section 3.
    Differs: the first block is never dropped. A conditional position may stand after it.

    Arguments:
        depth: number of blocks L.
        drop_path: probability in the last block.
        embed_dim, num_heads, mlp_ratio, qkv_bias, qk_norm, dropout, attention_dropout, layer_scale, rotary: see
            ``EncoderBlock``.
        relatives: the relative position of each block, None for none; None for none anywhere.
        windows: the window of each block, None for global attention; None for global attention everywhere.
        attends: what attends in each block in place of the scaled dot product; None for that one everywhere.
        conditional: called on the tokens after the first block.

    Raises:
        ValueError: if ``depth`` is not positive or a probability lies outside [0, 1).
    """

    def __init__(
        self,
        embed_dim: int,
        depth: int,
        num_heads: int,
        mlp_ratio: float,
        *,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        rotary: nn.Module | None = None,
        relatives: Sequence[RelativePosition | None] | None = None,
        windows: Sequence[SlidingWindow | BlockWindow | None] | None = None,
        attends: Sequence[nn.Module | None] | None = None,
        conditional: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth must be at least 1, but is {depth}")
        if int(embed_dim * mlp_ratio) < 1:
            raise ValueError(f"mlp_ratio must give the MLP at least one channel, but is {mlp_ratio}")
        for name, probability in {"dropout": dropout, "drop_path": drop_path}.items():
            if not 0.0 <= probability < 1.0:
                raise ValueError(f"{name} must be in [0, 1), but is {probability}")
        self.blocks = nn.ModuleList(
            EncoderBlock(
                embed_dim,
                num_heads,
                mlp_ratio,
                qkv_bias=qkv_bias,
                qk_norm=qk_norm,
                dropout=dropout,
                attention_dropout=attention_dropout,
                drop_path=drop_path * layer / max(depth - 1, 1),
                layer_scale=layer_scale,
                rotary=rotary,
                relative=relatives[layer] if relatives is not None else None,
                window=windows[layer] if windows is not None else None,
                attend=attends[layer] if attends is not None else None,
            )
            for layer in range(depth)
        )
        self.conditional = conditional

    def forward(
        self,
        tokens: Float[Tensor, "batch tokens embed_dim"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        bias: Bias | None = None,
        return_weights: bool = False,
    ) -> (
        Float[Tensor, "batch tokens embed_dim"]
        | tuple[Float[Tensor, "batch tokens embed_dim"], list[Float[Tensor, "batch heads tokens tokens"]]]
    ):
        """The tokens after the last block; with ``return_weights`` also the attention weights, first layer first."""
        weights = []
        for layer, block in enumerate(self.blocks):
            tokens = block(tokens, mask=mask, bias=bias, return_weights=return_weights)
            if return_weights:
                tokens, layer_weights = tokens
                weights.append(layer_weights)
            if layer == 0 and self.conditional is not None:
                tokens = self.conditional(tokens)
        return (tokens, weights) if return_weights else tokens


def _layer_scale(embed_dim: int, layer_scale: float | None) -> nn.Parameter | None:
    return None if layer_scale is None else nn.Parameter(torch.full((embed_dim,), float(layer_scale)))
