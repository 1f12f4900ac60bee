"""How the patch tokens become one vector, where that is learned."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.multihead import NORM_EPS, MultiHeadAttention, xavier_uniform
from vit_vs_cnn.models.encoder import Mlp

Patches = Float[Tensor, "batch patches embed_dim"]
Pooled = Float[Tensor, "batch embed_dim"]
#: How much the pooled vector reads of each patch, by heads; rows sum to one.
PoolWeights = Float[Tensor, "batch heads 1 patches"]


class AttentionPool(nn.Module):
    """One learned query attends to the patches, and an MLP follows.

    ``z = MHA(q, X, X)``, ``pool(X) = z + MLP(LN(z))``.

    Reference: Lee et al. 2019 (Set Transformer), equation 6; Zhai et al. 2023 (SigLIP), as it is used here.
    Differs: the query is not added to what it gathers, as in SigLIP.

    Arguments:
        embed_dim: width D of a token.
        num_heads: attention heads.
        mlp_ratio: width of the MLP over that of a token.

    Raises:
        ValueError: as ``MultiHeadAttention``.
    """

    def __init__(self, embed_dim: int, num_heads: int, mlp_ratio: float) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(embed_dim))
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.mlp = Mlp(embed_dim, int(embed_dim * mlp_ratio))
        self.init_weights()

    def init_weights(self) -> None:
        """A query of length one, on average; maps as in the encoder."""
        nn.init.normal_(self.query, std=len(self.query) ** -0.5)
        self.attention.init_weights()
        xavier_uniform(self.mlp.expand, self.mlp.contract)

    def forward(self, patches: Patches) -> Pooled:
        gathered = self.attention(self._queries(patches), patches)[:, 0]
        return gathered + self.mlp(self.norm(gathered))

    def weights(self, patches: Patches) -> PoolWeights:
        """How much the query attends to each patch."""
        return self.attention(self._queries(patches), patches, return_weights=True)[1]

    def _queries(self, patches: Tensor) -> Tensor:
        return self.query.expand(patches.shape[0], 1, -1)


class SequencePool(nn.Module):
    """A mean of the patches, weighted by what each of them shows.

    ``pool(X) = softmax(X g + b)^T X``.

    Reference: Hassani et al. 2021 (CCT), section 3.2.
    Differs: none.

    Arguments:
        embed_dim: width D of a token.
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(embed_dim, 1)
        self.init_weights()

    def init_weights(self) -> None:
        """Normal of std 0.02, bias zero: nearly the mean at first."""
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def forward(self, patches: Patches) -> Pooled:
        return (self.weights(patches)[:, 0] @ patches).squeeze(1)

    def weights(self, patches: Patches) -> PoolWeights:
        """The softmax of the scores of all patches."""
        return self.score(patches).softmax(dim=1).mT.unsqueeze(1)
