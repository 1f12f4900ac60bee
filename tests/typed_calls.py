"""Types of all calls of the package, and the shapes that they name, are checked while tests run."""

import functools
import inspect
from typing import Any

import jaxtyping
from beartype import beartype

_jaxtyped = jaxtyping.jaxtyped


def _annotations(function: Any) -> list[Any]:
    """Annotations of a function, or of the one that a descriptor wraps."""
    inner = getattr(function, "fget", None) or getattr(function, "__func__", None) or function
    return [*getattr(inner, "__annotations__", {}).values()]


def _names_shape(annotation: Any) -> bool:
    return "jaxtyping" in f"{getattr(annotation, '__module__', '')} {annotation!r}"


def _checked(*given: Any, typechecker: Any = None) -> Any:
    """A faster replacement of ``jaxtyping.jaxtyped``, which wraps a function three times for better messages.

    One wrapper checks the same types and shapes. It is made at the first call of a function. Classes, generators, and
    types that are imported for type checkers only are left to jaxtyping.
    """

    def check(function: Any) -> Any:
        annotations = _annotations(function)
        left = inspect.isclass(function) or inspect.isgeneratorfunction(function)
        if left or any(isinstance(annotation, str) for annotation in annotations):
            return _jaxtyped(function, typechecker=typechecker)
        if not annotations:
            return function
        if any("{" in repr(annotation) for annotation in annotations):  # a dimension that is one of the arguments
            return _jaxtyped(beartype(function), typechecker=None)
        if not inspect.isfunction(function):
            return beartype(function)
        return _when_called(function, remembers=any(map(_names_shape, annotations)))

    return _jaxtyped(*given, typechecker=typechecker) if given else check


def _when_called(function: Any, *, remembers: bool) -> Any:
    typed = None

    @functools.wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        nonlocal typed
        if typed is None:
            typed = beartype(function)
        if not remembers:
            return typed(*given, **named)
        with _jaxtyped("context"):
            return typed(*given, **named)

    return checked


def install() -> None:
    """Install the checks. Call it before anything imports the package."""
    jaxtyping.jaxtyped = _checked
    jaxtyping.install_import_hook("vit_vs_cnn", "beartype.beartype")
