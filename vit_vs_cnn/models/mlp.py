"""The part of a transformer block that looks at one token at a time."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


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
