"""Names of tensor shapes that signatures use, and checks of arguments."""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vit_vs_cnn.bounds import Bounds, check_numbers

Images = Float[Tensor, "batch channels rows cols"]
Tokens = Float[Tensor, "batch tokens embed_dim"]
Logits = Float[Tensor, "batch classes"]

Queries = Float[Tensor, "batch heads queries head_dim"]
Keys = Float[Tensor, "batch heads keys head_dim"]
Values = Float[Tensor, "batch heads keys value_head_dim"]
AttentionOutput = Float[Tensor, "batch heads queries value_head_dim"]
Weights = Float[Tensor, "batch heads queries keys"]

#: The same for self-attention, where each token is a query and a key.
Heads = Float[Tensor, "batch heads tokens head_dim"]
HeadValues = Float[Tensor, "batch heads tokens value_head_dim"]
TokenWeights = Float[Tensor, "batch heads tokens tokens"]

#: True where a query may attend, of any shape that broadcasts against the scores.
AnyMask = Bool[Tensor, "..."]
#: Numbers that are added to the scores, broadcast like a mask.
AnyBias = Float[Tensor, "..."]


def check_positive(**sizes: int) -> None:
    """Raise ValueError unless every size is a whole number of at least 1."""
    check_numbers(sizes, **dict.fromkeys(sizes, Bounds(at_least=1, is_whole=True)))


def check_probability(**probabilities: float) -> None:
    """Raise ValueError unless every probability is in [0, 1)."""
    check_numbers(probabilities, **dict.fromkeys(probabilities, Bounds(at_least=0, below=1)))


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise ValueError unless the value is one of the allowed words."""
    if value not in allowed:
        raise ValueError(f'{name} must be one of {", ".join(allowed)}, but is "{value}"')


def check_mask(mask: Tensor, dimensions: int) -> None:
    """Raise ValueError unless the mask is boolean and has at most the ``dimensions`` of the scores."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean, True where a query may attend, but has dtype {mask.dtype}")
    if mask.ndim > dimensions:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} has more dimensions than the scores ({dimensions}); masks of sequences "
            "have a dimension for heads, (batch, 1, queries, keys): use scores.unsqueeze(1), or mask.squeeze(1)"
        )
