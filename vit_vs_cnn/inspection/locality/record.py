"""What modules read and write during one forward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass
class Call:
    """The first input of a module and all of its output."""

    inputs: Tensor
    output: Any


@contextmanager
def recorded_calls(modules: Sequence[nn.Module]) -> Iterator[list[Call | None]]:
    """Record the last call of each module within the block; None for one that was not called.

    The hooks are gone after the block, also if it raises.
    """
    calls: list[Call | None] = [None] * len(modules)

    def keep(index: int) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
            calls[index] = Call(inputs[0], output)

        return hook

    handles = [module.register_forward_hook(keep(index)) for index, module in enumerate(modules)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
