"""Configs merged and changed by dotted names, and objects of the classes that a config names."""

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.typed_values import convert, is_plain, shorten

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


@contextmanager
def class_parser() -> Iterator["ArgumentParser"]:
    """Parser of classes and their arguments, which raises errors instead of ending the program.

    Within the block, values of any type create no objects, and dangerous modules are not imported: an empty
    ``import_path_denylist`` enforces the default list of jsonargparse (``subprocess``, ``os``, ...). These settings
    hold for the whole process, and jsonargparse has no public way to read them.
    """
    import jsonargparse

    settings: dict[str, Any] = getattr(jsonargparse._common, "parsing_settings", {})
    before = dict(settings)
    jsonargparse.set_parsing_settings(instantiate_subclass_spec_in_any=False, import_path_denylist=[])
    try:
        yield jsonargparse.ArgumentParser(exit_on_error=False)
    finally:
        settings.update(before)


def read_value(hint: Any, value: Any, location: str, *, make_objects: bool = False) -> Any:
    """A value with the type of a hint, which may be a class that is given as {class_path, init_args}.

    Arguments:
        make_objects: whether objects of such classes are made. Otherwise their arguments are checked.

    Raises:
        InputError: another type, or an unknown class or argument; the message begins with ``location``.
    """
    if is_plain(hint):
        return convert(hint, value, location)
    from jsonargparse import ArgumentError

    try:
        with class_parser() as parser:
            parser.add_argument("--value", type=hint)
            # jsonargparse puts what it parsed into the lists that it is given
            read = parser.parse_object({"value": copy.deepcopy(value)})
            return parser.instantiate(read)["value"] if make_objects else read["value"]
    except (ArgumentError, ImportError, KeyError, OverflowError, TypeError, ValueError) as error:
        message = str(error).replace('Parser key "value":', "")
        raise InputError(f"{location}: {shorten(message, 400)}") from error


def merge(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Update a config by another one, level by level, in place; lists and single values are replaced."""
    for name, value in over.items():
        key = _key_of(values, name)
        if isinstance(value, Mapping) and isinstance(values.get(key), dict) and key != "budget":
            merge(values[key], value)
        else:
            values[key] = value


def override(values: dict[str, Any], key: str, value: Any) -> None:
    """Set ``values["a"]["b"] = value`` for the key ``a.b``, with all missing levels.

    A scalar in place of a level is replaced. A budget has one unit, so a new unit removes the others. A single value of
    ``executor`` is its name.
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
    """Parts of a dotted name; an amount of ``by_budget``, such as 2.5, is one part."""
    return [part.replace("\0", ".") for part in re.sub(r"(\bby_budget\.\d+)\.(\d)", r"\1\0\2", key).split(".")]


def _key_of(values: Mapping[Any, Any], name: Any) -> Any:
    """Key of a mapping for a name: YAML reads 2000 as a number, the command line as a text."""
    return name if name in values else next((key for key in values if str(key) == str(name)), name)


def expand_executor_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with ``executor: ray`` written as ``executor: {name: ray}``."""
    short = values.get("executor")
    return {**values, "executor": {"name": short}} if isinstance(short, str) else dict(values)
