"""Child processes that start in a fraction of a second, with all modules imported, and new Python processes."""

import subprocess
import sys
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


def run_python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python, without the type checks of the tests, in another process, which must succeed."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
