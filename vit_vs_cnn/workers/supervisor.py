"""Execution of runs: by this process, by workers on this machine, or by tasks of a Ray cluster."""

import contextlib
import gc
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from rich.console import Console

from vit_vs_cnn.config.experiment import Executor, Experiment
from vit_vs_cnn.console import format_count, one_line_warnings, open_console
from vit_vs_cnn.errors import InputError, Interrupted, ProcessLost, import_optional, one_line
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.process import TimeLimitReached, handle_signal, keep_freed_memory, limit_threads, time_limit
from vit_vs_cnn.runs.experiment_folder import is_locked, read_failure, write_experiment
from vit_vs_cnn.runs.result import RunState
from vit_vs_cnn.runs.run import Run, find_begun, find_unfinished
from vit_vs_cnn.runs.status import LiveStatus, duration
from vit_vs_cnn.workers import process_context
from vit_vs_cnn.workers.run import WorkRequest, describe_command, run_in_own_process, run_one
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside

POLL_SECONDS = 0.5
#: Runs of other processes that are looked at in one go.
MAX_BUSY = 10


class TimeLeft:
    """Estimate of the time until no run is waiting, from the later half of the runs that have ended."""

    def __init__(self, waiting: int) -> None:
        self._ends = [(time.monotonic(), waiting)]

    def update(self, waiting: int, *, is_probe: bool) -> str:
        """Record the end of a run and return the estimate in words, empty for the first linear probes.

        Their times include the computation of features, which later probes share.
        """
        self._ends.append((time.monotonic(), waiting))
        recent = self._ends[(len(self._ends) - 1) // 2 :]
        if is_probe and len(recent) < 3:
            return ""
        (began, before), (ended, _) = recent[0], recent[-1]
        return f", about {duration((ended - began) / max(1, before - waiting) * waiting)} left"


def take_runs(
    request: WorkRequest,
    data: ExperimentData,
    *,
    console: Console,
    wait_for_others: bool = False,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Complete every run of the request that no other process is working on, one after the other.

    A run that several devices share is executed in a separate process, which Lightning starts once for each device.

    Arguments:
        wait_for_others: wait for runs of other processes, and take over those that they abandon.
        is_over: whether no more runs are to begin.
    """
    waiting, is_in_order = request.unfinished(), is_launched_from_outside()  # the order of the run's other processes
    earlier, others = find_begun(waiting), set[Path]()
    listed, busy, estimate = 0.0, 0, TimeLeft(len(waiting))
    while waiting and not is_over():
        if not is_in_order and time.monotonic() - listed > POLL_SECONDS:
            others |= find_begun(waiting) - earlier
            waiting.sort(key=lambda run: run.folder in others)  # first those that no other process has begun
            if not wait_for_others and waiting[0].folder in others and not any(run.needed for run in waiting):
                return  # the command replaces workers that are lost
            listed = time.monotonic()
        run = waiting.pop(0)
        if not is_in_order and request.has_ended(run):  # in another process
            continue
        is_here = run.world_size == 1 or is_in_order
        state = run_one(run, data, console=console, request=request) if is_here else run_in_own_process(run)
        if not run.recipe.finetune.head:
            gc.collect()  # the network and the Trainer of a completed training refer to each other
            torch.cuda.empty_cache()
        if state is RunState.FAILED and (failure := read_failure(run.folder)):
            console.print(f"failed: {failure}")
        if state in (RunState.FINISHED, RunState.FAILED):
            busy, left = 0, sum(run.folder not in others for run in waiting)
            time_left = estimate.update(left, is_probe=run.recipe.finetune.head)
            if left and not is_helper_process():
                elsewhere = " or begun by others" if others else ""
                console.print(f"{len(request.runs) - left} of {len(request.runs)} runs done{elsewhere}{time_left}")
        elif not is_helper_process():
            waiting.append(run)
            others.add(run.folder)
            if (busy := busy + 1) < min(MAX_BUSY, len(waiting)):
                continue
            listed, busy, earlier = 0.0, 0, set() if wait_for_others else earlier  # others run most of them
            is_idle = all(run.folder in others for run in waiting)
            if is_idle and not wait_for_others and all(is_locked(run.folder) for run in waiting):
                return
            time.sleep(POLL_SECONDS * (1 + len(waiting) / 100) * is_idle)  # longer if more processes share the folder


def work(request: WorkRequest) -> InputError | Interrupted | None:
    """Take runs in a worker process, which reads the images again. Returns the error that ends the command, or None.

    Modules are found in the same places as by the command, and in the same order.
    """
    sys.path[:] = [*request.sys_path, *(path for path in sys.path if path not in request.sys_path)]
    keep_freed_memory()
    try:
        with contextlib.chdir(request.folder), one_line_warnings():
            if runs := request.unfinished():
                data = ExperimentData.from_experiment(runs[0].experiment, fingerprint=runs[0].fingerprint)
                if data.fingerprint != runs[0].fingerprint:
                    raise InputError(f"{data.data.description}: the worker finds other images there than the command")
                with limit_threads(runs[0].experiment.protocol.thread_count):
                    take_runs(request, data, console=open_console(quiet=True))
    except (Interrupted, KeyboardInterrupt) as error:
        return Interrupted(str(error) or "stopped")
    except InputError as error:  # its subclasses cannot all be sent to another process
        return InputError(str(error))
    except OSError as error:
        return InputError(f"{error.filename or 'input or output'}: {error.strerror or error}")
    return None


#: Time for workers that are asked to stop to save their state.
SAVE_TIMEOUT_SECONDS = 60.0
#: Time for a Ray cluster to start or answer.
START_SECONDS = 120.0


class LocalProcesses:
    """Workers that are processes on this machine. If runs use one of several GPUs, each process gets its own."""

    def __init__(self, experiment: Experiment, runs: int) -> None:
        self.size = max(1, min(count_workers(experiment), runs))
        uses_one_device = experiment.trainer.get("devices", 1) in (1, "1")
        self._gpus = _visible_gpus() if uses_one_device else []
        self._processes: dict[Connection, tuple[BaseProcess, int]] = {}

    def start(self, request: WorkRequest, count: int) -> None:
        for _ in range(count):
            used = {slot for _, slot in self._processes.values()}
            slot = min({*range(len(used) + 1)} - used)
            gpu = self._gpus[slot % len(self._gpus)] if self._gpus else None
            ours, theirs = multiprocessing.Pipe()
            process = process_context().Process(target=_serve, args=(theirs, request, gpu, dict(os.environ)))
            with _hidden_script():
                process.start()
            theirs.close()  # so that the death of the process closes the connection
            self._processes[ours] = process, slot

    def count(self) -> int:
        """Number of workers that were started and have not ended."""
        return len(self._processes)

    def collect_exits(self, seconds: float) -> list[Exception | None]:
        """The errors of workers that have ended since the last call; None for a worker without an error."""
        if not self._processes:
            time.sleep(seconds)
        errors: list[Exception | None] = []
        for connection in wait(list(self._processes), timeout=seconds):
            process, _ = self._processes.pop(cast(Connection, connection))
            try:
                errors.append(cast(Connection, connection).recv())
                process.join()
            except (EOFError, OSError):
                process.join()
                errors.append(ProcessLost(f"exit code {process.exitcode}"))
        return errors

    def stop(self) -> None:
        """Ask all workers to save their state and end, and wait for them."""
        processes = [process for process, _ in self._processes.values()]
        for process in processes:
            process.terminate()  # a training saves its state first
        deadline = time.monotonic() + SAVE_TIMEOUT_SECONDS
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
        self._processes = {}


def count_workers(experiment: Experiment) -> int:
    """Number of processes for the runs of an experiment on this machine."""
    by_threads = max(1, torch.get_num_threads() // experiment.protocol.thread_count)
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
    error = work(request)
    with contextlib.suppress(OSError):
        connection.send(error)


def _visible_gpus() -> list[str]:
    """Names in CUDA_VISIBLE_DEVICES of the GPUs of this process; empty if there are fewer than two."""
    count = torch.cuda.device_count()
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = devices.split(",") if devices else [str(number) for number in range(count)]
    return names[:count] if count > 1 else []


class RayTasks:
    """Workers that are tasks of Ray, on one machine or several, which all see the folder of the experiment.

    Ray does not retry a task whose worker or node is lost: ``supervise`` replaces it.
    """

    def __init__(self, executor: Executor, runs: int, *, console: Console) -> None:
        self._ray = ray = import_optional("ray", needed_by="executor ray")
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, executor.address, console)
        self.size = min(runs, executor.workers or runs)
        custom = dict(executor.resources)
        names = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
        standard = {option: custom.pop(name) for name, option in names.items() if name in custom}
        options: dict[str, Any] = {"num_cpus": 0, **standard, "resources": custom}
        self._task = self._ray.remote(max_retries=0, scheduling_strategy="SPREAD", **options)(work)
        self._tasks: list[Any] = []

    def start(self, request: WorkRequest, count: int) -> None:
        stored = self._ray.put(request)
        self._tasks += [self._task.remote(stored) for _ in range(count)]

    def count(self) -> int:
        return len(self._tasks)

    def collect_exits(self, seconds: float) -> list[Exception | None]:
        if not self._tasks:
            time.sleep(seconds)
            return []
        done, self._tasks = self._ray.wait(self._tasks, num_returns=1, timeout=seconds)
        try:
            return self._ray.get(done)
        except self._ray.exceptions.RayTaskError:
            raise  # an error of this program: workers return expected errors
        except self._ray.exceptions.RayError as error:
            return [ProcessLost(type(error).__name__)]

    def stop(self) -> None:
        for task in self._tasks:
            self._ray.cancel(task)  # raises KeyboardInterrupt in the worker, which saves its state
        if self._tasks:
            self._ray.wait(self._tasks, num_returns=len(self._tasks), timeout=SAVE_TIMEOUT_SECONDS)
        self._tasks = []
        if self._is_ours:
            self._ray.shutdown()


def _connect(ray: Any, address: str, console: Console) -> None:
    """Connect to a Ray cluster, or start one, in this thread: its processes end with the thread that started them."""
    cluster = "a Ray cluster on this machine" if address == "local" else f"the Ray cluster at {address}"
    console.print(f"Waiting for {cluster}, for {START_SECONDS:g} s at most ...")
    try:
        with time_limit(START_SECONDS):
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except TimeLimitReached as error:
        action = "start" if address == "local" else "answer"
        raise InputError(
            f"executor.address {address}: {cluster} did not {action} within {START_SECONDS:g} s; see its logs in "
            "/tmp/ray/session_latest/logs, or use --executor processes"
        ) from error
    except Exception as error:
        raise InputError(f"executor.address {address}: no connection to {cluster}: {one_line(error)}") from error


#: Pixels that an experiment trains on, repeated images included, from which on more processes save time. On two cores
#: that is half a minute of training of the smallest networks.
MIN_PIXELS_FOR_PROCESSES = 2e7
#: Time for workers to end when nothing is left. Then they are stopped, as are those that were never started by Ray.
SECONDS_TO_END = 5.0


def execute(
    runs: list[Run], data: ExperimentData, *, console: Console, is_over: Callable[[], bool] = lambda: False
) -> None:
    """Bring the runs of one folder to their results, and first their pretrainings, with their experiment's executor.

    The reason of a failed run is recorded in its folder. The other runs are executed all the same. When ``is_over``,
    workers save the state of their runs; without workers the current run is completed.
    """
    experiment = runs[0].experiment
    executor = experiment.executor
    pretrainings = {run.start.folder: run.start for run in runs if run.start is not None and run.start.is_pretraining}
    if pretrainings and not is_helper_process():
        write_experiment(next(iter(pretrainings.values())).experiment, [*pretrainings.values()])
    runs = [*pretrainings.values(), *runs]
    missing = find_unfinished(runs)
    request = WorkRequest(missing, executor.retries)
    begun = set() if is_helper_process() else find_begun(missing)
    running = next((run for run in missing if run.folder in begun and is_locked(run.folder)), None)
    if running is not None:
        command = f"Another command is training in {experiment.folder} ({describe_command(running)})"
        console.print(f"{command}; both share the remaining runs")
    is_local = executor.name == "local" or (executor.name == "auto" and not is_multiprocessing_faster(missing, data))
    if not missing or is_local:
        if finished := len(runs) - len(missing):
            console.print(f"{finished:,} of {format_count(len(runs), 'run')} finished before")
        with limit_threads(experiment.protocol.thread_count):
            take_runs(request, data, console=console, wait_for_others=True, is_over=is_over)
        return
    if is_launched_from_outside():
        raise InputError(f"executor {executor.name}: a launcher has started the processes already; use local")
    view = LiveStatus(experiment.folder, console)
    is_ray, count = executor.name == "ray", len(missing)
    pool = RayTasks(executor, count, console=console) if is_ray else LocalProcesses(experiment, count)
    with view.shown():
        supervise(request, pool, view, is_over)


def is_multiprocessing_faster(runs: list[Run], data: ExperimentData) -> bool:
    """True if runs finish earlier in several processes, although each process reads the images."""
    if len(runs) < 2 or any(run.world_size > 1 for run in runs):
        return False
    experiment = runs[0].experiment
    if count_workers(experiment) < 2 or is_launched_from_outside() or multiprocessing.current_process().daemon:
        return False
    if any(run.budget.flops is not None and not run.recipe.finetune.head for run in runs):
        return True
    batch_size, pixels = experiment.protocol.batch_size, 0
    for run in runs:
        if not run.recipe.finetune.head:  # features are computed on all cores
            steps = run.budget.to_steps(batch_size=batch_size, train_images=run.train_size, macs=0)
            size = run.resolution.image_size if run.resolution else data.images.image_shape[1:]
            pixels += steps * batch_size * math.prod(size)
    return pixels > MIN_PIXELS_FOR_PROCESSES


def supervise(
    request: WorkRequest, pool: LocalProcesses | RayTasks, view: LiveStatus, is_over: Callable[[], bool] = lambda: False
) -> None:
    """Keep workers working until every run has a result or a failure, or until the time is over.

    A lost worker is replaced, and its run is resumed from its last checkpoint. Runs of other commands are left to them.
    Raises InputError: wrong input, or workers that die before any of them finishes a run.
    """
    losses, waiting, count = 0, request.runs, len(request.runs)
    try:
        with handle_signal(signal.SIGTERM, signal.default_int_handler):
            while (waiting := request.unfinished(waiting)) and not is_over():
                if len(waiting) < count:
                    losses, count = 0, len(waiting)
                if not pool.count() and (free := [run for run in waiting if not is_locked(run.folder)]):
                    pool.start(request, min(pool.size, len(free)))
                for error in filter(None, pool.collect_exits(POLL_SECONDS)):
                    if not isinstance(error, ProcessLost):
                        raise error
                    losses += 1
                    # A run that keeps losing its process fails by its own limit.
                    if losses > pool.size * (request.retries + 2):
                        raise InputError(
                            f"executor: {losses} workers ended without finishing a run, the last one: {error}; "
                            "executor.retries allows more"
                        )
                    view.note(f"a worker was lost ({error}); another one resumes its run")
                    pool.start(request, 1)
                view.refresh()
            deadline = time.monotonic() + SECONDS_TO_END
            while pool.count() and time.monotonic() < deadline and not waiting:
                pool.collect_exits(POLL_SECONDS)
    except KeyboardInterrupt as error:
        raise Interrupted("stopped") from error
    finally:
        pool.stop()
