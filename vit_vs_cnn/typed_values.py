"""Values with types: the settings that a class or function takes, and plain values converted to their type hints."""

import copy
import dataclasses
import difflib
import functools
import inspect
import json
import math
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import docstring_parser

from vit_vs_cnn.bounds import Bounds
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.strict_yaml import LARGEST

Built = TypeVar("Built")
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a path",
    type(None): "null",
}
_LISTS = (list, tuple, Sequence, Iterable)
_IMMUTABLE = (str, int, float, bool, type(None))
#: Default of required settings.
REQUIRED: Any = ...


@dataclass(frozen=True, eq=False)
class Setting:
    """Name, type, default and description of a setting. ``default`` is ``REQUIRED`` for a required one."""

    name: str
    hint: Any
    default: Any = REQUIRED
    help: str = ""
    bounds: Bounds | None = None

    @cached_property
    def block(self) -> type | None:
        """Dataclass of a setting that is a block of settings; None for other settings."""
        return next(filter(dataclasses.is_dataclass, union_args(self.hint)), None)


@functools.cache
def list_settings(target: Callable[..., Any]) -> dict[str, Setting]:
    """Arguments of a class or a function, by name, without fields that are not compared."""
    is_block = dataclasses.is_dataclass(target)
    documented = (target.__mro__ if is_block else (target, target.__init__)) if isinstance(target, type) else (target,)
    docs = [docstring_parser.parse(inspect.getdoc(part) or "") for part in reversed(documented)]
    helps = {param.arg_name: param.description or "" for doc in docs for param in doc.params}
    fields = {field.name: field for field in dataclasses.fields(target)} if is_block else {}
    settings = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if name in fields and not fields[name].compare:
            continue
        factory = fields[name].default_factory if is_block else dataclasses.MISSING
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        if factory is not dataclasses.MISSING:
            default = factory()
        hint = Any if isinstance(parameter.annotation, str) or not parameter.annotation else parameter.annotation
        hint, bounds = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        settings[name] = Setting(name, hint, default, " ".join(helps.get(name, "").replace("``", "").split()), bounds)
    return settings


def walk(settings: Mapping[str, Setting], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    """Every single setting, by its dotted name."""
    for name, setting in settings.items():
        if setting.block is None:
            yield f"{prefix}{name}", setting
        else:
            yield from walk(list_settings(setting.block), f"{prefix}{name}.")


@functools.cache
def union_args(hint: Any) -> tuple[Any, ...]:
    """Members of a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


@functools.cache
def item_type(hint: Any) -> Any:
    """Type of the items of a list; None for other types."""
    lists = (kind for kind in union_args(hint) if get_origin(kind) in _LISTS)
    return next((get_args(kind)[0] for kind in lists), None)


@functools.cache
def _form(kind: Any) -> tuple[Any, list[Any], bool]:
    """Generic type and arguments of a type, and whether it is a dataclass."""
    return get_origin(kind), [inner for inner in get_args(kind) if inner is not ...], dataclasses.is_dataclass(kind)


def describe_type(hint: Any) -> str:
    if (kinds := union_args(hint)) != (hint,):
        return " or ".join(dict.fromkeys(map(describe_type, kinds)))
    match get_origin(hint):
        case typing.Literal:
            values = ", ".join(map(str, get_args(hint)))
            return f"one of {values}" if len(get_args(hint)) > 1 else values
        case None if isinstance(hint, type) and issubclass(hint, StrEnum):
            return f"one of {', '.join(hint)}"
        case None:
            is_block = dataclasses.is_dataclass(hint)
            return WORDS.get(hint, "a mapping" if is_block else f"the name of a {hint.__name__} class")
        case _ if get_origin(hint) is dict:
            _, value = get_args(hint)
            return "a mapping" if value is Any else f"names, each with {describe_type(value)}"
    return f"a list, each {describe_type(get_args(hint)[0])}"


@functools.cache
def is_plain(hint: Any) -> bool:
    """True if ``convert`` knows a type. Other types are classes whose objects are made from a config."""
    if get_origin(hint) is Literal:
        return True
    if get_origin(hint) is not None:
        return all(is_plain(inner) for inner in get_args(hint) if inner is not ...)
    known = (*WORDS, Any, Path)
    return hint in known or dataclasses.is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, StrEnum))


def convert(hint: Any, value: Any, location: str) -> Any:
    """Give a plain value the type of a hint. Raises InputError: another type; the message begins with ``location``.

    A hint may be text, number, truth value, path, a literal, a ``StrEnum`` (by value), a dataclass, a list,
    tuple or mapping of these, or a union.
    """
    kinds = union_args(hint)
    if hint is Any or (value is None and type(None) in kinds):
        return value if type(value) in _IMMUTABLE else copy.deepcopy(value)
    for kind in kinds:
        if type(value) is kind in (str, bool):  # most values
            return value
        origin, inside, is_block = _form(kind)
        if is_block and value is not None:
            return build(typing.cast(Any, kind), value, location=location)
        if origin is dict and isinstance(value, Mapping):
            if wrong := [name for name in value if not isinstance(name, str)]:
                raise InputError(f"{location}: the name {wrong[0]!r} must be a text")
            return {name: convert(inside[1], inner, f"{location}.{name}") for name, inner in value.items()}
        if origin in _LISTS and isinstance(value, list | tuple):
            is_fixed = origin is tuple and ... not in get_args(kind)
            if is_fixed and len(value) != len(inside):
                raise InputError(f"{location}: expected {len(inside)} values, got {shorten(value)}")
            hints = inside if is_fixed else inside * len(value)
            items = [convert(inner, item, location) for inner, item in zip(hints, value, strict=True)]
            return tuple(items) if origin is tuple else items
        if (read := _as_kind(kind, value)) is not None:
            return read
    is_list_of_words = isinstance(value, str) and "," in value and item_type(hint) is not None
    example = f", such as '[{shorten(value)}]'" if is_list_of_words else ""
    raise InputError(f"{location}: expected {describe_type(hint)}{example}, got {shorten(value)}")


def _as_kind(kind: Any, value: Any) -> Any:
    """A value as one type that is not a list, a dataclass or None; None if it has another type."""
    if kind in (int, float):
        if kind is int and type(value) is float and value.is_integer():  # 1e3
            value = int(value)
        is_whole, is_float = type(value) is int and abs(value) <= LARGEST, kind is type(value) is float
        return kind(value) if is_whole or (is_float and math.isfinite(value)) else None
    if kind is Path:
        return Path(value) if isinstance(value, str | os.PathLike) else None
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value) if value in list(kind) else None
    allowed = get_args(kind) if get_origin(kind) is Literal else (value,)
    is_allowed = type(value) is kind or get_origin(kind) is Literal
    return next((word for word in allowed if is_allowed and word == value and type(word) is type(value)), None)


def shorten(value: Any, at_most: int = 150) -> str:
    is_word = isinstance(value, str) and not value.replace(".", "", 1).isdecimal()  # "3" is not the number 3
    text = value if is_word else json.dumps(value, default=str)
    return " ".join(text.split())[:at_most] or "''"


def check(target: Callable[..., Any], values: Any, *, location: str, skip: Collection[str] = ()) -> dict[str, Any]:
    """Typed arguments of a class or a function from plain values. Those to ``skip`` are not allowed.

    Raises InputError: an unknown or missing argument, or a wrong value. The message begins with ``location``.
    """
    settings = {name: setting for name, setting in list_settings(target).items() if name not in skip}
    place = f"{location}." if location else ""
    if not isinstance(values, Mapping):
        hint = ""
        if isinstance(values, str) and "root" in settings:  # --data photos, --data cifar10
            name = "source" if values in get_args(union_args(settings["source"].hint)[0]) else "root"
            hint = f"; did you mean --{place}{name} {shorten(values)}?"
        raise InputError(f"{location}: expected a mapping, got {values!r:.150}{hint}".removeprefix(": "))
    refuse_unknown(values, settings, location)
    for name, setting in settings.items():
        if setting.default is REQUIRED and name not in values:
            raise InputError(f"{place}{name}: has to be given ({describe_type(setting.hint)})")
    return {name: convert(settings[name].hint, value, f"{place}{name}") for name, value in values.items()}


def build(target: type[Built], values: Any, *, location: str = "") -> Built:
    """Object of a class, from plain values. Raises InputError: as ``check``, or a value that the class refuses."""
    arguments = check(target, values, location=location)
    try:
        return target(**arguments)
    except (ValueError, TypeError) as error:
        raise InputError(f"{location}: {shorten(str(error), 1000)}".removeprefix(": ")) from error


def refuse_unknown(names: Iterable[Any], settings: Mapping[str, Setting], location: str) -> None:
    """Raise InputError for an unknown name, with the closest setting, here or in a block."""
    for name in names:
        if name in settings:
            continue
        deeper = [dotted for dotted, _ in walk(settings) if dotted.endswith(f".{name}")]
        close = difflib.get_close_matches(str(name), settings, n=1) or deeper[:1]
        place = f"{location}.{name}" if location else name
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(f"{place}: there is no such setting{hint} (there are: {', '.join(sorted(settings))})")
