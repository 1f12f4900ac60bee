"""Classes and functions of the user's own that a config names: imported where the user is trusted, and called."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.data.transforms import OwnTransform
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.training.own_classes import imported


def made(spec: Mapping[str, Any], *, where: str, trust: bool) -> Any:
    """What a class or a function gives when it is called with ``init_args``, in which other classes may be named.

    Arguments:
        spec: ``{class_path, init_args}``.
        where: its place in the config.
        trust: whether it may be imported: it was named by who gave the command.

    Raises:
        InputError: without ``trust``; it cannot be imported, or does not take these arguments.
    """
    named = imported(spec["class_path"], where=where, trust=trust)
    given = {name: _inner(value, where, trust) for name, value in (spec.get("init_args") or {}).items()}
    try:
        return named(**given)
    except Exception as error:  # whatever the code of somebody's own raises
        said = " ".join(str(error).split())[:300]
        raise InputError(f"{where}: {spec['class_path']}: {type(error).__name__}: {said}") from error


def transform_of(augmentation: Augmentation, *, where: str, trust: bool) -> OwnTransform | None:
    """The transform that an augmentation names: an object of a class, or a function, with ``init_args`` if it has any.

    Raises:
        InputError: as ``made``.
    """
    spec = augmentation.transform
    if spec is None:
        return None
    where = f"{where}.transform"
    named = imported(spec["class_path"], where=where, trust=trust)
    if inspect.isclass(named):
        named = made(spec, where=where, trust=trust)
    elif given := spec.get("init_args"):
        named = functools.partial(named, **{name: _inner(value, where, trust) for name, value in given.items()})
    return OwnTransform(named, spec["class_path"])


def _inner(value: Any, where: str, trust: bool) -> Any:
    if isinstance(value, Mapping):
        if "class_path" in value:
            return made(value, where=where, trust=trust)
        return {name: _inner(one, where, trust) for name, one in value.items()}
    return [_inner(one, where, trust) for one in value] if isinstance(value, list) else value
