"""Child processes that start in a fraction of a second, with all modules imported."""

from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from vit_vs_cnn import workers

# Before any test starts the server that children are forked from.
workers.PRELOADED_MODULES.append("tests.experiments.tiny")


def start(target: Callable[..., object], *given: Any) -> BaseProcess:
    """A child that runs a function of a test module."""
    child = workers.process_context().Process(target=target, args=given)
    child.start()
    return child


def exit_code(child: BaseProcess) -> int | None:
    """Exit code of a child that ends within five minutes; None otherwise."""
    child.join(300)
    return child.exitcode
