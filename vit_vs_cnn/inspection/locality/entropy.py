"""How many keys a query spreads its attention over."""

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from vit_vs_cnn.inspection.locality.offsets import Reach, default_reach, interior_queries, patch_weights


def attention_entropy(
    weights: Float[Tensor, "batch heads tokens tokens"],
    *,
    grid_size: tuple[int, int],
    extra_tokens: int = 0,
    reach: Reach | None = None,
) -> Float[Tensor, "heads"]:
    """``E_{x,q} -sum_k A log A`` in nats over interior queries and all patches: 0 for one key, log(patches) for all.

    Arguments: see ``weights_by_offset``; ``reach`` only says which queries are interior.
    """
    return _entropies(weights, grid_size, extra_tokens, reach).mean(dim=(0, 2))


class AttentionEntropyMetric(Metric):
    """``attention_entropy`` over batches. Arguments as there, and the number of heads."""

    full_state_update = False
    sums: Tensor
    images: Tensor

    def __init__(
        self, num_heads: int, *, grid_size: tuple[int, int], extra_tokens: int = 0, reach: Reach | None = None
    ) -> None:
        super().__init__()
        self.grid_size, self.extra_tokens, self.reach = grid_size, extra_tokens, reach
        self.add_state("sums", torch.zeros(num_heads, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, weights: Float[Tensor, "batch heads tokens tokens"]) -> None:
        self.sums += _entropies(weights, self.grid_size, self.extra_tokens, self.reach).mean(dim=2).sum(dim=0)
        self.images += len(weights)

    def compute(self) -> Float[Tensor, "heads"]:
        return self.sums / self.images


def _entropies(
    weights: Tensor, grid_size: tuple[int, int], extra_tokens: int, reach: Reach | None
) -> Float[Tensor, "batch heads queries"]:
    queries = interior_queries(grid_size, default_reach(grid_size) if reach is None else reach).to(weights.device)
    patches = patch_weights(weights, grid_size=grid_size, extra_tokens=extra_tokens, queries=queries)
    return torch.special.entr(patches).sum(dim=-1)
