"""The attention layers of a network, what each does to a batch of images, and a convolution in the place of one."""

import copy
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.convolution import ConvolutionalAttention
from vit_vs_cnn.attention.convolution.geometry import Geometry
from vit_vs_cnn.attention.windows.layers import SlidingWindow
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.layout import Images
from vit_vs_cnn.inspection.locality.convolution_fit import FittedConvolution
from vit_vs_cnn.inspection.locality.offsets import Reach
from vit_vs_cnn.models.recording import recorded_calls
from vit_vs_cnn.models.vit import VisionTransformer

#: The padding of a convolution that does at the edges what a layer does: attention that sees nothing beyond the edge
#: tends to replicate padding (Cordonnier's construction without padding), so it is that of every other layer.
PADDING_OF_BOUNDARY = {"zero": "zeros", "zeros": "zeros", "circular": "circular"}
#: Weights of a layer over feature maps that are held at a time: its tokens are pixels, and there are many.
WEIGHTS_AT_ONCE = 2**25


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """A layer of attention and where it stands.

    Arguments:
        pixels: (rows, cols) of the image that a token stands for.
        stride: (rows, cols) between the tokens that are queries; it is measured as if all of them were.
    """

    name: str
    module: nn.Module
    grid_size: tuple[int, int]
    extra_tokens: int
    pixels: tuple[int, int]
    stride: tuple[int, int] = (1, 1)

    @functools.cached_property
    def measured(self) -> nn.Module:
        """The layer with a query at every token, sharing its parameters; itself where it has that already."""
        if self.stride == (1, 1) or not isinstance(self.module, ConvolutionalAttention):
            return self.module
        twin = copy.copy(self.module)
        twin.geometry = dense(self.module.geometry)
        return twin

    @property
    def padding(self) -> str:
        """The padding of a convolution that takes the layer's place."""
        if isinstance(self.module, ConvolutionalAttention):
            return PADDING_OF_BOUNDARY.get(self.module.padding_mode, "replicate")
        window = getattr(self.module, "window", None)
        return PADDING_OF_BOUNDARY.get(getattr(window, "boundary", ""), "replicate")

    def visible(self, reach: Reach) -> Reach:
        """The part of the reach that lies within the layer's sliding window: what is beyond it has no logarithm."""
        window = getattr(self.module, "window", None)
        if isinstance(window, SlidingWindow):
            sizes = window.window_size
        elif isinstance(self.module, ConvolutionalAttention) and self.module.form == "window":
            axes = self.module.geometry
            sizes = tuple((axis.window - 1) * axis.dilation + 1 for axis in axes)
        else:
            return reach
        rows, cols = (min(far, (size - 1) // 2) for far, size in zip(reach, sizes, strict=True))
        return rows, cols


@dataclass(frozen=True, eq=False)
class LayerPass:
    """One layer's inputs (after the norm), outputs (before the residual) and attention weights for a batch."""

    inputs: Tensor
    outputs: Tensor
    weights: Float[Tensor, "batch heads tokens tokens"]


def attention_layers(network: nn.Module, example: Images) -> tuple[list[AttentionLayer], dict[str, str]]:
    """The layers of attention, the first first, and by name those that cannot be measured and why.

    A ``VisionTransformer`` has one in every block; another network those that are a ``ConvolutionalAttention``. One
    with a stride is measured with a query at every token, of which the network takes each s-th.
    """
    if isinstance(network, VisionTransformer):
        names = [f"encoder.blocks.{index}.attention" for index in range(len(network.encoder.blocks))]
        place = (network.grid_size, network.extra_tokens, network.patch_embedding.patch_size)
        return [AttentionLayer(name, network.get_submodule(name), *place) for name in names], {}
    found, refused = [], {}
    named = {name: module for name, module in network.named_modules() if isinstance(module, ConvolutionalAttention)}
    with recorded_calls(named) as calls, torch.no_grad():
        network(example)
    seen = {call.name: call.inputs[0] for call in calls}
    for name, module in named.items():
        if name not in seen:
            refused[name] = "it takes no part in the forward pass"
            continue
        rows, cols = seen[name].shape[2:]
        out = dense(module.geometry).counts(seen[name])
        if module.geometry.places == 1:
            refused[name] = "a kernel of one place: every token sees itself alone"
        elif out != (rows, cols):
            refused[name] = f"its queries, at stride 1 {out[0]} x {out[1]}, are not its tokens ({rows} x {cols})"
        else:
            pixels = (example.shape[2] // rows, example.shape[3] // cols)
            stride = (module.geometry.rows.stride, module.geometry.cols.stride)
            found.append(AttentionLayer(name, module, (rows, cols), 0, pixels, stride))
    return found, refused


def layer_passes(
    network: nn.Module, layers: Sequence[AttentionLayer], images: Images
) -> Iterator[tuple[int, LayerPass]]:
    """What the layers do to a batch of images: (index of the layer, its pass), a layer at a time, in parts if large."""
    weighed = isinstance(network, VisionTransformer)
    with recorded_calls({layer.name: layer.module for layer in layers}) as calls, torch.no_grad():
        network(images, return_attention=True) if weighed else network(images)
    seen = {call.name: call for call in calls}
    for index, layer in enumerate(layers):
        call = seen.get(layer.name)
        if call is not None and isinstance(layer.module, ConvolutionalAttention):
            tokens = math.prod(layer.grid_size)
            size = max(1, WEIGHTS_AT_ONCE // (layer.module.geometry.heads * tokens**2))
            for inputs in call.inputs[0].split(size):
                with torch.no_grad():
                    output, weights = layer.measured(inputs, return_weights=True)
                yield index, LayerPass(inputs, output, weights)
            continue
        if call is None or not isinstance(call.output, tuple) or not isinstance(call.output[1], Tensor):
            raise InputError(f"{layer.name} ({type(layer.module).__name__}) gives no attention weights")
        yield index, LayerPass(call.inputs[0], *call.output)


def dense(geometry: Geometry) -> Geometry:
    """The same with a query at every token: a convolution of stride s is each s-th place of the one of stride 1."""
    return Geometry(*(axis._replace(stride=1) for axis in geometry))


def to_map(tokens: Tensor, grid_size: tuple[int, int], extra_tokens: int) -> Float[Tensor, "batch channels rows cols"]:
    """The patch tokens as a map (batch, embed_dim, rows, cols); a map as it is."""
    if tokens.ndim == 4:
        return tokens
    return rearrange(tokens[:, extra_tokens:], "b (rows cols) d -> b d rows cols", rows=grid_size[0])


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
