"""Networks that no run of ours trained: models of timm, and ONNX files."""

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_vs_cnn.runs.evaluation import Normalise
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.networks import build_network, check_logits, load_weights
from vit_vs_cnn.seeds import derive_seed

TIMM = "timm/"
#: Keys under which programs keep the weights of a network in a checkpoint.
NESTED = ("state_dict", "model", "model_state_dict")


@dataclass(frozen=True, eq=False)
class OutsideNetwork:
    """A network and what is known of it, which is little.

    Arguments:
        normalise: bytes to what it reads.
        class_names: in the order of its logits.
    """

    name: str
    network: nn.Module
    normalise: Normalise
    class_names: tuple[str, ...]
    config: dict[str, Any] = field(default_factory=dict)
    file_bytes: int | None = None
    warnings: tuple[str, ...] = ()


def open_timm(word: str, test: LabelledImages) -> OutsideNetwork:
    """``timm/NAME`` untrained, or ``timm/NAME=FILE`` with weights from a .safetensors or a .pth file; none is fetched.

    Raises:
        InputError: no such model or file, weights that do not fit it at these classes and images, or a file that
            carries more than tensors.
    """
    name, _, file = word.partition("=")
    channels, rows, cols = test.images.shape[1:]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("outside", name))
        network = build_network(
            {"name": name}, num_classes=test.num_classes, image_size=(rows, cols), in_channels=channels, where=word
        ).eval()
    warnings = (f"{word}: no weights were named, so it is untrained",)
    if file:
        load_weights(network, _read_weights(Path(file)), says=f"{word}: the weights do not fit")
        warnings = ()
    check_logits(network, (channels, rows, cols), num_classes=test.num_classes, where=word)
    size = Path(file).stat().st_size if file else None
    return OutsideNetwork(
        f"{name} ({Path(file).stem})" if file else name,
        network,
        _timm_normalise(network, channels),
        test.class_names,
        file_bytes=size,
        warnings=warnings,
    )


def _timm_normalise(network: nn.Module, channels: int) -> Normalise:
    """With the mean and standard deviation that timm's record of the model has; 0.5 for other channels than three."""
    record = getattr(network, "pretrained_cfg", None) or {}
    mean, std = (record.get(key, (0.5,)) if channels == 3 else (0.5,) for key in ("mean", "std"))
    mean, std = (torch.tensor(values).expand(channels)[:, None, None] for values in (mean, std))
    return lambda images: (images.float() / 255 - mean.to(images.device)) / std.to(images.device)


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors import SafetensorError
            from safetensors.torch import load_file

            try:
                return load_file(path)
            except SafetensorError as error:
                raise InputError(f"weights {path}: {error}") from error
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(f"weights {path} holds more than tensors and plain values; it was not loaded") from error
    except InputError:
        raise
    except Exception as error:  # torch's restricted unpickler trips in many ways over bytes that are no weights
        raise InputError(f"weights {path} can't be read: {' '.join(str(error).split())[:300]}") from error
    while isinstance(contents, dict) and (inside := [key for key in NESTED if isinstance(contents.get(key), dict)]):
        contents = contents[inside[0]]
    if not isinstance(contents, dict) or not all(isinstance(value, Tensor) for value in contents.values()):
        raise InputError(f"weights {path} holds no tensors by name")
    return contents


class OnnxNetwork(nn.Module):
    """An ONNX file run by onnxruntime, on the CPU: pixel values from 0 to 1 to logits.

    Its initialisers are held as parameters, so that they can be counted; they cannot be changed.

    Arguments:
        path: the file.

    Raises:
        InputError: no such file, damaged, or onnx and onnxruntime are not installed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            import onnx  # pyright: ignore[reportMissingImports]
            import onnxruntime  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise InputError(f'{path} needs onnx and onnxruntime: pip install "vit-vs-cnn[export]"') from error
        try:
            graph = onnx.load(path).graph
            self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:  # each library has exceptions of its own, without a common kind
            raise InputError(f"{path} is no ONNX file that can be run: {' '.join(str(error).split())[:300]}") from error
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


def open_onnx(path: Path, test: LabelledImages) -> OutsideNetwork:
    """An ONNX file that ``export`` wrote, with the config.json beside it.

    Raises:
        InputError: either is missing or damaged, or the network does not take these images.
    """
    try:
        about = json.loads(path.with_name("config.json").read_text(encoding="utf-8"))["vit_vs_cnn"]
        class_names = tuple(about["class_names"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: the config.json beside it, which export writes, can't be read: {error}") from error
    network = OnnxNetwork(path).eval()
    try:
        shape = tuple(network(test.images[:2].float() / 255).shape)
    except Exception as error:
        raise InputError(f"{path}: fails on these images: {' '.join(str(error).split())[:300]}") from error
    if shape != (2, len(class_names)):
        raise InputError(f"{path}: gives logits of shape {shape} for 2 images of {len(class_names)} classes")
    return OutsideNetwork(
        f"{path.parent.name}/{path.name}",
        network,
        lambda images: images.float() / 255,
        class_names,
        file_bytes=path.stat().st_size,
    )
