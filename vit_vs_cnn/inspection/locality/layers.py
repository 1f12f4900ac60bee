"""Attention layers of a network: their distances, fits of convolutions (least squares), and their replacement."""

import copy
from collections.abc import Mapping, Sequence
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

Padding: TypeAlias = Literal["valid", "replicate", "zeros"]
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
    """``W, b = argmin sum |Y - W * X - b|^2 + ridge m |W|^2``, m the mean square of the centred inputs.

    The normal equations are stored, (in_channels kernel_size^2)^2 numbers.

    Arguments:
        kernel_size: an odd number.
        padding: "replicate" the edge of a map, or "zeros"; "valid": only outputs that need no padding are fitted.
    """

    def __init__(self, kernel_size: int, *, padding: Padding = "valid") -> None:
        self.kernel_size = kernel_size
        self.padding: Padding = padding
        self.sums: list[Tensor] = []
        self.rows, self.in_channels = 0, 0

    def update(
        self,
        inputs: Float[Tensor, "batch in_channels rows cols"],
        outputs: Float[Tensor, "batch out_channels rows cols"],
    ) -> None:
        self.in_channels = inputs.shape[1]
        margin, inputs = self.kernel_size // 2, inputs.double()
        if self.padding == "valid":
            outputs = crop_map(outputs, margin)
        elif margin:
            inputs = F.pad(inputs, (margin,) * 4, mode="replicate" if self.padding == "replicate" else "constant")
        patches = F.unfold(inputs, self.kernel_size).transpose(1, 2).flatten(0, 1)
        targets = outputs.double().flatten(2).transpose(1, 2).flatten(0, 1)
        self.rows += len(patches)
        sums = [patches.mT @ patches, patches.mT @ targets, patches.sum(dim=0), targets.sum(dim=0)]
        self.sums = [total + term for total, term in zip(self.sums, sums, strict=True)] if self.sums else sums

    def compute(self) -> nn.Conv2d | None:
        """The convolution; None with as many unknowns as outputs per channel, or more: it would explain anything."""
        gram, cross, input_mean, output_mean = (total / self.rows for total in self.sums)
        if self.rows <= len(gram):
            return None
        gram, cross = gram - input_mean.outer(input_mean), cross - input_mean.outer(output_mean)
        # Inputs that never vary have a Gram matrix of zeros: any penalty will do.
        gram.diagonal().add_(RIDGE * gram.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny ** 0.5))
        solution = torch.cholesky_solve(cross, torch.linalg.cholesky(gram))
        weight = solution.mT.unflatten(1, (self.in_channels, self.kernel_size, self.kernel_size))
        return fixed_convolution(weight, output_mean - input_mean @ solution, self.padding)


def crop_map(maps: Tensor, margin: int) -> Tensor:
    """The map without its outermost rows and cols."""
    rows, cols = maps.shape[-2:]
    return maps[..., margin : rows - margin, margin : cols - margin]


class LayerPass(NamedTuple):
    """A layer's inputs (after the norm), outputs (before the residual) and attention weights for a batch."""

    inputs: Tensor
    outputs: Tensor
    weights: Float[Tensor, "batch heads tokens tokens"]


def attention_layer(network: VisionTransformer, number: int) -> MultiHeadAttention:
    block: Any = network.encoder.blocks[number]
    return block.attention


@torch.no_grad()
def pass_layer(network: VisionTransformer, number: int, images: Images) -> LayerPass:
    with record_calls({"attention": attention_layer(network, number)}) as calls:
        network(images, return_attention=True)
    return LayerPass(calls[0].inputs[0], *calls[0].output)


def to_map(
    tokens: Tensor, grid_size: tuple[int, int], num_prefix_tokens: int
) -> Float[Tensor, "batch channels rows cols"]:
    """The patch tokens as a map (batch, embed_dim, rows, cols)."""
    return rearrange(tokens[:, num_prefix_tokens:], "b (rows cols) d -> b d rows cols", rows=grid_size[0])


class TokenConvolution(nn.Module):
    """A convolution over the patch tokens with the interface of the attention that it replaces.

    ``Y[q] = sum_d W_d X[q + d] + b`` for patches. Extra tokens, which have no place on the grid, still attend.
    """

    def __init__(self, fitted: nn.Conv2d, network: VisionTransformer, attention: nn.Module) -> None:
        super().__init__()
        self.convolution = fitted
        self.grid_size, self.num_prefix_tokens = network.grid_size, network.num_prefix_tokens
        self.attention = attention if network.num_prefix_tokens else None

    def forward(self, queries: Tensor) -> Float[Tensor, "batch tokens embed_dim"]:
        convolved = self.convolution(to_map(queries, self.grid_size, self.num_prefix_tokens))
        tokens = rearrange(convolved, "b d rows cols -> b (rows cols) d")
        if self.attention is None:
            return tokens
        return torch.cat([self.attention(queries)[:, : self.num_prefix_tokens], tokens], dim=1)


def replace_attention(network: VisionTransformer, number: int, fitted: nn.Conv2d) -> VisionTransformer:
    """A copy of the network with a convolution in place of one attention layer."""
    replaced = copy.deepcopy(network)
    block: Any = replaced.encoder.blocks[number]
    convolution = TokenConvolution(copy.deepcopy(fitted), network, block.attention)
    block.attention = convolution.to(next(network.parameters()))
    return replaced


def patch_distances(grid_size: tuple[int, int], patch_size: Sequence[int | float]) -> Float[Tensor, "patches patches"]:
    """Distance of each pair of patches in pixels."""
    axes = [torch.arange(size).double() * pixels for size, pixels in zip(grid_size, patch_size, strict=True)]
    positions = torch.cartesian_prod(*axes).view(-1, 2)
    return torch.cdist(positions, positions, compute_mode="donot_use_mm_for_euclid_dist")


def uniform_distance(grid_size: tuple[int, int], patch_size: Sequence[int | float] = (1, 1)) -> float:
    """``attention_distance`` of equal weights: near 0.5214 n patches on a grid of n x n, 4.1365 for n = 8."""
    return patch_distances(grid_size, patch_size).mean().item()


def attention_distance(
    weights: Float[Tensor, "batch heads tokens tokens"],
    grid_size: tuple[int, int],
    patch_size: Sequence[int | float] = (1, 1),
    *,
    num_prefix_tokens: int = 0,
) -> Float[Tensor, "heads"]:
    """``E_{x,q} sum_k A |q - k|`` with positions in pixels: the mean attention distance of every head.

    Reference: Dosovitskiy et al. 2021, figure 7 (right) and appendix D.7.
    Differs: the class token is left out, and rows are renormalized.
    """
    distances = patch_distances(grid_size, patch_size).to(weights.device)
    patches = weights[:, :, num_prefix_tokens:, num_prefix_tokens:].double()
    total = patches.sum(dim=-1, keepdim=True)  # zero in a row that attends to prefix tokens alone
    patches = patches / total.masked_fill(total == 0, 1.0)
    return torch.einsum("bhqk,qk->bhq", patches, distances).mean(dim=(0, 2))


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
