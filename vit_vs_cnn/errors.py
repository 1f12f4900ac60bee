"""Errors that the command line prints as one line, its exit codes, and optional libraries that may be missing."""

import importlib
import re
from typing import Any

#: Exit codes: some runs or the program failed; unusable input; stopped by the user.
EXIT_RUNS_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130


class InputError(ValueError):
    """Unusable input: a config value, a file, a folder, an argument.

    The message is one line: the problem, its place, and what is allowed. The command line exits with code 2.
    """


class MissingImages(InputError):
    """The folder of the images does not exist."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}; {hint}")
        self.problem = problem


class TrainingDiverged(InputError):
    """The loss is not a number any more. The message has the step and the likely cause."""


class DamagedFile(InputError):
    """A file of one run cannot be used, while other runs can. The message has the file and a remedy."""


class ProcessLost(InputError):
    """A run has lost its process too often."""


class RunsFailed(Exception):
    """Some runs have no result, while the others were executed. The same command retries the failed ones.

    Arguments:
        failures: one line for each failed run.
        is_transient: whether a run failed for a reason that may not occur again, such as a lost process.

    Attributes:
        findings: of the finished runs, from ``vit_vs_cnn.train``; None if no run is finished.
    """

    def __init__(self, failures: list[str], *, is_transient: bool = False) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures
        self.is_transient = is_transient
        self.findings: Any = None  # ``Findings``, whose module imports this one


class Interrupted(Exception):
    """The user stopped a run, whose state is saved."""


def one_line(error: BaseException, at_most: int = 300) -> str:
    """Message of an error in one line, shortened and without terminal colors; its type if there is no message."""
    message = " ".join(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", str(error)).split()) or type(error).__name__
    return message if len(message) <= at_most else f"{message[: at_most - 6]} [...]"


#: Name of the library, and the packages to install for what needs it, by the name of its module.
OPTIONAL_LIBRARIES = {
    "onnxruntime": ("onnxruntime", "onnx onnxscript onnxruntime"),
    "onnxscript": ("onnxscript", "onnx onnxscript onnxruntime"),
    "ray": ("Ray", '"ray[default]"'),
    "shtab": ("shtab", "shtab"),
}


def import_optional(module: str, *, needed_by: str) -> Any:
    """Import an optional library, or a module of one. Raises InputError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name, packages = OPTIONAL_LIBRARIES[module.partition(".")[0]]
        raise InputError(f"{needed_by} needs {name}, which is not installed: pip install {packages}") from error
