"""Workers in other processes: on this machine, or as tasks of a Ray cluster."""

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import torch
from rich.console import Console

from vit_vs_cnn.config.experiment import Executor, Experiment
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.optional_deps import import_optional
from vit_vs_cnn.workers import process_context
from vit_vs_cnn.workers.worker import ExitReason, WorkerExit, WorkRequest, work

#: Time for workers that are asked to stop to save their state.
SAVE_TIMEOUT_SECONDS = 60.0
#: Time for a Ray cluster to start or answer.
START_SECONDS = 120.0


@runtime_checkable
class WorkerPool(Protocol):
    """Workers of one kind.

    ``size`` is the largest number of workers at a time.
    """

    size: int

    def start(self, request: WorkRequest, count: int) -> None: ...

    def count(self) -> int:
        """Number of workers that were started and have not ended."""
        ...

    def collect_exits(self, seconds: float) -> list[WorkerExit]:
        """The exits of workers that have ended since the last call. Waits for the first one, at most this long."""
        ...

    def stop(self) -> None:
        """Ask all workers to save their state and end, and wait for them."""
        ...


@dataclass(frozen=True, eq=False)
class _Child:
    process: BaseProcess
    connection: Connection
    slot: int


class LocalProcesses:
    """Workers that are processes on this machine. If each run uses one of several GPUs, each process gets its own.

    Arguments:
        runs: number of runs, the largest number of processes.
    """

    def __init__(self, experiment: Experiment, runs: int) -> None:
        self.size = max(1, min(count_workers(experiment), runs))
        uses_one_device = experiment.trainer.get("devices", 1) in (1, "1")
        self._gpus = _visible_gpus() if uses_one_device else []
        self._children: list[_Child] = []

    def start(self, request: WorkRequest, count: int) -> None:
        for _ in range(count):
            used = {child.slot for child in self._children}
            slot = next(slot for slot in range(len(used) + 1) if slot not in used)
            gpu = self._gpus[slot % len(self._gpus)] if self._gpus else None
            ours, theirs = multiprocessing.Pipe()
            process = process_context().Process(target=_serve, args=(theirs, request, gpu, dict(os.environ)))
            with _hidden_script():
                process.start()
            theirs.close()  # so that the death of the child closes the connection
            self._children.append(_Child(process, ours, slot))

    def count(self) -> int:
        return len(self._children)

    def collect_exits(self, seconds: float) -> list[WorkerExit]:
        if not self._children:
            time.sleep(seconds)
            return []
        ready = set(wait([child.connection for child in self._children], timeout=seconds))
        return [self._end(child) for child in list(self._children) if child.connection in ready]

    def _end(self, child: _Child) -> WorkerExit:
        self._children.remove(child)
        try:
            worker_exit = child.connection.recv()
        except (EOFError, OSError):
            worker_exit = None
        child.process.join()
        return worker_exit or WorkerExit(ExitReason.LOST, f"exit code {child.process.exitcode}")

    def stop(self) -> None:
        for child in self._children:
            child.process.terminate()  # a training saves its state first
        deadline = time.monotonic() + SAVE_TIMEOUT_SECONDS
        for child in self._children:
            child.process.join(max(0.0, deadline - time.monotonic()))
            child.process.kill()
            child.process.join()
        self._children = []


def count_workers(experiment: Experiment) -> int:
    """Number of processes for the runs of an experiment on this machine."""
    by_threads = max(1, torch.get_num_threads() // experiment.protocol.threads)
    return experiment.executor.workers or torch.cuda.device_count() or by_threads


@contextmanager
def _hidden_script() -> Iterator[None]:
    """Processes that are started in this block do not import the user's script, which needs no ``__main__`` guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _serve(connection: Connection, request: WorkRequest, gpu: str | None, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)  # as it is now, not as it was when the server started
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    worker_exit = work(request)
    with contextlib.suppress(OSError):
        connection.send(worker_exit)


def _visible_gpus() -> list[str]:
    """Names in CUDA_VISIBLE_DEVICES of the GPUs of this process; empty if there are fewer than two."""
    count = torch.cuda.device_count()
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = devices.split(",") if devices else [str(number) for number in range(count)]
    return names[:count] if count > 1 else []


class RayTasks:
    """Workers that are tasks of Ray, on one machine or several, which all see the folder of the experiment.

    Ray does not retry a task whose worker or node is lost: ``supervise`` replaces it.

    Arguments:
        runs: number of runs, the largest number of tasks. Tasks without resources wait in Ray's queue.

    Raises:
        InputError: Ray is not installed, or the cluster cannot be joined.
    """

    def __init__(self, executor: Executor, runs: int, *, console: Console) -> None:
        self._ray = ray = import_optional("ray", needed_by="executor ray")
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, executor.address, console)
        self.size = min(runs, executor.workers or runs)
        options = _options(executor.resources)
        self._task = self._ray.remote(max_retries=0, scheduling_strategy="SPREAD", **options)(work)
        self._tasks: list[Any] = []

    def start(self, request: WorkRequest, count: int) -> None:
        self._tasks += [self._task.remote(request) for _ in range(count)]

    def count(self) -> int:
        return len(self._tasks)

    def collect_exits(self, seconds: float) -> list[WorkerExit]:
        if not self._tasks:
            time.sleep(seconds)
            return []
        done, self._tasks = self._ray.wait(self._tasks, num_returns=1, timeout=seconds)
        return [self._exit_of(task) for task in done]

    def _exit_of(self, task: Any) -> WorkerExit:
        try:
            return self._ray.get(task)
        except self._ray.exceptions.RayTaskError:
            raise  # an error of this program: expected errors are in the exit of a worker
        except self._ray.exceptions.RayError as error:
            return WorkerExit(ExitReason.LOST, type(error).__name__)

    def stop(self) -> None:
        for task in self._tasks:
            self._ray.cancel(task)  # raises KeyboardInterrupt in the worker, which saves its state
        if self._tasks:
            self._ray.wait(self._tasks, num_returns=len(self._tasks), timeout=SAVE_TIMEOUT_SECONDS)
        self._tasks = []
        if self._is_ours:
            self._ray.shutdown()


def _connect(ray: Any, address: str, console: Console) -> None:
    """Connect to a Ray cluster, or start one.

    Raises:
        InputError: there is no cluster at the address, or none that answers within ``START_SECONDS``.
    """
    cluster = "a Ray cluster on this machine" if address == "local" else f"the Ray cluster at {address}"
    console.print(f"Waiting for {cluster}, for {START_SECONDS:g} s at most ...", soft_wrap=True)
    errors: list[BaseException] = []

    def begin() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=begin, daemon=True)  # Ray has no time limit for its start
    thread.start()
    thread.join(START_SECONDS)
    if thread.is_alive():
        raise InputError(
            f"executor.address {address}: {cluster} did not start within {START_SECONDS:g} s; see its logs in "
            "/tmp/ray/session_latest/logs, or use --executor processes"
        )
    for error in errors:
        if not isinstance(error, ConnectionError | ValueError | RuntimeError):
            raise error
        action = "started" if address == "local" else "joined"
        raise InputError(f"executor.address {address}: {cluster} could not be {action}: {one_line(error)}") from error


def _options(resources: Mapping[str, float]) -> dict[str, Any]:
    names = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    custom = {name: amount for name, amount in resources.items() if name not in names}
    standard = {names[name]: amount for name, amount in resources.items() if name in names}
    return {"num_cpus": 0, **standard, **({"resources": custom} if custom else {})}
