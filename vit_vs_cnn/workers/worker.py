"""A worker: it takes the runs that no other process is working on, one after the other, under their locks."""

import contextlib
import gc
import sys
import time

import torch
from rich.console import Console

from vit_vs_cnn.console import one_line_warnings, open_console
from vit_vs_cnn.errors import InputError, Interrupted
from vit_vs_cnn.process import frozen_garbage_collection, keep_freed_memory, quiet_lightning
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.failures import is_locked, read_failure
from vit_vs_cnn.runs.result import RunState
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.workers.run import WorkRequest, run_in_own_process, run_one
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside

POLL_SECONDS = 0.5


def take_runs(request: WorkRequest, data: ExperimentData, *, console: Console, wait_for_others: bool = False) -> None:
    """Finish every run of the request that no other process is working on.

    Arguments:
        wait_for_others: wait for runs of other processes, and take over those that they abandon.

    Raises:
        InputError, OSError, Interrupted: as ``run_one``.
    """
    waiting = request.unfinished()
    start, own_runs = time.monotonic(), 0
    with frozen_garbage_collection():
        while waiting:
            busy = []
            for number, run in enumerate(waiting, 1):
                if _take(run, request, data, console):
                    own_runs += 1
                    if (left := len(busy) + len(waiting) - number) and not is_helper_process():
                        time_left = duration((time.monotonic() - start) / own_runs * left)
                        done = f"{len(request.runs) - left} of {len(request.runs)} runs done"
                        console.print(f"{done}, about {time_left} left", soft_wrap=True)
                else:
                    busy.append(run)
            if is_helper_process():
                return
            if len(busy) == len(waiting):
                if not wait_for_others and all(is_locked(run.folder) for run in busy):
                    return
                time.sleep(POLL_SECONDS)
            waiting = request.unfinished(busy)


def _take(run: Run, request: WorkRequest, data: ExperimentData, console: Console) -> bool:
    if run.world_size == 1 or is_launched_from_outside():
        state = run_one(run, data, console=console, request=request)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    else:
        state = run_in_own_process(run)
    if state is RunState.FAILED and (failure := read_failure(run.folder)):
        console.print(f"failed: {failure}", soft_wrap=True)
    return state in (RunState.FINISHED, RunState.FAILED)


def work(request: WorkRequest) -> InputError | Interrupted | None:
    """Take runs in a worker process, which reads the images again.

    Modules are found in the same places as by the command, and in the same order.

    Returns:
        the error that ends the command; None if nothing was left that the worker could take.
    """
    sys.path[:] = [*request.sys_path, *(path for path in sys.path if path not in request.sys_path)]
    quiet_lightning()
    keep_freed_memory()
    try:
        with contextlib.chdir(request.folder), one_line_warnings():
            if runs := request.unfinished():
                torch.set_num_threads(runs[0].experiment.protocol.threads)
                data = ExperimentData.from_experiment(runs[0].experiment, fingerprint=runs[0].fingerprint)
                if data.fingerprint != runs[0].fingerprint:
                    raise InputError(f"{data.data.description}: the worker finds other images there than the command")
                take_runs(request, data, console=open_console(quiet=True))
    except (Interrupted, KeyboardInterrupt) as error:
        return Interrupted(str(error) or "stopped")
    except InputError as error:  # its subclasses cannot all be sent to another process
        return InputError(str(error))
    except OSError as error:
        return InputError(f"{error.filename or 'input or output'}: {error.strerror or error}")
    return None
