"""Whether a network of attention computes what the network of convolutions did, and which layer does not."""

from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from vit_vs_cnn.attention.convolution.folding import tensors_in
from vit_vs_cnn.attention.shapes import Images

#: Images that the two are compared on.
CHECKED_IMAGES = 2


@torch.no_grad()
def check_same_function(model: nn.Module, attention: nn.Module, images: Images, folded: Mapping[str, str]) -> None:
    """Compare the outputs of two networks in evaluation mode, and where they differ look for the layer that does.

    Arguments:
        folded: by the name of a convolution that of the batch norm that was put into its kernel.

    Raises:
        ValueError: an output differs by more than ``sqrt(eps)`` of its largest value, eps that of its dtype; or the
            second network fails.
    """
    expected = model(images.clone())
    try:
        difference = _difference(expected, attention(images.clone()))
    except Exception as error:  # whatever a forward pass that looks into its layers may raise
        raise ValueError(f"{type(model).__qualname__} fails with attention in it: {error!r}") from error
    if difference <= 1:
        return
    outputs, found = (_outputs(network, images) for network in (model, attention))
    for (name, call), output in list(outputs.items())[:-1]:  # the last one is the network
        if name in folded or (name, 0) not in found:
            continue  # with the batch norm behind it; or within a layer that was replaced
        if _difference(output, found.get((name, call))) > 1:
            raise ValueError(_named(model, name, folded))
    raise ValueError(
        f"{type(model).__qualname__} cannot be written as attention: its outputs differ by {difference:.1e} times what "
        "rounding may do, though no layer of it does; does its forward pass keep or change what a convolution gives?"
    )


def _named(model: nn.Module, name: str, folded: Mapping[str, str]) -> str:
    layers = [convolution for convolution, norm in folded.items() if norm == name]
    kind = type(model.get_submodule(name)).__qualname__
    within = f"{layers[0]} (Conv2d) with {name} ({kind}) folded into it" if layers else f"{name} ({kind})"
    return (
        f"{type(model).__qualname__} cannot be written as attention: the first layer that gives something else than "
        f"before is {within}; is there a hook on it, or is its output changed in place?"
    )


def _outputs(network: nn.Module, images: Tensor) -> dict[tuple[str, int], list[Tensor]]:
    """What each layer gives at each of its calls, in the order in which they end."""
    outputs, calls, hooks = {}, Counter[str](), []
    for name, module in network.named_modules():

        def keep(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            outputs[name, calls[name]] = [tensor.clone() for tensor in tensors_in(output)]  # it may be changed in place
            calls[name] += 1

        hooks.append(module.register_forward_hook(keep))
    try:
        network(images.clone())
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


def _difference(expected: Any, found: Any) -> float:
    """Largest difference of two outputs, in ``sqrt(eps)`` of the largest value; infinite for other shapes."""
    pairs = list(zip_longest(tensors_in(expected), tensors_in(found)))
    if any(first is None or second is None or first.shape != second.shape for first, second in pairs):
        return torch.inf
    return max((_apart(first, second) for first, second in pairs), default=0.0)


def _apart(expected: Tensor, found: Tensor) -> float:
    same = (expected == found) | (expected.isnan() & found.isnan())
    if bool(same.all()):
        return 0.0
    if not expected.is_floating_point():
        return torch.inf
    tolerance = torch.finfo(expected.dtype).eps ** 0.5
    size = expected.double().abs().nan_to_num(0.0, posinf=0.0).amax().item()
    difference = (expected.double() - found).abs().masked_fill(same, 0.0).nan_to_num(torch.inf).amax().item()
    return difference / (tolerance * size) if size else torch.inf
