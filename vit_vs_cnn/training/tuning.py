"""What of a pretrained network is trained, and from when on."""

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

    Batch norms of layers that do not train, and all of them with ``freeze_norms``, use the mean and deviation that they
    came with.

    Reference: Howard and Ruder 2018 (gradual unfreezing).
    Differs: layers begin at even steps instead of one in each epoch.

    Arguments:
        network: whose parameters are marked here as trained or not, before an optimizer is made of them.
        last: so many layers before the head train; None for all.
        unfreeze: the share u.
        steps: optimizer steps of the run.

    Raises:
        InputError: more layers than there are.
    """

    def __init__(
        self, network: nn.Module, *, last: int | None, unfreeze: float, freeze_norms: bool, steps: int
    ) -> None:
        layers = layers_of(network)
        if last is not None and last > len(layers) - 1:
            raise InputError(f"tune.last: {last} is more than the {len(layers) - 1} layers that it has before its head")
        trained = len(layers) if last is None else last + 1
        kept = {name for layer in layers[: len(layers) - trained] for name in layer}
        parameters = dict(network.named_parameters())
        for name in kept:
            parameters[name].requires_grad_(False)
        behind = [[parameters[name] for name in layer] for layer in reversed(layers[-trained:])]
        self._begin = [(round(i * unfreeze * steps / trained), layer) for i, layer in enumerate(behind)]
        self._waits = unfreeze > 0
        self._still = [
            norm
            for name, norm in batch_norms_of(network).items()
            if freeze_norms or _is_among(name, kept, [*parameters])
        ]

    def on_fit_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        if self._waits and trainer.world_size > 1:
            raise InputError("tune.unfreeze: layers that begin later need a single device (trainer.devices 1)")

    def on_train_batch_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        for norm in self._still:
            norm.eval()
        for begin, layer in self._begin if self._waits else ():
            for parameter in layer:
                parameter.requires_grad_(trainer.global_step >= begin)


def _is_among(norm: str, kept: set[str], parameters: list[str]) -> bool:
    """Whether a norm is in a layer that does not train: with its parameters; if it has none, with those around it."""
    while norm:
        if inside := [name for name in parameters if name.startswith(f"{norm}.")]:
            return kept.issuperset(inside)
        norm = norm.rpartition(".")[0]
    return False
