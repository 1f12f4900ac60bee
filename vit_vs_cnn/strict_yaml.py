"""Plain values of configs: YAML that is read strictly, and bounded values."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from vit_vs_cnn.errors import InputError, one_line

if TYPE_CHECKING:
    import pandas

#: Largest whole number, as in a tensor.
LARGEST = 2**63 - 1
#: Levels and values of a config, with aliases expanded. Usual configs have 6 and 300.
MAX_LEVELS, MAX_VALUES = 32, 100_000


class _Strict(yaml.SafeLoader):
    """Loader of plain values. A repeated name is an error, and a date is a text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float):
                continue
            if names & {key, str(key)}:  # 1, "1" and 1.0
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} occurs twice, the second time", key_node.start_mark
                )
            names |= {key, str(key)}
        return super().construct_mapping(node, deep)


_Strict.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# Numbers such as 1e-3 and 1.0e8 are texts in YAML 1.1, and numbers in YAML 1.2.
_POWER_OF_TEN = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$")
_Strict.add_implicit_resolver("tag:yaml.org,2002:float", _POWER_OF_TEN, list("-+.0123456789"))


def read_yaml(text: str, *, location: str, kind: str = "YAML") -> Any:
    """Plain values of a YAML text, called ``kind`` in the message of an InputError, which begins with ``location``."""
    try:
        values = yaml.load(text, _Strict)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{location} is not {kind}: {one_line(error)}") from error
    check_plain(values, location=location)
    return values


def to_plain(value: Any) -> Any:
    """A copy with plain values in place of paths, tuples, ranges, and arrays and numbers of NumPy."""
    match value:
        case Mapping():
            return {name: to_plain(inside) for name, inside in value.items()}
        case list() | tuple() | range():
            return [to_plain(inside) for inside in value]
        case os.PathLike():
            return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else value


def check_plain(values: Any, *, location: str) -> None:
    """Raise InputError unless values are plain and bounded: texts, numbers, true, false, null, lists, mappings.

    Refused are numbers that are not finite or too large, unprintable texts, and too many levels or values.
    """
    for count, (path, value) in enumerate(_walk(values, ())):
        if count > MAX_VALUES:
            raise InputError(f"{location}: holds more than {MAX_VALUES:,} values")
        if len(path) > MAX_LEVELS:
            raise InputError(f"{location}: has more than {MAX_LEVELS} levels, or leads back into itself")
        if problem := _problem(value):
            raise InputError(f"{': '.join(filter(None, (location, '.'.join(map(str, path)))))}: {problem}")


def check_class(value: Any, location: str) -> None:
    """Check the names of a mapping for a class: class_path and init_args. Raises InputError: other names."""
    if not isinstance(value, Mapping):
        return
    class_path, init_args = value.get("class_path"), value.get("init_args", {})
    is_path = isinstance(class_path, str) and "." in class_path.strip(".")
    if not is_path or not isinstance(init_args, Mapping | None):
        raise InputError(
            f"{location}: expected {{class_path: package.module.Name, init_args: {{...}}}}, got {dict(value)}"
        )
    if surplus := [name for name in value if name not in ("class_path", "init_args")]:
        raise InputError(f"{location}.{surplus[0]}: there is no such setting; a class has class_path and init_args")


def _walk(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value and every name with its place, a mapping before its values."""
    yield path, value
    if len(path) > MAX_LEVELS:
        return
    if isinstance(value, Mapping):
        for name, inside in value.items():
            yield (*path, name), name
            yield from _walk(inside, (*path, name))
    elif isinstance(value, list | tuple):
        for number, inside in enumerate(value):
            yield from _walk(inside, (*path, number))


def to_json_values(value: Any) -> Any:
    """Nested values for JSON: keys are texts, pairs are joined by a comma, and numbers that are not finite are null."""
    if isinstance(value, Mapping):
        return {
            ",".join(map(str, key)) if isinstance(key, tuple) else str(key): to_json_values(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def frame_records(frame: "pandas.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table as plain values; missing numbers are None."""
    return json.loads(str(frame.to_json(orient="records", double_precision=15)))


def _problem(value: Any) -> str | None:
    """Reason why a value is not allowed in a config; None if it is allowed."""
    match value:
        case str() if "\0" in value or value != value.encode("utf-8", "ignore").decode():
            return f"{value[:80]!r} contains a NUL character or half of a surrogate pair; remove it"
        case int() if abs(value) > LARGEST:
            return f"a number of {value.bit_length()} bits is too large"
        case float() if not math.isfinite(value):
            return f"{value} is not a finite number"
        case None | bool() | int() | float() | str() | Mapping() | list() | tuple():
            return None
    kind = type(value).__name__
    return f"expected a text, a number, true, false, null, a list or a mapping (of class_path, init_args), got a {kind}"
