"""The command line: finds the command, and turns what goes wrong into one line and an exit code."""

import difflib
import gc
import io
import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vit_vs_cnn import __version__
from vit_vs_cnn.errors import BAD_INPUT, INTERRUPTED, SOME_FAILED, CellsFailed, InputError, Interrupted, one_line
from vit_vs_cnn.process import keep_freed_memory
from vit_vs_cnn.told import warnings_in_lines

if TYPE_CHECKING:
    from vit_vs_cnn.commands.command import Command, Given

#: The commands that keep what they did when they are stopped.
TRAINING = (["train"], ["tune"], ["cell"])
#: New objects until the collector looks for cycles: the libraries that are imported make half a million that are none.
GARBAGE = 100_000
#: What PyTorch and NumPy say where memory does not suffice.
NO_MEMORY = ("not enough memory", "can't allocate memory", "Unable to allocate", "out of memory")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and tell what goes wrong in one line.

    Returns:
        0; 1 where cells failed or the program did; 2 for unusable input; 130 for a run that was asked to stop.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name in another script is no reason to end
            stream.reconfigure(errors="replace")
    if words[:1] == ["--version"]:
        print(f"vit-vs-cnn {__version__}, Python {platform.python_version()}, torch {metadata.version('torch')}")
        return 0
    gc.set_threshold(GARBAGE)
    try:
        with warnings_in_lines():
            _run(words[0] if words else "--help", words[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # who read the output has read enough, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        code, lines = _told(error, words)
        print("\n".join(lines), file=sys.stderr)
        return code
    return 0


def _told(error: BaseException, words: list[str]) -> tuple[int, list[str]]:
    """What went wrong, for who typed the words: the exit code and the lines."""
    match error:
        case CellsFailed():
            return SOME_FAILED, [*(f"failed: {line}" for line in error.failures), "the same command tries these again"]
        case InputError():
            return BAD_INPUT, [f"error: {' '.join(str(error).split())}"]
        case Interrupted() | KeyboardInterrupt():
            goes_on = "; the same command goes on from the last checkpoint" if words[:1] in TRAINING else ""
            return INTERRUPTED, [f"{str(error) or 'stopped'}{goes_on}"]
        case OSError():  # a full disk, a folder that may not be written to
            return BAD_INPUT, [f"error: {error.filename or 'input or output'}: {error.strerror or error}"]
    said, command = one_line(error), words[0] if words else "help"
    if isinstance(error, MemoryError) or any(part in said for part in NO_MEMORY):
        return BAD_INPUT, [f"error: {command} needs more memory than there is: {said}"]
    what, trace = f"{type(error).__name__}: {said}", _kept_trace(error, words)
    return SOME_FAILED, [f"error: {command} met a fault of this program, {what}; the full trace {trace}"]


def _kept_trace(error: BaseException, words: list[str]) -> str:
    """Where the trace of a fault was put, to be read when it is reported."""
    try:
        handle, name = tempfile.mkstemp(prefix="vit-vs-cnn-", suffix=".txt")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"{shlex.join(words)}\n")
            traceback.print_exception(error, file=file)
    except OSError as failed:
        return f"could not be kept: {failed.strerror}"
    return f"is in {name}"


def _run(name: str, words: list[str]) -> None:
    from vit_vs_cnn.commands import help, loading
    from vit_vs_cnn.commands.command import COMMANDS, GONE, INTERNAL, RENAMED

    if name in ("-h", "--help"):
        print(help.usage(), end="")
        return
    if name.partition("=")[0] == "--print-completion":
        print(help.completion(name.partition("=")[2] or "".join(words[:1])), end="")
        return
    if name in GONE:
        raise InputError(GONE[name])
    if (command := COMMANDS.get(RENAMED.get(name, name))) is None:
        known = [one for one in COMMANDS if one not in INTERNAL]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(f"{name!r} is no command{hint} (there are: {', '.join(known)}; see --help)")
    options = words[: words.index("--")] if "--" in words else words
    if {"-h", "--help", "--help=all"} & {*options}:
        print(help.help_page(command, everything="--help=all" in options), end="")
        return
    given = command.read(words)
    is_quiet = given.options.get("json") or given.options.get("quiet")
    with nullcontext() if is_quiet else loading.loading_told():
        _carry_out(command, given)


def _carry_out(command: "Command", given: "Given") -> None:
    if given.options.pop("print_config", False):
        from vit_vs_cnn.api import experiment_of

        values = experiment_of(given.options.get("config"), given.overrides).to_dict()
        print(yaml.safe_dump(values, sort_keys=False), end="")
        return
    if command.name == "report" and Path(given.paths[0]).is_file():
        from vit_vs_cnn.commands import show

        output = given.options.get("output")
        in_json = given.options.get("json", False)
        show.recorded(Path(given.paths[0]), in_json=in_json, output=None if output is None else Path(output))
        return
    if [command.name] in TRAINING:
        keep_freed_memory()
    try:
        found = command.call(given)
    except CellsFailed as error:
        if error.found is not None:
            _show(command, error.found, given)
        raise
    if found is not None:  # as it is in a process that trained beside the first one, which prints
        _show(command, found, given)


def _show(command: "Command", found: Any, given: "Given") -> None:
    from vit_vs_cnn.commands import show

    if given.options.get("json"):
        print(show.as_json(found), end="")
    else:
        getattr(show, command.name.replace("-", "_"))(found)
