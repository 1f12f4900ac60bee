"""Where it is told what happens: standard error, in text as it is; and how counts and names are told."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console_for_news(*, quiet: bool = False) -> "Console":
    """For progress and news; square brackets and colons of a message or a path are no markup and no emoji."""
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, markup=False, emoji=False, highlight=False)


@contextmanager
def warnings_in_lines() -> Iterator[None]:
    """A block whose warnings are a line each, told once: who runs a command has no use for the place in our code."""
    with warnings.catch_warnings():
        warnings.showwarning = partial(_print_warning, set())
        yield


def _print_warning(told: set[str], message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    line = f"warning: {' '.join(str(message).split())}"
    if issubclass(category, UserWarning) and line not in told:
        told.add(line)
        print(line, file=sys.stderr)


def counted(count: int, what: str) -> str:
    """``1 seed``, ``1,300 images``."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
