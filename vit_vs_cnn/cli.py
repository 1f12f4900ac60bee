"""The command line: finds the command, and turns what goes wrong into one line and an exit code."""

import importlib
import platform
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from vit_vs_cnn import __version__
from vit_vs_cnn.errors import BAD_INPUT, INTERRUPTED, SOME_FAILED, CellsFailed, InputError, Interrupted

#: Command: the module of ``vit_vs_cnn.commands`` that runs it.
COMMANDS = {
    "train": "train",
    "tune": "tune",
    "status": "status",
    "report": "report",
    "models": "models",
    "compare": "compare",
    "inspect": "inspect",
    "to-attention": "to_attention",
    "compile": "to_attention",  # its name until version 0.1
    "locality": "locality",
    "export": "export",
    "cell": "cell",
}
#: Commands of before: what has taken their place.
GONE = {"figures": "the figures of the lesson are drawn by notebooks/figures.py: python notebooks/figures.py FOLDER"}
#: What ``train`` starts by itself; not for users.
INTERNAL = {"cell"}
#: What PyTorch and NumPy say where memory does not suffice.
NO_MEMORY = ("not enough memory", "can't allocate memory", "Unable to allocate", "out of memory")
USAGE = """usage: vit-vs-cnn COMMAND ...   (or: python -m vit_vs_cnn COMMAND ...)

Train a Vision Transformer and a CNN under one protocol and see which serves your images better.

  train [--config FILE] [--setting value ...]   train the contenders of a config and print the table;
                                                without a config, the quickstart on drawn images
        --print_config                          print the config with every default and stop
        --help                                  every setting
  tune --config FILE [--setting value ...]      choose recipes on validation images, protocol.trials for every
                                                contender and size, and write a config that train takes
  status EXPERIMENT_DIR                         what is done, running, failed and waiting; the time left
  report EXPERIMENT_DIR                         the answer of an experiment: a table here, and a page with curves,
                                                the data multiplier, fits, cost and near-duplicates
  compare PATH [PATH ...]                       networks on the same test images: checkpoints, cells, experiments,
                                                timm models, exported files
  inspect CHECKPOINT [CHECKPOINT ...]           where networks look, how far that can be trusted, an explorer
  to-attention CHECKPOINT                       a trained CNN as multi-head attention that computes the same
  locality PATH                                 how convolution-like a network's attention is
  export CHECKPOINT                             safetensors, ONNX, torch.export, timm; each checked
  models                                        list the models by name, with parameters and MACs

vit-vs-cnn COMMAND --help explains the arguments of a command; --version tells versions.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and tell what goes wrong in one line.

    Returns:
        0; 1 where cells failed or the program did; 2 for unusable input; 130 for a run that was asked to stop.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if words[0] == "--version":
        print(f"vit-vs-cnn {__version__}, Python {platform.python_version()}, torch {metadata.version('torch')}")
        return 0
    warnings.showwarning = _print_warning
    try:
        _run(words[0], words[1:])
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
            return INTERRUPTED, [f"{str(error) or 'stopped'}; the same command goes on from the last checkpoint"]
        case OSError():  # a full disk, a folder that may not be written to
            return BAD_INPUT, [f"error: {error.filename or 'input or output'}: {error.strerror or error}"]
    said = " ".join(str(error).split())[:300] or "no message"
    if isinstance(error, MemoryError) or any(part in said for part in NO_MEMORY):
        return BAD_INPUT, [f"error: {words[0]} needs more memory than there is: {said}"]
    what, trace = f"{type(error).__name__}: {said}", _kept_trace(error, words)
    return SOME_FAILED, [f"error: {words[0]} met a fault of this program, {what}; the full trace {trace}"]


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


def _run(command: str, words: list[str]) -> None:
    if command in GONE:
        raise InputError(GONE[command])
    if command not in COMMANDS:
        known = ", ".join(name for name in COMMANDS if name not in (*INTERNAL, "compile"))
        raise InputError(f"{command!r} is no command; there are: {known} (see --help)")
    importlib.import_module(f"vit_vs_cnn.commands.{COMMANDS[command]}").run(words)


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """One line, as for errors: whoever uses the command line has no use for the place in our code."""
    if issubclass(category, UserWarning):
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)
