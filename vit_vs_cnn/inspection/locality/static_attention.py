"""A layer's attention with the content taken out: the same weights for every image."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torchmetrics import Metric

from vit_vs_cnn.attention.convolution import ConvolutionalAttention
from vit_vs_cnn.attention.multihead import MultiHeadAttention


class StaticAttention(Metric):
    """``E_x A`` between all tokens, over batches.

    Arguments:
        num_heads: attention heads of the layer.
        tokens: extra ones and patches.
    """

    full_state_update = False
    sums: Tensor
    images: Tensor

    def __init__(self, num_heads: int, tokens: int) -> None:
        super().__init__()
        zeros = torch.zeros(num_heads, tokens, tokens, dtype=torch.float64)
        self.add_state("sums", zeros, dist_reduce_fx="sum")
        self.add_state("images", zeros[0, 0, 0].clone(), dist_reduce_fx="sum")

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        self.sums += weights.sum(dim=0, dtype=torch.float64)
        self.images += len(weights)

    def compute(self) -> Float[Tensor, "heads tokens tokens"]:
        return self.sums / self.images


def static_output(attention: nn.Module, inputs: Tensor, weights: Float[Tensor, "heads tokens tokens"]) -> Tensor | None:
    """The output of a layer whose weights are the same for every image: ``sum_h A_h X W_V^h W_O^h + b``.

    Arguments:
        attention: a ``MultiHeadAttention``, or a ``ConvolutionalAttention`` whose queries are its tokens; None is what
            any other gives.
        inputs: tokens (batch, tokens, embed_dim) of the first, maps (batch, channels, rows, cols) of the second.
        weights: rows are queries.
    """
    if isinstance(attention, MultiHeadAttention):
        values = attention.value_projection(inputs)
        values = rearrange(values, "b n (heads d) -> b heads n d", heads=attention.num_heads)
        merged = rearrange(weights.to(values) @ values, "b heads n d -> b n (heads d)")
        return merged if attention.output_projection is None else attention.output_projection(merged)
    if not isinstance(attention, ConvolutionalAttention):
        return None
    tokens = rearrange(inputs, "b (g c) rows cols -> b g c (rows cols)", g=attention.groups)
    values = torch.einsum("hqk,bgck->bhgcq", weights.to(tokens), tokens)
    if attention.value_weight is not None:
        values = attention.value_weight @ values
    output = torch.einsum("gohr,bhgrq->bgoq", attention.output_weight, values).flatten(1, 2)
    if attention.output_bias is not None:
        output = output + attention.output_bias[:, None]
    return output.unflatten(2, inputs.shape[2:])
