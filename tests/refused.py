"""Mistakes of users give an error of one line."""

import contextlib
import os
from collections.abc import Iterator

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
