"""Checkpoints: writing, and reading without running code that they contain."""

import json
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.files import atomic_write
from vit_vs_cnn.strict_yaml import check_plain
from vit_vs_cnn.typed_values import build

#: Largest numbers of channels, rows and columns of the images of a checkpoint.
MAX_IMAGE_SHAPE = 64, 16_384, 16_384


@dataclass(frozen=True)
class CheckpointInfo:
    """Metadata of a checkpoint, from which its network can be rebuilt.

    Arguments:
        architecture: name or class of the network and its options, as in a config.
        image_shape: (channels, rows, cols).
        mean, std: mean and standard deviation of each channel, in [0, 1].
        gray_bits: bits of the values in gray files of 16 bits.
    """

    architecture: dict[str, Any]
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]
    mean: list[float]
    std: list[float]
    gray_bits: int = 16

    def __post_init__(self) -> None:
        if not all(0 < size <= limit for size, limit in zip(self.image_shape, MAX_IMAGE_SHAPE, strict=True)):
            channels, side, _ = MAX_IMAGE_SHAPE
            raise InputError(
                f"image_shape {self.image_shape} must have 1 to {channels} channels and sides of 1 to {side}"
            )
        if not 8 <= self.gray_bits <= 16:
            raise InputError(f"gray_bits {self.gray_bits} must be 8 to 16")
        if not self.class_names:
            raise InputError("class_names must be one or more names")
        if not len(self.mean) == len(self.std) == self.image_shape[0] or min(self.std) <= 0:
            raise InputError("mean and std must be one number for each channel, std above 0")
        if not isinstance(self.architecture.get("name", self.architecture.get("class_path")), str):
            raise InputError("the name of the model is missing")


def read_checkpoint_info(checkpoint: Mapping[str, Any], path: Path) -> CheckpointInfo:
    """Metadata of a checkpoint that ``read_checkpoint`` returned. Raises InputError: a missing or wrong value."""
    names = {field.name for field in fields(CheckpointInfo)}
    values = {name: value for name, value in checkpoint["vit_vs_cnn"].items() if name in names}
    try:
        check_plain(values, location="metadata")
        return build(CheckpointInfo, values)
    except InputError as error:
        raise InputError(f"checkpoint {path}: its network cannot be rebuilt: {error}") from error


def write_checkpoint(path: Path, info: Mapping[str, Any], network: nn.Module) -> None:
    """Write weights and metadata, as a complete file or not at all; training cannot resume from it."""
    weights = {f"network.{name}": value for name, value in network.state_dict().items()}
    with atomic_write(path) as partial:
        torch.save({"vit_vs_cnn": dict(info), "state_dict": weights}, partial)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Contents of a checkpoint of this package: tensors and plain values only.

    A ``.safetensors`` file of ``export`` is read with the config.json in its folder.

    Raises InputError: the file is missing, damaged or from another program, or contains code.
    """
    if path.suffix == ".safetensors":
        return _read_exported(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # torch warns about pickles that it then rejects
            contents = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(f"checkpoint {path}: no such file") from error
    except pickle.UnpicklingError as error:
        raise InputError(
            f"checkpoint {path} was not loaded, as it contains objects other than tensors and plain values"
        ) from error
    except Exception as error:  # torch's restricted unpickler raises errors of many types
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
            raise InputError(f"{damaged}: {name} is not a named tensor")
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
    except Exception as error:
        message = f"weights {path} or its {config_file.name} are damaged or from another program: {error}"
        raise InputError(message) from error
    return _check_contents(
        {"vit_vs_cnn": info, "state_dict": {f"network.{name}": value for name, value in weights.items()}}, path
    )
