"""Export of a trained network to other formats; every file is compared with the network."""

import copy
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError, import_optional, one_line
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.models.input_wrappers import NormalizedInput
from vit_vs_cnn.models.timm_conversion import convert_to_timm
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.networks.trained_network import TrainedNetwork

#: Largest difference of the logits of a file, relative to the largest logit or 1: rounding errors of float32.
TOLERANCE = 1e-4
#: Number of images for the check of an export; another number than in the example, so that a fixed batch size fails.
CHECKED_IMAGES = 5


@dataclass(frozen=True)
class ExportedFile:
    """Exported file, and the largest difference of its logits from those of the network on random images."""

    path: Path
    difference: float


def export(trained: TrainedNetwork, formats: list[str], folder: Path) -> list[ExportedFile]:
    """Write a network in some formats, with ``config.json``, and check the files.

    Raises:
        InputError: a format is unknown, does not fit the network or needs a missing library; the folder contains the
            ``config.json`` of something else; or a file cannot be written or gives other logits than the network.
    """
    if unknown := [name for name in formats if name not in FORMATS]:
        raise InputError(f"format {unknown[0]!r} is not one of {', '.join(FORMATS)}")
    if not formats:
        raise InputError(f"format: none is given; there are {', '.join(FORMATS)}")
    if "onnx" in formats:  # before anything is written
        for library in ("onnxscript", "onnxruntime"):
            import_optional(library, needed_by="format onnx")
    try:
        return _write(trained, formats, folder)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputError(
            f"{folder}: the export cannot be written there ({reason or one_line(error)}); choose another --output"
        ) from error


def _write(trained: TrainedNetwork, formats: list[str], folder: Path) -> list[ExportedFile]:
    about, config_file = trained.about, folder / "config.json"
    metadata = json.loads(json.dumps(trained.metadata))
    existing = read_mapping(config_file).get("vit_vs_cnn")
    if config_file.exists() and not (isinstance(existing, dict) and existing | metadata == existing):
        raise InputError(f"{config_file} is not the one of this network; choose another --output")
    folder.mkdir(parents=True, exist_ok=True)
    network = copy.deepcopy(trained.network).cpu().float().eval()
    normalized = NormalizedInput(network, mean=about.mean, std=about.std).eval()
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(CHECKED_IMAGES, *about.image_shape, generator=generator)
    with torch.no_grad():
        expected = normalized(images)
    config = metadata | trained.calibration.to_dict()
    write_text(config_file, json.dumps({"vit_vs_cnn": config}, indent=1) + "\n")
    results = []
    for name in formats:
        path, logits = FORMATS[name](normalized, images, folder)
        difference = float((logits - expected).abs().max())
        if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise InputError(f"{path}: its logits differ from the network's by {difference:.1e}; do not use it")
        results.append(ExportedFile(path, difference))
    return results


def _safetensors(normalized: NormalizedInput, images: Tensor, folder: Path) -> tuple[Path, Tensor]:
    """Weights under the names of this package. ``TrainedNetwork.open`` reads them with the config.json beside them."""
    return _save_weights(normalized.network, normalized, images, folder / "model.safetensors")


def _save_weights(network: nn.Module, normalized: NormalizedInput, images: Tensor, path: Path) -> tuple[Path, Tensor]:
    """Write the weights as safetensors; return the path, and the logits of a copy that loads the file."""
    # Clones, as tied weights are one tensor with two names, which the format does not allow.
    weights = {k: v.clone(memory_format=torch.contiguous_format) for k, v in network.state_dict().items()}
    save_file(weights, path)
    loaded = copy.deepcopy(network)
    loaded.load_state_dict(load_file(path))
    with torch.no_grad():
        return path, loaded((images - normalized.mean) / normalized.std)


def _onnx(normalized: NormalizedInput, images: Tensor, folder: Path) -> tuple[Path, Tensor]:
    """ONNX program from pixel values to logits, for any number of images; the logits are computed by onnxruntime."""
    runtime = import_optional("onnxruntime", needed_by="format onnx")
    path = folder / "model.onnx"
    try:
        with warnings.catch_warnings(action="ignore"):
            torch.onnx.export(
                normalized,
                (images[:2],),
                path,
                dynamo=True,
                verbose=False,
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch", min=1)}},
                external_data=False,
            )
    except OSError:
        raise
    except Exception as error:  # the exporter may raise anything for a custom network
        name = type(normalized.network).__name__
        raise InputError(f"format onnx does not support this {name}: {one_line(error)}") from error
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return path, torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _timm(normalized: NormalizedInput, images: Tensor, folder: Path) -> tuple[Path, Tensor]:
    """Weights of a ViT or of a timm model under timm's names."""
    network: Any = normalized.network
    if isinstance(network, VisionTransformer):
        try:
            network = convert_to_timm(network)
        except ValueError as error:
            raise InputError(f"format timm does not support this network: {error}") from error
    elif not type(network).__module__.startswith("timm."):
        raise InputError(f"format timm supports VisionTransformer and timm models, not {type(network).__name__}")
    return _save_weights(network, normalized, images, folder / "timm.safetensors")


#: Function for each format that writes a file into a folder, and returns its path and the logits of the file.
FORMATS: dict[str, Callable[[NormalizedInput, Tensor, Path], tuple[Path, Tensor]]] = {
    "safetensors": _safetensors,
    "onnx": _onnx,
    "timm": _timm,
}
