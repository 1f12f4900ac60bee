"""The network that a contender's config names, and the one that a checkpoint holds."""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vit_vs_cnn.data.augmentation import Augmentation, Augmenter
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments import typed
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.presets import PRESETS
from vit_vs_cnn.models.registry import ATTENTION_PREFIX
from vit_vs_cnn.training.checkpoints import read_checkpoint

GIVEN_BY_THE_DATA = {"image_size", "in_channels", "num_classes"}


@runtime_checkable
class TakesOver(Protocol):
    """A network that can begin with the weights of one of another kind."""

    def start_from(self, trained: nn.Module) -> None:
        """Compute what ``trained`` computes; raises ValueError where that cannot be."""
        ...


def build_network(
    model: dict[str, Any], *, num_classes: int, image_size: tuple[int, int], in_channels: int, where: str
) -> nn.Module:
    """The network of a ``model`` block, for the images at hand.

    Raises:
        InputError: an unknown name or option, a value of the wrong type, one that the network refuses; ``where`` is
            the block's place in the config.
    """
    if "class_path" in model:
        return _custom(model, where)
    options = {key: value for key, value in model.items() if key != "name"}
    if given := GIVEN_BY_THE_DATA & options.keys():
        raise InputError(f"{where}.{min(given)} follows from the data and can't be set here")
    options = _typed_options(model["name"], options, where)
    try:
        return create_model(
            model["name"], num_classes=num_classes, image_size=image_size, in_channels=in_channels, **options
        )
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}: {' '.join(str(error).split())}") from error


def _typed_options(name: str, options: dict[str, Any], where: str) -> dict[str, Any]:
    """The options of a model by name, as its constructor's type hints want them; those of timm's as they are."""
    if name.startswith(ATTENTION_PREFIX):
        own = inspect.signature(AttentionNetwork).parameters.keys() - {"network", "image_size"}
        compiling = {key: value for key, value in options.items() if key in own}
        _, checked = typed.check(AttentionNetwork, compiling, where=where, skip={"network", "image_size"})
        rest = {key: value for key, value in options.items() if key not in own}
        try:
            rest = _typed_options(name.removeprefix(ATTENTION_PREFIX), rest, where)
        except InputError as error:
            besides = f"; attention has {', '.join(sorted(own))} besides" if "no such setting" in str(error) else ""
            raise InputError(f"{error}{besides}") from error
        return {**rest, **{key: checked.it[key] for key in compiling}}
    if preset := PRESETS.get(name):
        _, checked = typed.check(preset.constructor, options, where=where, skip=GIVEN_BY_THE_DATA)
        return {key: checked.it[key] for key in options}
    return options


def check_logits(network: nn.Module, image_shape: tuple[int, int, int], *, num_classes: int, where: str) -> None:
    """Send one image of no content through a shadow of the network, on the meta device, where nothing is computed.

    Raises:
        InputError: the network fails on images of that shape, or does not give one logit for each class.
    """
    shadow = copy.deepcopy(network).to("meta").eval()
    try:
        with torch.no_grad():
            shape = tuple(shadow(torch.empty(2, *image_shape, device="meta")).shape)
    except Exception as error:  # whatever a network of the user's own may raise
        raise InputError(f"{where}: fails on images of shape {image_shape}: {' '.join(str(error).split())}") from error
    if shape != (2, num_classes):
        raise InputError(f"{where}: gives logits of shape {shape} for 2 images of {num_classes} classes")


def start_from(network: nn.Module, trained: nn.Module, *, where: str) -> None:
    """Give a network the weights of a trained one: as they are, or by the network's own way (``start_from``).

    Raises:
        InputError: they do not fit; ``where`` is the place in the config that asks for it.
    """
    if not isinstance(network, TakesOver):
        load_weights(network, trained.state_dict(), says=f"{where}: the weights do not fit")
        return
    try:
        network.start_from(trained)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{where}: the weights do not fit: {' '.join(str(error).split())[:300]}") from error


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], *, says: str) -> None:
    """Give a network these weights, all of them and no others.

    Raises:
        InputError: they do not fit; the line begins as ``says``, counts what is wrong and names the first of each kind.
    """
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{says}: {_misfit(network.state_dict(), weights)}") from error


def _misfit(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    reshaped = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    wrong = {
        "missing": [name for name in own if name not in weights],
        "not its own": [name for name in weights if name not in own],
        "of another shape": [f"{name}: {_size(weights[name])} for {_size(own[name])}" for name in reshaped],
    }
    said = [f"{len(names)} {kind} ({names[0]}{', ...' * (len(names) > 1)})" for kind, names in wrong.items() if names]
    return f"of {len(own)} tensors {', '.join(said)}"


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"


def _custom(model: dict[str, Any], where: str) -> nn.Module:
    """A class of the user's own: imported because the user's config names it."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(nn.Module, "it", required=True)
    try:
        return parser.instantiate(parser.parse_object({"it": model})).it
    except Exception as error:
        raise InputError(f"{where}: {' '.join(str(error).split())}") from error


@dataclass(frozen=True)
class TrainedNetwork:
    """A network out of a checkpoint, ready to classify.

    Arguments:
        network: images to logits, in evaluation mode; the averaged weights where an average was kept.
        augmenter: ``augmenter.normalise(bytes)`` gives what the network was trained on.
        class_names: the classes, in the order of the logits.
    """

    network: nn.Module
    augmenter: Augmenter
    class_names: tuple[str, ...]


def load_network(path: Path) -> TrainedNetwork:
    """The evaluated network of a checkpoint. Nothing that the file carries is executed.

    Raises:
        InputError: no checkpoint of ours, damaged, or of a class that is not the package's own: importing what a file
            names would be running what it asks for.
    """
    checkpoint = read_checkpoint(path)
    about = checkpoint["vit_vs_cnn"]
    try:
        channels, rows, cols = about["image_shape"]
        model, names = about["model"], tuple(about["class_names"])
        augmenter = Augmenter(Augmentation(), mean=about["mean"], std=about["std"], num_classes=len(names))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"checkpoint {path} lacks what is needed to rebuild its network: {error!r}") from error
    if "class_path" in model:
        raise InputError(f"checkpoint {path} is of the class {model['class_path']}; only named models are rebuilt")
    network = build_network(
        model, num_classes=len(names), image_size=(rows, cols), in_channels=channels, where=f"checkpoint {path}"
    )
    state = checkpoint["state_dict"]
    prefix = "average.network." if any(name.startswith("average.network.") for name in state) else "network."
    weights = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    load_weights(network, weights, says=f"checkpoint {path} does not fit its own model")
    return TrainedNetwork(network.eval(), augmenter, names)
