"""How far, in pixels, attention looks on average."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from vit_vs_cnn.inspection.locality.offsets import Reach, interior_queries, patch_weights

#: Every query counts, also those at the edges.
ALL_QUERIES: Reach = (0, 0)


def attention_distance(
    weights: Float[Tensor, "batch heads tokens tokens"],
    *,
    grid_size: tuple[int, int],
    patch_size: int | Sequence[int] = 1,
    extra_tokens: int = 0,
    reach: Reach = ALL_QUERIES,
) -> Float[Tensor, "heads"]:
    """``E_{x,q} sum_k A |q - k|`` with places in pixels: the mean attention distance of every head.

    Reference: Dosovitskiy et al. 2021, figure 7 (right) and appendix D.7.
    Differs: the class token is left out, and rows are renormalised.

    Arguments:
        weights, grid_size, extra_tokens: see ``patch_weights``.
        patch_size: of a patch in pixels, one number or (rows, cols).
        reach: queries nearer to an edge than this are left out; none are if (0, 0).
    """
    return _distances(weights, grid_size, patch_size, extra_tokens, reach).mean(dim=0)


def uniform_distance(
    grid_size: tuple[int, int], patch_size: int | Sequence[int] = 1, reach: Reach = ALL_QUERIES
) -> float:
    """The ``attention_distance`` of attention that sees all patches alike: what a distance is to be held against.

    On a square grid of n x n it is near 0.5214 n patches: 4.1365 for n = 8.
    """
    queries = interior_queries(grid_size, reach)
    return _pair_distances(grid_size, patch_size)[queries].mean().item()


class AttentionDistanceMetric(Metric):
    """``attention_distance`` over batches. Arguments as there, and the number of heads."""

    full_state_update = False
    sums: Tensor
    images: Tensor

    def __init__(
        self,
        num_heads: int,
        *,
        grid_size: tuple[int, int],
        patch_size: int | Sequence[int] = 1,
        extra_tokens: int = 0,
        reach: Reach = ALL_QUERIES,
    ) -> None:
        super().__init__()
        self.grid_size, self.patch_size, self.extra_tokens, self.reach = grid_size, patch_size, extra_tokens, reach
        self.add_state("sums", torch.zeros(num_heads, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        distances = _distances(weights, self.grid_size, self.patch_size, self.extra_tokens, self.reach)
        self.sums += distances.sum(dim=0)
        self.images += len(distances)

    def compute(self) -> Float[Tensor, "heads"]:
        return self.sums / self.images


def _distances(
    weights: Tensor, grid_size: tuple[int, int], patch_size: int | Sequence[int], extra_tokens: int, reach: Reach
) -> Float[Tensor, "batch heads"]:
    queries = interior_queries(grid_size, reach).to(weights.device)
    patches = patch_weights(weights, grid_size=grid_size, extra_tokens=extra_tokens, queries=queries)
    pairs = _pair_distances(grid_size, patch_size).to(weights.device)[queries]
    return torch.einsum("bhqk,qk->bhq", patches, pairs).mean(dim=2)


def _pair_distances(grid_size: tuple[int, int], patch_size: int | Sequence[int]) -> Float[Tensor, "patches patches"]:
    patch = (patch_size, patch_size) if isinstance(patch_size, int) else tuple(patch_size)
    axes = [torch.arange(size).double() * pixels for size, pixels in zip(grid_size, patch, strict=True)]
    places = torch.cartesian_prod(*axes).view(-1, 2)
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")
