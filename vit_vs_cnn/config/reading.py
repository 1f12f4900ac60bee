"""Settings as type hints and docstrings define them, plain values checked against these, and configs merged.

Allowed names are read from a class or a function; jsonargparse reads single values.
"""

import copy
import dataclasses
import difflib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args, get_origin

import docstring_parser
import jsonargparse
from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings
from jsonargparse.typing import register_type

from vit_vs_cnn.errors import InputError, UnknownSetting
from vit_vs_cnn.strict_yaml import Plain, check_plain

Built = TypeVar("Built")
#: Words for types in error messages; for other types these contain the message of jsonargparse.
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    type(None): "null",
    list: "a list",
    Plain: "names with values",
}
#: Default of required settings.
REQUIRED: Any = ...
REFUSED = (ArgumentError, ImportError, KeyError, OverflowError, TypeError, ValueError)
_PARSER_KEY = "it"  # the only key of a setting's parser


#: jsonargparse's settings, which hold for the whole process; it has no public way to read them.
_SETTINGS: dict[str, Any] = getattr(jsonargparse._common, "parsing_settings", {})


@contextmanager
def strict_parsing() -> Iterator[None]:
    """Parse strictly in this block: values of any type create no objects, and dangerous modules are not imported.

    An empty ``import_path_denylist`` enforces the default list of jsonargparse (``subprocess``, ``os``, ...).
    """
    before = dict(_SETTINGS)
    set_parsing_settings(instantiate_subclass_spec_in_any=False, import_path_denylist=[])
    try:
        yield
    finally:
        _SETTINGS.update(before)


def new_parser() -> ArgumentParser:
    """Parser that raises errors instead of ending the program; to be used within ``strict_parsing``."""
    register_type(Plain, serializer=dict, deserializer=Plain.of, type_check=isinstance)
    return ArgumentParser(exit_on_error=False)


@dataclass(frozen=True, eq=False)
class Setting:
    """Name, type, default and description of a setting.

    Arguments:
        default: default value; ``REQUIRED`` for a required setting.
    """

    name: str
    hint: Any
    default: Any = REQUIRED
    help: str = ""

    @cached_property
    def block(self) -> type | None:
        """Dataclass of a setting that is a block of settings; None for other settings."""
        classes = (kind for kind in kinds_of(self.hint) if isinstance(kind, type) and dataclasses.is_dataclass(kind))
        return next(classes, None)

    @cached_property
    def _words(self) -> tuple[Any, ...]:
        return get_args(self.hint) if get_origin(self.hint) is Literal else ()

    @cached_property
    def _parser(self) -> ArgumentParser:
        parser = new_parser()
        parser.add_argument(f"--{_PARSER_KEY}", type=self.hint)
        return parser

    def read(self, value: Any, location: str) -> Any:
        """The value with its type. Blocks are built; objects of classes that it names are not created.

        Raises:
            InputError: another type; the message begins with ``location``.
        """
        if value is None:
            if type(None) not in kinds_of(self.hint):
                raise InputError(f"{location}: expected {in_words(self.hint)}, got null")
            return None
        if self.block is not None:
            return build(self.block, value, location=location)
        if type(value) is self.hint or (type(value) is str and value in self._words):
            return value
        read = self._by_parser(value, location)
        for number in _numbers(read):  # 1e20 is a text to YAML, and a whole number to jsonargparse
            check_plain(number, location=location)
        return read

    def make(self, value: Any, location: str) -> Any:
        """The value as ``read`` returns it, with objects created for the classes that it names."""
        return self._by_parser(value, location, self._parser.instantiate)

    def _by_parser(self, value: Any, location: str, then: Callable[[Namespace], Namespace] = lambda read: read) -> Any:
        try:
            with strict_parsing():  # jsonargparse puts what it parsed into the lists that it is given
                return then(self._parser.parse_object({_PARSER_KEY: copy.deepcopy(value)}))[_PARSER_KEY]
        except REFUSED as error:
            raise InputError(f"{location}: {self._refusal(value, str(error))}") from error

    def _refusal(self, value: Any, message: str) -> str:
        """Reason why a value is refused: of a list the first wrong item, of a class its first wrong argument."""
        kinds, parts = kinds_of(self.hint), []
        if isinstance(value, list | tuple) and (inner := element_of(self.hint)) is not None:
            parts = [(inner, part_value) for part_value in value]
        elif len(kinds) > 1 and isinstance(value, Mapping):
            parts = [(kind, value) for kind in kinds if isinstance(kind, type) and kind not in WORDS]
        for hint, part_value in parts:
            part = Setting(self.name, hint)
            try:
                with strict_parsing():
                    part._parser.parse_object({_PARSER_KEY: copy.deepcopy(part_value)})
            except REFUSED as error:
                return part._refusal(part_value, str(error))
        plain = (Literal, list, tuple, dict, Sequence)
        if not isinstance(value, Mapping) or all(kind in WORDS or get_origin(kind) in plain for kind in kinds):
            example = f", such as '{{name: {_short(value)}}}'" if self.name == "model" else ""
            if isinstance(value, str) and element_of(self.hint) is not None and "," in value:
                example = f", such as '[{_short(value)}]'"
            return f"expected {in_words(self.hint)}{example}, got {_short(value)}"
        return _short(message.replace(f'Parser key "{_PARSER_KEY}":', ""), 400)


def _short(value: Any, most: int = 150) -> str:
    return " ".join(str("null" if value is None else value).split())[:most] or "''"


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """Members of a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def element_of(hint: Any) -> Any:
    """Type of the items of a list; None for other types."""
    lists = (kind for kind in kinds_of(hint) if get_origin(kind) in (list, tuple, Sequence, Iterable))
    return next((get_args(kind)[0] for kind in lists), None)


def in_words(hint: Any) -> str:
    if (kinds := kinds_of(hint)) != (hint,):
        return " or ".join(dict.fromkeys(map(in_words, kinds)))
    match get_origin(hint):
        case typing.Literal:
            values = ", ".join(map(str, get_args(hint)))
            return f"one of {values}" if len(get_args(hint)) > 1 else values
        case None:
            return WORDS.get(hint, "names with values" if dataclasses.is_dataclass(hint) else hint.__name__)
    inner = [in_words(arg) for arg in get_args(hint) if arg is not ...]
    return f"names, each with {inner[-1]}" if get_origin(hint) is dict else f"a list, each {inner[0]}"


def _numbers(value: Any) -> Iterator[int | float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, Mapping | Namespace | list | tuple):
        inside = value.values() if isinstance(value, Mapping | Namespace) else value
        for item in inside:
            yield from _numbers(item)


@functools.cache
def settings_of(target: Callable[..., Any]) -> dict[str, Setting]:
    """Arguments of a class or a function, by name."""
    is_block = dataclasses.is_dataclass(target)
    documented = (target.__mro__ if is_block else (target, target.__init__)) if isinstance(target, type) else (target,)
    docs = [
        docstring_parser.parse(inspect.getdoc(documented_object) or "") for documented_object in reversed(documented)
    ]
    helps = {param.arg_name: param.description or "" for doc in docs for param in doc.params}
    factories = {f.name: f.default_factory for f in dataclasses.fields(target)} if is_block else {}
    settings = {}
    for name, parameter in inspect.signature(target).parameters.items():
        factory = factories.get(name, dataclasses.MISSING)
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        if factory is not dataclasses.MISSING:
            default = factory()
        description = " ".join(helps.get(name, "").replace("``", "").split())
        hint = Any if isinstance(parameter.annotation, str) or not parameter.annotation else parameter.annotation
        settings[name] = Setting(name, hint, default, description)
    return settings


def check(target: Callable[..., Any], values: Any, *, location: str, skip: Collection[str] = ()) -> dict[str, Any]:
    """Arguments of a class or a function from plain values, with their types.

    Arguments:
        skip: arguments that are not allowed here.

    Raises:
        InputError: an unknown or missing argument, or a value of the wrong type. The message begins with ``location``,
            the setting in the config.
    """
    settings = {name: setting for name, setting in settings_of(target).items() if name not in skip}
    if not isinstance(values, Mapping):
        name = _meant_setting(settings, values)
        hint = f"; did you mean --{location}.{name} {_short(values)}?" if name else ""
        raise InputError(f"{location}: expected names with values, got {values!r}{hint}")
    refuse_unknown(values, settings, location)
    if missing := [name for name, setting in settings.items() if setting.default is REQUIRED and name not in values]:
        raise InputError(f"{location}.{missing[0]}: has to be given ({in_words(settings[missing[0]].hint)})")
    return {name: settings[name].read(value, f"{location}.{name}") for name, value in values.items()}


def _meant_setting(settings: Mapping[str, Setting], value: Any) -> str | None:
    """Setting of a block that accepts a text which was given for the block: one with that choice, or ``root``."""
    if not isinstance(value, str) or not value:
        return None
    chosen = (
        name for name, setting in settings.items() if any(value in get_args(kind) for kind in kinds_of(setting.hint))
    )
    return next(chosen, "root" if "root" in settings else None)


def build(target: type[Built], values: Any, *, location: str) -> Built:
    """Object of a class, from plain values.

    Raises:
        InputError: as ``check``, or a value that the class itself refuses.
    """
    arguments = check(target, values, location=location)
    try:
        return target(**arguments)
    except (ValueError, TypeError) as error:
        raise InputError(f"{location}: {_short(error, 1000)}") from error


def instantiate_arguments(target: Callable[..., Any], values: Mapping[str, Any], *, location: str) -> dict[str, Any]:
    """Arguments as ``check`` returns them, with objects created for each ``class_path``."""
    check(target, values, location=location)
    return {name: settings_of(target)[name].make(value, f"{location}.{name}") for name, value in values.items()}


def refuse_unknown(names: Iterable[Any], settings: Mapping[str, Setting], location: str) -> None:
    """Raise InputError for an unknown name, with the closest setting, here or in a block."""
    for name in names:
        if name in settings:
            continue
        deeper = [dotted for dotted, _ in walk(settings) if dotted.endswith(f".{name}")]
        close = difflib.get_close_matches(str(name), settings, n=1) or deeper[:1]
        place = f"{location}.{name}" if location else name
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UnknownSetting(f"{place}: there is no such setting{hint} (there are: {', '.join(sorted(settings))})")


def walk(settings: Mapping[str, Setting], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    """Every single setting, by its dotted name."""
    for name, setting in settings.items():
        if setting.block is None:
            yield f"{prefix}{name}", setting
        else:
            yield from walk(settings_of(setting.block), f"{prefix}{name}.")


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


def with_executor_named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with ``executor: ray`` written as ``executor: {name: ray}``."""
    short = values.get("executor")
    return {**values, "executor": {"name": short}} if isinstance(short, str) else dict(values)
