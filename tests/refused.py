"""Mistakes of users give an error of one line."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vit_vs_cnn.errors import InputError


class Evil:
    """Executes a program when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch executed",)


@contextlib.contextmanager
def refused(*parts: str) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Check that the block raises an ``InputError`` of one line with these parts."""
    with pytest.raises(InputError) as caught:
        yield caught
    message = str(caught.value)
    assert "\n" not in message, message
    assert all(part in message for part in parts), message


def message_of(call: Callable[..., object], *arguments: object) -> str:
    """The ``InputError`` of one line that a call raises."""
    with refused() as caught:
        call(*arguments)
    return str(caught.value)


def refusals(call: Callable[..., object], *cases: tuple[dict[str, Any], str]) -> Callable[..., None]:
    """A test that a call raises a ``ValueError`` (or ``InputError``) of one line for each arguments and message."""

    @pytest.mark.parametrize(("arguments", "message"), cases)
    def test(arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            call(**arguments)
        assert "\n" not in str(caught.value)

    return test
