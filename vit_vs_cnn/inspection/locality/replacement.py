"""A convolution in the place of a layer of attention."""

import copy

import torch
from einops import rearrange
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.locality.attention_layers import AttentionLayer, to_map
from vit_vs_cnn.inspection.locality.convolution_fit import FittedConvolution


class ConvolutionOfTokens(nn.Module):
    """A convolution over the patch tokens that is called as the attention whose place it takes.

    ``Y[q] = sum_d W_d X[q + d] + b`` for patches; extra tokens go on attending, as they have no place on the grid.

    Arguments:
        fitted: the convolution; its padding must not be "valid".
        attention: what the extra tokens do; needed if there are any.
        stride: (rows, cols) between the places that are given, where they come as maps.

    Raises:
        InputError: if the padding is "valid", or there are extra tokens and no attention.
    """

    def __init__(
        self,
        fitted: FittedConvolution,
        grid_size: tuple[int, int],
        *,
        extra_tokens: int = 0,
        attention: nn.Module | None = None,
        stride: tuple[int, int] = (1, 1),
    ) -> None:
        super().__init__()
        if fitted.padding == "valid":
            raise InputError(
                'padding must not be "valid" where a convolution replaces attention: edges have outputs too'
            )
        if extra_tokens and attention is None:
            raise InputError(f"attention must be given for {extra_tokens} extra tokens")
        self.convolution = fitted
        self.grid_size, self.extra_tokens, self.stride = grid_size, extra_tokens, stride
        self.attention = attention if extra_tokens else None

    def forward(
        self, queries: Tensor, *, mask: Tensor | None = None, bias: Tensor | None = None, return_weights: bool = False
    ) -> Tensor:
        """The tokens convolved: (batch, tokens, embed_dim), or (batch, channels, rows, cols) if they come as maps."""
        if mask is not None or bias is not None or return_weights:
            raise InputError("a convolution in the place of attention has no weights, and takes no mask and no bias")
        convolved = self.convolution(to_map(queries, self.grid_size, self.extra_tokens))
        if queries.ndim == 4:
            return convolved[:, :, :: self.stride[0], :: self.stride[1]]
        tokens = rearrange(convolved, "b d rows cols -> b (rows cols) d")
        if self.attention is None:
            return tokens
        return torch.cat([self.attention(queries)[:, : self.extra_tokens], tokens], dim=1)


def replace_attention(network: nn.Module, layer: AttentionLayer, fitted: FittedConvolution) -> nn.Module:
    """A copy of the network whose attention of one layer is a convolution; the network itself is left as it was."""
    replaced = copy.deepcopy(network)
    convolution = ConvolutionOfTokens(
        copy.deepcopy(fitted),
        layer.grid_size,
        extra_tokens=layer.extra_tokens,
        attention=replaced.get_submodule(layer.name),
        stride=layer.stride,
    )
    replaced.set_submodule(layer.name, convolution.to(next(network.parameters())))
    return replaced
