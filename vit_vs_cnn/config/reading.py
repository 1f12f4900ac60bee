"""Configs merged and changed by dotted names, and objects of the classes that a config names."""

import copy
import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.typed_values import convert, describe_type, is_plain, item_type, shorten, union_args

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
        raise InputError(f"{location}: {_describe_refusal(hint, value, str(error))}") from error


def _describe_refusal(hint: Any, value: Any, message: str) -> str:
    """The reason for which a class or its arguments are refused, if jsonargparse has one; otherwise the allowed types.

    Its message lists the errors of all members of a union, each after a dash.
    """
    if problem := re.search(
        r"Problem with given class_path '(?:\S+\.)?(\S+)':(.*?)(?=\n +- |\n +Given value|\Z)", message, re.S
    ):
        name, reason = problem.groups()
        reason = re.sub(r'Parser key "(\w+)":', r"\1:", reason)
        reason = re.sub(r"Expected an? <class '(\w+)'>\. Got value: (.*)", r"expected \1, got \2", reason)
        return f"{name}: {shorten(reason.partition(' Add the import path')[0], 400)}"
    if "Does not validate" not in message and "Not a valid subclass" not in message:
        return shorten(message.replace('Parser key "value":', ""), 400)
    bases = [kind for outer in union_args(hint) for kind in union_args(item_type(outer) or outer) if not is_plain(kind)]
    names = [name for base in bases for name in _subclass_names(base)]
    items = value if isinstance(value, list) else [value]
    words = [str(item.get("class_path", "")) if isinstance(item, Mapping) else str(item) for item in items]
    begun = [name for name in names for word in words if len(word) > 2 and name.lower().startswith(word.lower())]
    close = [*begun, *(name for word in words for name in difflib.get_close_matches(word, names, n=1, cutoff=0.7))]
    suggestion = f"; did you mean {close[0]}?" if close else ""
    return f"expected {describe_type(hint)}, got {shorten(value)}{suggestion}"


def _subclass_names(base: type) -> Iterator[str]:
    for subclass in base.__subclasses__():
        yield subclass.__name__
        yield from _subclass_names(subclass)


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
