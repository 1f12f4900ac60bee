"""Reading a checkpoint without running anything that it carries."""

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
from vit_vs_cnn.files import written_whole
from vit_vs_cnn.plain import check_plain, refuse_classes

#: What torch raises on bytes that are no checkpoint; its restricted unpickler trips over any of the last four.
_UNREADABLE = (
    *(OSError, RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile),
    *(IndexError, AttributeError, TypeError, AssertionError, OverflowError, MemoryError),
)

#: What a checkpoint may say of its images: channels, and rows or columns.
MOST_CHANNELS, MOST_PIXELS = 64, 16_384
#: Options of timm's models that open other files or the network.
FETCHING = {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"}


@dataclass(frozen=True)
class About:
    """What a checkpoint says of its network, checked.

    Arguments:
        model: the ``model`` block that it was built from, without options that fetch weights from elsewhere.
        image_shape: channels, rows, cols.
        mean: of each channel, in units where white is 1.
        std: of each channel, in the same units.
    """

    model: dict[str, Any]
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]
    mean: list[float]
    std: list[float]


def read_about(checkpoint: Mapping[str, Any], path: Path) -> About:
    """What a checkpoint that ``read_checkpoint`` gave says of its network.

    Raises:
        InputError: something is missing, of another kind than it should be, or beyond all bounds.
    """
    about, where = checkpoint["vit_vs_cnn"], f"checkpoint {path}"
    try:
        model, names = dict(about["model"]), tuple(about["class_names"])
        channels, rows, cols = shape = tuple(about["image_shape"])
        mean, std = ([float(value) for value in about[key]] for key in ("mean", "std"))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where} lacks what is needed to rebuild its network: {error!r}") from error
    check_plain({"model": model, "class_names": names, "mean": mean, "std": std}, where=where)
    refuse_classes({"model": model}, but_in=[("model",)])
    whole = all(isinstance(value, int) and value > 0 for value in shape)
    if not whole or channels > MOST_CHANNELS or max(rows, cols) > MOST_PIXELS:
        most = f"{MOST_CHANNELS} channels, {MOST_PIXELS} rows and columns"
        raise InputError(f"{where}: image_shape {shape} must be whole numbers up to {most}")
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: class_names must be texts, at least one")
    if not len(mean) == len(std) == channels or min(std) <= 0:
        raise InputError(f"{where}: mean and std must be numbers for each of {channels} channels, std above 0")
    if not isinstance(model.get("name", model.get("class_path")), str):
        raise InputError(f"{where} lacks what is needed to rebuild its network: the name of its model")
    kept = {name: value for name, value in model.items() if name not in FETCHING}
    return About(kept, names, (channels, rows, cols), mean, std)


def write_checkpoint(path: Path, about: Mapping[str, Any], network: nn.Module) -> None:
    """A network's weights with what ``read_about`` reads, whole or not at all; no training goes on from it."""
    weights = {f"network.{name}": value for name, value in network.state_dict().items()}
    with written_whole(path) as partial:
        torch.save({"vit_vs_cnn": dict(about), "state_dict": weights}, partial)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint that this package wrote: tensors and plain values only.

    A ``.safetensors`` file that ``export`` wrote is one too, with the config.json beside it.

    Raises:
        InputError: no such file, cut short, carrying code, or written by another program.
    """
    if path.suffix == ".safetensors":
        return _read_exported(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about pickles that it refuses in the next moment
            contents = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(f"checkpoint {path}: no such file") from error
    except pickle.UnpicklingError as error:
        raise InputError(f"checkpoint {path} holds more than tensors and plain values; it was not loaded") from error
    except _UNREADABLE as error:
        why = f"{type(error).__name__}: {one_line(error, 200)}"
        raise InputError(f"checkpoint {path} is damaged or no checkpoint: {why}") from error
    return _ours(contents, path)


def _ours(contents: Any, path: Path) -> dict[str, Any]:
    if not isinstance(contents, dict) or "vit_vs_cnn" not in contents:
        if isinstance(contents, dict) and "pytorch-lightning_version" in contents:
            raise InputError(
                f"checkpoint {path} is of no run of vit_vs_cnn: what a Trainer of your own saved of a Classifier is "
                "read by Classifier.load_from_checkpoint(path, network=...)"
            )
        raise InputError(f"checkpoint {path} was not written by vit_vs_cnn")
    state = contents.get("state_dict")
    tensors = isinstance(state, dict) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
    )
    if not isinstance(contents["vit_vs_cnn"], dict) or not tensors:
        raise InputError(f"checkpoint {path} is damaged or no checkpoint: it has no weights by name, or no description")
    for name, value in contents["state_dict"].items():
        if value.is_meta or value.layout != torch.strided or value.is_complex() or value.is_quantized:
            kind = "no values (meta device)" if value.is_meta else f"{value.dtype} values ({value.layout})"
            raise InputError(f"checkpoint {path} is damaged or no checkpoint: {name} has {kind}")
    return contents


def _read_exported(path: Path) -> dict[str, Any]:
    """The same, of weights in safetensors."""
    described = path.with_name("config.json")
    try:
        weights = load_file(path)
        about = json.loads(described.read_text(encoding="utf-8"))["vit_vs_cnn"]
    except FileNotFoundError as error:
        raise InputError(f"weights {path}: there is no {error.filename or path}") from error
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"weights {path} with {described.name}: damaged, or not ours: {error}") from error
    return _ours(
        {"vit_vs_cnn": about, "state_dict": {f"network.{name}": value for name, value in weights.items()}}, path
    )
