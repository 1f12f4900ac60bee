"""Fine-tuning of the last layers of a network, with the others frozen."""

from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from torch import nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.features import find_batch_norms, list_layers


class FrozenLayers(Callback):
    """Trains the head and the last layers of a network. The weights of the other layers do not change.

    Batch norms of frozen layers use the mean and variance that they came with.

    Arguments:
        network: its parameters are frozen at construction, before an optimizer is made.
        last: number of layers before the head that train; None for all.

    Raises:
        InputError: the network has fewer layers, or only one.
    """

    def __init__(self, network: nn.Module, *, last: int | None) -> None:
        layers = list_layers(network)
        if last is not None and len(layers) == 1:
            raise InputError(
                f"tune: {type(network).__name__} is one layer, so there are none to freeze before its head"
            )
        if last is not None and last > len(layers) - 1:
            raise InputError(f"tune.last: {last} is more than the {len(layers) - 1} layers that it has before its head")
        frozen = {name for layer in ([] if last is None else layers[: len(layers) - 1 - last]) for name in layer}
        for name, parameter in network.named_parameters():
            if name in frozen:
                parameter.requires_grad_(False)
        names = {name for layer in layers for name in layer}
        self._norms = [
            norm for name, norm in find_batch_norms(network).items() if _is_frozen(name, names=names, frozen=frozen)
        ]

    def on_train_batch_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        for norm in self._norms:
            norm.eval()


def _is_frozen(norm: str, *, names: set[str], frozen: set[str]) -> bool:
    """Whether the parameters of a norm are frozen; of one without parameters, all of those around it."""
    while norm:
        if inside := {name for name in names if name.startswith(f"{norm}.")}:
            return inside <= frozen
        norm = norm.rpartition(".")[0]
    return False
