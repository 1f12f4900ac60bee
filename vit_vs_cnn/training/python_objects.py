"""Registry of Python objects that were passed in place of settings. It exists in this process only.

A config refers to an object by an import path in this module. The path ends in a hash of the object's code and
attributes, so that a change of either renames the runs.
"""

import copy
import functools
import hashlib
import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Mapping, Set
from typing import Any

from vit_vs_cnn.errors import InputError

#: Attribute of an object with a text that replaces the hash.
IDENTITY_NAME = "identity_name"
#: Classes and functions, and functions that return copies of other objects.
_FACTORIES: dict[str, Callable[..., Any]] = {}
_PLAIN = (types.NoneType, bool, int, float, str, os.PathLike, range)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _FACTORIES:
        raise AttributeError(f"{name} was given as an object in Python; give it again, as vc.load(..., network=...)")
    return _FACTORIES[name]


def find_factory(path: str) -> Callable[..., Any] | None:
    """Class or function of an object at a path in this module; None for other paths. Raises AttributeError: none."""
    module, _, name = path.rpartition(".")
    return __getattr__(name) if module == __name__ else None


def replace_objects(values: Any, place: tuple[str, ...] = ()) -> Any:
    """Settings with ``{class_path, init_args}`` in place of objects. ``place`` are the keys that lead to the values."""
    if isinstance(values, Mapping):
        return {name: replace_objects(inner, (*place, *str(name).split("."))) for name, inner in values.items()}
    if isinstance(values, list | tuple):
        return [replace_objects(item, place) for item in values]
    if isinstance(values, _PLAIN) or hasattr(values, "tolist"):
        return values
    key, arguments = place[-1] if place else "", {}
    if isinstance(values, functools.partial) and isinstance(values.func, type) and not values.args:
        values, arguments = values.func, replace_objects(values.keywords)
    if key == "optimizer" and not isinstance(values, type):
        raise InputError(
            f"{'.'.join(place)}: expected a name or a class, such as torch.optim.AdamW or functools.partial("
            f"torch.optim.AdamW, lr=0.001), got a {type(values).__name__}"
        )
    makes_object = (len(place) == 2 and place[0] == "models") or key in ("class_path", "source")
    path = _class_path(
        values, isinstance(values, type) or (isinstance(values, (*_FUNCTIONS, functools.partial)) and makes_object)
    )
    if key == "optimizer":
        own = {name: arguments.pop(name) for name in ("lr", "weight_decay", "momentum", "betas") if name in arguments}
        return {"name": path, **own, "options": arguments}
    init_args = {"init_args": arguments} if arguments else {}
    return path if key in ("class_path", "name") else {"class_path": path, **init_args}


def uses_objects(settings: Any) -> bool:
    """True if settings refer to an object in this registry."""
    return f'"{__name__}.' in json.dumps(settings, default=str)


def _class_path(value: Any, is_factory: bool) -> str:
    """Import path of a class or function; of another object, of a function that returns copies of it."""
    if is_factory and _is_importable(value):
        return f"{value.__module__}.{value.__qualname__}"
    identity = getattr(value, IDENTITY_NAME, None)
    if not isinstance(identity, str):
        identity = hashlib.sha256(json.dumps(_describe(value, {})).encode()).hexdigest()[:10]
    kind = getattr(value, "__name__", type(value).__name__)
    name = "".join(letter if letter.isalnum() else "_" for letter in f"{kind}_{identity}")

    factory: Any = lambda: copy.deepcopy(value)  # noqa: E731
    factory.__annotations__ = {"return": type(value)}
    _FACTORIES[name] = value if is_factory else factory
    return f"{__name__}.{name}"


def _is_importable(value: Any) -> bool:
    module, found = getattr(value, "__module__", None), sys.modules.get(getattr(value, "__module__", None) or "")
    for part in getattr(value, "__qualname__", "<").split("."):
        found = getattr(found, part, None)
    return module != "__main__" and found is value and value is not None


def _describe(value: Any, seen: dict[int, Any]) -> Any:  # noqa: PLR0911
    """Nested lists of texts, equal for objects with equal code and attributes."""
    describe = functools.partial(_describe, seen=seen)
    if isinstance(value, (*_PLAIN, bytes, types.ModuleType)):
        return repr(value)
    if isinstance(value, Mapping):
        return [[str(name), describe(inner)] for name, inner in value.items()]
    if isinstance(value, list | tuple):
        return [*map(describe, value)]
    if isinstance(value, Set):
        return sorted(map(repr, value))
    if _is_importable(value):
        return f"{value.__module__}.{value.__qualname__}"
    if id(value) in seen:
        return []
    seen[id(value)] = value
    if isinstance(value, types.FunctionType):
        code, used = value.__code__, inspect.getclosurevars(value).nonlocals
        operations = [code.co_code, code.co_names, code.co_consts] if value.__name__ == "<lambda>" else []  # of a line
        return [_read_source(value), describe([value.__defaults__, value.__kwdefaults__, used, operations])]
    if isinstance(value, functools.partial | types.MethodType):
        names = ("func", "args", "keywords", "__func__", "__self__")
        return describe([getattr(value, name, None) for name in names])
    if isinstance(value, type):
        members = {name: inner for name, inner in vars(value).items() if callable(inner) or name[:2] != "__"}
        return [value.__qualname__, describe(value.__bases__), describe(members)]
    if callable(getattr(value, "numpy", None)) or hasattr(value, "tobytes"):  # a tensor or an array
        array = value.detach().double().cpu().numpy() if hasattr(value, "detach") else value
        return [str(value.dtype), str(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    attributes = getattr(value, "__func__", getattr(value, "fget", getattr(value, "__dict__", None)))
    return [describe(type(value)), repr(value).partition(" at 0x")[0] if attributes is None else describe(attributes)]


def _read_source(function: types.FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError) as error:
        owner = function.__qualname__.partition(".")[0]
        raise InputError(
            f"the code of {function.__qualname__} cannot be read, so changes go unnoticed; set a name, and "
            f'another one after each change: {owner}.{IDENTITY_NAME} = "first version"'
        ) from error
