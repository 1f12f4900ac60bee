"""Optional libraries, which extras of this package install."""

import importlib
from typing import Any

from vit_vs_cnn.errors import InputError

#: Name of the library and of the extra, by the name of its module.
EXTRAS = {
    "onnxruntime": ("onnxruntime", "export"),
    "onnxscript": ("onnxscript", "export"),
    "ray": ("Ray", "ray"),
}


def import_optional(module: str, *, needed_by: str) -> Any:
    """Import an optional library, or a module of one.

    Raises:
        InputError: it is not installed. The message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name, extra = EXTRAS[module.partition(".")[0]]
        raise InputError(
            f'{needed_by} needs {name}, which is not installed: pip install "vit-vs-cnn[{extra}]"'
        ) from error
