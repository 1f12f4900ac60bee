"""Networks that a config describes, and their weights."""

import math
import pickle
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vit_vs_cnn.bounds import as_rows_and_cols
from vit_vs_cnn.config.trainer import as_list
from vit_vs_cnn.config.user_code import make_object
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.cost import run_on_meta_device
from vit_vs_cnn.models.input_wrappers import PermutedInput, ResizedInput, unwrap
from vit_vs_cnn.models.presets import ATTENTION_PREFIX, PERMUTE_OPTIONS, PRESETS, RESIZE_OPTIONS
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.models.timm_conversion import convert_from_timm, convert_to_timm
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.training.checkpoints import CheckpointInfo
from vit_vs_cnn.typed_values import convert, list_settings, refuse_unknown

#: Largest number of layers.
MAX_LAYERS = 2000
#: Largest option with which a network of this package needs little memory.
SMALL_NUMBER = 256
#: Options that follow from the data set.
GIVEN_BY_THE_DATA = {"image_size", "in_channels", "num_classes"}
#: Options of timm's models that read files or download weights.
DOWNLOAD_OPTIONS = {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"}


def build_network(
    architecture: Mapping[str, Any],
    *,
    num_classes: int,
    image_shape: tuple[int, int, int],
    location: str,
    trust: bool | str = False,
    max_bytes: float = math.inf,
) -> nn.Module:
    """Build a network. It resizes its input if the option ``input_size`` is set.

    Arguments:
        architecture: ``name`` or ``class_path`` (with ``init_args``), and ``options``, as in a config.
        trust: whether a class that it names may be imported, or which one.
        max_bytes: largest size of the weights of a named model.

    Raises:
        InputError: an unknown name or option, a value that the network refuses, a class without ``trust``, or weights
            larger than ``max_bytes``.
    """
    options = architecture.get("options", {})
    blocks = (RESIZE_OPTIONS, PERMUTE_OPTIONS)
    resizing, permuting = ({name: options[name] for name in options.keys() & block.keys()} for block in blocks)
    rest = {name: value for name, value in options.items() if name not in resizing | permuting}
    if resizing and "input_size" not in resizing:
        raise InputError(f"{location}.options: {', '.join(sorted(resizing))} need input_size")
    if permuting and not ("permute_blocks" in permuting and all(type(value) is int for value in permuting.values())):
        side = permuting.get("permute_blocks")
        raise InputError(f"{location}.options.permute_blocks: expected a whole number of pixels, got {side!r}")
    channels, *size = image_shape
    try:
        rows, cols = as_rows_and_cols("input_size", resizing.pop("input_size", tuple(size)))
        shape = {"num_classes": num_classes, "image_size": (rows, cols), "in_channels": channels}
        if (class_path := architecture.get("class_path")) is not None:
            if rest:
                raise InputError(f"{location}.options.{min(rest)}: arguments of a class belong in init_args")
            block = {"class_path": class_path, "init_args": architecture.get("init_args", {})}
            network = make_object(block, shape, location=location, trust=trust in (True, class_path))
            if not isinstance(network, nn.Module):
                kind = type(network).__name__
                raise InputError(f"{location}: {class_path} returns a {kind}, not a torch.nn.Module")
        else:
            network = _build_named(architecture["name"], rest, shape, location, max_bytes)
        if "input_size" in options:
            network = ResizedInput(network, (rows, cols), **resizing)
        if permuting:
            network = PermutedInput(
                network, image_shape[1:], permuting["permute_blocks"], permuting.get("permutation_seed", 0)
            )
        if any(is_lazy(parameter) for parameter in network.parameters()):  # sizes follow from the first images
            with torch.no_grad(), evaluation_mode(network):
                network(torch.zeros(2, *image_shape))
    except (ValueError, TypeError, RuntimeError) as error:
        raise error if isinstance(error, InputError) else InputError(f"{location}: {one_line(error, 500)}") from error
    return network


def _build_named(
    name: str, options: dict[str, Any], shape: dict[str, Any], location: str, max_bytes: float
) -> nn.Module:
    if names := GIVEN_BY_THE_DATA & options.keys():
        raise InputError(f"{location}.options.{min(names)} follows from the data and cannot be set")
    if names := DOWNLOAD_OPTIONS & options.keys():
        raise InputError(
            f"{location}.options.{min(names)}: for pretrained weights set weights to hub or to the path of a file"
        )
    options = _typed_options(name, options, f"{location}.options")
    _check_size(name, {**options, **shape}, f"{location}.options", max_bytes)
    try:
        return create_model(name, **shape, **options)
    except Exception as error:  # timm's models refuse settings with many types of errors, exhausted memory among them
        raise InputError(f"{location}: {one_line(error, 500)}") from error


def _check_size(name: str, options: dict[str, Any], location: str, max_bytes: float) -> None:
    """Refuse thousands of layers, and weights, counted on the meta device, that are larger than ``max_bytes``.

    Weights of a preset with small options are not counted, as they fit into memory.
    """
    numbers = [(key, number) for key, value in options.items() for number in as_list(value) if isinstance(number, int)]
    for option, number in numbers:
        if ("depth" in option or "layers" in option) and number > MAX_LAYERS:
            raise InputError(f"{location}.{option}: {options[option]} must be at most {MAX_LAYERS}")
    if max_bytes == math.inf or (name in PRESETS and all(number <= SMALL_NUMBER for _, number in numbers)):
        return
    try:
        with torch.device("meta"):
            size = 4 * sum(weight.numel() for weight in create_model(name, **options).parameters())
    except Exception:  # the network is built next, and gives a better message
        return
    if size > max_bytes:
        raise InputError(
            f"{location}: the model that the file describes has weights of {size / 1e6:,.1f} MB, but the file contains "
            f"only {max_bytes / 1e6:,.1f} MB of weights; the file is damaged or was edited, use another one"
        )


def _typed_options(name: str, options: dict[str, Any], location: str) -> dict[str, Any]:
    """Options of a named model with the types of its constructor. Options of timm's models are not changed."""
    base = name.removeprefix(ATTENTION_PREFIX)
    targets: list[Callable[..., Any]] = [AttentionNetwork] if base != name else []
    if base in PRESETS:
        targets.append(PRESETS[base].constructor)
    skip = {*GIVEN_BY_THE_DATA, "network"}
    settings = {key: setting for target in targets for key, setting in list_settings(target).items() if key not in skip}
    if base in PRESETS:
        refuse_unknown(options, settings, location)
    return {
        key: convert(settings[key].hint, value, f"{location}.{key}") if key in settings else value
        for key, value in options.items()
    }


def check_logits(network: nn.Module, image_shape: tuple[int, int, int], *, num_classes: int, location: str) -> int:
    """Multiply-accumulates of one image, counted on the meta device, after a check of the shape of the logits.

    Raises:
        InputError: the network fails on images of this shape, or does not give one logit for each class.
    """
    try:
        shape, macs = run_on_meta_device(network, (2, *image_shape))
    except Exception as error:  # raised by user code
        raise InputError(f"{location}: fails on images of shape {image_shape}: {one_line(error)}") from error
    if shape != (2, num_classes):
        raise InputError(f"{location}: gives logits of shape {shape} for 2 images of {num_classes} classes")
    return macs // 2


def start_from(network: nn.Module, trained: nn.Module, *, location: str) -> None:
    """Load the weights of a trained network, converted for one of attention. Raises InputError: they do not fit."""
    network, trained = unwrap(network), unwrap(trained)
    message = f"{location}: the weights do not fit"
    if not isinstance(network, AttentionNetwork):
        load_weights(network, trained.state_dict(), message=message)
        return
    try:
        network.start_from(trained)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{message}: {one_line(error)}") from error


def load_weights(
    network: nn.Module, weights: Mapping[str, Tensor], *, message: str, without: Collection[str] = ()
) -> None:
    """Load weights into a network, which needs all of its weights and accepts no others.

    Weights named by ``without``, such as of a new head, keep their values. Raises InputError: they do not fit.
    """
    own = network.state_dict()
    state = {**weights, **{name: value for name, value in own.items() if name in without}}
    for name in own.keys() & state.keys():  # PyTorch would convert them
        if own[name].is_floating_point() != state[name].is_floating_point():
            raise InputError(f"{message}: {name} has type {state[name].dtype}, and the network has {own[name].dtype}")
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"{message}: {one_line(error)}") from error


def rebuild_network(
    about: CheckpointInfo, state: Mapping[str, Tensor], location: str, *, trust: bool | str = False
) -> nn.Module:
    """Rebuild the network of a checkpoint, in evaluation mode. No code in the file is executed.

    Arguments:
        trust: whether a user-defined class that the file names may be imported, which runs its code; or which one.

    Raises:
        InputError: weights that do not fit or contain NaN, or a user-defined class without ``trust``.
    """
    prefix = "average.network." if any(name.startswith("average.network.") for name in state) else "network."
    weights = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    if names := [name for name, value in weights.items() if value.is_floating_point() and value.isnan().any()]:
        raise InputError(
            f"{location}: {len(names)} of {len(weights)} weights contain NaN ({names[0]}), as training diverged; "
            "use another checkpoint"
        )
    network = build_network(
        about.architecture,
        num_classes=len(about.class_names),
        image_shape=about.image_shape,
        location=location,
        trust=trust,
        max_bytes=float(sum(4 * weight.numel() for weight in weights.values())),
    )
    message, inner = f"{location} does not fit its own model", unwrap(network)
    if isinstance(inner, VisionTransformer) and "patch_embed.proj.weight" in weights:  # of an export, timm's names
        try:
            timm_network = convert_to_timm(inner)
        except ValueError as error:
            raise InputError(f"{message}: {error}") from error
        load_weights(timm_network, weights, message=message)
        state = convert_from_timm(timm_network)[1]
        weights = {name: state[name] for name in inner.state_dict()}
    is_inner = weights.keys() == inner.state_dict().keys()  # an export has no names of wrappers
    load_weights(inner if is_inner else network, weights, message=message)
    return network.eval()


def convert_for_timm(network: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert weights as timm does when it loads them into its models; other networks' weights are unchanged.

    Positions are resized to the images, outdated names are replaced, and the first convolution is adapted to the number
    of channels. Raises InputError: weights of another model.
    """
    state = dict(weights)
    if not type(network).__module__.startswith("timm."):
        return state
    from timm.models import adapt_input_conv

    convert = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    try:
        state = state if convert is None else convert(state, network)
    except Exception as error:  # it expects weights of this model
        raise InputError(f"the weights do not fit {type(network).__name__}: {one_line(error)}") from error
    for name in as_list((getattr(network, "pretrained_cfg", None) or {}).get("first_conv")):
        theirs, own = state.get(f"{name}.weight"), network.get_parameter(f"{name}.weight")
        if theirs is not None and theirs.ndim == own.ndim == 4 and theirs.shape[1] != own.shape[1]:
            state[f"{name}.weight"] = adapt_input_conv(own.shape[1], theirs)
    return state


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read weights by name, as timm does, averaged ones if there are some, of a file or of a folder from the hub.

    Raises InputError: a missing or damaged .safetensors or .pth file, or one with more than tensors and plain values.
    """
    from timm.models import load_state_dict

    path = path / "model.safetensors" if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"weights {path}: no such file")
    try:
        weights = load_state_dict(str(path), weights_only=True)
    except AttributeError as error:  # contents that are no mapping, or have other names than texts
        raise InputError(f"weights {path} contains no named tensors") from error
    except Exception as error:  # torch's restricted unpickler raises errors of many types
        has_code = isinstance(error.__cause__, pickle.UnpicklingError)
        reason = "it contains objects other than tensors and plain values" if has_code else one_line(error)
        raise InputError(f"weights {path} cannot be read: {reason}") from error
    if not all(isinstance(value, Tensor) for value in weights.values()):
        raise InputError(f"weights {path} contains no named tensors")
    return weights
