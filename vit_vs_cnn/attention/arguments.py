"""Names of tensor shapes that signatures use, and checks of arguments."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: (rows, cols), or one number for both.
Size2d: TypeAlias = int | Sequence[int]

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

#: True where a query may attend, of any shape that broadcasts.
AnyMask = Bool[Tensor, "..."]
#: True where a query may attend, broadcast against (batch, heads, queries, keys) from the right.
Mask: TypeAlias = (
    Bool[Tensor, "#batch #heads #queries #keys"]
    | Bool[Tensor, "#heads #queries #keys"]
    | Bool[Tensor, "#queries #keys"]
    | Bool[Tensor, "#keys"]
)
#: Number added to each score, broadcast like a mask.
Bias: TypeAlias = (
    Float[Tensor, "#batch #heads #queries #keys"]
    | Float[Tensor, "#heads #queries #keys"]
    | Float[Tensor, "#queries #keys"]
    | Float[Tensor, "#keys"]
)


def check_positive(**sizes: int) -> None:
    """Raise ValueError unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, Integral) or size < 1:
            raise ValueError(f"{name} must be a whole number and at least 1, but is {size!r}")


def check_probability(**probabilities: float) -> None:
    """Raise ValueError unless every probability is in [0, 1)."""
    for name, probability in probabilities.items():
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"{name} must be in [0, 1), but is {probability}")


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise ValueError unless the value is one of the allowed words."""
    if value not in allowed:
        raise ValueError(f'{name} must be one of {", ".join(allowed)}, but is "{value}"')


def check_mask(mask: Tensor) -> None:
    """Raise ValueError unless the mask is boolean."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean, True where a query may attend, but has dtype {mask.dtype}")


def as_rows_and_cols(name: str, size: Size2d, *, minimum: int = 1) -> tuple[int, int]:
    """Size as (rows, cols), from one number for both or from two numbers.

    Raises:
        ValueError: if there are not one or two numbers, or one of them is below ``minimum``.
    """
    pair = tuple(size) if isinstance(size, Iterable) else (size, size)
    if len(pair) != 2 or any(isinstance(side, str | float) or side < minimum for side in pair):
        raise ValueError(f"{name} must be a whole number or (rows, cols), at least {minimum}, but is {size!r}")
    return pair[0], pair[1]
