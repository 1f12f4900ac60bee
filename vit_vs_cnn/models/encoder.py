"""Transformer encoder: blocks of attention and MLP with residual connections, and a learned pool of tokens."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vit_vs_cnn.attention.arguments import Tokens, TokenWeights, check_probability
from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention

Patches = Float[Tensor, "batch patches embed_dim"]


class Mlp(nn.Module):
    """Two linear maps with a GELU between them.

    ``MLP(x) = W_2 GELU(W_1 x + b_1) + b_2``.

    Reference: Dosovitskiy et al. 2021, section 3.1.
    Differs: none.

    Raises:
        ValueError: if the hidden layer would have no channel.
    """

    def __init__(self, embed_dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        if hidden_dim < 1:
            channels = f"{hidden_dim} with embed_dim {embed_dim}"
            raise ValueError(f"mlp_ratio must give the MLP at least one channel, but gives {channels}")
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
        mlp_ratio: width of the MLP relative to a token.
        dropout: probability of dropping a value of either branch in training.
        drop_path: probability of dropping a branch for an image in training.
        layer_scale: initial scale of the branches, a learned number per channel; None for no scaling.
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
        # None, not identities: these would cost time.
        self.dropout = nn.Dropout(dropout) if dropout > 0.0 else None
        self.drop_path = None
        if drop_path != 0.0:
            from torchvision.ops import StochasticDepth  # loads torch's compiler: a second

            self.drop_path = StochasticDepth(drop_path, mode="row")

    def forward(self, tokens: Tokens, *, return_weights: bool = False) -> Tokens | tuple[Tokens, TokenWeights]:
        """Tokens after the block; with ``return_weights`` also the weights ``(batch, heads, tokens, tokens)``."""
        normed, weights = self.attention_norm(tokens), None
        if return_weights:
            branch, weights = self.attention(normed, return_weights=True)
        else:
            branch = self.attention(normed)
        if self.dropout is not None:
            branch = self.dropout(branch)
        tokens = tokens + self._scale_and_drop(branch, self.attention_scale)
        tokens = tokens + self._scale_and_drop(self.mlp(self.mlp_norm(tokens)), self.mlp_scale)
        return tokens if weights is None else (tokens, weights)

    def _scale_and_drop(self, branch: Tensor, scale: Tensor | None) -> Tensor:
        branch = branch if scale is None else branch * scale
        return branch if self.drop_path is None else self.drop_path(branch)


class Encoder(nn.Module):
    """Sequence of blocks; the probability of dropping a branch grows linearly from 0 to ``drop_path``.

    ``Z_L = block_L(... block_1(Z_0))``.

    Reference: Dosovitskiy et al. 2021, section 3.1; the linear rule: Huang et al. 2016, section 3.
    Differs: the first block is never dropped. A conditional position may follow it.

    Arguments:
        attentions: attention of each block, the first block first.
        drop_path: probability in the last block.
        mlp_ratio, dropout, layer_scale: see ``EncoderBlock``.
        conditional_position: layer called on the tokens after the first block.

    Raises:
        ValueError: if there is no block, the MLP would have no channel, or a probability is outside [0, 1).
    """

    #: Compute each block again in the backward pass instead of storing what it computed.
    grad_checkpointing: bool = False

    def __init__(
        self,
        attentions: Sequence[MultiHeadAttention],
        mlp_ratio: float,
        *,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        conditional_position: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if not attentions:
            raise ValueError("depth must be at least 1, but is 0")
        check_probability(dropout=dropout, drop_path=drop_path)
        last = max(len(attentions) - 1, 1)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                attention, mlp_ratio, dropout=dropout, drop_path=drop_path * layer / last, layer_scale=layer_scale
            )
            for layer, attention in enumerate(attentions)
        )
        self.conditional_position = conditional_position

    def forward(self, tokens: Tokens, *, return_weights: bool = False) -> Tokens | tuple[Tokens, list[TokenWeights]]:
        """Tokens after the last block; with ``return_weights`` also the attention weights of every layer."""
        weights = []
        for layer, block in enumerate(self.blocks):
            if return_weights:
                tokens, layer_weights = block(tokens, return_weights=True)
                weights.append(layer_weights)
            else:
                tokens = checkpoint(block, tokens, use_reentrant=False) if self.grad_checkpointing else block(tokens)
            if layer == 0 and self.conditional_position is not None:
                tokens = self.conditional_position(tokens)
        return (tokens, weights) if return_weights else tokens


class SequencePool(nn.Module):
    """Mean of the patches, weighted by a learned score of each.

    ``pool(X) = softmax(X g + b)^T X``.

    Reference: Hassani et al. 2021 (CCT), section 3.2.
    Differs: none.
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(embed_dim, 1)
        self.init_weights()

    def init_weights(self) -> None:
        """Initialize with normal weights of standard deviation 0.02 and zero bias, close to the mean."""
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def forward(self, patches: Patches) -> Float[Tensor, "batch embed_dim"]:
        return (self.weights(patches)[:, 0] @ patches).squeeze(1)

    def weights(self, patches: Patches) -> Float[Tensor, "batch 1 1 patches"]:
        return self.score(patches).softmax(dim=1).transpose(1, 2).unsqueeze(1)


def _layer_scale(embed_dim: int, layer_scale: float | None) -> nn.Parameter | None:
    return None if layer_scale is None else nn.Parameter(torch.full((embed_dim,), float(layer_scale)))
