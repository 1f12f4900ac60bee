"""Measures of a layer: attention distance of its heads, and the share of its output that a prediction explains."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Weights = Float[Tensor, "batch heads tokens tokens"]


def patch_weights(weights: Weights, num_prefix_tokens: int) -> Float[Tensor, "batch heads patches patches"]:
    """Weights between patches in float64. Rows sum to one; a row that attends to extra tokens alone is zero."""
    patches = weights[:, :, num_prefix_tokens:, num_prefix_tokens:].double()
    total = patches.sum(dim=-1, keepdim=True)
    return patches / total.masked_fill(total == 0, 1.0)


def patch_distances(grid_size: tuple[int, int], patch_size: Sequence[int | float]) -> Float[Tensor, "patches patches"]:
    """Distance of each pair of patches in pixels."""
    axes = [torch.arange(size).double() * pixels for size, pixels in zip(grid_size, patch_size, strict=True)]
    positions = torch.cartesian_prod(*axes).view(-1, 2)
    return torch.cdist(positions, positions, compute_mode="donot_use_mm_for_euclid_dist")


def uniform_distance(grid_size: tuple[int, int], patch_size: Sequence[int | float] = (1, 1)) -> float:
    """``attention_distance`` of equal weights: near 0.5214 n patches on a grid of n x n, 4.1365 for n = 8."""
    return patch_distances(grid_size, patch_size).mean().item()


def attention_distance(
    weights: Weights,
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
    patches = patch_weights(weights, num_prefix_tokens)
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
