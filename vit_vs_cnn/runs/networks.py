"""The network that a config's ``model`` block names, and the weights that it is given."""

import inspect
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vit_vs_cnn.attention.checks import rows_and_cols
from vit_vs_cnn.config import parsing as typed
from vit_vs_cnn.errors import InputError, UnknownSetting, one_line
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.cost import shadow_pass
from vit_vs_cnn.models.presets import ATTENTION_PREFIX, PRESETS
from vit_vs_cnn.models.resized import ResizedInput, inner
from vit_vs_cnn.runs.own import make_own
from vit_vs_cnn.training.checkpoints import FETCHING, About, read_about

#: Widths and numbers of classes up to this are usual; more layers than these nobody trains.
USUAL, MOST_LAYERS = 4096, 2000
#: A preset of which no number was raised, of images and classes no larger than this, takes little memory.
SMALL = 256
GIVEN_BY_THE_DATA = {"image_size", "in_channels", "num_classes"}
#: Options of any model: the size that its images are brought to, and how.
RESIZING = {"input_size", "interpolation", "crop_pct"}


@runtime_checkable
class TakesOver(Protocol):
    """A network that can begin with the weights of one of another kind."""

    def start_from(self, trained: nn.Module) -> None:
        """Compute what ``trained`` computes; raises ValueError where that cannot be."""
        ...


def build_network(
    model: Mapping[str, Any],
    *,
    num_classes: int,
    image_shape: tuple[int, int, int],
    where: str,
    trust: bool | str = False,
) -> nn.Module:
    """The network of a ``model`` block, for the images at hand; with ``input_size`` one that resizes them.

    Arguments:
        image_shape: channels, rows and columns of the images.
        trust: whether a class that the block names may be imported, as who gave the command named it; or which one.

    Raises:
        InputError: an unknown name or option, a value of the wrong type, one that the network refuses, a class without
            ``trust``; ``where`` is the block's place in the config.
    """
    if RESIZING & model.keys():
        return _resizing(model, num_classes, image_shape, where, trust)
    shape = {"num_classes": num_classes, "image_size": image_shape[1:], "in_channels": image_shape[0]}
    if "class_path" in model:
        return _custom(model, shape, where, trust in (True, model["class_path"]))
    options = {key: value for key, value in model.items() if key != "name"}
    if given := GIVEN_BY_THE_DATA & options.keys():
        raise InputError(f"{where}.{min(given)} follows from the data and can't be set here")
    if given := FETCHING & options.keys():
        raise InputError(f"{where}.{min(given)}: trained weights come by contenders.NAME.weights, with hub or a file")
    options = _typed_options(model["name"], options, where)
    _check_bounds(model["name"], {**options, **shape}, where)
    try:
        return create_model(model["name"], **shape, **options)
    except Exception as error:  # timm's models refuse settings in many ways, memory that is not there among them
        raise InputError(f"{where}: {one_line(error, 500)}") from error


def _resizing(
    model: Mapping[str, Any], num_classes: int, image_shape: tuple[int, int, int], where: str, trust: bool | str
) -> ResizedInput:
    """A network for images of the size that the block names, with what resizes those at hand."""
    if "input_size" not in model:
        raise InputError(f"{where}: {', '.join(sorted(RESIZING & model.keys()))} go with input_size alone")
    rest = {key: value for key, value in model.items() if key not in RESIZING}
    how = {key: value for key, value in model.items() if key in RESIZING and key != "input_size"}
    try:
        size = rows_and_cols("input_size", model["input_size"])
        shape = (image_shape[0], *size)
        network = build_network(rest, num_classes=num_classes, image_shape=shape, where=where, trust=trust)
        return ResizedInput(network, size, **how)
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, InputError) else InputError(f"{where}: {error}") from error


def _check_bounds(name: str, options: dict[str, Any], where: str) -> None:
    """Refuse what would never be built: thousands of layers, weights that fill the machine's memory.

    Those of a network of unusual width are counted on the meta device, where they take none.
    """
    for option, value in options.items():
        values = value if isinstance(value, list | tuple) else [value]
        if ("depth" in option or "layers" in option) and any(isinstance(v, int) and v > MOST_LAYERS for v in values):
            raise InputError(f"{where}.{option}: {value} must be at most {MOST_LAYERS}")
    is_shadow = torch.get_default_device().type == "meta"  # takes no memory
    if is_shadow or not any(isinstance(value, int) and value > USUAL for value in options.values()):
        return
    try:
        with torch.device("meta"):
            needed = 4 * sum(weight.numel() for weight in create_model(name, **options).parameters())
    except Exception:  # said better by who builds it in earnest
        return
    if needed > (there := _memory()):
        raise InputError(f"{where}: its weights take {needed / 1e9:,.0f} GB, and the machine has {there / 1e9:,.0f}")


def _memory() -> float:
    """Bytes of the machine's memory, where it tells."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return math.inf


def _typed_options(name: str, options: dict[str, Any], where: str) -> dict[str, Any]:
    """The options of a model by name, as its constructor's type hints want them; those of timm's as they are."""
    if name.startswith(ATTENTION_PREFIX):
        own = inspect.signature(AttentionNetwork).parameters.keys() - {"network", "image_size"}
        compiling = {key: value for key, value in options.items() if key in own}
        checked = typed.check(AttentionNetwork, compiling, where=where, skip={"network", "image_size"})
        rest = {key: value for key, value in options.items() if key not in own}
        try:
            rest = _typed_options(name.removeprefix(ATTENTION_PREFIX), rest, where)
        except InputError as error:
            besides = f"; attention has {', '.join(sorted(own))} besides" if isinstance(error, UnknownSetting) else ""
            raise InputError(f"{error}{besides}") from error
        return {**rest, **{key: checked[key] for key in compiling}}
    if preset := PRESETS.get(name):
        checked = typed.check(preset.constructor, options, where=where, skip=GIVEN_BY_THE_DATA)
        return {key: checked[key] for key in options}
    return options


def check_logits(network: nn.Module, image_shape: tuple[int, int, int], *, num_classes: int, where: str) -> int:
    """Send two images of no content through a shadow of the network, on the meta device, where nothing is computed.

    Returns:
        the multiply-accumulates of one image.

    Raises:
        InputError: the network fails on images of that shape, or does not give one logit for each class.
    """
    try:
        shape, macs = shadow_pass(network, (2, *image_shape))
    except Exception as error:  # whatever a network of the user's own may raise
        raise InputError(f"{where}: fails on images of shape {image_shape}: {one_line(error)}") from error
    if shape != (2, num_classes):
        raise InputError(f"{where}: gives logits of shape {shape} for 2 images of {num_classes} classes")
    return macs // 2


def start_from(network: nn.Module, trained: nn.Module, *, where: str) -> None:
    """Give a network the weights of a trained one: as they are, or by the network's own way (``start_from``).

    Raises:
        InputError: they do not fit; ``where`` is the place in the config that asks for it.
    """
    network, trained = inner(network), inner(trained)
    if not isinstance(network, TakesOver):
        load_weights(network, trained.state_dict(), says=f"{where}: the weights do not fit")
        return
    try:
        network.start_from(trained)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{where}: the weights do not fit: {one_line(error)}") from error


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], *, says: str) -> None:
    """Give a network these weights, all of them and no others.

    Raises:
        InputError: they do not fit; the line begins as ``says``, counts what is wrong and names the first of each kind.
    """
    if why := misfit(network.state_dict(), weights):
        raise InputError(f"{says}: {why}")
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{says}: {one_line(error)}") from error


def misfit(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    """What does not fit, in words; nothing where all does."""
    reshaped = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    both = [name for name in own if name in weights]
    retyped = [name for name in both if own[name].is_floating_point() != weights[name].is_floating_point()]
    wrong = {
        "missing": [name for name in own if name not in weights],
        "not its own": [name for name in weights if name not in own],
        "of another shape": [f"{name}: {_size(weights[name])} for {_size(own[name])}" for name in reshaped],
        "of another type": [f"{name}: {weights[name].dtype} for {own[name].dtype}" for name in retyped],
    }
    said = [f"{len(names)} {kind} ({names[0]}{', ...' * (len(names) > 1)})" for kind, names in wrong.items() if names]
    return f"of {len(own)} tensors {', '.join(said)}" if said else ""


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"


def _custom(model: Mapping[str, Any], given: dict[str, Any], where: str, trust: bool) -> nn.Module:
    """A class of the user's own, or what a function gives: imported because the user's config names it.

    ``image_size`` is handed over as (rows, cols), and of square images as one number to whom takes no pair.
    """
    rows, cols = given["image_size"]
    try:
        network = make_own(model, given, where=where, trust=trust)
    except InputError as error:
        if rows != cols or not trust:
            raise
        try:
            network = make_own(model, {**given, "image_size": rows}, where=where, trust=trust)
        except InputError:
            raise error from error.__cause__
    if not isinstance(network, nn.Module):
        raise InputError(f"{where}: {model['class_path']} gives a {type(network).__name__}, not a torch.nn.Module")
    return network


def network_of(checkpoint: Mapping[str, Any], path: Path, *, trust: bool | str = False) -> tuple[nn.Module, About]:
    """The evaluated network of a checkpoint, and what the file says of it. Nothing that the file carries is executed.

    Arguments:
        trust: whether a class that the file names may be imported, which is running what it asks for; or which one.

    Returns:
        images to logits, in evaluation mode, with the averaged weights where an average was kept.

    Raises:
        InputError: damaged, or of a class that is not the package's own, without ``trust``.
    """
    about = read_about(checkpoint, path)
    where, shape = f"checkpoint {path}", {"num_classes": len(about.class_names), "image_shape": about.image_shape}
    weights = _evaluated(checkpoint["state_dict"])
    if spoiled := [name for name, value in weights.items() if value.is_floating_point() and value.isnan().any()]:
        raise InputError(f"{where}: {len(spoiled)} of {len(weights)} weights hold NaN ({spoiled[0]}); its run diverged")
    _check_fit(about.model, weights, where, shape, trust)
    network = build_network(about.model, **shape, where=where, trust=trust)
    load_weights(network, weights, says=f"{where} does not fit its own model")
    return network.eval(), about


def _check_fit(
    model: Mapping[str, Any], weights: Mapping[str, Tensor], where: str, shape: dict[str, Any], trust: bool | str
) -> None:
    """Tell what does not fit before memory is taken for it: on the meta device a network costs nothing, but a second
    to load what torch has for that device. Of what is small for certain, ``load_weights`` tells it."""
    for name, value in model.items():
        if ("depth" in name or "layers" in name) and isinstance(value, int) and value > len(weights):
            raise InputError(f"{where} does not fit its own model: {name} is {value}, of {len(weights)} tensors")
    if max(shape["num_classes"], *shape["image_shape"]) <= SMALL and _is_small(model):
        return
    try:
        with torch.device("meta"):
            shadow = build_network(model, **shape, where=where, trust=trust)
    except InputError:  # it is told by the real one, unless only the meta device was refused
        return
    if said := misfit(shadow.state_dict(), weights):
        raise InputError(f"{where} does not fit its own model: {said}")


def _is_small(model: Mapping[str, Any]) -> bool:
    """Whether it is a preset of which no number was raised."""
    preset = PRESETS.get(model.get("name", ""))
    return preset is not None and all(
        isinstance(value, str | bool) or (isinstance(value, int | float) and value <= preset.arguments.get(name, 0))
        for name, value in model.items()
    )


def _evaluated(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The averaged weights where there are any, else the last ones."""
    prefix = "average.network." if any(name.startswith("average.network.") for name in state) else "network."
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
