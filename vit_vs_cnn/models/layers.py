"""The layers of a network, from the images to the head, as fine-tuning takes them."""

from torch import nn


def layers_of(network: nn.Module) -> list[list[str]]:
    """Names of the parameters of each layer, the stem first, the head last.

    A layer is what the network's ``group_matcher`` says, as timm's models and ours have it (stem, blocks, head, a final
    norm with the last block); else each of its own modules that has parameters, in the order of their making. Where all
    are in one module, the layers are those of that module.
    """
    matcher = getattr(network, "group_matcher", None)
    if not callable(matcher):
        found: dict[str, list[str]] = {}
        for name, _ in network.named_parameters():
            module, dot, _ = name.partition(".")
            found.setdefault(module if dot else "", []).append(name)
        if len(found) == 1 and (only := next(iter(found))):
            return [[f"{only}.{name}" for name in layer] for layer in layers_of(getattr(network, only))]
        return list(found.values())
    from timm.models import group_parameters

    groups: dict[int, list[str]] = group_parameters(network, matcher(coarse=False))  # pyright: ignore[reportAssignmentType]
    return [groups[number] for number in sorted(groups)]


def batch_norms_of(network: nn.Module) -> dict[str, nn.Module]:
    """Every module that keeps running statistics, by name."""
    return {name: module for name, module in network.named_modules() if hasattr(module, "running_mean")}
