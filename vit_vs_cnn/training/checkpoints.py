"""Reading a checkpoint without running anything that it carries."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from vit_vs_cnn.errors import InputError


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint that this package wrote: tensors and plain values only.

    Raises:
        InputError: no such file, cut short, carrying code, or written by another program.
    """
    try:
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(f"checkpoint {path}: no such file") from error
    except pickle.UnpicklingError as error:
        raise InputError(f"checkpoint {path} holds more than tensors and plain values; it was not loaded") from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"checkpoint {path} is damaged or no checkpoint: {' '.join(str(error).split())}") from error
    if not isinstance(contents, dict) or "vit_vs_cnn" not in contents:
        raise InputError(f"checkpoint {path} was not written by vit_vs_cnn")
    return contents
