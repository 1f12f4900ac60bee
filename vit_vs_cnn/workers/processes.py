"""Workers that are processes on this machine."""

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType

import torch

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.workers.server import process_context
from vit_vs_cnn.workers.work import PATIENCE, Order, Outcome, work


@dataclass(frozen=True, eq=False)
class _Child:
    process: BaseProcess
    connection: Connection
    place: int


class LocalProcesses:
    """Where there are several GPUs and each cell takes one, every process has one of its own as far as they go.

    Arguments:
        experiment: whose executor block says how many processes.
        cells: how many there are to run: no more processes than that.
    """

    def __init__(self, experiment: Experiment, cells: int) -> None:
        self.most = max(1, min(count_workers(experiment), cells))
        takes_one = experiment.trainer.get("devices", 1) in (1, "1")
        self._gpus = _visible_gpus() if takes_one else []
        self._children: list[_Child] = []

    def start(self, order: Order, count: int) -> None:
        for _ in range(count):
            taken = {child.place for child in self._children}
            place = next(place for place in range(len(taken) + 1) if place not in taken)
            gpu = self._gpus[place % len(self._gpus)] if self._gpus else None
            ours, theirs = multiprocessing.Pipe()
            process = process_context().Process(target=_serve, args=(theirs, order, gpu, dict(os.environ)))
            with _script_hidden():
                process.start()
            theirs.close()  # so that the child's death is the end of the connection
            self._children.append(_Child(process, ours, place))

    def running(self) -> int:
        return len(self._children)

    def ended(self, seconds: float) -> list[Outcome]:
        if not self._children:
            time.sleep(seconds)
            return []
        ready = set(wait([child.connection for child in self._children], timeout=seconds))
        return [self._end(child) for child in list(self._children) if child.connection in ready]

    def _end(self, child: _Child) -> Outcome:
        self._children.remove(child)
        try:
            outcome = child.connection.recv()
        except (EOFError, OSError):
            outcome = None
        child.process.join()
        return outcome or Outcome("lost", _how(child.process.exitcode))

    def stop(self) -> None:
        for child in self._children:
            child.process.terminate()  # in the middle of training it saves its state first
        deadline = time.monotonic() + PATIENCE
        for child in self._children:
            child.process.join(max(0.0, deadline - time.monotonic()))
            child.process.kill()
            child.process.join()
        self._children = []


def count_workers(experiment: Experiment) -> int:
    """How many processes an experiment's cells are shared out to on this machine."""
    room = max(1, torch.get_num_threads() // experiment.protocol.threads)
    return experiment.executor.workers or torch.cuda.device_count() or room


@contextmanager
def _script_hidden() -> Iterator[None]:
    """A process that is spawned here does not run the user's script again, of which it needs nothing."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _serve(connection: Connection, order: Order, gpu: str | None, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)  # as it is now, not when the server was started
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    outcome = work(order)
    with contextlib.suppress(OSError):
        connection.send(outcome)


def _visible_gpus() -> list[str]:
    """The names by which CUDA_VISIBLE_DEVICES knows the GPUs that this process sees, where there are several."""
    count = torch.cuda.device_count()
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = listed.split(",") if listed else [str(number) for number in range(count)]
    return names[:count] if count > 1 else []


def _how(exitcode: int | None) -> str:
    return f"signal {-exitcode}" if exitcode is not None and exitcode < 0 else f"exit code {exitcode}"
