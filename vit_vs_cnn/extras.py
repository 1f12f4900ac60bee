"""Libraries that a few features need, each in an extra of this package."""

import importlib
from typing import Any

from vit_vs_cnn.errors import InputError

#: By the name that is imported: what it is called, and the extra that installs it.
EXTRAS = {
    "onnx": ("onnx", "export"),
    "onnxruntime": ("onnxruntime", "export"),
    "onnxscript": ("onnxscript", "export"),
    "pyarrow": ("pyarrow", "data"),
    "ray": ("Ray", "ray"),
    "submitit": ("submitit", "slurm"),
}


def library(module: str, *, by: str) -> Any:
    """A library, or a module of one, that a feature needs.

    Arguments:
        by: what needs it, as the message begins.

    Raises:
        InputError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name, extra = EXTRAS[module.partition(".")[0]]
        raise InputError(f'{by} needs {name}, which is not installed: pip install "vit-vs-cnn[{extra}]"') from error
