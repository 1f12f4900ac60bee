"""What the layers of any network give for a batch of images."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.models.recording import as_evaluated, recorded_calls


def layer_names(network: nn.Module) -> list[str]:
    """The layers to look at, in their order: the blocks, and what stands before and after them.

    Containers of blocks are gone into; a block itself, and whatever has no block inside, is one layer. A module without
    parameters is left out.
    """
    return _layers(network, "") or [name for name, module in network.named_modules() if name and _learns(module)]


def _layers(module: nn.Module, prefix: str) -> list[str]:
    names = []
    for name, child in module.named_children():
        if not _learns(child):
            continue
        place = f"{prefix}{name}"
        names += _layers(child, f"{place}.") if _holds_blocks(child) else [place]
    return names


def _learns(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _holds_blocks(module: nn.Module) -> bool:
    """Whether a list or a sequence in it (or it itself) has members that are made of several parts."""
    containers = [m for m in module.modules() if isinstance(m, nn.Sequential | nn.ModuleList)]
    return any(
        next(member.children(), None) is not None and _learns(member)
        for container in containers
        for member in container.children()
    )


@torch.no_grad()
def features_of(
    network: nn.Module, images: Float[Tensor, "batch channels rows cols"], names: Sequence[str]
) -> dict[str, Tensor]:
    """The output of each layer for normalised images, in the order of ``names``; the network's mode is kept.

    A layer that gives no tensor, or none with the batch in front, is left out.
    """
    there = dict(network.named_modules())
    if missing := [name for name in names if name not in there]:
        raise ValueError(f"layer {missing[0]!r} is none of {', '.join(filter(None, there))}")
    with as_evaluated(network), recorded_calls({name: there[name] for name in names}, keep=_copied) as calls:
        network(images)
    outputs = {call.name: call.output for call in calls}
    return {name: found for name in names if (found := outputs.get(name)) is not None and len(found) == len(images)}


def _copied(output: Any) -> Tensor | None:
    """The first tensor of an output; later layers may write into the original."""
    first = output[0] if isinstance(output, tuple | list) else output
    return first.detach().clone() if isinstance(first, Tensor) else None


def as_maps(features: Tensor, extra_tokens: int, grid_size: tuple[int, int] | None) -> Tensor | None:
    """Features as ``(batch, channels, rows, cols)``: tokens back on their grid; None for what has no space.

    Arguments:
        extra_tokens: that stand for no place, in front of the others.
        grid_size: (rows, cols) of the tokens; a square if None.
    """
    if features.ndim == 4:
        channels_last = features.shape[1] == features.shape[2] != features.shape[3]  # Swin's layout
        return features.movedim(3, 1) if channels_last else features
    if features.ndim != 3:
        return None
    patches = features[:, extra_tokens:]
    side = int(patches.shape[1] ** 0.5)
    rows, cols = grid_size or (side, side)
    if rows * cols != patches.shape[1]:
        return None
    return patches.mT.unflatten(2, (rows, cols))
