"""Checkpoints: writing, and reading without running code that they contain."""

import json
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.strict_yaml import check_plain

#: Errors that torch.load raises for files that are not checkpoints; its unpickler raises any of the last six.
_UNREADABLE = (
    *(OSError, RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile),
    *(IndexError, AttributeError, TypeError, AssertionError, OverflowError, MemoryError),
)

#: Largest numbers of channels, rows and columns of the images of a checkpoint.
MAX_IMAGE_SHAPE = 64, 16_384, 16_384
#: Options of timm models that read files or download weights.
DOWNLOAD_OPTIONS = {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"}


@dataclass(frozen=True)
class CheckpointInfo:
    """Checked metadata of a checkpoint, from which its network can be rebuilt.

    Arguments:
        model: ``model`` block of the config, without options that download weights.
        image_shape: (channels, rows, cols).
        mean, std: mean and standard deviation of each channel, in [0, 1].
    """

    model: dict[str, Any]
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]
    mean: list[float]
    std: list[float]


def read_checkpoint_info(checkpoint: Mapping[str, Any], path: Path) -> CheckpointInfo:
    """Checked metadata of a checkpoint that ``read_checkpoint`` returned.

    Raises:
        InputError: if a value is missing, of a wrong type, or out of range.
    """
    metadata, location = checkpoint["vit_vs_cnn"], f"checkpoint {path}"
    try:
        model, names = dict(metadata["model"]), tuple(metadata["class_names"])
        channels, rows, cols = shape = tuple(metadata["image_shape"])
        mean, std = ([float(value) for value in metadata[key]] for key in ("mean", "std"))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{location}: its network cannot be rebuilt: {error!r}") from error
    check_plain({"model": model, "class_names": names, "mean": mean, "std": std}, location=location)
    requirements = {
        f"image_shape {shape} must be whole numbers up to {MAX_IMAGE_SHAPE}": all(
            isinstance(value, int) and 0 < value <= limit for value, limit in zip(shape, MAX_IMAGE_SHAPE, strict=True)
        ),
        "class_names must be a list of one or more strings": names and all(isinstance(name, str) for name in names),
        "mean and std must be one number for each channel, std above 0": len(mean) == len(std) == channels
        and min(std, default=1) > 0,
        "the name of the model is missing": isinstance(model.get("name", model.get("class_path")), str),
    }
    for rule, is_met in requirements.items():
        if not is_met:
            raise InputError(f"{location}: its network cannot be rebuilt: {rule}")
    model = {name: value for name, value in model.items() if name not in DOWNLOAD_OPTIONS}
    return CheckpointInfo(model, names, (channels, rows, cols), mean, std)


def write_checkpoint(path: Path, info: Mapping[str, Any], network: nn.Module) -> None:
    """Write weights and metadata, as a complete file or not at all; training cannot resume from it."""
    weights = {f"network.{name}": value for name, value in network.state_dict().items()}
    with atomic_write(path) as partial:
        torch.save({"vit_vs_cnn": dict(info), "state_dict": weights}, partial)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Contents of a checkpoint of this package: tensors and plain values only.

    A ``.safetensors`` file of ``export`` is read with the config.json in its folder.

    Raises:
        InputError: if the file is missing, damaged or from another program, or contains code.
    """
    if path.suffix == ".safetensors":
        return _read_exported(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about pickles that it then rejects
            contents = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(f"checkpoint {path}: no such file") from error
    except pickle.UnpicklingError as error:
        raise InputError(
            f"checkpoint {path} was not loaded, as it contains objects other than tensors and plain values"
        ) from error
    except _UNREADABLE as error:
        reason = f"{type(error).__name__}: {one_line(error, 200)}"
        raise InputError(f"checkpoint {path} is damaged or not a checkpoint: {reason}") from error
    return _check_contents(contents, path)


def _check_contents(contents: Any, path: Path) -> dict[str, Any]:
    """Return the contents; raise InputError unless they are a checkpoint of this package with ordinary tensors."""
    damaged = f"checkpoint {path} is damaged or not a checkpoint"
    if not isinstance(contents, dict) or "vit_vs_cnn" not in contents:
        if isinstance(contents, dict) and "pytorch-lightning_version" in contents:
            raise InputError(
                f"checkpoint {path} is not from a run of vit_vs_cnn; load the checkpoint of another Trainer with "
                "Classifier.load_from_checkpoint(path, network=...)"
            )
        raise InputError(f"checkpoint {path} was not written by vit_vs_cnn")
    state = contents.get("state_dict")
    if not isinstance(contents["vit_vs_cnn"], dict) or not isinstance(state, dict):
        raise InputError(f"{damaged}: its weights or its metadata are missing")
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise InputError(f"{damaged}: its weights or its metadata are missing")
        if value.is_meta or value.layout != torch.strided or value.is_complex() or value.is_quantized:
            kind = "no values (meta device)" if value.is_meta else f"{value.dtype} values ({value.layout})"
            raise InputError(f"{damaged}: {name} has {kind}")
    return contents


def _read_exported(path: Path) -> dict[str, Any]:
    """Contents of weights in safetensors, with their config.json."""
    config_file = path.with_name("config.json")
    try:
        weights = load_file(path)
        info = json.loads(config_file.read_text(encoding="utf-8"))["vit_vs_cnn"]
    except FileNotFoundError as error:
        raise InputError(f"weights {path}: no such file: {error.filename or path}") from error
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"weights {path} or its {config_file.name} are damaged or from another program: {error}"
        ) from error
    return _check_contents(
        {"vit_vs_cnn": info, "state_dict": {f"network.{name}": value for name, value in weights.items()}}, path
    )
