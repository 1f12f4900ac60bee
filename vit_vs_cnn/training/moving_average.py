"""An exponential moving average of a network's weights."""

import copy

import torch
from torch import Tensor, nn


class MovingAverage(nn.Module):
    """w <- d w + (1 - d) w_step with d = 2^(-1 / half_life), for parameters and floating-point buffers.

    A submodule of what trains, so that a checkpoint holds it. The first update copies. Unlike
    ``torch.optim.swa_utils.AveragedModel`` it keeps no count on the device, which a GPU would have to wait for.

    Arguments:
        half_life: in updates.
    """

    def __init__(self, network: nn.Module, *, half_life: float = 1.0) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.half_life = half_life
        self._constant: set[int] | None = None

    @torch.no_grad()
    def update(self, network: nn.Module, *, is_first: bool) -> None:
        """Move towards the weights of ``network``; onto them, where ``is_first``."""
        pairs = list(zip(_tensors(self.network), _tensors(network), strict=True))
        if self._constant is None:  # masks of minus infinity and counts have no mean; looked for once
            self._constant = {i for i, (_, one) in enumerate(pairs) if not _has_mean(one)}
        for mine, theirs in (pair for i, pair in enumerate(pairs) if is_first or i in self._constant):
            mine.copy_(theirs)
        if not is_first:
            mine, theirs = zip(*(pair for i, pair in enumerate(pairs) if i not in self._constant), strict=True)
            torch._foreach_lerp_(list(mine), list(theirs), 1 - 0.5 ** (1 / max(self.half_life, 1e-9)))  # pyright: ignore[reportPrivateImportUsage]


def _has_mean(one: Tensor) -> bool:
    return one.is_floating_point() and (isinstance(one, nn.Parameter) or bool(one.isfinite().all()))


def _tensors(network: nn.Module) -> list[Tensor]:
    return [*network.parameters(), *network.buffers()]
