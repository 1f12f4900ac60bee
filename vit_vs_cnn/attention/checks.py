"""What the arguments of a layer may be; whoever gives another is told in one line."""

from collections.abc import Iterable

import torch
from torch import Tensor

from vit_vs_cnn.attention.shapes import Sizes


def check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, but is {size}")


def check_probability(**probabilities: float) -> None:
    for name, probability in probabilities.items():
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"{name} must be in [0, 1), but is {probability}")


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise ValueError(f'{name} must be one of {", ".join(allowed)}, but is "{value}"')


def check_mask(mask: Tensor) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean, True where a query may attend, but has dtype {mask.dtype}")


def rows_and_cols(name: str, size: Sizes, *, least: int = 1) -> tuple[int, int]:
    """A size as (rows, cols), given as one number for both or as two."""
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or min(pair) < least:
        raise ValueError(f"{name} must be one number or (rows, cols), at least {least}, but is {size}")
    return pair[0], pair[1]
