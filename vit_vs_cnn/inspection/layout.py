"""Layout of a network's tokens, and the tokens that its head pools."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.input_wrappers import PermutedInput, ResizedInput
from vit_vs_cnn.models.vit import VisionTransformer

#: Images, normalised, as a network takes them.
Images = Float[Tensor, "batch channels rows cols"]
#: One for each image.
Classes = Int64[Tensor, "batch"]
TokensRead = Literal["class", "mean", "all", "two", "attention"]
#: The same by the name that timm gives its pool.
TIMM_POOLS: Mapping[str, TokensRead] = {"token": "class", "avg": "mean", "map": "attention"}
POOLING_TOKENS: Mapping[str, TokensRead] = {
    "class": "class",
    "mean": "mean",
    "sequence": "attention",
}


@dataclass(frozen=True)
class TokenLayout:
    """Order of the tokens (extra tokens, then patches row by row), and the tokens that the head pools.

    Arguments:
        extra_tokens: number of tokens before the patches: class token, registers.
        reads: "class" for the first token, "mean" of the patches, "all" for the mean of all tokens, "two" for that of
            the first two (a class and a distillation token), "attention" for a last attention of other queries that
            pools them, or a mean with learned weights.
    """

    grid_size: tuple[int, int]
    extra_tokens: int = 0
    reads: TokensRead = "mean"

    @classmethod
    def of(cls, network: nn.Module, image_size: tuple[int, int]) -> "TokenLayout":
        """The layout of our Vision Transformer, or of timm's.

        Arguments:
            image_size: (rows, cols) of the images, for models that take several sizes.

        Raises:
            InputError: another network.
        """
        if isinstance(network, PermutedInput):
            raise InputError("the blocks of the images are permuted, so tokens have no position in the image")
        if isinstance(network, ResizedInput):
            return cls.of(network.network, network.image_size)
        if isinstance(network, VisionTransformer):
            return cls(network.grid_size, network.num_prefix_tokens, POOLING_TOKENS[network.pool])
        model: Any = network
        if not isinstance(getattr(network, "num_prefix_tokens", None), int) or not hasattr(network, "patch_embed"):
            raise InputError(f"{type(network).__name__} is not a supported Vision Transformer")
        return cls(_timm_grid(model, image_size), model.num_prefix_tokens, _timm_reads(model))

    @property
    def tokens(self) -> int:
        return self.extra_tokens + self.grid_size[0] * self.grid_size[1]

    def query(self) -> Float[Tensor, "tokens"]:
        """Weight of each token in the pooled features; for "attention" see ``AttentionMaps``."""
        query = torch.zeros(self.tokens, dtype=torch.float64)
        first, last = {"class": (0, 1), "two": (0, 2), "all": (0, None)}.get(self.reads, (self.extra_tokens, None))
        query[first:last] = 1 / len(query[first:last])
        return query


def _timm_grid(model: Any, image_size: tuple[int, int]) -> tuple[int, int]:
    patches = model.patch_embed
    if getattr(patches, "img_size", image_size) == image_size and getattr(patches, "grid_size", None):
        rows, cols = patches.grid_size
    elif hasattr(patches, "dynamic_feat_size"):
        rows, cols = patches.dynamic_feat_size(image_size)
    else:
        raise InputError(f"{type(model).__name__} does not have the grid of its patches")
    return int(rows), int(cols)


def _timm_reads(model: Any) -> TokensRead:
    if hasattr(model, "head_dist"):
        return "two"
    pool: Any = getattr(model, "global_pool", None)
    if pool not in TIMM_POOLS:
        raise InputError(
            f"{type(model).__name__} pools its tokens by {pool!r}, which is not a mean of them; "
            f"known: {', '.join(TIMM_POOLS)}"
        )
    if pool == "avg" and getattr(model, "pool_include_prefix", False):
        return "all"
    return TIMM_POOLS[pool]
