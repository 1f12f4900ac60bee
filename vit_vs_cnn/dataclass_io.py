"""Dataclasses from plain values by their type hints: what JSON files and tables hold, checked field by field."""

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from vit_vs_cnn.strict_yaml import LARGEST, Plain

Instance = TypeVar("Instance")
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


@functools.cache
def field_types(class_: type) -> dict[str, Any]:
    """Type hints of the fields of a dataclass."""
    return {field.name: field.type for field in dataclasses.fields(class_)}


@functools.cache
def members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def from_plain(class_: type[Instance], values: Any) -> Instance:
    """Build a dataclass from plain values by its type hints.

    A hint may be text, whole number, number, truth value, ``Plain``, a ``StrEnum`` (by value), a dataclass, a tuple of
    these, and one of these or None.

    Raises:
        ValueError: an unknown or missing field, or a value of another type; the line names part and field.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"expected names with values, got {_short(values)}")
    readers, required = _fields(class_)
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if name not in readers:
            raise ValueError(f"{name}: unknown field (there are: {', '.join(readers)})")
        try:
            fields[name] = readers[name](value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    for name in required:
        if name not in fields:
            raise ValueError(f"{name}: missing")
    return class_(**fields)


@functools.cache
def _fields(class_: type) -> tuple[dict[str, Callable[[Any], Any]], tuple[str, ...]]:
    """A reader for each field of a dataclass, and the fields that have no default."""
    fields, missing = dataclasses.fields(class_), dataclasses.MISSING
    required = (field.name for field in fields if field.default is missing and field.default_factory is missing)
    return {field.name: _reader(field.type) for field in fields}, tuple(required)


@functools.cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """A function that gives a value the type of a hint, or raises ValueError."""
    kinds = members(hint)
    if len(kinds) > 1:
        (kind,) = (member for member in kinds if member is not type(None))
        read = _reader(kind)
        return lambda value: None if value is None else read(value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return functools.partial(from_plain, hint)
    if typing.get_origin(hint) is tuple:
        return functools.partial(_read_tuple, typing.get_args(hint))
    return functools.partial(_read_value, hint)


def _read_tuple(items: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list, got {_short(value)}")
    if items[-1] is ...:
        return tuple(map(_reader(items[0]), value))
    if len(value) != len(items):
        raise ValueError(f"expected {len(items)} values, got {_short(value)}")
    return tuple(_reader(hint)(item) for hint, item in zip(items, value, strict=True))


def _read_value(hint: Any, value: Any) -> Any:
    if hint is Plain:
        return Plain.of(value)
    if type(value) is int and abs(value) > LARGEST:
        raise ValueError(f"a whole number of at most {LARGEST} expected, got one of {value.bit_length()} bits")
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is hint:
        if hint is float and not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return value
    if issubclass(hint, StrEnum):
        if value in list(hint):
            return hint(value)
        raise ValueError(f"expected one of {', '.join(hint)}, got {_short(value)}")
    raise ValueError(f"expected {_WORDS[hint]}, got {_short(value)}")


def _short(value: Any) -> str:
    return json.dumps(value, default=str)[:60]
