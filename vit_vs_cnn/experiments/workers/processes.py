"""The executor that is several processes on this machine."""

import contextlib
import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from vit_vs_cnn.config.experiment import Executor, Experiment
from vit_vs_cnn.experiments.workers.outcome import Outcome, run_remotely
from vit_vs_cnn.runs.cell import Cell

PATIENCE = 60.0  # seconds that a process has to save its state


@dataclass(frozen=True, eq=False)
class _Child:
    process: SpawnProcess
    connection: Connection
    place: int


class LocalProcesses:
    """Processes that are started when they are needed and take one cell after the other.

    Where there are several GPUs and each cell takes one, every process has one of its own as far as they go.

    Arguments:
        experiment: whose executor block says how many processes and threads.
        cells: how many there are to run: no more processes than that.
    """

    def __init__(self, experiment: Experiment, cells: int) -> None:
        executor = experiment.executor
        self.count = max(1, min(count_workers(executor), cells))
        self.threads = executor.threads or max(1, torch.get_num_threads() // self.count)
        takes_one = experiment.trainer.get("devices", 1) in (1, "1")
        self._gpus = _visible_gpus() if takes_one else []
        self._idle: list[_Child] = []
        self._busy: dict[_Child, Cell] = {}

    def can_take(self) -> bool:
        return len(self._busy) < self.count

    def submit(self, cell: Cell) -> None:
        child = self._idle.pop() if self._idle else self._start()
        self._busy[child] = cell
        with contextlib.suppress(OSError):  # a child that is dead shows in ``wait``
            child.connection.send(cell.to_dict())

    def wait(self, seconds: float) -> list[tuple[Cell, Outcome]]:
        if not self._busy:
            time.sleep(seconds)
            return []
        ready = set(wait([child.connection for child in self._busy], timeout=seconds))
        return [self._receive(child) for child in list(self._busy) if child.connection in ready]

    def _receive(self, child: _Child) -> tuple[Cell, Outcome]:
        cell = self._busy.pop(child)
        try:
            outcome = child.connection.recv()
        except (EOFError, OSError):
            child.process.join()
            return cell, Outcome("lost", f"it ended with {_how(child.process.exitcode)}")
        self._idle.append(child)
        return cell, outcome

    def stop(self) -> None:
        for child in self._busy:
            child.process.terminate()  # in the middle of training: saves, answers and waits for the next cell
        deadline = time.monotonic() + PATIENCE
        for child in self._busy:
            wait([child.connection], timeout=max(0.0, deadline - time.monotonic()))
        children = [*self._idle, *self._busy]
        for child in children:
            child.connection.close()  # ends a child that waits
        for child in children:
            child.process.join(5)
            if child.process.is_alive():
                child.process.kill()
                child.process.join()
        self._idle, self._busy = [], {}

    def _start(self) -> _Child:
        taken = {child.place for child in [*self._idle, *self._busy]}
        place = next(place for place in range(self.count) if place not in taken)
        gpu = self._gpus[place % len(self._gpus)] if self._gpus else None
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, self.threads, Path.cwd(), gpu), daemon=False
        )
        process.start()
        theirs.close()  # so that the child's death is the end of the connection
        return _Child(process, ours, place)


def count_workers(executor: Executor) -> int:
    """How many processes the executor ``processes`` has."""
    return executor.workers or torch.cuda.device_count() or torch.get_num_threads()


def _serve(connection: Connection, threads: int, folder: Path, gpu: str | None) -> None:
    """What a child does: a cell, an answer, the next cell, until nobody asks."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            values = connection.recv()
            connection.send(run_remotely(values, threads=threads, folder=folder))


def _visible_gpus() -> list[str]:
    """The names by which CUDA_VISIBLE_DEVICES knows the GPUs that this process sees, where there are several."""
    count = torch.cuda.device_count()
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = listed.split(",") if listed else [str(number) for number in range(count)]
    return names[:count] if count > 1 else []


def _how(exitcode: int | None) -> str:
    return f"signal {-exitcode}" if exitcode is not None and exitcode < 0 else f"exit code {exitcode}"
