"""Workers that are jobs of SLURM, or of what else submitit can submit to."""

import time
from typing import Any

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.extras import library
from vit_vs_cnn.workers.work import PATIENCE, Order, Outcome, work


class SlurmJobs:
    """Workers as one job array; the folder of the experiment has to be the same on all nodes, and its disk must lock.

    A job that the scheduler ends (its time is up, it makes room for another) saves its state and is replaced.

    Arguments:
        experiment: its ``executor.slurm`` goes to submitit's ``AutoExecutor.update_parameters``; ``cluster`` of it to
            the executor itself ("slurm" if it is not named; "local" are processes on this machine).
        cells: how many there are to run: no more jobs than that.

    Raises:
        InputError: submitit or the cluster is not there, or it refuses a parameter.
    """

    def __init__(self, experiment: Experiment, cells: int) -> None:
        submitit = library("submitit", by="executor slurm")
        executor = experiment.executor
        parameters = dict(executor.slurm)
        cluster = parameters.pop("cluster", "slurm")
        self.most = min(cells, executor.workers or cells)
        try:
            self._executor: Any = submitit.AutoExecutor(folder=experiment.folder / "slurm", cluster=cluster)
            own = {"name": experiment.name, "cpus_per_task": experiment.protocol.threads}
            self._executor.update_parameters(**own | parameters)
        except (NameError, RuntimeError, TypeError, ValueError, AssertionError) as error:
            raise InputError(f"executor.slurm: {one_line(error)}") from error
        self._jobs: list[Any] = []

    def start(self, order: Order, count: int) -> None:
        with self._executor.batch():
            jobs = [self._executor.submit(work, order) for _ in range(count)]
        self._jobs += jobs

    def running(self) -> int:
        return len(self._jobs)

    def ended(self, seconds: float) -> list[Outcome]:
        time.sleep(seconds)
        done = [job for job in self._jobs if job.done()]
        self._jobs = [job for job in self._jobs if job not in done]
        return [_outcome(job) for job in done]

    def stop(self) -> None:
        for job in self._jobs:
            job.cancel(check=False)  # SIGTERM first: it saves its state
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not all(job.done() for job in self._jobs):
            time.sleep(1)
        self._jobs = []


def _outcome(job: Any) -> Outcome:
    try:
        outcome = job.result()
    except Exception as error:  # submitit tells of a job without a result in several ways
        return Outcome("lost", f"job {job.job_id}: {job.state}: {one_line(error)}")
    return Outcome("lost", f"job {job.job_id} was ended by the scheduler") if outcome.kind == "stopped" else outcome
