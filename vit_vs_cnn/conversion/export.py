"""Export of a trained network to other formats; every file is compared with the network."""

import contextlib
import copy
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vit_vs_cnn.errors import InputError, import_optional, one_line
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.models.input_wrappers import NormalizedInput, ResizedInput, list_wrappers, resize_for, unwrap
from vit_vs_cnn.models.presets import PERMUTE_OPTIONS, PRESETS, RESIZE_OPTIONS, TIMM_PREFIX
from vit_vs_cnn.models.timm_conversion import convert_to_timm, timm_arguments
from vit_vs_cnn.models.timm_interface import TIMM_SUFFIX, name_in_timm
from vit_vs_cnn.models.vit import VisionTransformer
from vit_vs_cnn.networks.temperature import read_run_result
from vit_vs_cnn.networks.trained_network import TrainedNetwork

#: Largest difference of the logits of a file, relative to the largest logit or 1: rounding errors of float32.
TOLERANCE = 1e-4
#: Number of images for the check of an export; another number than in the example, so that a fixed batch size fails.
CHECKED_IMAGES = 5
#: Model of timm whose arguments are replaced by those of a Vision Transformer.
TIMM_ARCHITECTURE = "vit_tiny_patch16_224"


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
    config = {**_hub_config(trained), "vit_vs_cnn": metadata | trained.calibration.to_dict()}
    write_text(config_file, json.dumps(config, indent=1) + "\n")
    results = []
    for name in dict.fromkeys([*formats, "safetensors"]):  # the weights are always written, for ``vc.load(folder)``
        path, logits = FORMATS[name](normalized, images, folder)
        difference = float((logits - expected).abs().max())
        if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise InputError(f"{path}: its logits differ from the network's by {difference:.1e}; do not use it")
        results.append(ExportedFile(path, difference))
    return results


def _timm_layout(trained: TrainedNetwork) -> tuple[str, dict[str, Any], nn.Module] | None:
    """Name and arguments with which timm creates a network, and the network with timm's names of the weights.

    The name is timm's where possible, otherwise that of a preset, which ``register_with_timm`` registers. None if timm
    cannot create the network.
    """
    network, name = unwrap(trained.network), str(trained.about.architecture.get("name"))
    options = {k: v for k, v in trained.about.architecture.get("options", {}).items() if k not in RESIZE_OPTIONS}
    if options.keys() & PERMUTE_OPTIONS.keys():
        return None
    if isinstance(network, VisionTransformer):
        with contextlib.suppress(ValueError):
            return TIMM_ARCHITECTURE, timm_arguments(network), convert_to_timm(network)
    if name.startswith(TIMM_PREFIX):
        return name.removeprefix(TIMM_PREFIX).partition(".")[0], options, network
    return (name_in_timm(name), options, network) if name in PRESETS else None


def _hub_config(trained: TrainedNetwork) -> dict[str, Any]:
    """Values of config.json that timm reads in a folder or a repository of the hub; empty if it cannot."""
    if (layout := _timm_layout(trained)) is None:
        return {}
    name, arguments, network = layout
    own, outer = (cast(Any, module).pretrained_cfg for module in (network, trained.network))
    config: dict[str, Any] = {**own, **outer, "first_conv": own["first_conv"]}
    keys = ("mean", "std", "crop_mode", "interpolation", "crop_pct", "input_size", "classifier", "first_conv")
    config = {key: config[key] for key in (*keys, "fixed_input_size", "pool_size") if key in config}
    for wrapper in list_wrappers(trained.network):
        if isinstance(wrapper, ResizedInput):  # the network inside gets images of another size
            config |= {"interpolation": wrapper.interpolation, "crop_pct": wrapper.crop_pct}
            config["input_size"] = (trained.image_shape[0], *wrapper.image_size)
    if name.endswith(TIMM_SUFFIX):
        arguments = {**arguments, "img_size": config["input_size"][1:]}
    labels = {"num_classes": len(trained.class_names), "label_names": trained.class_names}
    return {"architecture": name, **labels, "model_args": arguments, "pretrained_cfg": config}


def save_pretrained(trained: TrainedNetwork, folder: Path) -> None:
    """Write weights, config.json and, unless there is one, a model card in README.md. Errors: as ``export``."""
    export(trained, ["safetensors"], folder)
    if not (folder / "README.md").exists():
        write_text(folder / "README.md", write_model_card(trained))


def write_model_card(trained: TrainedNetwork) -> str:
    """Model card of a network: result with interval, limits, input and use. The license is left to the user."""
    from huggingface_hub import ModelCardData

    about, result = trained.about, read_run_result(trained.path, trained.network)
    accuracy = "The accuracy of these weights is not recorded."
    if result is not None:
        ends, of = result.scores.accuracy_interval, f"{result.scores.scored_images:,} {result.scores.scored_on} images"
        interval = f"95 % interval {100 * ends.low:.1f} to {100 * ends.high:.1f} %"
        accuracy = f"Accuracy: {100 * ends.value:.1f} % ({interval}) on {of}."
    name, temperature = _hub_config(trained).get("architecture"), trained.calibration.temperature
    data = ModelCardData(library_name="timm" if name else "vit_vs_cnn", pipeline_tag="image-classification")
    code = "vit_vs_cnn.load('hf-hub:USER/NAME').predict('photo.jpg')\n"
    code += "vit_vs_cnn.models.timm_interface.register_with_timm()\n" * str(name).endswith(TIMM_SUFFIX)
    code += "timm.create_model('hf-hub:USER/NAME', pretrained=True)\n" * bool(name)
    return f"""---
{data.to_yaml()}
# license: choose one
---
# {trained.run.model}

{type(unwrap(trained.network)).__name__} that classifies images, trained by vit_vs_cnn on {trained.run.train_size:,} \
labelled images. Classes: {", ".join(trained.class_names)}.

**Result.** {accuracy}

**Limits.** The interval is for other images of the same source. Images of another source, and the same training with
another seed, can give another accuracy. Every image gets one of the classes, also an image of something else.
Probabilities are {"not calibrated" if temperature is None else f"calibrated (temperature {temperature:.3g})"}.

**Input.** {" x ".join(map(str, about.image_shape))} (channels, rows, columns), resize "{trained.decoding.resize}", \
{trained.decoding.interpolation} interpolation, values from 0 to 1, mean {about.mean}, std {about.std}.

```python
{code}```
"""


def _safetensors(normalized: NormalizedInput, images: Tensor, folder: Path) -> tuple[Path, Tensor]:
    """Weights under the names of timm's model where there is one; ``TrainedNetwork.open`` reads them."""
    network = unwrap(normalized.network)
    with contextlib.suppress(ValueError):
        network = convert_to_timm(network) if isinstance(network, VisionTransformer) else network
    return _save_weights(network, normalized, images, folder / "model.safetensors")


def _save_weights(network: nn.Module, normalized: NormalizedInput, images: Tensor, path: Path) -> tuple[Path, Tensor]:
    """Write the weights as safetensors; return the path, and the logits of a copy that loads the file."""
    # Clones, as tied weights are one tensor with two names, which the format does not allow.
    weights = {k: v.clone(memory_format=torch.contiguous_format) for k, v in network.state_dict().items()}
    save_file(weights, path)
    loaded = copy.deepcopy(network)
    loaded.load_state_dict(load_file(path))
    with torch.no_grad():
        return path, loaded(resize_for(normalized.network, (images - normalized.mean) / normalized.std))


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
    network: Any = unwrap(normalized.network)
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
