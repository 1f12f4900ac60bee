"""Which batch norms follow which convolutions, and putting them into their kernels."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_vs_cnn.attention.shapes import Images


class Folding(NamedTuple):
    """What one forward pass shows of a network.

    Arguments:
        norms: by the name of a convolution that of the batch norm that reads its output, and is its only reader.
        outside: convolutions that no ``nn.Conv2d`` computed.
    """

    norms: dict[str, str]
    outside: int


#: All that torch has of the kind; those of two dimensions are layers' own where a layer computed them.
CONVOLUTIONS = (
    *(torch.conv1d, torch.conv2d, torch.conv3d, torch.convolution),
    *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
)


class _Readers(TorchFunctionMode):
    """Counts how many functions read or change each of the tensors given, and the convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[int] = Counter()
        self.watched: dict[int, Tensor] = {}  # held, so that no other tensor takes the id
        self.convolutions = 0

    def watch(self, tensor: Tensor) -> None:
        self.watched[id(tensor)] = tensor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.convolutions += func in CONVOLUTIONS
        parts = result if isinstance(result, list | tuple) else [result]
        # Asking for a shape is not reading; what gives nothing back changes what it is given (``y[:, 0] = 0``).
        if any(part is None or isinstance(part, Tensor) for part in parts):
            self.read((args, kwargs or {}))
        return result

    def read(self, given: Any) -> None:
        """Count every tensor in a structure of them as read once."""
        self.reads.update(id(tensor) for tensor in tensors_in(given) if id(tensor) in self.watched)


def tensors_in(given: Any) -> list[Tensor]:
    """All tensors in lists, tuples and dictionaries, in their order."""
    if isinstance(given, Tensor):
        return [given]
    if isinstance(given, Mapping):
        given = given.values()
    elif not isinstance(given, list | tuple):
        return []
    return [tensor for part in given for tensor in tensors_in(part)]


@torch.no_grad()
def trace_foldings(model: nn.Module, example: Images) -> Folding:
    """Send an example through a network in evaluation mode and watch where the outputs of its convolutions go.

    A pair is one if the batch norm's input is the very output of the convolution, both run once, and nothing else reads
    or changes that output, the caller of the network included.
    """
    names = {module: name for name, module in model.named_modules()}
    runs: Counter[nn.Module] = Counter()
    makers: dict[int, nn.Conv2d] = {}
    pairs: list[tuple[nn.Conv2d, nn.Module, int]] = []
    readers = _Readers()

    def after_convolution(module: nn.Conv2d, _: Any, output: Tensor) -> None:
        runs[module] += 1
        makers[id(output)] = module
        readers.watch(output)

    def before_norm(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        runs[module] += 1
        if id(inputs[0]) in makers:
            pairs.append((makers[id(inputs[0])], module, id(inputs[0])))

    hooks = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            hooks.append(module.register_forward_hook(after_convolution))
        elif _can_be_folded(module):
            hooks.append(module.register_forward_pre_hook(before_norm))
    try:
        with readers:
            readers.read(model(example))
    finally:
        for hook in hooks:
            hook.remove()
    norms = {
        names[convolution]: names[norm]
        for convolution, norm, output in pairs
        if runs[convolution] == runs[norm] == readers.reads[output] == 1
    }
    return Folding(norms, readers.convolutions - len(makers))


def folded_kernel(convolution: nn.Conv2d, norm: Any | None) -> tuple[Tensor, Tensor | None]:
    """Kernel and bias of a convolution with the batch norm behind it.

    ``W' = W gamma / sqrt(var + eps)``, ``b' = beta + (b - mean) gamma / sqrt(var + eps)``.
    """
    if norm is None:
        return convolution.weight.detach(), None if convolution.bias is None else convolution.bias.detach()
    scale = 1.0 / (norm.running_var.double() + norm.eps).sqrt()
    scale = scale if norm.weight is None else scale * norm.weight.detach().double()
    bias = -norm.running_mean.double() if convolution.bias is None else convolution.bias.detach() - norm.running_mean
    bias = bias * scale if norm.bias is None else bias * scale + norm.bias.detach()
    kernel = convolution.weight.detach() * scale[:, None, None, None]
    return kernel.to(convolution.weight), bias.to(convolution.weight)


def what_is_left(norm: Any) -> nn.Module:
    """What a batch norm does besides: nothing, or timm's dropping and activation."""
    if type(norm) in (nn.BatchNorm2d, nn.SyncBatchNorm):
        return nn.Identity()
    return nn.Sequential(norm.drop, norm.act)


def _can_be_folded(module: nn.Module) -> bool:
    if type(module) in (nn.BatchNorm2d, nn.SyncBatchNorm):
        return module.running_mean is not None
    # timm's BatchNormAct2d
    activates = isinstance(getattr(module, "act", None), nn.Module) and isinstance(
        getattr(module, "drop", None), nn.Module
    )
    return isinstance(module, nn.BatchNorm2d) and activates and module.running_mean is not None
