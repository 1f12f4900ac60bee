"""Console output on stderr, and helpers that format counts and lists."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: Of long work that a log shows without a progress bar.
SECONDS_BETWEEN_LINES = 5.0


def open_console(*, quiet: bool = False) -> "Console":
    """A console for progress and messages. These are printed as they are, and their lines are not wrapped."""
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True)


def rate_limited(act: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a function that calls another one, and does nothing if it called it in the last few seconds."""
    last = time.monotonic()

    def act_seldom(argument: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            act(argument)
            last = time.monotonic()

    return act_seldom


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print each warning of the block once, in one line, without its place in the code."""
    printed: set[str] = set()

    def print_once(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        line = f"warning: {' '.join(str(message).split())}"
        if issubclass(category, UserWarning) and line not in printed:
            printed.add(line)
            print(line, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = print_once
        yield


def format_count(count: int, noun: str) -> str:
    """``1 seed``, ``1,300 images``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def format_millions(count: int | None) -> str:
    """Count in millions or billions: ``0.08M``, ``12.2M``, ``1.30G``; "-" for None."""
    if count is None:
        return "-"
    return f"{count / 1e9:.2f}G" if count >= 1e9 else f"{count / 1e6:.{2 if count < 1e7 else 1}f}M"


def join_names(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def visible(name: str) -> str:
    """The name of a file or class, with unprintable characters and line breaks as escape sequences.

    Joiners, which are invisible, stay: Persian and Indic names and emoji contain them.
    """
    return "".join(
        character
        if character.isprintable() or character in "\u200c\u200d"
        else character.encode("unicode_escape").decode("ascii")
        for character in name
    )
