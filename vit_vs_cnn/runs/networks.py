"""The network that a config's ``model`` block names, and the weights that it is given."""

import inspect
import math
import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vit_vs_cnn.attention.arguments import as_rows_and_cols
from vit_vs_cnn.config import reading as typed
from vit_vs_cnn.errors import InputError, UnknownSetting, one_line
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.attention_network import AttentionNetwork
from vit_vs_cnn.models.cost import run_on_meta_device
from vit_vs_cnn.models.input_wrappers import PermutedInput, ResizedInput, unwrap
from vit_vs_cnn.models.presets import ATTENTION_PREFIX, PRESETS
from vit_vs_cnn.runs.user_code import make_object
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.training.checkpoints import DOWNLOAD_OPTIONS, CheckpointInfo, read_checkpoint_info

#: More layers are an error in the config.
MAX_LAYERS = 2000
#: Options of a config, and images and classes of a file, that are no larger need little memory.
USUAL_NUMBER, SMALL_IMAGE_SIDE = 4096, 256
GIVEN_BY_THE_DATA = {"image_size", "in_channels", "num_classes"}
#: Keys under which programs store the weights of a network in a checkpoint.
NESTED = ("state_dict", "model", "model_state_dict")
#: Options of any model: the size that its images are brought to, and how.
RESIZING = {"input_size", "interpolation", "crop_pct"}
#: Options of any model: side of the blocks of pixels that are permuted, and the seed of the permutation.
PERMUTING = {"permute_blocks", "permutation_seed"}


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
    max_bytes: float = math.inf,
) -> nn.Module:
    """Build the network of a ``model`` block for given images; with ``input_size``, one that resizes them.

    Arguments:
        image_shape: channels, rows and columns of the images.
        trust: whether a class that the block names may be imported, or which one.
        max_bytes: largest size of the weights of a named model.

    Raises:
        InputError: an unknown name or option, a value that the network refuses, a class without ``trust``, or weights
            larger than ``max_bytes`` or the memory. ``where`` is the place of the block in the config.
    """
    if PERMUTING & model.keys():
        return _permuting(model, num_classes, image_shape, where=where, trust=trust, max_bytes=max_bytes)
    if RESIZING & model.keys():
        return _resizing(model, num_classes, image_shape, where=where, trust=trust, max_bytes=max_bytes)
    shape = {"num_classes": num_classes, "image_size": image_shape[1:], "in_channels": image_shape[0]}
    if "class_path" in model:
        return _custom(model, shape, where, trust in (True, model["class_path"]))
    options = {key: value for key, value in model.items() if key != "name"}
    if given := GIVEN_BY_THE_DATA & options.keys():
        raise InputError(f"{where}.{min(given)} follows from the data and can't be set here")
    if given := DOWNLOAD_OPTIONS & options.keys():
        raise InputError(f"{where}.{min(given)}: trained weights come by contenders.NAME.weights, with hub or a file")
    options = _typed_options(model["name"], options, where)
    _check_size(model["name"], {**options, **shape}, where, max_bytes)
    try:
        return create_model(model["name"], **shape, **options)
    except Exception as error:  # timm's models refuse settings in many ways, memory that is not there among them
        raise InputError(f"{where}: {one_line(error, 500)}") from error


def _resizing(
    model: Mapping[str, Any],
    num_classes: int,
    image_shape: tuple[int, int, int],
    *,
    where: str,
    trust: bool | str,
    max_bytes: float,
) -> ResizedInput:
    """A network for images of the size that the block names, which resizes other images."""
    if "input_size" not in model:
        raise InputError(f"{where}: {', '.join(sorted(RESIZING & model.keys()))} go with input_size alone")
    rest = {key: value for key, value in model.items() if key not in RESIZING}
    resizing = {key: value for key, value in model.items() if key in RESIZING and key != "input_size"}
    try:
        size = as_rows_and_cols("input_size", model["input_size"])
        network = build_network(
            rest,
            num_classes=num_classes,
            image_shape=(image_shape[0], *size),
            where=where,
            trust=trust,
            max_bytes=max_bytes,
        )
        return ResizedInput(network, size, **resizing)
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, InputError) else InputError(f"{where}: {error}") from error


def _permuting(
    model: Mapping[str, Any],
    num_classes: int,
    image_shape: tuple[int, int, int],
    *,
    where: str,
    trust: bool | str,
    max_bytes: float,
) -> PermutedInput:
    """A network with permuted blocks of pixels."""
    options = {key: value for key, value in model.items() if key in PERMUTING}
    if not isinstance(block_size := options.get("permute_blocks"), int) or not all(
        type(value) is int for value in options.values()
    ):
        raise InputError(f"{where}.permute_blocks: expected a whole number of pixels, got {block_size!r}")
    rest = {key: value for key, value in model.items() if key not in PERMUTING}
    network = build_network(
        rest, num_classes=num_classes, image_shape=image_shape, where=where, trust=trust, max_bytes=max_bytes
    )
    try:
        return PermutedInput(network, image_shape[1:], block_size, options.get("permutation_seed", 0))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def _check_size(name: str, options: dict[str, Any], where: str, max_bytes: float) -> None:
    """Refuse thousands of layers, and weights larger than ``max_bytes`` or the memory of the machine.

    The weights are counted on the meta device, where they need no memory. That takes a second, so they are counted only
    if an option is unusually large: of a file, if it is larger than that of the preset.
    """
    numbers = {option: value if isinstance(value, list | tuple) else [value] for option, value in options.items()}
    for option, values in numbers.items():
        if ("depth" in option or "layers" in option) and any(isinstance(v, int) and v > MAX_LAYERS for v in values):
            raise InputError(f"{where}.{option}: {options[option]} must be at most {MAX_LAYERS}")
    preset = PRESETS.get(name)

    def is_usual(option: str, value: Any) -> bool:
        if isinstance(value, str | bool | None):
            return True
        if not isinstance(value, int | float):
            return False
        if max_bytes == math.inf:
            return value <= USUAL_NUMBER
        own = {} if preset is None else preset.arguments
        return value <= (SMALL_IMAGE_SIDE if option in GIVEN_BY_THE_DATA else own.get(option, 0))

    is_known = preset is not None or max_bytes == math.inf
    if is_known and all(is_usual(option, value) for option, values in numbers.items() for value in values):
        return
    try:
        with torch.device("meta"):
            size = 4 * sum(weight.numel() for weight in create_model(name, **options).parameters())
    except Exception:  # the network is built next, and gives a better message
        return
    if size > max_bytes:
        raise InputError(f"{where}: its weights take {size / 1e6:,.1f} MB, and the file has {max_bytes / 1e6:,.1f}")
    if size > (memory := _memory()):
        raise InputError(f"{where}: its weights take {size / 1e9:,.0f} GB, and the machine has {memory / 1e9:,.0f}")


def _memory() -> float:
    """Memory of the machine, in bytes; infinite where it is unknown."""
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
        shape, macs = run_on_meta_device(network, (2, *image_shape))
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
    network, trained = unwrap(network), unwrap(trained)
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
    if mismatch := describe_mismatch(network.state_dict(), weights):
        raise InputError(f"{says}: {mismatch}")
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{says}: {one_line(error)}") from error


def describe_mismatch(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
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
    lines = [f"{len(names)} {kind} ({names[0]}{', ...' * (len(names) > 1)})" for kind, names in wrong.items() if names]
    return f"of {len(own)} tensors {', '.join(lines)}" if lines else ""


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"


def _custom(model: Mapping[str, Any], values: dict[str, Any], where: str, trust: bool) -> nn.Module:
    """A class of the user's own, or what a function gives: imported because the user's config names it.

    ``image_size`` is handed over as (rows, cols), and of square images as one number to whom takes no pair.
    """
    rows, cols = values["image_size"]
    try:
        network = make_object(model, values, where=where, trust=trust)
    except InputError as error:
        if rows != cols or not trust:
            raise
        try:
            network = make_object(model, {**values, "image_size": rows}, where=where, trust=trust)
        except InputError:
            raise error from error.__cause__
    if not isinstance(network, nn.Module):
        raise InputError(f"{where}: {model['class_path']} gives a {type(network).__name__}, not a torch.nn.Module")
    return network


def network_from_checkpoint(
    checkpoint: Mapping[str, Any], path: Path, *, trust: bool | str = False
) -> tuple[nn.Module, CheckpointInfo]:
    """The evaluated network of a checkpoint, and what the file says of it. Nothing that the file carries is executed.

    Arguments:
        trust: whether a class that the file names may be imported, which is running what it asks for; or which one.

    Returns:
        images to logits, in evaluation mode, with the averaged weights where an average was kept.

    Raises:
        InputError: damaged, or of a class that is not the package's own, without ``trust``.
    """
    about = read_checkpoint_info(checkpoint, path)
    where, shape = f"checkpoint {path}", {"num_classes": len(about.class_names), "image_shape": about.image_shape}
    weights = _evaluated(checkpoint["state_dict"])
    if spoiled := [name for name, value in weights.items() if value.is_floating_point() and value.isnan().any()]:
        raise InputError(f"{where}: {len(spoiled)} of {len(weights)} weights hold NaN ({spoiled[0]}); its run diverged")
    size = float(sum(4 * weight.numel() for weight in weights.values()))
    network = build_network(about.model, **shape, where=where, trust=trust, max_bytes=size)
    load_weights(network, weights, says=f"{where} does not fit its own model")
    return network.eval(), about


def _evaluated(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The averaged weights where there are any, else the last ones."""
    prefix = "average.network." if any(name.startswith("average.network.") for name in state) else "network."
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def timm_network(
    name: str, weights: Path | None, class_names: tuple[str, ...], image_shape: tuple[int, int, int]
) -> tuple[nn.Module, CheckpointInfo]:
    """A model of timm for these classes and images, with the weights of a file or as drawn; none is fetched.

    It reads what timm's record of it says: mean and standard deviation, 0.5 for other channels than three.

    Arguments:
        weights: a .safetensors or a .pth file.

    Raises:
        InputError: no such model or file, weights that do not fit it, or a file that carries more than tensors.
    """
    where = name if weights is None else f"{name}={weights}"
    channels, num_classes = image_shape[0], len(class_names)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("outside", name))
        network = build_network({"name": name}, num_classes=num_classes, image_shape=image_shape, where=where).eval()
    if weights is not None:
        load_weights(network, as_timm_reads(network, read_weights(weights)), says=f"{where}: the weights do not fit")
    check_logits(network, image_shape, num_classes=num_classes, where=where)
    record: Any = getattr(network, "pretrained_cfg", None) or {}
    mean, std = (record.get(key, (0.5,)) if channels == 3 else (0.5,) for key in ("mean", "std"))
    mean, std = (torch.tensor(values).expand(channels).tolist() for values in (mean, std))
    return network, CheckpointInfo({"name": name}, class_names, image_shape, mean, std)


def as_timm_reads(network: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights for a model of timm's as timm itself takes them: positions resized to its images, old names renamed, the
    first convolution for other channels. For any other network they are as they are.

    Raises:
        InputError: they are of another model.
    """
    state = dict(weights)
    if not type(network).__module__.startswith("timm."):
        return state
    from timm.models import adapt_input_conv

    own_filter = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    try:
        state = state if own_filter is None else own_filter(state, network)
    except Exception as error:  # which is written for weights of this model
        raise InputError(f"the weights do not fit {type(network).__name__}: {one_line(error)}") from error
    first = (getattr(network, "pretrained_cfg", None) or {}).get("first_conv")
    for name in [first] if isinstance(first, str) else list(first or ()):
        theirs, own = state.get(f"{name}.weight"), network.get_parameter(f"{name}.weight")
        if theirs is not None and theirs.ndim == own.ndim == 4 and theirs.shape[1] != own.shape[1]:
            state[f"{name}.weight"] = adapt_input_conv(own.shape[1], theirs)
    return state


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a .safetensors or .pth file by name, however deep programs have put them in it.

    Raises:
        InputError: no such file, damaged, or carrying more than tensors and plain values.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(f"weights {path} holds more than tensors and plain values; it was not loaded") from error
    except Exception as error:  # torch's restricted unpickler trips in many ways over bytes that are no weights
        raise InputError(f"weights {path} can't be read: {one_line(error)}") from error
    for _ in NESTED:  # as deep as programs put them; a file may hold itself
        inside = [key for key in NESTED if isinstance(contents, dict) and isinstance(contents.get(key), dict)]
        contents = contents[inside[0]] if inside else contents
    if not isinstance(contents, dict) or not all(isinstance(value, Tensor) for value in contents.values()):
        raise InputError(f"weights {path} holds no tensors by name")
    return contents
