"""Plain values, as a config holds them: YAML read strictly, within bounds, and no class where none may stand."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from vit_vs_cnn.errors import InputError, one_line

#: The largest whole number; more digits fit into no tensor.
LARGEST = 2**63 - 1
#: Levels of a config, and values in it with every alias written out; configs of people have 6 and 300.
DEEPEST, MOST = 32, 100_000
_Place = tuple[Any, ...]


class Plain(dict[str, Any]):
    """Names with values whose types somebody else knows: a model's options, an optimizer's.

    Of ``dict[str, Any]``, jsonargparse would make an object wherever a value looks like ``{class_path, init_args}``.
    Of this it makes nothing.
    """

    __slots__ = ()  # jsonargparse copies what has a __dict__ by that alone

    @classmethod
    def of(cls, values: Any) -> "Plain":
        """The mapping ``values``.

        Raises:
            ValueError: it is none.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"expected names with values, got {values!r}")
        return cls(values)


class _Strict(yaml.SafeLoader):
    """YAML's plain values. A name that stands twice in one place is an error, and a date is a text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str, Any] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float):
                continue
            if str(key) in seen or key in seen.values():  # 1, "1" and 1.0
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} stands twice, the second time", key_node.start_mark
                )
            seen[str(key)] = key
        return super().construct_mapping(node, deep)


_Strict.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str, *, where: str, kind: str = "YAML") -> Any:
    """The plain values of a YAML text.

    Arguments:
        where: beginning of the line of an error.
        kind: what the text is expected to be, for that line.

    Raises:
        InputError: no YAML, or values that no config can hold (``check_plain``); the line begins with ``where``.
    """
    try:
        values = yaml.load(text, _Strict)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{where} is not {kind}: {one_line(error)}") from error
    check_plain(values, where=where)
    return values


def plain_of(value: Any) -> Any:
    """A copy in which a path is its text, and a tuple, a range, an array or a number of NumPy what a config has for it.

    Whatever else there is stays as it is, for ``check_plain`` to refuse.
    """
    match value:
        case Mapping():
            return {name: plain_of(inside) for name, inside in value.items()}
        case list() | tuple() | range():
            return [plain_of(inside) for inside in value]
        case os.PathLike():
            return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else value


def check_plain(values: Any, *, where: str) -> None:
    """See that values are those of YAML and JSON, and bounded: texts, numbers, true, false, null, lists, mappings.

    Raises:
        InputError: another kind of value, a number that is not finite or too large, a text that no file can hold, too
            many levels or values; the line begins with ``where``.
    """
    for count, (path, value) in enumerate(_walk(values, ())):
        if count > MOST:
            raise InputError(f"{where}: holds more than {MOST:,} values")
        if len(path) > DEEPEST:
            raise InputError(f"{where}: has more than {DEEPEST} levels, or leads back into itself")
        if fault := _fault(value):
            raise InputError(f"{': '.join(part for part in (where, dotted(path)) if part)}: {fault}")


def refuse_classes(values: Any, *, but_in: Sequence[_Place]) -> None:
    """See that no class is named but where one may stand.

    Arguments:
        values: of a config.
        but_in: the places where a class, or a list of them, may stand; ``*`` is any one name or number. What a class is
            given is its own.

    Raises:
        InputError: a ``class_path`` elsewhere, by its place.
    """

    by_length: dict[int, list[_Place]] = {}
    for place in but_in:
        by_length.setdefault(len(place), []).append(place)

    def may_stand(path: _Place, value: Any) -> bool:
        is_one = not isinstance(value, Mapping) or "class_path" in value
        places = by_length.get(len(path), ()) if is_one else ()
        return any(all(p in ("*", str(n)) for p, n in zip(place, path, strict=True)) for place in places)

    for path, value in _walk(values, (), stop=may_stand):
        if isinstance(value, Mapping) and "class_path" in value and not may_stand(path, value):
            places = ", ".join(dotted(place).replace("*", "NAME") for place in but_in)
            raise InputError(f"{dotted(path)}: no class is made here, as {value['class_path']!r}; only in {places}")


def check_class(value: Any, where: str) -> None:
    """See that names with values are {class_path, init_args}. Raises InputError: they are others."""
    if not isinstance(value, Mapping):
        return
    named, given = value.get("class_path"), value.get("init_args", {})
    if not isinstance(named, str) or "." not in named.strip(".") or not isinstance(given, Mapping | None):
        raise InputError(
            f"{where}: expected {{class_path: package.module.Name, init_args: {{...}}}}, got {dict(value)}"
        )
    if unknown := [name for name in value if name not in ("class_path", "init_args")]:
        raise InputError(f"{where}.{unknown[0]}: there is no such setting; a class has class_path and init_args")


def dotted(path: tuple[Any, ...]) -> str:
    """``("data", "root")`` as ``data.root``."""
    return ".".join(map(str, path))


def _walk(value: Any, path: _Place, stop: Callable[[_Place, Any], bool] | None = None) -> Iterator[tuple[_Place, Any]]:
    """Every value with its place, a mapping before what it holds; nothing below a place where ``stop`` says so."""
    yield path, value
    if (stop is not None and stop(path, value)) or len(path) > DEEPEST:
        return
    if isinstance(value, Mapping):
        for name, inside in value.items():
            if stop is None:
                yield (*path, name), name  # names are values, too
            yield from _walk(inside, (*path, name), stop)
    elif isinstance(value, list | tuple):
        for number, inside in enumerate(value):
            yield from _walk(inside, (*path, number), stop)


def field_values(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass by name. ``vars`` also has what a ``cached_property`` has stored."""
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}


def to_json_values(value: Any) -> Any:
    """Nested values as JSON knows them: keys are texts, of pairs with a comma; what is not a finite number is null."""
    if isinstance(value, Mapping):
        return {
            ",".join(map(str, key)) if isinstance(key, tuple) else str(key): to_json_values(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fault(value: Any) -> str | None:
    """What a value has that no config can hold."""
    match value:
        case None | bool() | Mapping() | list() | tuple():
            return None
        case str():
            whole = "\0" not in value and value == value.encode("utf-8", "ignore").decode()
            return None if whole else f"{value[:80]!r} holds a character that no file name or text has"
        case int():
            short = value if abs(value) < 10**40 else f"a number of about {value.bit_length() * 3 // 10} digits"
            return None if abs(value) <= LARGEST else f"{short} is too large; whole numbers go up to {LARGEST}"
        case float():
            return None if math.isfinite(value) else f"{value} is not a finite number"
    return f"expected a text, a number, true, false, null, a list or names with values, got a {type(value).__name__}"
