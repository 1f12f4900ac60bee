"""Where a token is, told by its neighbours: a convolution that sees the edge of the grid."""

import torch
from einops import rearrange
from torch import nn

from vit_vs_cnn.attention.grid import GridLayer
from vit_vs_cnn.attention.shapes import Tokens


class ConditionalPosition(GridLayer):
    """A depthwise convolution over the grid of tokens, added to them.

    ``Z = X + conv(X)``, 3 x 3, zero padding: the zeros outside tell a token where it is.

    Reference: Chu et al. 2023 (CPVT), section 3.3; it stands after the first block.
    Differs: none; tokens that stand for no patch pass unchanged.

    Arguments:
        grid_size, extra_tokens: see ``GridLayer``.
        embed_dim: width of a token.
    """

    def __init__(self, grid_size: tuple[int, int], embed_dim: int, extra_tokens: int = 0) -> None:
        super().__init__(grid_size, extra_tokens)
        self.convolution = nn.Conv2d(embed_dim, embed_dim, 3, padding=1, groups=embed_dim)

    def forward(self, tokens: Tokens) -> Tokens:
        extra, patches = tokens[:, : self.extra_tokens], tokens[:, self.extra_tokens :]
        image = rearrange(patches, "b (rows cols) d -> b d rows cols", rows=self.grid_size[0])
        patches = patches + rearrange(self.convolution(image), "b d rows cols -> b (rows cols) d")
        return torch.cat([extra, patches], dim=1) if self.extra_tokens else patches
