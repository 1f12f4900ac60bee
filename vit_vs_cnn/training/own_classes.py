"""What a user's config names by the path of a class. Nothing here is called for what a file says."""

import importlib
from typing import Any

from vit_vs_cnn.errors import InputError, one_line


def imported(path: str, *, where: str, trust: bool) -> Any:
    """What a dotted path names: a class or a function, imported.

    Arguments:
        where: the place in the config, for the line of an error.
        trust: whether who gave the command named it, not a file that was trained elsewhere.

    Raises:
        InputError: without ``trust``; or there is no such class or function.
    """
    if not trust:
        raise InputError(f"{where}: the class {path} is not imported unless --trust says so")
    module, _, name = path.rpartition(".")
    if not module or not name:
        raise InputError(f"{where}: {path!r} must be the path of a class or a function, as package.module.Name")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing runs code, which may fail in any way
        raise InputError(f"{where}: {path} can't be imported: {one_line(error)}") from error
    if not callable(found):
        raise InputError(f"{where}: {path} is a {type(found).__name__}, not a class or a function")
    return found
