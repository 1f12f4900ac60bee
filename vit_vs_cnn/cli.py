"""The command line: finds the command, and turns what goes wrong into one line and an exit code."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from vit_vs_cnn.errors import BAD_INPUT, INTERRUPTED, SOME_FAILED, CellsFailed, InputError, Interrupted

#: Command: the module of ``vit_vs_cnn.commands`` that runs it.
COMMANDS = {
    "train": "train",
    "tune": "tune",
    "status": "status",
    "report": "report",
    "models": "models",
    "figures": "figures",
    "compare": "compare",
    "inspect": "inspect",
    "compile": "compile",
    "locality": "locality",
    "export": "export",
    "cell": "cell",
}
#: What ``train`` starts by itself; not for users.
INTERNAL = {"cell"}
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
  compile CHECKPOINT                            a trained CNN as multi-head attention that computes the same
  locality PATH                                 how convolution-like a network's attention is
  export CHECKPOINT                             safetensors, ONNX, torch.export, timm; each checked
  models                                        list the models by name, with parameters and MACs
  figures FOLDER                                draw every figure of the lesson on attention into a folder

vit-vs-cnn COMMAND --help explains the arguments of a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0, 1 where cells failed, 2 for unusable input, 130 for a run asked to stop."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    warnings.showwarning = _print_warning
    try:
        _run(words[0], words[1:])
    except CellsFailed as error:
        for line in error.failures:
            print(f"failed: {line}", file=sys.stderr)
        print("the same command tries these again", file=sys.stderr)
        return SOME_FAILED
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:  # a full disk, a folder that may not be written to
        print(f"error: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        return BAD_INPUT
    except (Interrupted, KeyboardInterrupt) as error:
        print(f"{str(error) or 'stopped'}; the same command goes on from the last checkpoint", file=sys.stderr)
        return INTERRUPTED
    return 0


def _run(command: str, words: list[str]) -> None:
    if command not in COMMANDS:
        known = ", ".join(name for name in COMMANDS if name not in INTERNAL)
        raise InputError(f"{command!r} is no command; there are: {known} (see --help)")
    importlib.import_module(f"vit_vs_cnn.commands.{COMMANDS[command]}").run(words)


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """One line, as for errors: whoever uses the command line has no use for the place in our code."""
    if issubclass(category, UserWarning):
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)
