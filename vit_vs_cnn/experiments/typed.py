"""Plain values from a file or the command line, checked against the type hints of a class by jsonargparse."""

import copy
import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from vit_vs_cnn.errors import InputError

Built = TypeVar("Built")
_ROOT = "it"  # the key under which a parser holds the one class that it checks


def check(class_: type, values: Any, *, where: str, skip: set[str] | None = None) -> tuple[ArgumentParser, Namespace]:
    """``values`` as constructor arguments of ``class_``: typed, with defaults filled in.

    Raises:
        InputError: an argument that the class does not have, a missing one, a value of the wrong type; ``where`` is
            the place in the config that the message names.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: expected names with values, got {values!r}")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(class_, _ROOT, skip={*(skip or ())})
    try:
        # jsonargparse puts what it parsed into the lists that it is given.
        return parser, parser.parse_object({_ROOT: copy.deepcopy(dict(values))})
    except (ArgumentError, TypeError, ValueError, KeyError) as error:
        raise InputError(_one_line(str(error), where, parser)) from error


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
        return f"{place}: expected {' or '.join(map(_plain, expected))}, got {got.group(1).strip()}"
    return f"{place}: {' '.join(body.split())}"


def _plain(type_: str) -> str:
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
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(class_, _ROOT, instantiate=False)
    _, namespace = check(class_, values, where=where)
    try:
        made = parser.instantiate(namespace)[_ROOT]
    except (ValueError, TypeError, ImportError) as error:
        raise InputError(_one_line(str(error), where, parser)) from error
    return {name: made[name] for name in values}
