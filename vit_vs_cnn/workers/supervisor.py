"""Execution of runs: by this process, or by workers that are started, replaced if they are lost, and stopped."""

import multiprocessing
import time
from datetime import UTC, datetime

from rich.console import Console

from vit_vs_cnn.console import format_count
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.process import on_termination, torch_threads
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.failures import is_locked
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.status import LiveStatus
from vit_vs_cnn.workers.run import RetryLimit, describe_command
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside
from vit_vs_cnn.workers.worker import POLL_SECONDS, ExitReason, WorkRequest, take_runs
from vit_vs_cnn.workers.worker_pools import LocalProcesses, RayTasks, WorkerPool, count_workers

#: Pixels that an experiment trains on, repeated images included, from which on more processes save time. On two cores
#: that is half a minute of training of the smallest networks.
MIN_PIXELS_FOR_PROCESSES = 2e7
#: Time for workers to end when nothing is left. Then they are stopped, as are those that were never started by Ray.
SECONDS_TO_END = 5.0


def execute(runs: list[Run], data: ExperimentData, *, console: Console) -> None:
    """Bring the runs of one folder to their results, with the executor of their experiment.

    The reason of a failed run is recorded in its folder. The other runs are executed all the same.

    Raises:
        InputError, OSError: wrong input or a full disk.
        Interrupted: the user asked to stop. The same command resumes.
    """
    experiment = runs[0].experiment
    executor, retries = experiment.executor, RetryLimit(datetime.now(UTC), experiment.executor.retries)
    missing = [run for run in runs if not run.is_finished]
    request = WorkRequest(missing, retries, experiment.protocol.threads)
    running = next((run for run in missing if not is_helper_process() and is_locked(run.folder)), None)
    if running is not None:
        command = f"Another command is training in {experiment.folder} ({describe_command(running)})"
        console.print(f"{command}; both share the remaining runs", soft_wrap=True)
    is_local = executor.name == "local" or (executor.name == "auto" and not worth_multiprocessing(missing, data))
    if not missing or is_local:
        if finished := len(runs) - len(missing):
            console.print(f"{finished:,} of {format_count(len(runs), 'run')} finished before", soft_wrap=True)
        with torch_threads(request.torch_threads):
            take_runs(request, data, console=console, wait_for_others=True)
        return
    if is_launched_from_outside():
        raise InputError(f"executor {executor.name}: a launcher has started the processes already; use local")
    view = LiveStatus(experiment.folder, console)
    pool: WorkerPool
    if executor.name == "ray":
        pool = RayTasks(executor, len(missing), console=console)
    else:
        pool = LocalProcesses(experiment, len(missing))
    with view.shown():
        supervise(request, pool, view)


def worth_multiprocessing(runs: list[Run], data: ExperimentData) -> bool:
    """Report if runs finish earlier in several processes, although each process reads the images."""
    if len(runs) < 2 or any(run.world_size > 1 for run in runs):
        return False
    experiment = runs[0].experiment
    if count_workers(experiment) < 2 or is_launched_from_outside() or multiprocessing.current_process().daemon:
        return False
    if experiment.protocol.budget.unit == "flops":
        return True
    batch_size, (_, height, width) = experiment.protocol.batch_size, data.images.image_shape
    steps = sum(run.budget.to_steps(batch_size=batch_size, train_images=run.train_size, macs=0) for run in runs)
    return steps * batch_size * height * width > MIN_PIXELS_FOR_PROCESSES


def supervise(request: WorkRequest, pool: WorkerPool, view: LiveStatus) -> None:
    """Keep workers working until every run has a result or a failure.

    A lost worker is replaced, and its run is resumed from its last checkpoint. Runs of other commands are left to them.

    Raises:
        InputError: wrong input, or workers that die before any of them finishes a run.
        Interrupted: the user asked to stop. The state of all runs is saved.
    """
    losses, waiting, count = 0, request.runs, len(request.runs)
    try:
        with on_termination(_interrupt):
            while waiting := request.unfinished(waiting):
                if len(waiting) < count:
                    losses, count = 0, len(waiting)
                if not pool.count() and (free := [run for run in waiting if not is_locked(run.folder)]):
                    pool.start(request, min(pool.size, len(free)))
                for worker_exit in pool.collect_exits(POLL_SECONDS):
                    match worker_exit.reason:
                        case ExitReason.STOPPED:
                            raise Interrupted(worker_exit.message or "stopped")
                        case ExitReason.REFUSED:
                            raise InputError(worker_exit.message)
                        case ExitReason.LOST:
                            losses += 1
                            # A run that keeps losing its process fails by its own limit.
                            if losses > pool.size * (request.retries.retries + 2):
                                raise InputError(
                                    f"executor: {losses} workers ended without finishing a run, the last one: "
                                    f"{worker_exit.message}; executor.retries allows more"
                                )
                            view.note(f"a worker was lost ({worker_exit.message}); another one resumes its run")
                            pool.start(request, 1)
                view.refresh()
            deadline = time.monotonic() + SECONDS_TO_END
            while pool.count() and time.monotonic() < deadline:
                pool.collect_exits(POLL_SECONDS)
    except KeyboardInterrupt as error:
        raise Interrupted("stopped") from error
    finally:
        pool.stop()


def _interrupt() -> None:
    raise KeyboardInterrupt
