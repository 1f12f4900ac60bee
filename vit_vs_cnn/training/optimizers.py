"""The optimizer of a contender: any of timm's, by name, or a class of one's own."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.bounds import AT_LEAST_0, SHARE_ABOVE_0, Bounds, check_numbers
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.training.own_classes import imported

if TYPE_CHECKING:
    import torch
    from torch import nn


#: What timm is told that a class of the user's own is called.
_OWN = "own"


@dataclass(frozen=True)
class Optimizer:
    """Which optimizer, and its settings.

    Args:
        name: Any optimizer that timm knows: adamw, sgd (Nesterov momentum), lamb, muon, lion, ...; or the path of a
            class of your own, as my_package.MyOptimizer, which is given parameter groups, lr and weight_decay.
        lr: Peak learning rate.
        weight_decay: Decoupled or L2, as the optimizer defines it; kept off norms, biases, positions and class tokens.
        momentum: Momentum of optimizers that have one.
        betas: Decay rates of the moments of optimizers that have them, such as [0.9, 0.99].
        options: Further arguments of the optimizer, by their names in timm.
        layer_decay: What the rate of a layer is of that of the layer behind it: the head has lr, the layer l places
            before it lr times layer_decay to the l. null for one rate. Clark et al. 2020; 0.65 to 0.9 for fine-tuning.
    """

    name: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.05
    momentum: float = 0.9
    betas: tuple[float, float] | None = None
    options: Plain = field(default_factory=Plain)
    layer_decay: float | None = None

    def __post_init__(self) -> None:
        rate = Bounds(at_least=0, below=1)
        numbers = {"lr": Bounds(above=0), "weight_decay": AT_LEAST_0, "momentum": rate, "layer_decay": SHARE_ABOVE_0}
        check_numbers(vars(self), **numbers)
        if not all(map(rate.hold, self.betas or ())):
            raise InputError(f"betas {self.betas} must be {rate}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Optimizer":
        """The optimizer of plain values."""
        return cls(**{**values, "options": Plain(values.get("options", {}))})

    @property
    def is_own(self) -> bool:
        """Whether it is a class of the user's own."""
        return "." in self.name

    def build(self, network: "nn.Module", *, trust: bool = False) -> "torch.optim.Optimizer":
        """The optimizer over the network's parameters that are trained, in a decayed and an undecayed group; with
        ``layer_decay`` in two for each layer, as timm groups them.

        Arguments:
            trust: whether a class of the user's own may be imported.

        Raises:
            InputError: a name or an option that timm does not know; an optimizer of second order; a class without
            ``trust``; rates by layer for a network of a single one.
        """
        from timm.optim._optim_factory import OptimInfo, OptimizerRegistry, default_registry, list_optimizers

        from vit_vs_cnn.models.layers import layers_of
        from vit_vs_cnn.models.resized import inner

        name, own, registry = self.name, None, default_registry
        if self.is_own:
            made = imported(self.name, where="optimizer.name", trust=trust)
            takes = inspect.signature(made).parameters
            has: dict[str, Any] = {f"has_{one}": one in takes for one in ("momentum", "betas", "eps")}
            name, own = _OWN, OptimInfo(_OWN, made, **has)
        options = dict(self.options)
        if self.betas is not None:
            options["betas"] = tuple(self.betas)
        if self.layer_decay is not None:
            if len(layers_of(inner(network))) == 1:
                raise InputError(f"optimizer.layer_decay: {type(inner(network)).__name__} is one layer")
            options["layer_decay"] = self.layer_decay
        try:
            if self.name in ("muon", "nmuon"):
                from vit_vs_cnn.training.muon import StackedMuon

                own = replace(default_registry.get_optimizer_info(name), opt_class=StackedMuon)  # it steps alike
            if own is not None:
                registry = OptimizerRegistry()
                registry.register(own)
            built = registry.create_optimizer(
                inner(network), opt=name, lr=self.lr, weight_decay=self.weight_decay, momentum=self.momentum, **options
            )
            if not self.is_own and default_registry.get_optimizer_info(self.name).second_order:
                raise TypeError("it needs second derivatives, which training here does not give")
            if not hasattr(built, "param_groups"):
                raise TypeError(f"it gives a {type(built).__name__}, not a torch.optim.Optimizer")
        except Exception as error:  # some need a GPU or a library that is not there, and say so in many ways
            known = [str(name) for name in list_optimizers()]
            if self.name not in known and not self.is_own:
                raise InputError(f"optimizer name {self.name!r}: timm knows {', '.join(known)}") from error
            raise InputError(
                f"optimizer {self.name} can't be made with these settings here: {one_line(error)}"
            ) from error
        for group in built.param_groups:  # timm's own schedulers would read the scale at every step
            group["lr"] *= group.get("lr_scale", 1.0)
        return built
