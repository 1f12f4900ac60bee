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

    @torch.no_grad()
    def update(self, network: nn.Module, *, is_first: bool) -> None:
        """Move towards the weights of ``network``; onto them, where ``is_first``."""
        pairs = list(zip(_tensors(self.network), _tensors(network), strict=True))
        counts = [pair for pair in pairs if is_first or not pair[0].is_floating_point()]
        for mine, theirs in counts:
            mine.copy_(theirs)
        if not is_first:
            mine, theirs = zip(*(pair for pair in pairs if pair[0].is_floating_point()), strict=True)
            torch._foreach_lerp_(list(mine), list(theirs), 1 - 0.5 ** (1 / max(self.half_life, 1e-9)))  # pyright: ignore[reportPrivateImportUsage]


def _tensors(network: nn.Module) -> list[Tensor]:
    return [*network.parameters(), *network.buffers()]
