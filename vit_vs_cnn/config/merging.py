"""Plain values of a config laid over each other."""

from collections.abc import Mapping
from typing import Any


def merge(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Lay one config over another, level by level; lists and single values are replaced."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict) and key != "budget":
            merge(values[key], value)
        else:
            values[key] = value


def override(values: dict[str, Any], key: str, value: Any) -> None:
    """Set ``values["a"]["b"] = value`` for the key ``a.b``, making the levels that are missing.

    A scalar that stands where a level is needed is replaced. The steps, epochs and flops of a budget exclude each
    other, so naming one takes the others away. ``executor`` with a single value is its name.
    """
    *levels, last = ["executor", "name"] if key == "executor" and not isinstance(value, Mapping) else key.split(".")
    here = values
    for level in levels:
        if not isinstance(here.get(level), dict):
            here[level] = {}
        here = here[level]
    if levels and levels[-1] == "budget":
        here.clear()
    here[last] = value


def with_executor_named(values: Mapping[str, Any]) -> dict[str, Any]:
    """``executor: ray`` is short for ``executor: {name: ray}``."""
    short = values.get("executor")
    return {**values, "executor": {"name": short}} if isinstance(short, str) else dict(values)
