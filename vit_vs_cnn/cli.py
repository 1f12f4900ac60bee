"""The command line: runs a command, prints its result, and turns errors into one line and an exit code."""

import difflib
import gc
import io
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vit_vs_cnn import __version__
from vit_vs_cnn.console import one_line_warnings, open_console
from vit_vs_cnn.errors import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    EXIT_RUNS_FAILED,
    InputError,
    Interrupted,
    RunsFailed,
    one_line,
)
from vit_vs_cnn.process import keep_freed_memory

if TYPE_CHECKING:
    from vit_vs_cnn.commands import Command, Words

#: Commands that can be resumed after a stop. ``cell`` is internal: ``train`` starts it for one run on several devices.
TRAINING_COMMANDS = ("train", "tune", "cell")
#: New objects after which the collector looks for cycles. Imported libraries create half a million objects.
GARBAGE_THRESHOLD = 100_000
#: Parts of the messages of PyTorch and NumPy about exhausted memory.
OUT_OF_MEMORY_TEXTS = ("not enough memory", "can't allocate memory", "Unable to allocate", "out of memory")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and print an error as one line, after the traceback if it is a bug.

    Returns:
        exit code: 0; 1 if runs or the program failed; 2 for unusable input; 130 if the user stopped it.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names in other scripts are printed on any terminal
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        with one_line_warnings():
            run(words[0] if words else "--help", words[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        code, lines = describe_error(error, words)
        print("\n".join(lines), file=sys.stderr)
        return code
    return 0


def run(name: str, words: list[str]) -> None:
    """Run one command.

    Raises:
        InputError: an unknown command, or as the command.
    """
    if name == "--version":
        print(f"vit-vs-cnn {__version__}, Python {platform.python_version()}, torch {metadata.version('torch')}")
        return
    if name == "cell":
        execute_cell(words)
        return
    from vit_vs_cnn.commands import COMMANDS, usage

    if name in ("-h", "--help"):
        print(usage(), end="")
        return
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(f"{name!r} is not a command{hint} (there are: {', '.join(COMMANDS)}; see --help)")
    command = COMMANDS[name]
    options = words[: words.index("--")] if "--" in words else words
    if {"-h", "--help"} & {*options}:
        print(command.help(), end="")
        return
    run_command(command, command.read(words))


def run_command(command: "Command", words: "Words") -> None:
    """Call the function of a command and print the result."""
    if words.options.pop("print_config", False):
        from vit_vs_cnn.api import load_experiment

        values = load_experiment(words.options.get("config"), words.overrides).to_dict()
        print(yaml.safe_dump(values, sort_keys=False), end="")
        return
    if command.name == "report" and Path(words.paths[0]).is_file():
        from vit_vs_cnn.printing import print_result_table

        output = words.options.get("output")
        in_json = words.options.get("json", False)
        print_result_table(Path(words.paths[0]), in_json=in_json, output=None if output is None else Path(output))
        return
    if command.name in TRAINING_COMMANDS:
        keep_freed_memory()
    try:
        result = command.call(words)
    except RunsFailed as error:
        if error.findings is not None:
            _print(command, error.findings, words)
        raise
    if result is not None:  # None in the other processes of a training on several devices
        _print(command, result, words)


def execute_cell(words: list[str]) -> None:
    """Run the cell in a folder: ``cell FOLDER --trust``. ``train`` starts this command, not the user.

    Raises:
        InputError: a folder that the user does not trust.
    """
    folder = words[0] if words else ""
    if "--trust" not in words[1:]:
        raise InputError(f"{folder}: its config.yaml names the code to run; add --trust if the folder is yours")
    from vit_vs_cnn.runs.experiment_data import ExperimentData
    from vit_vs_cnn.runs.failures import raise_failures
    from vit_vs_cnn.runs.result import RunState
    from vit_vs_cnn.runs.run import read_run
    from vit_vs_cnn.workers.run import run_one

    keep_freed_memory()
    run = read_run(Path(folder), trusted=True)
    data = ExperimentData.of(run.experiment, fingerprint=run.fingerprint)
    if run_one(run, data, console=open_console()) is RunState.WAITING:
        raise InputError(f"{run.name} starts from a run that is not finished; train runs both")
    raise_failures([run])


def describe_error(error: BaseException, words: list[str]) -> tuple[int, list[str]]:
    """Exit code of an error, and the lines to print."""
    match error:
        case RunsFailed():
            lines = [f"failed: {line}" for line in error.failures]
            return EXIT_RUNS_FAILED, [*lines, "Run the same command again to retry the failed runs."]
        case InputError():
            return EXIT_BAD_INPUT, [f"error: {' '.join(str(error).split())}"]
        case Interrupted() | KeyboardInterrupt():
            is_training = bool(words) and words[0] in TRAINING_COMMANDS
            hint = "; run the same command again to resume from the last checkpoint" if is_training else ""
            return EXIT_INTERRUPTED, [f"{str(error) or 'stopped'}{hint}"]
        case OSError():  # a full disk, a folder without permission to write
            return EXIT_BAD_INPUT, [f"error: {error.filename or 'input or output'}: {error.strerror or error}"]
    message, command = one_line(error), words[0] if words else "help"
    if isinstance(error, MemoryError) or any(text in message for text in OUT_OF_MEMORY_TEXTS):
        return EXIT_BAD_INPUT, [f"error: {command} needs more memory than there is: {message}"]
    lines = "".join(traceback.format_exception(error)).splitlines()
    return EXIT_RUNS_FAILED, [*lines, f"error: {command} failed with {type(error).__name__}: {message}; this is a bug"]


def _print(command: "Command", result: Any, words: "Words") -> None:
    from vit_vs_cnn.printing import print_result, to_json

    if words.options.get("json"):
        print(to_json(result), end="")
    else:
        print_result(command.name, result)
