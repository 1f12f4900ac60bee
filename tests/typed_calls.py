"""Types of all calls of the package, and the shapes that they name, are checked while tests run."""

import inspect
from typing import Any

import jaxtyping
from beartype import beartype

_jaxtyped = jaxtyping.jaxtyped


def _annotations(function: Any) -> list[Any]:
    """Of a function, or of what a descriptor wraps."""
    inner = getattr(function, "fget", None) or getattr(function, "__func__", None) or function
    return [*getattr(inner, "__annotations__", {}).values()]


def _names_shape(annotation: Any) -> bool:
    return "jaxtyping" in f"{getattr(annotation, '__module__', '')} {annotation!r}"


def _checked(*given: Any, typechecker: Any = None) -> Any:
    """In place of ``jaxtyping.jaxtyped``, which wraps a function three times for a message that says which argument was
    wrong. One wrapper checks as much, with another one that remembers dimensions where shapes are named. Classes,
    generators, and names of types that are imported for type checkers only, which jaxtyping skips, are left to it.
    """

    def check(function: Any) -> Any:
        annotations = _annotations(function)
        left = inspect.isclass(function) or inspect.isgeneratorfunction(function)
        if left or any(isinstance(annotation, str) for annotation in annotations):
            return _jaxtyped(function, typechecker=typechecker)
        if not annotations:
            return function
        typed = beartype(function)
        return _jaxtyped(typed, typechecker=None) if any(map(_names_shape, annotations)) else typed

    return _jaxtyped(*given, typechecker=typechecker) if given else check


def install() -> None:
    """Before anything imports the package."""
    jaxtyping.jaxtyped = _checked
    jaxtyping.install_import_hook("vit_vs_cnn", "beartype.beartype")
