"""Layers of a network: attention layers and a convolution in place of one; feature maps, how they shift and what they
depend on.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.layout import Images
from vit_vs_cnn.inspection.locality.convolution_fit import ExplainedVariance, FittedConvolution
from vit_vs_cnn.models.recording import record_calls
from vit_vs_cnn.models.resnet import BasicBlock, ResNet
from vit_vs_cnn.models.vit import VisionTransformer

#: Images of a pass for equivariance and receptive fields.
BATCH_SIZE = 32
#: (rows, cols) in steps of a feature map: one step each way.
ONE_STEP = ((1, 0), (-1, 0), (0, 1), (0, -1))


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


def feature_maps(
    network: nn.Module, images: Images
) -> dict[str, Float[Tensor, "batch features feature_rows feature_cols"]]:
    """The maps (batch, features, rows, cols) after every block, by name, the first block first.

    A ``VisionTransformer`` has "block 1" and on, patch tokens only; a ``ResNet`` the "stem" before them.
    """
    with record_calls(_blocks(network)) as calls:
        network(images)
    outputs = {name: output[0] if isinstance(output, tuple) else output for name, _, output in calls}
    if isinstance(network, VisionTransformer):
        grid_size, prefix = network.grid_size, network.num_prefix_tokens
        return {name: to_map(tokens, grid_size, prefix) for name, tokens in outputs.items()}
    return outputs


def _blocks(network: nn.Module) -> Mapping[str, nn.Module]:
    if isinstance(network, VisionTransformer):
        return {f"block {number}": block for number, block in enumerate(network.encoder.blocks, start=1)}
    if isinstance(network, ResNet):
        blocks = [module for module in network.stages.modules() if isinstance(module, BasicBlock)]
        return {"stem": network.stem} | {f"block {number}": block for number, block in enumerate(blocks, start=1)}
    raise InputError(f"network must be a VisionTransformer or a ResNet, but is a {type(network).__name__}")


@torch.no_grad()
def shift_equivariance_errors(
    features: Callable[[Tensor], dict[str, Tensor]],
    images: Images,
    *,
    shifts: Sequence[tuple[int, int]] = ONE_STEP,
) -> dict[str, float]:
    """``E |f(T x) - T f(x)|^2 / E |f(x) - mean|^2`` of every map of ``features``, over all shifts T.

    The mean is that of every channel over images and places; 0 is equivariant, 2 is as different as another image. The
    images are shifted circularly; maps are compared where the shift did not wrap them.

    Arguments:
        features: from images to maps (batch, channels, rows, cols) by name.
        shifts: (rows, cols) in steps of the coarsest map.

    Raises:
        InputError: the step of another map does not divide that of the coarsest, or the shift leaves no overlap.
    """
    errors: dict[str, ExplainedVariance] = {}
    for batch in images.split(BATCH_SIZE):
        maps = features(batch)
        step = [max(batch.shape[axis] // found.shape[axis] for found in maps.values()) for axis in (2, 3)]
        for shift in shifts:
            pixels = (shift[0] * step[0], shift[1] * step[1])
            shifted = features(batch.roll(pixels, dims=(2, 3)))
            for name, found in maps.items():
                steps = _own_steps(name, found, batch, pixels)
                expected = _overlap(found.double().roll(steps, dims=(2, 3)), steps)
                errors.setdefault(name, ExplainedVariance()).update(expected, {"": _overlap(shifted[name], steps)})
    return {name: error.unexplained()[""] for name, error in errors.items()}


def _own_steps(name: str, found: Tensor, images: Tensor, pixels: tuple[int, int]) -> tuple[int, int]:
    """A shift in a map's own steps."""
    steps = []
    for axis, shift in zip((2, 3), pixels, strict=True):
        size, length = found.shape[axis], images.shape[axis]
        if (shift * size) % length or abs(shift) >= length:
            raise InputError(f"a shift by {shift} of {length} pixels is no whole number of steps of {name} ({size})")
        steps.append(shift * size // length)
    return steps[0], steps[1]


def _overlap(maps: Tensor, steps: tuple[int, int]) -> Tensor:
    """The part of a map that a shift does not wrap."""
    rows, cols = (slice(max(step, 0), size + min(step, 0)) for step, size in zip(steps, maps.shape[2:], strict=True))
    return maps[:, :, rows, cols]


def receptive_fields(
    features: Callable[[Tensor], dict[str, Tensor]], images: Images
) -> dict[str, Float[Tensor, "rows cols"]]:
    """``g = E |d sum_c Y_centre / d X|``, summed over the images' channels, of every map of ``features``.

    Reference: Luo et al. 2016, section 3.
    Differs: the absolute gradient is averaged, as features of either sign would cancel.
    """
    fields: dict[str, Tensor] = {}
    for batch in images.split(BATCH_SIZE):
        leaf = batch.detach().clone().requires_grad_()
        with torch.enable_grad():
            for name, found in features(leaf).items():
                rows, cols = found.shape[2:]
                centre = found[:, :, rows // 2, cols // 2].sum()
                (gradient,) = torch.autograd.grad(centre, leaf, retain_graph=True)
                fields[name] = fields.get(name, 0) + gradient.double().abs().sum(dim=(0, 1)) / len(images)
    return fields


def receptive_field_radius(field: Float[Tensor, "rows cols"], *, map_size: tuple[int, int]) -> float:
    """``sqrt(sum g r^2 / sum g)`` in pixels, r from the middle of the feature; not a number for a field of zeros.

    Arguments:
        map_size: (rows, cols) of the map whose middle the field is of.
    """
    rows, cols = (
        (torch.arange(length, device=field.device).double() + 0.5 - (size // 2 + 0.5) * length / size).square()
        for length, size in zip(field.shape, map_size, strict=True)
    )
    mass = field.sum()
    squares = (field * (rows[:, None] + cols)).sum()
    return (squares / torch.where(mass > 0, mass, torch.nan)).sqrt().item()
