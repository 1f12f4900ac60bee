"""Grouping of values, and nested settings by dotted name."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


def group_by(values: Iterable[Value], key: Callable[[Value], Key]) -> dict[Key, list[Value]]:
    """Group values by a key, in the order of their first values."""
    groups: dict[Key, list[Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name, such as ``optimizer.lr``. An empty mapping is a value."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
