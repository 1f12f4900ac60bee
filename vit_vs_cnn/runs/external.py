"""Networks that no run of ours trained: models of timm, and ONNX files."""

import json
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.extras import library
from vit_vs_cnn.runs.networks import build_network, check_logits, load_weights
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.training.checkpoints import About

#: Keys under which programs keep the weights of a network in a checkpoint.
NESTED = ("state_dict", "model", "model_state_dict")


def timm_network(
    name: str, weights: Path | None, class_names: tuple[str, ...], image_shape: tuple[int, int, int]
) -> tuple[nn.Module, About]:
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
    return network, About({"name": name}, class_names, image_shape, mean, std)


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


class OnnxNetwork(nn.Module):
    """An ONNX file run by onnxruntime, on the CPU: pixel values from 0 to 1 to logits.

    Its initialisers are held as parameters, so that they can be counted; they cannot be changed.

    Raises:
        InputError: no such file, damaged, or onnx and onnxruntime are not installed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        onnx, onnxruntime = library("onnx", by=str(path)), library("onnxruntime", by=str(path))
        try:
            graph = onnx.load(path).graph
            self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:  # each library has exceptions of its own, without a common kind
            raise InputError(f"{path} is no ONNX file that can be run: {one_line(error)}") from error
        weights = [torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer]
        self.weights = nn.ParameterList(
            nn.Parameter(weight, requires_grad=False) for weight in weights if weight.is_floating_point()
        )
        self._input = self._session.get_inputs()[0].name

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnnxNetwork":
        raise NotImplementedError("an ONNX session cannot be copied, and its operations cannot be counted")

    def forward(self, images: Tensor) -> Tensor:
        logits = self._session.run(None, {self._input: images.cpu().numpy()})[0]
        return torch.from_numpy(logits).to(images.device)


def onnx_network(path: Path, image_shape: tuple[int, int, int] | None) -> tuple[nn.Module, About, Any]:
    """An ONNX file that ``export`` wrote, what the config.json beside it says, and the run that it names, if any.

    Arguments:
        image_shape: of the images, where config.json does not say it.

    Raises:
        InputError: either file is missing or damaged, or the network does not take such images.
    """
    try:
        about = json.loads(path.with_name("config.json").read_text(encoding="utf-8"))["vit_vs_cnn"]
        class_names = tuple(about["class_names"])
        channels, rows, cols = about.get("image_shape") or image_shape or ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: the config.json beside it, which export writes, can't be read: {error}") from error
    network = OnnxNetwork(path).eval()
    try:
        shape = tuple(network(torch.zeros(2, channels, rows, cols)).shape)
    except Exception as error:
        raise InputError(f"{path}: fails on its images: {one_line(error)}") from error
    if shape != (2, len(class_names)):
        raise InputError(f"{path}: gives logits of shape {shape} for 2 images of {len(class_names)} classes")
    described = About({}, class_names, (channels, rows, cols), mean=[0.0] * channels, std=[1.0] * channels)
    return network, described, about.get("origin")
