"""Settings as type hints and docstrings define them, and plain values checked against these.

What a name may be is read from a class or a function before any value is looked at; jsonargparse reads single values.
"""

import copy
import dataclasses
import difflib
import functools
import inspect
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
#: The types that a line of an error has words for; of others it says what jsonargparse says.
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    type(None): "null",
    list: "a list",
    Plain: "names with values",
}
#: The default of what has to be given.
REQUIRED: Any = ...
REFUSED = (ArgumentError, ImportError, KeyError, OverflowError, TypeError, ValueError)
_KEY = "it"  # the one key of a setting's parser


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
    """A parser that raises where argparse would end the program; to be used within ``strict_parsing``."""
    register_type(Plain, serializer=dict, deserializer=Plain.of, type_check=isinstance)
    return ArgumentParser(exit_on_error=False)


@dataclass(frozen=True, eq=False)
class Setting:
    """What may be given under one name.

    Arguments:
        hint: its type.
        default: ``REQUIRED`` where it has to be given.
        help: its entry in the docstring.
    """

    name: str
    hint: Any
    default: Any = REQUIRED
    help: str = ""

    @cached_property
    def block(self) -> type | None:
        """The dataclass of a setting that has settings of its own."""
        found = (kind for kind in kinds_of(self.hint) if isinstance(kind, type) and dataclasses.is_dataclass(kind))
        return next(found, None)

    @cached_property
    def _words(self) -> tuple[Any, ...]:
        """The values of a setting that is one of a few."""
        return get_args(self.hint) if get_origin(self.hint) is Literal else ()

    @cached_property
    def _parser(self) -> ArgumentParser:
        parser = new_parser()
        parser.add_argument(f"--{_KEY}", type=self.hint)
        return parser

    def read(self, value: Any, where: str) -> Any:
        """The value with its type; a block is built, a class that it names is not made.

        Raises:
            InputError: it is of another type; ``where`` is the place that the line names.
        """
        if value is None:
            if type(None) not in kinds_of(self.hint):
                raise InputError(f"{where}: expected {in_words(self.hint)}, got null")
            return None
        if self.block is not None:
            return build(self.block, value, where=where)
        if type(value) is self.hint or (type(value) is str and value in self._words):
            return value
        read = self._by_parser(value, where)
        for number in _numbers(read):  # 1e20 is a text to YAML, and a whole number to jsonargparse
            check_plain(number, where=where)
        return read

    def make(self, value: Any, where: str) -> Any:
        """The value as ``read`` gives it, with objects where it names classes: these are imported and made."""
        return self._by_parser(value, where, self._parser.instantiate)

    def _by_parser(self, value: Any, where: str, then: Callable[[Namespace], Namespace] = lambda read: read) -> Any:
        try:
            with strict_parsing():  # jsonargparse puts what it parsed into the lists that it is given
                return then(self._parser.parse_object({_KEY: copy.deepcopy(value)}))[_KEY]
        except REFUSED as error:
            raise InputError(f"{where}: {self._refusal(value, str(error))}") from error

    def _refusal(self, value: Any, message: str) -> str:
        """Why: of a list because of the first that does not fit, of a class by what is wrong with it."""
        kinds, parts = kinds_of(self.hint), []
        if isinstance(value, list | tuple) and (inner := element_of(self.hint)) is not None:
            parts = [(inner, one) for one in value]
        elif len(kinds) > 1 and isinstance(value, Mapping):
            parts = [(kind, value) for kind in kinds if isinstance(kind, type) and kind not in WORDS]
        for hint, one in parts:
            part = Setting(self.name, hint)
            try:
                with strict_parsing():
                    part._parser.parse_object({_KEY: copy.deepcopy(one)})
            except REFUSED as error:
                return part._refusal(one, str(error))
        plain = (Literal, list, tuple, dict, Sequence)
        if not isinstance(value, Mapping) or all(kind in WORDS or get_origin(kind) in plain for kind in kinds):
            example = f", such as '{{name: {_short(value)}}}'" if self.name == "model" else ""
            if isinstance(value, str) and element_of(self.hint) is not None and "," in value:
                example = f", such as '[{_short(value)}]'"
            return f"expected {in_words(self.hint)}{example}, got {_short(value)}"
        return _short(message.replace(f'Parser key "{_KEY}":', ""), 400)


def _short(value: Any, most: int = 150) -> str:
    return " ".join(str("null" if value is None else value).split())[:most] or "''"


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def element_of(hint: Any) -> Any:
    """The type of what a list holds; None where there is no list."""
    lists = (kind for kind in kinds_of(hint) if get_origin(kind) in (list, tuple, Sequence, Iterable))
    return next((get_args(kind)[0] for kind in lists), None)


def in_words(hint: Any) -> str:
    """A type for a reader: ``a whole number or null``."""
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
    """Every number among typed values."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, Mapping | Namespace | list | tuple):
        inside = value.values() if isinstance(value, Mapping | Namespace) else value
        for one in inside:
            yield from _numbers(one)


@functools.cache
def settings_of(made: Callable[..., Any]) -> dict[str, Setting]:
    """The arguments of a class or a function, by name."""
    is_block = dataclasses.is_dataclass(made)
    documented = (made.__mro__ if is_block else (made, made.__init__)) if isinstance(made, type) else (made,)
    docs = [docstring_parser.parse(inspect.getdoc(one) or "") for one in reversed(documented)]
    helps = {param.arg_name: param.description or "" for doc in docs for param in doc.params}
    factories = {f.name: f.default_factory for f in dataclasses.fields(made)} if is_block else {}
    settings = {}
    for name, parameter in inspect.signature(made).parameters.items():
        factory = factories.get(name, dataclasses.MISSING)
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        if factory is not dataclasses.MISSING:
            default = factory()
        said = " ".join(helps.get(name, "").replace("``", "").split())
        hint = Any if isinstance(parameter.annotation, str) or not parameter.annotation else parameter.annotation
        settings[name] = Setting(name, hint, default, said)
    return settings


def check(made: Callable[..., Any], values: Any, *, where: str, skip: Collection[str] = ()) -> dict[str, Any]:
    """The arguments of a class or a function that ``values`` names, typed.

    Arguments:
        skip: arguments that nobody may name here.

    Raises:
        InputError: an argument that there is not, a missing one, a value of the wrong type; ``where`` is the place in
            the config that the line names.
    """
    settings = {name: one for name, one in settings_of(made).items() if name not in skip}
    if not isinstance(values, Mapping):
        name = _meant_setting(settings, values)
        hint = f"; did you mean --{where}.{name} {_short(values)}?" if name else ""
        raise InputError(f"{where}: expected names with values, got {values!r}{hint}")
    refuse_unknown(values, settings, where)
    if missing := [name for name, setting in settings.items() if setting.default is REQUIRED and name not in values]:
        raise InputError(f"{where}.{missing[0]}: has to be given ({in_words(settings[missing[0]].hint)})")
    return {name: settings[name].read(value, f"{where}.{name}") for name, value in values.items()}


def _meant_setting(settings: Mapping[str, Setting], value: Any) -> str | None:
    """The setting of a block that takes a text which was given for the block: one with that choice, or ``root``."""
    if not isinstance(value, str) or not value:
        return None
    chosen = (
        name for name, setting in settings.items() if any(value in get_args(kind) for kind in kinds_of(setting.hint))
    )
    return next(chosen, "root" if "root" in settings else None)


def build(made: type[Built], values: Any, *, where: str) -> Built:
    """An object of a class made from plain values.

    Raises:
        InputError: as ``check``, or what the class itself refuses, with the place in front.
    """
    given = check(made, values, where=where)
    try:
        return made(**given)
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}: {_short(error, 1000)}") from error


def instantiate_arguments(made: Callable[..., Any], values: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Only the arguments that ``values`` names, typed, and objects made where it names a ``class_path``."""
    check(made, values, where=where)
    return {name: settings_of(made)[name].make(value, f"{where}.{name}") for name, value in values.items()}


def refuse_unknown(names: Iterable[Any], settings: Mapping[str, Setting], where: str) -> None:
    """See that each name is one of the settings.

    Raises:
        InputError: one that is not, with the name that comes closest, here or further in.
    """
    for name in names:
        if name in settings:
            continue
        deeper = [dotted for dotted, _ in walk(settings) if dotted.endswith(f".{name}")]
        close = difflib.get_close_matches(str(name), settings, n=1) or deeper[:1]
        place = f"{where}.{name}" if where else name
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UnknownSetting(f"{place}: there is no such setting{hint} (there are: {', '.join(sorted(settings))})")


def walk(settings: Mapping[str, Setting], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    """Every setting that has no settings of its own, by its dotted name."""
    for name, setting in settings.items():
        if setting.block is None:
            yield f"{prefix}{name}", setting
        else:
            yield from walk(settings_of(setting.block), f"{prefix}{name}.")
