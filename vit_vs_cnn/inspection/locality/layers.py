"""Attention layers of a network, and a convolution in place of one."""

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.layout import Images
from vit_vs_cnn.inspection.locality.convolution_fit import FittedConvolution
from vit_vs_cnn.models.recording import record_calls
from vit_vs_cnn.models.vit import VisionTransformer


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """An attention layer of a Vision Transformer.

    Arguments:
        patch_size: (rows, cols) of a token in pixels.
    """

    name: str
    module: nn.Module
    grid_size: tuple[int, int]
    extra_tokens: int
    patch_size: tuple[int, int]

    @property
    def padding(self) -> str:
        """The padding of a convolution that replaces the layer.

        Attention that sees nothing beyond the edge tends to replicate padding (Cordonnier's construction without
        padding).
        """
        return "zeros" if getattr(getattr(self.module, "window", None), "boundary", "") == "zero" else "replicate"


class LayerPass(NamedTuple):
    """A layer's inputs (after the norm), outputs (before the residual) and attention weights for a batch."""

    inputs: Tensor
    outputs: Tensor
    weights: Float[Tensor, "batch heads tokens tokens"]


def find_attention_layers(network: nn.Module) -> list[AttentionLayer]:
    """The attention layers of a ``VisionTransformer``, the first layer first; none of another network."""
    if not isinstance(network, VisionTransformer):
        return []
    names = [f"encoder.blocks.{index}.attention" for index in range(len(network.encoder.blocks))]
    layout = (network.grid_size, network.num_prefix_tokens, network.patch_embedding.patch_size)
    return [AttentionLayer(name, network.get_submodule(name), *layout) for name in names]


@torch.no_grad()
def pass_layer(network: nn.Module, layer: AttentionLayer, images: Images) -> LayerPass:
    """Inputs, outputs and weights of a layer for a batch of images."""
    with record_calls({layer.name: layer.module}) as calls:
        network(images, return_attention=True)
    if not calls or not isinstance(calls[0].output, tuple) or not isinstance(calls[0].output[1], Tensor):
        raise InputError(f"{layer.name} ({type(layer.module).__name__}) returns no attention weights")
    return LayerPass(calls[0].inputs[0], *calls[0].output)


def to_map(tokens: Tensor, grid_size: tuple[int, int], extra_tokens: int) -> Float[Tensor, "batch channels rows cols"]:
    """The patch tokens as a map (batch, embed_dim, rows, cols)."""
    return rearrange(tokens[:, extra_tokens:], "b (rows cols) d -> b d rows cols", rows=grid_size[0])


class TokenConvolution(nn.Module):
    """A convolution over the patch tokens with the interface of the attention that it replaces.

    ``Y[q] = sum_d W_d X[q + d] + b`` for patches. Extra tokens, which have no place on the grid, still attend.

    Arguments:
        fitted: the convolution; its padding must not be "valid".
        attention: for the extra tokens.
    """

    def __init__(self, fitted: FittedConvolution, layer: AttentionLayer, attention: nn.Module) -> None:
        super().__init__()
        if fitted.padding == "valid":
            raise InputError('padding must not be "valid" if a convolution replaces attention: edges have outputs, too')
        self.convolution = fitted
        self.grid_size, self.extra_tokens = layer.grid_size, layer.extra_tokens
        self.attention = attention if layer.extra_tokens else None

    def forward(
        self,
        queries: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch tokens embed_dim"], None]:
        if mask is not None or bias is not None or return_weights:
            raise InputError("a convolution in the place of attention has no weights, and takes no mask and no bias")
        convolved = self.convolution(to_map(queries, self.grid_size, self.extra_tokens))
        tokens = rearrange(convolved, "b d rows cols -> b (rows cols) d")
        if self.attention is None:
            return tokens, None
        return torch.cat([self.attention(queries)[0][:, : self.extra_tokens], tokens], dim=1), None


def replace_attention(network: nn.Module, layer: AttentionLayer, fitted: FittedConvolution) -> nn.Module:
    """A copy of the network with a convolution in place of one attention layer."""
    replaced = copy.deepcopy(network)
    convolution = TokenConvolution(copy.deepcopy(fitted), layer, replaced.get_submodule(layer.name))
    replaced.set_submodule(layer.name, convolution.to(next(network.parameters())))
    return replaced
