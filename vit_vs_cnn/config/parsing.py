"""Plain values from a file or the command line, checked against the type hints of a class by jsonargparse."""

import copy
import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings
from jsonargparse.typing import register_type

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.plain import Plain, check_plain

Built = TypeVar("Built")
_ROOT = "it"  # the key under which a parser holds the one class that it checks


def new_parser(**about: Any) -> ArgumentParser:
    """A parser that makes no object where any value is allowed, whatever the value looks like."""
    set_parsing_settings(instantiate_subclass_spec_in_any=False)
    register_type(Plain, serializer=dict, deserializer=Plain.of, type_check=isinstance)
    return ArgumentParser(exit_on_error=False, **about)


def check(class_: type, values: Any, *, where: str, skip: set[str] | None = None) -> tuple[ArgumentParser, Namespace]:
    """``values`` as constructor arguments of ``class_``: typed, with defaults filled in.

    Raises:
        InputError: an argument that the class does not have, a missing one, a value of the wrong type; ``where`` is
            the place in the config that the message names.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: expected names with values, got {values!r}")
    _check_shape(class_, values, where)
    parser = new_parser()
    parser.add_class_arguments(class_, _ROOT, skip={*(skip or ())})
    try:
        # jsonargparse puts what it parsed into the lists that it is given.
        namespace = parser.parse_object({_ROOT: copy.deepcopy(dict(values))})
    except (ArgumentError, TypeError, ValueError, KeyError, OverflowError) as error:
        raise InputError(_one_line(str(error), where, parser)) from error
    for path, value in _numbers(namespace[_ROOT], where):
        check_plain(value, where=path)  # 1e20 is a text to YAML, and a whole number to jsonargparse
    return parser, namespace


def build(class_: type[Built], values: Any, *, where: str) -> Built:
    """An object of ``class_`` made from plain values.

    Raises:
        InputError: as ``check``, or what the class itself refuses, with the place in front.
    """
    parser, namespace = check(class_, values, where=where)
    try:
        return parser.instantiate(namespace)[_ROOT]
    except (InputError, ValueError, TypeError) as error:
        raise InputError(_one_line(str(error), where, parser)) from error


def _check_shape(class_: type, values: Mapping[str, Any], where: str) -> None:
    """See that blocks are mappings, not texts (which jsonargparse would read as YAML), and null only where it may be.

    Raises:
        InputError: one that is not.
    """
    if not dataclasses.is_dataclass(class_):
        return
    for name, hint in typing.get_type_hints(class_).items():
        kinds = _kinds(hint)
        if name not in values or (values[name] is None and type(None) in kinds):
            continue
        block = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        if block is not None and not isinstance(values[name], Mapping):
            raise InputError(f"{where}.{name}: expected names with values, got {values[name]!r}")
        if values[name] is None:
            raise InputError(f"{where}.{name}: expected {_hint_in_words(hint)}, got null")
        if isinstance(block, type):
            _check_shape(block, values[name], f"{where}.{name}")


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _hint_in_words(hint: Any) -> str:
    return _in_words(str(hint)) if typing.get_origin(hint) is not None else _in_words(f"<class '{hint.__name__}'>")


def _numbers(value: Any, path: str) -> Iterator[tuple[str, int | float]]:
    """Every number among typed values, with its place."""
    if isinstance(value, int | float):
        yield path, value
    elif isinstance(value, Mapping | Namespace):
        items = value.items() if isinstance(value, Mapping) else vars(value).items()
        for name, inside in items:
            yield from _numbers(inside, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from _numbers(inside, path)


def _one_line(text: str, where: str, parser: ArgumentParser) -> str:
    """jsonargparse's message, in one line and in the words of the config."""
    unknown = re.search(r"does not accept option '([^']+)'", text)
    if unknown:
        return _unknown(unknown.group(1), where, parser)
    keys = [key.removeprefix(_ROOT).strip(".") for key in re.findall(r'Parser key "([^"]*)"', text)]
    place = ".".join(part for part in [where, *keys] if part)
    body = re.sub(r'\s*Parser key "[^"]*":\s*', " ", text)
    expected = list(dict.fromkeys(re.findall(r"Expected an? (.+?)(?:\. Got value|\n|$)", body)))
    got = re.search(r"(?:Got|Given) value: (.*)", body)
    if expected and got:
        return f"{place}: expected {' or '.join(map(_in_words, expected))}, got {got.group(1).strip()}"
    return f"{place}: {' '.join(body.split())}"


def _in_words(type_: str) -> str:
    names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "list": "a list"}
    if choice := re.fullmatch(r"typing\.Literal\[(.*)\]", type_):
        return "one of " + choice.group(1).replace("'", "")
    if class_ := re.fullmatch(r"<class '(?:.*\.)?(\w+)'>", type_):
        return names.get(class_.group(1), "null" if class_.group(1) == "NoneType" else class_.group(1))
    return type_


def _unknown(key: str, where: str, parser: ArgumentParser) -> str:
    known = [name.removeprefix(f"{_ROOT}.") for name in parser.get_defaults().keys()]  # noqa: SIM118 (no mapping)
    group = key.rpartition(".")[0]
    here = sorted({name.removeprefix(f"{group}.").split(".")[0] for name in known if name.startswith(group)})
    close = difflib.get_close_matches(key, known, n=1) or difflib.get_close_matches(key.rpartition(".")[2], here, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{where}.{key}: there is no such setting{hint} (there are: {', '.join(here)})"


def instantiate_arguments(class_: type, values: Any, *, where: str) -> dict[str, Any]:
    """Only the arguments that ``values`` names, typed, and objects made where it names a ``class_path``."""
    parser, namespace = check(class_, values, where=where)
    try:
        made = _arguments_only(class_).instantiate(namespace)[_ROOT]
    except (ValueError, TypeError, ImportError) as error:
        raise InputError(_one_line(str(error), where, parser)) from error
    return {name: made[name] for name in values}


def _arguments_only(class_: type) -> ArgumentParser:
    """A parser that makes the arguments and leaves the class itself alone."""
    parser = new_parser()
    parser.add_class_arguments(class_, _ROOT, instantiate=False)
    return parser
