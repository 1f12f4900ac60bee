"""The transformer encoder: blocks of attention and MLP, each added to what it reads."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import check_probability
from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention
from vit_vs_cnn.attention.shapes import AnyMask, Bias, Tokens, TokenWeights
from vit_vs_cnn.models.checkpointing import checkpointed, is_worthwhile


class Mlp(nn.Module):
    """Two linear maps with a GELU between.

    ``MLP(x) = W_2 GELU(W_1 x + b_1) + b_2``.

    Reference: Dosovitskiy et al. 2021, section 3.1.
    Differs: none.
    """

    def __init__(self, embed_dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.expand = nn.Linear(embed_dim, hidden_dim)
        self.contract = nn.Linear(hidden_dim, embed_dim)
        self.dropout = nn.Dropout(dropout) if dropout > 0.0 else None

    def forward(self, tokens: Float[Tensor, "*batch embed_dim"]) -> Float[Tensor, "*batch embed_dim"]:
        hidden = F.gelu(self.expand(tokens))
        if self.dropout is None:
            return self.contract(hidden)
        return self.dropout(self.contract(self.dropout(hidden)))


class EncoderBlock(nn.Module):
    """Pre-norm transformer block.

    ``Z' = Z + MHA(LN(Z))``, ``Z'' = Z' + MLP(LN(Z'))``.

    Reference: Dosovitskiy et al. 2021, equations 2 and 3; LayerScale: Touvron et al. 2021, equation 4.
    Differs: each branch may be scaled per channel (LayerScale) and dropped per image (stochastic depth: Huang et al.
        2016, equation 2, but scaled in training).

    Arguments:
        mlp_ratio: width of the MLP over that of a token.
        dropout: probability of dropping a value of either branch in training.
        drop_path: probability of dropping a branch for an image in training.
        layer_scale: what the branches are first scaled by, a learned number per channel; None for no scaling.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        mlp_ratio: float,
        *,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
    ) -> None:
        super().__init__()
        embed_dim = attention.embed_dim
        self.attention_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.attention = attention
        self.attention_scale = _layer_scale(embed_dim, layer_scale)
        self.mlp_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.mlp = Mlp(embed_dim, int(embed_dim * mlp_ratio), dropout)
        self.mlp_scale = _layer_scale(embed_dim, layer_scale)
        # Absent, not identities: a branch that does nothing costs nothing.
        self.dropout = nn.Dropout(dropout) if dropout > 0.0 else None
        self.drop_path = None
        if drop_path != 0.0:
            from torchvision.ops import StochasticDepth  # loads torch's compiler: a second

            self.drop_path = StochasticDepth(drop_path, mode="row")

    def forward(
        self,
        tokens: Tokens,
        *,
        mask: AnyMask | None = None,
        bias: Bias | None = None,
        return_weights: bool = False,
        grid_size: tuple[int, int] | None = None,
    ) -> Tokens | tuple[Tokens, TokenWeights]:
        """The tokens after the block; with ``return_weights`` also the attention weights."""
        grid = {} if grid_size is None else {"grid_size": grid_size}
        normed = self.attention_norm(tokens)
        attended = self.attention(normed, mask=mask, bias=bias, return_weights=return_weights, **grid)
        attended, weights = attended if return_weights else (attended, None)
        if self.dropout is not None:
            attended = self.dropout(attended)
        tokens = tokens + self._shrunk(attended, self.attention_scale)
        tokens = tokens + self._shrunk(self.mlp(self.mlp_norm(tokens)), self.mlp_scale)
        return tokens if weights is None else (tokens, weights)

    def _shrunk(self, branch: Tensor, scale: Tensor | None) -> Tensor:
        branch = branch if scale is None else branch * scale
        return branch if self.drop_path is None else self.drop_path(branch)


class Encoder(nn.Module):
    """Blocks one after another, the probability of dropping a branch growing linearly from 0 to ``drop_path``.

    ``Z_L = block_L(... block_1(Z_0))``.

    Reference: Dosovitskiy et al. 2021, section 3.1; the linear rule: Huang et al. 2016, section 3.
    Differs: the first block is never dropped. A conditional position may stand after it.

    Arguments:
        attentions: of each block, the first block first.
        drop_path: probability in the last block.
        mlp_ratio, dropout, layer_scale: see ``EncoderBlock``.
        conditional: called on the tokens after the first block.

    Raises:
        ValueError: if there is no block, the MLP has no channel, or a probability lies outside [0, 1).
    """

    def __init__(
        self,
        attentions: Sequence[MultiHeadAttention],
        mlp_ratio: float,
        *,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        conditional: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if not attentions:
            raise ValueError("depth must be at least 1, but is 0")
        if int(attentions[0].embed_dim * mlp_ratio) < 1:
            raise ValueError(f"mlp_ratio must give the MLP at least one channel, but is {mlp_ratio}")
        check_probability(dropout=dropout, drop_path=drop_path)
        last = max(len(attentions) - 1, 1)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                attention, mlp_ratio, dropout=dropout, drop_path=drop_path * layer / last, layer_scale=layer_scale
            )
            for layer, attention in enumerate(attentions)
        )
        self.conditional = conditional
        self.grad_checkpointing = False

    def forward(
        self,
        tokens: Tokens,
        *,
        mask: AnyMask | None = None,
        bias: Bias | None = None,
        return_weights: bool = False,
        grid_size: tuple[int, int] | None = None,
    ) -> Tokens | tuple[Tokens, list[TokenWeights]]:
        """The tokens after the last block; with ``return_weights`` also the attention weights, first layer first.

        With ``grad_checkpointing`` blocks are computed a second time in the backward pass of training.

        Arguments:
            grid_size: (rows, cols) of the tokens, if not that which positions and windows were made for.
        """
        weights = []
        is_lean = self.grad_checkpointing and is_worthwhile(self) and not return_weights
        for layer, block in enumerate(self.blocks):
            if is_lean:
                tokens = checkpointed(block, tokens, mask=mask, bias=bias, grid_size=grid_size)
            else:
                tokens = block(tokens, mask=mask, bias=bias, return_weights=return_weights, grid_size=grid_size)
            if return_weights:
                tokens, layer_weights = tokens
                weights.append(layer_weights)
            if layer == 0 and self.conditional is not None:
                tokens = self.conditional(tokens, grid_size=grid_size)
        return (tokens, weights) if return_weights else tokens


def _layer_scale(embed_dim: int, layer_scale: float | None) -> nn.Parameter | None:
    return None if layer_scale is None else nn.Parameter(torch.full((embed_dim,), float(layer_scale)))
