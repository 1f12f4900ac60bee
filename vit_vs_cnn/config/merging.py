"""Plain values of a config laid over each other."""

import re
from collections.abc import Mapping
from typing import Any


def merge(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Lay one config over another, level by level; lists and single values are replaced."""
    for name, value in over.items():
        key = _key_of(values, name)
        if isinstance(value, Mapping) and isinstance(values.get(key), dict) and key != "budget":
            merge(values[key], value)
        else:
            values[key] = value


def override(values: dict[str, Any], key: str, value: Any) -> None:
    """Set ``values["a"]["b"] = value`` for the key ``a.b``, making the levels that are missing.

    A scalar that stands where a level is needed is replaced. The steps, epochs and flops of a budget exclude each
    other, so naming one takes the others away. ``executor`` with a single value is its name.
    """
    short = key == "executor" and not isinstance(value, Mapping)
    *levels, last = ["executor", "name"] if short else _levels_of(key)
    here = values
    for name in levels:
        level = _key_of(here, name)
        if not isinstance(here.get(level), dict):
            here[level] = {}
        here = here[level]
    if levels and levels[-1] == "budget":
        here.clear()
    here[_key_of(here, last)] = value


def _levels_of(key: str) -> list[str]:
    """The parts of a dotted name; the amount of a ``by_budget``, such as 2.5, is one part."""
    return [part.replace("\0", ".") for part in re.sub(r"(\bby_budget\.\d+)\.(\d)", r"\1\0\2", key).split(".")]


def _key_of(values: Mapping[Any, Any], name: Any) -> Any:
    """The key by which a mapping holds a name: YAML reads 2000 as a number, and the command line as a text."""
    return name if name in values else next((key for key in values if str(key) == str(name)), name)


def with_executor_named(values: Mapping[str, Any]) -> dict[str, Any]:
    """``executor: ray`` is short for ``executor: {name: ray}``."""
    short = values.get("executor")
    return {**values, "executor": {"name": short}} if isinstance(short, str) else dict(values)
