"""Optimizer and learning-rate schedule of a recipe, and import of custom classes."""

import importlib
import inspect
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from vit_vs_cnn.bounds import AT_LEAST_0, SHARE, SHARE_ABOVE_0, Bounded, Bounds
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.training.python_objects import find_factory, replace_objects
from vit_vs_cnn.typed_values import build

if TYPE_CHECKING:
    import torch
    from torch import nn

DecayShape = Literal["cosine", "linear", "constant"]
#: Name under which a custom class is registered with timm.
_CUSTOM_OPTIMIZER_NAME = "custom"
_DECAY_RATE = Bounds(at_least=0, below=1)


@dataclass(frozen=True)
class Optimizer(Bounded):
    """Optimizer and its settings.

    Args:
        name: Any optimizer that timm knows: adamw, sgd (Nesterov momentum), lamb, muon, lion, ...; or the path of a
            custom class, such as my_package.MyOptimizer, which gets parameter groups, lr and weight_decay.
        lr: Peak learning rate.
        weight_decay: Decoupled or L2, as the optimizer defines it; not for norms, biases, positions and class tokens.
        momentum: Momentum of optimizers that have one.
        betas: Decay rates of the moments of optimizers that have them, such as [0.9, 0.99].
        options: Further arguments of the optimizer, by their names in timm.
        layer_decay: Ratio of the learning rates of a layer and the next layer. The head has lr, and the layer l layers
            before it has lr * layer_decay^l. null for the same rate everywhere. Clark et al. 2020; 0.65 to 0.9 for
            fine-tuning.
    """

    name: str = "adamw"
    lr: Annotated[float, Bounds(above=0)] = 1e-3
    weight_decay: Annotated[float, AT_LEAST_0] = 0.05
    momentum: Annotated[float, _DECAY_RATE] = 0.9
    betas: tuple[float, float] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    layer_decay: Annotated[float | None, SHARE_ABOVE_0] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(map(_DECAY_RATE.hold, self.betas or ())):
            raise InputError(f"betas {self.betas} must be {_DECAY_RATE}")

    @property
    def is_custom(self) -> bool:
        """True for a custom class."""
        return "." in self.name

    def build(self, network: "nn.Module", *, trust: bool = False) -> "torch.optim.Optimizer":
        """Optimizer of the network's trainable parameters, in a group with weight decay and one without.

        With ``layer_decay`` there are two groups for each layer, as timm groups them.

        Raises InputError: unusable settings, or a custom class without ``trust``.
        """
        from timm.optim._optim_factory import OptimInfo, OptimizerRegistry, default_registry, list_optimizers

        from vit_vs_cnn.models.features import list_layers
        from vit_vs_cnn.models.input_wrappers import unwrap

        name, info, registry = self.name, None, default_registry
        if self.is_custom:
            custom_class = import_class(self.name, location="optimizer.name", trust=trust)
            parameters = inspect.signature(custom_class).parameters
            flags: dict[str, Any] = {f"has_{option}": option in parameters for option in ("momentum", "betas", "eps")}
            name, info = _CUSTOM_OPTIMIZER_NAME, OptimInfo(_CUSTOM_OPTIMIZER_NAME, custom_class, **flags)
        options = dict(self.options)
        if self.betas is not None:
            options["betas"] = tuple(self.betas)
        if self.layer_decay is not None:
            if len(list_layers(unwrap(network))) == 1:
                raise InputError(f"optimizer.layer_decay: {type(unwrap(network)).__name__} has one layer only")
            options = {"layer_decay_min_scale": 0.0, **options, "layer_decay": self.layer_decay}
        try:
            if self.name in ("muon", "nmuon"):
                from vit_vs_cnn.training.muon import StackedMuon

                info = replace(default_registry.get_optimizer_info(name), opt_class=StackedMuon)  # the same steps
            elif not self.is_custom and default_registry.get_optimizer_info(name).second_order:
                raise ValueError("it needs second derivatives, which training does not compute")
            if info is not None:
                registry = OptimizerRegistry()
                registry.register(info)
            optimizer = registry.create_optimizer(
                unwrap(network), opt=name, lr=self.lr, weight_decay=self.weight_decay, momentum=self.momentum, **options
            )
            if not hasattr(optimizer, "param_groups"):
                raise TypeError(f"it returns a {type(optimizer).__name__}, not a torch.optim.Optimizer")
        except Exception as error:  # some need a GPU or a missing library, and raise errors of many kinds
            optimizer_names = [str(name) for name in list_optimizers()]
            if self.name not in optimizer_names and not self.is_custom:
                raise InputError(f"optimizer name {self.name!r}: timm knows {', '.join(optimizer_names)}") from error
            raise InputError(
                f"optimizer {self.name} cannot be created with these settings: {one_line(error)}"
            ) from error
        for group in optimizer.param_groups:  # timm's schedulers would apply the scale at every step
            group["lr"] *= group.get("lr_scale", 1.0)
        return optimizer


@dataclass(frozen=True)
class Schedule(Bounded):
    """Learning rate as a share of its peak: linear warm-up, then decay to ``final``.

    All values are shares of the run, so that one schedule fits every budget.

    Args:
        name: Shape of the decay: cosine, linear, or constant (no decay).
        warmup: Share of the run with a linear increase from near zero; 1 for an increase up to the last step.
        final: Learning rate after the last step, as a share of the peak; unused with constant.
    """

    name: DecayShape = "cosine"
    warmup: Annotated[float, SHARE] = 0.05
    final: Annotated[float, SHARE] = 0.0

    def __post_init__(self) -> None:
        if self.name not in get_args(DecayShape):
            raise InputError(f"schedule is {self.name!r}; allowed: {', '.join(get_args(DecayShape))}")
        super().__post_init__()

    def factor(self, step: int, steps: int) -> float:
        """Learning rate of optimizer step ``step`` (from 0) in a run of ``steps``, as a share of the peak.

        With ``w = round(warmup * steps)``: ``(step + 1) / (w + 1)`` in the first w steps, so that step w is the first
        at the peak; from there on, with ``t = (step - w) / (steps - w)``, cosine: ``final + (1 - final) (1 + cos(pi t))
        / 2``; linear: ``1 - (1 - final) t``; constant: 1. The last step has ``t = 1 - 1 / (steps - w)``: ``final`` is
        the value after the run. If w is the whole run, it is ``(step + 1) / w``: the last step is at the peak.
        """
        warmup = round(self.warmup * steps)
        if step < warmup:
            return (step + 1) / min(warmup + 1, steps)
        elapsed = min(1.0, (step - warmup) / max(1, steps - warmup))
        match self.name:
            case "cosine":
                return self.final + (1 - self.final) * (1 + math.cos(math.pi * elapsed)) / 2
            case "linear":
                return 1 - (1 - self.final) * elapsed
            case "constant":
                return 1.0


def parse_optimizer(value: Any) -> Optimizer:
    """Optimizer from its name, its class, a ``functools.partial`` of it, or a mapping of its settings."""
    if isinstance(value, Optimizer):
        return value
    settings = {"name": value} if isinstance(value, str) else replace_objects(value, ("optimizer",))
    return build(Optimizer, settings, location="optimizer")


def import_class(path: str, *, location: str, trust: bool) -> Any:
    """Import a class or function by its dotted path. Raises InputError: it is missing, or without ``trust``."""
    try:
        if (given := find_factory(path)) is not None:
            return given
    except AttributeError as error:
        raise InputError(f"{location}: {error}") from error
    if not trust:
        raise InputError(f"{location}: the class {path} is not imported without --trust")
    module, _, name = path.rpartition(".")
    if not module or not name:
        raise InputError(f"{location}: {path!r} must be the path of a class or a function, as package.module.Name")
    try:
        imported = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing runs code, which may fail in any way
        raise InputError(f"{location}: {path} cannot be imported: {one_line(error)}") from error
    if not callable(imported):
        raise InputError(f"{location}: {path} is a {type(imported).__name__}, not a class or a function")
    return imported
