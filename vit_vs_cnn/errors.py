"""What the command line says to a user instead of a traceback, and the exit codes that go with it."""

import re
from typing import Any

# Exit codes of the command line: some cells failed and the others have run (or the program failed); nothing could be
# run; asked to stop.
EXIT_RUNS_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130


class InputError(ValueError):
    """Something that the user gave cannot be used: a config value, a file, a folder, an argument.

    The message is one line that says what is wrong, where, and what is allowed. The command line prints it and exits
    with code 2; no traceback is shown.
    """


class UnknownSetting(InputError):
    """A name is not that of a setting."""


class MissingImages(InputError):
    """The folder of the images does not exist.

    Arguments:
        problem: what is missing.
        hint: how to name the images in a training.
    """

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}; {hint}")
        self.problem = problem


class TrainingDiverged(InputError):
    """The loss stopped being a number. The message says at which step, and what the likely cause is."""


class DamagedFile(InputError):
    """A file of one cell cannot be used; the other cells can. The message names the file and says what helps."""


class ProcessLost(InputError):
    """A cell has lost its process as often as it may."""


class RunsFailed(Exception):
    """Some cells have no result; the others were run all the same. The same command tries these again.

    Arguments:
        failures: a line for each.

    ``found`` are the findings of those that have a result, where ``vit_vs_cnn.train`` has been able to say any.
    """

    def __init__(self, failures: list[str]) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures
        self.found: Any = None


class Interrupted(Exception):
    """The user asked the run to stop; all that is needed to go on has been written."""


def one_line(error: BaseException, at_most: int = 300) -> str:
    """An error's message in one line of no more characters than that, without colours; its type where it is empty."""
    message = " ".join(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", str(error)).split()) or type(error).__name__
    return message if len(message) <= at_most else f"{message[: at_most - 6]} [...]"
