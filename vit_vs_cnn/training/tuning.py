"""What of a pretrained network is trained, and from when on."""

import math
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from torch import nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.layers import batch_norms_of, layers_of


class Thawing(Callback):
    """Trains the last layers of a network, all at once or one after the other, and leaves the others as they are.

    With N layers that train behind the frozen ones, the head among them, and a share u of the run, layer i of them
    counted from the head (0) trains from step ``round(i u steps / N)`` on. Which layers train is a function of the step
    alone, so that a resumed run goes on as the undisturbed one.

    Batch norms use the mean and deviation that they came with as long as their layer does not train, and all of them to
    the end with ``freeze_norms``.

    Reference: Howard and Ruder 2018 (gradual unfreezing).
    Differs: layers begin at even steps instead of one in each epoch.

    Arguments:
        network: whose parameters are marked here as trained or not, before an optimizer is made of them.
        last: so many layers before the head train; None for all.
        unfreeze: the share u.
        steps: optimizer steps of the run.

    Raises:
        InputError: more layers than there are, or a network of a single one.
    """

    def __init__(
        self, network: nn.Module, *, last: int | None, unfreeze: float, freeze_norms: bool, steps: int
    ) -> None:
        layers = layers_of(network)
        if len(layers) == 1 and (last is not None or unfreeze):
            raise InputError(
                f"tune: {type(network).__name__} is one layer, so there are none to freeze before its head"
            )
        if last is not None and last > len(layers) - 1:
            raise InputError(f"tune.last: {last} is more than the {len(layers) - 1} layers that it has before its head")
        trained = len(layers) if last is None else last + 1
        kept = {name for layer in layers[: len(layers) - trained] for name in layer}
        parameters = dict(network.named_parameters())
        for name in kept:
            parameters[name].requires_grad_(False)
        begins = {
            name: float(round(i * unfreeze * steps / trained))
            for i, layer in enumerate(reversed(layers[-trained:]))
            for name in layer
        }
        self._begin = [(parameters[name], begin) for name, begin in begins.items()]
        self._waits = unfreeze > 0
        never = dict.fromkeys(kept, math.inf)
        still_until = {
            norm: math.inf if freeze_norms else _begin_of(name, begins | never)
            for name, norm in batch_norms_of(network).items()
        }
        self._norms = [(norm, begin) for norm, begin in still_until.items() if begin]

    def on_fit_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        if self._waits and trainer.world_size > 1:
            raise InputError("tune.unfreeze: layers that begin later need a single device (trainer.devices 1)")

    def on_train_batch_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        for norm, begin in self._norms:
            norm.train(trainer.global_step >= begin)
        for parameter, begin in self._begin if self._waits else ():
            parameter.requires_grad_(trainer.global_step >= begin)


def _begin_of(norm: str, begins: dict[str, float]) -> float:
    """The step from which on the layer of a norm trains: that of its parameters; if it has none, of those around it."""
    while norm:
        if inside := [begin for name, begin in begins.items() if name.startswith(f"{norm}.")]:
            return min(inside)
        norm = norm.rpartition(".")[0]
    return 0.0
