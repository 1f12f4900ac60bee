"""The arguments of a command: argparse, with errors as one line instead of a usage text and an exit."""

import argparse
from pathlib import Path
from typing import NoReturn

from vit_vs_cnn.errors import InputError

#: Help of the option that lets a file's own classes be imported. No file can say it.
TRUST = "import the classes of their own that these files name, which runs their code: for files of your own"


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Help with those defaults that say something: not that a switch is off or nothing was given."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default is None or action.default is False or action.default == []
        return action.help if silent else super()._get_help_string(action)


class Arguments(argparse.ArgumentParser):
    """A parser whose complaints are an ``InputError``: one line, exit code 2.

    Arguments:
        command: its name, as the user types it.
        description: what it does, for ``--help``.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"vit-vs-cnn {command}",
            description=description,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message} (see --help)")

    def parse(self, words: list[str]) -> argparse.Namespace | None:
        """The values, or None where ``--help`` was asked for and has been printed."""
        if "-h" in words or "--help" in words:
            self.print_help()
            return None
        return self.parse_args(words)


def existing(text: str) -> Path:
    """An argument's type: the path of something that is there."""
    if not (path := Path(text)).exists():
        raise argparse.ArgumentTypeError(f"{text}: no such file or folder")
    return path


def positive(text: str) -> int:
    """An argument's type: a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number of at least 1")
    return value
