"""Attention layers of a network, their approximation by convolutions (least squares), and their replacement."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.attention.multihead import MultiHeadAttention
from vit_vs_cnn.inspection.attention_weights import Images
from vit_vs_cnn.models.recording import record_calls
from vit_vs_cnn.models.vit import VisionTransformer

Padding: TypeAlias = Literal["valid", "zeros", "replicate"]
#: Share of the mean square of an input that is added to the diagonal: the solution is unique for layer-normed tokens,
#: whose channels sum to zero, without visible shrinkage.
RIDGE = 1e-10


def fixed_convolution(
    weight: Float[Tensor, "out_channels in_channels kernel_size kernel_size"],
    bias: Float[Tensor, "out_channels"],
    padding: Padding = "valid",
) -> nn.Conv2d:
    """A convolution of stride 1 with these weights, which are not trained."""
    channels, size = (weight.shape[1], weight.shape[0]), weight.shape[-1]
    margin, mode = (0, "zeros") if padding == "valid" else (size // 2, padding)
    convolution = nn.Conv2d(*channels, size, padding=margin, padding_mode=mode, device="meta")
    convolution.weight, convolution.bias = nn.Parameter(weight), nn.Parameter(bias)
    return convolution.requires_grad_(False)


class ConvolutionFit:
    """``W_k, b_k = argmin sum |Y - W * X - b|^2 + ridge m |W|^2`` for several kernel sizes k at once.

    m is the mean square of the centred inputs. All kernel sizes have the same outputs: with "valid" padding those whose
    largest kernel stays on the map. So the explained variance never falls as k grows, on the data fitted.

    The normal equations of the largest kernel are stored, (in_channels k^2)^2 numbers; those of the smaller kernels are
    parts of them. A kernel with as many unknowns as outputs per channel, or more, is None, as it would explain
    anything.

    Arguments:
        kernel_sizes: odd numbers.
        padding: "zeros" or "replicate" beyond the edge of a map; "valid": only outputs that need none are fitted.
    """

    def __init__(
        self, kernel_sizes: Sequence[int] = (1, 3, 5), *, padding: Padding = "valid", ridge: float = RIDGE
    ) -> None:
        self.padding: Padding = padding
        self.kernel_sizes, self.ridge = tuple(kernel_sizes), ridge
        self.sums: list[Tensor] = []
        self.rows, self.in_channels = 0, 0

    def update(
        self,
        inputs: Float[Tensor, "batch in_channels rows cols"],
        outputs: Float[Tensor, "batch out_channels rows cols"],
    ) -> None:
        self.in_channels = inputs.shape[1]
        patches, targets = patches_and_targets(inputs, outputs, max(self.kernel_sizes), self.padding)
        self.rows += len(patches)
        if not self.sums:
            sizes = (
                (patches.shape[1],) * 2,
                (patches.shape[1], targets.shape[1]),
                patches.shape[1:],
                targets.shape[1:],
            )
            self.sums = [patches.new_zeros(size) for size in sizes]
        gram, cross, input_sums, output_sums = self.sums
        gram.addmm_(patches.mT, patches)
        cross.addmm_(patches.mT, targets)
        input_sums += patches.sum(dim=0)
        output_sums += targets.sum(dim=0)

    def compute(self) -> dict[int, nn.Conv2d | None]:
        return {size: self._solve(size) for size in self.kernel_sizes}

    def _solve(self, kernel_size: int) -> nn.Conv2d | None:
        gram, cross, input_sums, output_sums = self.sums
        largest = max(self.kernel_sizes)
        unknowns = torch.arange(self.in_channels * largest**2, device=gram.device)
        indices = crop_map(unknowns.view(1, self.in_channels, largest, largest), (largest - kernel_size) // 2).flatten()
        if self.rows <= len(indices):
            return None
        input_mean, output_mean = input_sums[indices] / self.rows, output_sums / self.rows
        gram = gram[indices[:, None], indices] / self.rows - input_mean.outer(input_mean)
        cross = cross[indices] / self.rows - input_mean.outer(output_mean)
        # Inputs that never vary have a Gram matrix of zeros: any penalty will do.
        penalty = self.ridge * gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny ** 0.5)
        gram.diagonal().add_(penalty)
        solution = torch.cholesky_solve(cross, torch.linalg.cholesky(gram))
        bias = output_mean - input_mean @ solution
        weight = solution.mT.unflatten(1, (self.in_channels, kernel_size, kernel_size))
        return fixed_convolution(weight, bias, self.padding)


class ExplainedVariance:
    """``R^2 = 1 - sum |Y - prediction|^2 / sum |Y - mean Y|^2`` over all channels together, for several predictions.

    The mean is that of every channel over images and places. Not a number if Y does not vary.
    """

    def __init__(self) -> None:
        self.errors: dict[str, Tensor] = {}
        self.sums, self.squares, self.rows = torch.zeros(()), torch.zeros(()), 0

    def update(
        self,
        outputs: Float[Tensor, "batch channels rows cols"],
        predictions: Mapping[str, Float[Tensor, "batch channels rows cols"]],
    ) -> None:
        outputs = outputs.double()
        for name, prediction in predictions.items():
            error = (outputs - prediction.double()).square().sum()
            self.errors[name] = self.errors.get(name, torch.zeros_like(error)) + error
        self.sums = self.sums.to(outputs) + outputs.sum(dim=(0, 2, 3))
        self.squares = self.squares.to(outputs) + outputs.square().sum()
        self.rows += outputs.shape[0] * outputs.shape[2] * outputs.shape[3]

    def compute(self) -> dict[str, float]:
        total = self.squares - self.sums.square().sum() / self.rows
        total = torch.where(total > torch.finfo(torch.float64).eps * self.squares, total, torch.nan)
        return {name: 1 - (error / total).item() for name, error in self.errors.items()}


def patches_and_targets(inputs: Tensor, outputs: Tensor, kernel_size: int, padding: Padding) -> tuple[Tensor, Tensor]:
    """Inputs of the kernel at each place, and the output there, in float64."""
    margin, inputs = kernel_size // 2, inputs.double()
    if padding == "valid":
        outputs = crop_map(outputs, margin)
    elif margin:
        inputs = F.pad(inputs, (margin,) * 4, mode="constant" if padding == "zeros" else padding)
    patches = F.unfold(inputs, kernel_size)
    return patches.transpose(1, 2).flatten(0, 1), outputs.double().flatten(2).transpose(1, 2).flatten(0, 1)


def crop_map(maps: Tensor, margin: int) -> Tensor:
    """The map without its outermost rows and cols."""
    rows, cols = maps.shape[-2:]
    return maps[..., margin : rows - margin, margin : cols - margin]


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """An attention layer of a Vision Transformer."""

    name: str
    module: MultiHeadAttention
    grid_size: tuple[int, int]
    extra_tokens: int
    patch_size: tuple[int, int]

    @property
    def padding(self) -> Padding:
        """The padding of a convolution that replaces the layer.

        Attention without tokens beyond the edge tends to replicate padding (Cordonnier's construction without
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
    layout = (network.grid_size, network.num_prefix_tokens, network.patch_embedding.patch_size)
    blocks: Any = network.encoder.blocks
    return [
        AttentionLayer(f"encoder.blocks.{index}.attention", block.attention, *layout)
        for index, block in enumerate(blocks)
    ]


@torch.no_grad()
def pass_layer(network: nn.Module, layer: AttentionLayer, images: Images) -> LayerPass:
    """Inputs, outputs and weights of a layer for a batch of images."""
    with record_calls({layer.name: layer.module}) as calls:
        network(images, return_attention=True)
    return LayerPass(calls[0].inputs[0], *calls[0].output)


def to_map(tokens: Tensor, grid_size: tuple[int, int], extra_tokens: int) -> Float[Tensor, "batch channels rows cols"]:
    """The patch tokens as a map (batch, embed_dim, rows, cols)."""
    return rearrange(tokens[:, extra_tokens:], "b (rows cols) d -> b d rows cols", rows=grid_size[0])


class TokenConvolution(nn.Module):
    """A convolution over the patch tokens with the interface of the attention that it replaces.

    ``Y[q] = sum_d W_d X[q + d] + b`` for patches. Extra tokens, which have no place on the grid, still attend.

    Arguments:
        fitted: the convolution, whose padding is not "valid".
        attention: for the extra tokens.
    """

    def __init__(self, fitted: nn.Conv2d, layer: AttentionLayer, attention: nn.Module) -> None:
        super().__init__()
        self.convolution = fitted
        self.grid_size, self.extra_tokens = layer.grid_size, layer.extra_tokens
        self.attention = attention if layer.extra_tokens else None

    def forward(self, queries: Tensor, **_: Any) -> tuple[Float[Tensor, "batch tokens embed_dim"], None]:
        convolved = self.convolution(to_map(queries, self.grid_size, self.extra_tokens))
        tokens = rearrange(convolved, "b d rows cols -> b (rows cols) d")
        if self.attention is None:
            return tokens, None
        return torch.cat([self.attention(queries)[0][:, : self.extra_tokens], tokens], dim=1), None


def replace_attention(network: nn.Module, layer: AttentionLayer, fitted: nn.Conv2d) -> nn.Module:
    """A copy of the network with a convolution in place of one attention layer."""
    replaced = copy.deepcopy(network)
    convolution = TokenConvolution(copy.deepcopy(fitted), layer, replaced.get_submodule(layer.name))
    replaced.set_submodule(layer.name, convolution.to(next(network.parameters())))
    return replaced
