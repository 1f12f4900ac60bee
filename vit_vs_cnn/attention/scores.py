"""Attention from arbitrary scores, and scores of several kinds."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import AnyMask, Heads, HeadValues, TokenWeights, check_mask, check_positive
from vit_vs_cnn.attention.functional import masked_softmax, scaled_dot_product_attention
from vit_vs_cnn.attention.kernels import check_kernel, log_bandwidth_parameter, log_kernel
from vit_vs_cnn.attention.multihead import xavier_uniform_

Queries = Float[Tensor, "*batch queries dim"]
Keys = Float[Tensor, "*batch keys dim"]
Values = Float[Tensor, "*batch keys value_dim"]
ScoreTable = Float[Tensor, "*batch queries keys"]
Output = Float[Tensor, "*batch queries value_dim"]


def attention_from_scores(
    scores: ScoreTable, values: Values, *, mask: AnyMask | None = None, dropout: float = 0.0
) -> tuple[Output, ScoreTable]:
    """Mean of the values, weighted by the softmax of given scores, and the weights before dropout.

    ``Attention(S, V) = softmax(S) V``.

    Reference: Vaswani et al. 2017, equation 1, with any S; Tsai et al. 2019, equation 2.
    Differs: a score of minus infinity masks; a query that may attend to nothing gets zero.

    Arguments:
        scores: ``(..., queries, keys)``; log K makes it kernel regression.
        mask: True where a query may attend, broadcast against ``scores``.
        dropout: probability of dropping a weight; 0 outside training.

    Raises:
        ValueError: if ``mask`` is not boolean, or has more dimensions than ``scores``.
    """
    if mask is not None:
        check_mask(mask, scores.ndim)
    in_reach = scores != -torch.inf
    weights = masked_softmax(scores, in_reach if mask is None else in_reach & mask)
    return F.dropout(weights, dropout) @ values, weights


class DotProductScore(nn.Module):
    """Scaled dot product of query and key.

    ``S = Q K^T / sqrt(d)``; the logarithm of the exponential kernel.

    Reference: Vaswani et al. 2017, equation 1.
    Differs: none.
    """

    def forward(self, queries: Queries, keys: Keys) -> ScoreTable:
        return (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1)


class AdditiveScore(nn.Module):
    """Network with one hidden layer over query and key, whose widths may differ.

    ``s(q, k) = w^T tanh(W_q q + W_k k)``.

    Reference: Bahdanau et al. 2015, appendix A.1.2.
    Differs: Xavier-uniform weights, as in every projection here. Memory: O(queries keys hidden_dim).

    Raises:
        ValueError: if a width is not positive.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        check_positive(query_dim=query_dim, key_dim=key_dim, hidden_dim=hidden_dim)
        self.query_projection = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key_projection = nn.Linear(key_dim, hidden_dim, bias=False)
        self.score_projection = nn.Linear(hidden_dim, 1, bias=False)
        xavier_uniform_(self.query_projection, self.key_projection, self.score_projection)

    def forward(
        self, queries: Float[Tensor, "*batch queries query_dim"], keys: Float[Tensor, "*batch keys key_dim"]
    ) -> ScoreTable:
        hidden = self.query_projection(queries).unsqueeze(-2) + self.key_projection(keys).unsqueeze(-3)
        return self.score_projection(hidden.tanh()).squeeze(-1)


class KernelScore(nn.Module):
    """Logarithm of a kernel between query and key: attention becomes kernel regression.

    ``s(q, k) = log K(q, k)``; minus infinity where the kernel is zero.

    Reference: Tsai et al. 2019, section 3.
    Differs: none. The score of a box has no gradient.

    Arguments:
        kernel: see ``log_kernel``.
        bandwidth: length h; one number, or one per dimension. None is ``head_dim ** 0.25``: the exponential kernel is
            the scaled dot product, and the Gaussian differs from it only by the lengths of the keys.
        learn_bandwidth: learn h, from a given number.

    Raises:
        ValueError: if the kernel is unknown, a bandwidth is not positive, or the bandwidth to be learned is None or
            that of a box.
    """

    def __init__(
        self,
        kernel: str = "gaussian",
        bandwidth: float | Sequence[float] | None = None,
        *,
        learn_bandwidth: bool = False,
    ) -> None:
        super().__init__()
        check_kernel(kernel, learn_bandwidth)
        if learn_bandwidth and bandwidth is None:
            raise ValueError("bandwidth must be a number to start from with learn_bandwidth=True, but is None")
        self.kernel = kernel
        self.log_bandwidth = None if bandwidth is None else log_bandwidth_parameter(bandwidth, learn_bandwidth)

    def forward(self, queries: Queries, keys: Keys) -> ScoreTable:
        bandwidth = queries.shape[-1] ** 0.25 if self.log_bandwidth is None else self.log_bandwidth.exp()
        return log_kernel(queries, keys, kernel=self.kernel, bandwidth=bandwidth)


class ScoredAttention(nn.Module):
    """Attention with a score: a module called as ``score(queries, keys)`` that returns ``(..., queries, keys)``.

    ``Attention(Q, K, V) = softmax(s(Q, K)) V``.

    Reference: Bahdanau et al. 2015, equations 5 and 6 (additive); Tsai et al. 2019, equation 2 (kernels).
    Differs: none.
    """

    def __init__(self, score: nn.Module) -> None:
        super().__init__()
        self.score = score

    def forward(
        self,
        queries: Float[Tensor, "*batch queries query_dim"],
        keys: Float[Tensor, "*batch keys key_dim"],
        values: Values,
        *,
        mask: AnyMask | None = None,
        return_weights: bool = False,
    ) -> Output | tuple[Output, ScoreTable]:
        """``attention_from_scores`` of the module's score; with ``return_weights`` also the weights."""
        output, weights = attention_from_scores(self.score(queries, keys), values, mask=mask)
        return (output, weights) if return_weights else output


class LocalitySelfAttention(nn.Module):
    """Self-attention with a learned temperature, in which no token attends to itself.

    ``Attention(Q, K, V) = softmax(R) V``, ``R_ij = q_i . k_j / tau``, ``R_ii`` = minus infinity. ``MultiHeadAttention``
    takes it as ``inner_attention``. The temperature starts at ``tau = sqrt(head_dim)``.

    Reference: Lee, Lee & Song 2021 (arXiv 2112.13492), section 3.3.
    Differs: each head has a temperature, as in the authors' code. It is learned as its logarithm, so that it stays
        positive. The only token of a sequence gets zero.

    Raises:
        ValueError: if a size is not positive.
    """

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        check_positive(num_heads=num_heads, head_dim=head_dim)
        self.log_temperature = nn.Parameter(torch.full((num_heads,), math.log(head_dim) / 2))

    def forward(
        self, queries: Heads, keys: Heads, values: HeadValues, *, return_weights: bool = False
    ) -> HeadValues | tuple[HeadValues, TokenWeights]:
        """Attend to the other tokens; with ``return_weights`` also the weights, whose diagonal is zero."""
        queries = queries * (-self.log_temperature).exp().to(queries.dtype)[:, None, None]
        others = ~torch.eye(queries.shape[-2], dtype=torch.bool, device=queries.device)
        return scaled_dot_product_attention(
            queries, keys, values, mask=others, scale=1.0, return_weights=return_weights
        )
