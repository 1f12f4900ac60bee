"""Reading a checkpoint without running anything that it carries."""

import json
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from vit_vs_cnn.errors import InputError

#: What torch raises on bytes that are no checkpoint; its restricted unpickler trips over any of the last four.
_UNREADABLE = (
    OSError,
    RuntimeError,
    EOFError,
    ValueError,
    KeyError,
    zipfile.BadZipFile,
    IndexError,
    AttributeError,
    TypeError,
    AssertionError,
)


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
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"checkpoint {path} is damaged or no checkpoint: {why}") from error
    if not isinstance(contents, dict) or "vit_vs_cnn" not in contents:
        raise InputError(f"checkpoint {path} was not written by vit_vs_cnn")
    return contents


def _read_exported(path: Path) -> dict[str, Any]:
    """The same, of weights in safetensors."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise InputError(f'{path} needs safetensors: pip install "vit-vs-cnn[export]"') from error
    described = path.with_name("config.json")
    try:
        weights = load_file(path)
        about = json.loads(described.read_text())["vit_vs_cnn"]
    except FileNotFoundError as error:
        raise InputError(f"weights {path}: there is no {error.filename or path}") from error
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"weights {path} with {described.name}: damaged, or not ours: {error}") from error
    return {"vit_vs_cnn": about, "state_dict": {f"network.{name}": value for name, value in weights.items()}}
