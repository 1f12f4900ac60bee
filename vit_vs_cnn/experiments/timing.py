"""Times of training steps on this machine."""

import os
import statistics
import time

import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.nn import functional as F

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.data.batches import TrainingBatches
from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.preparation import PreparedRun, prepare_network
from vit_vs_cnn.networks.pretrained import weights_identities
from vit_vs_cnn.process import limit_threads
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.training.classifier import compile_steps
from vit_vs_cnn.workers.fit import make_data_module
from vit_vs_cnn.workers.supervisor import count_workers

#: Steps before and of the timing of a step, and its longest time in seconds.
_WARM_UP, _TIMED, _SECONDS = 2, 8, 3.0
#: The same for the forward passes of a linear probe, and their batch size, which is smaller than that of training.
_PROBE_WARM_UP, _PROBE_TIMED, _PROBE_BATCH = 1, 2, 4


def runs_at_a_time(experiment: Experiment, runs: int) -> float:
    """Number of runs that the executor finishes in the time that one of them takes alone; 1 for a Ray cluster.

    Processes that share a GPU, or have more threads than there are cores, save no time.
    """
    if experiment.executor.name not in ("auto", "processes"):
        return 1.0
    workers = min(count_workers(experiment), runs)
    on_gpu = torch.cuda.device_count() if experiment.trainer.get("accelerator", "auto") != "cpu" else 0
    room = on_gpu or (os.cpu_count() or 1) / experiment.protocol.thread_count
    return max(1.0, min(float(workers), room))


def seconds_per_step(experiment: Experiment, model: str, pool: ExperimentData) -> float:
    """Median time of a training step with its batch, with the number of threads of a run, on cores without other work.

    A linear probe is not trained in steps: a pass over a few images is timed, and three passes over a batch count as a
    step. Raises InputError: a network that cannot be built or that fails, or a missing device.
    """
    prepared = prepare_timed_run(experiment, model, pool)
    network, recipe, data = prepared.network, prepared.run.recipe, make_data_module(prepared)
    if data.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    settings = {name: experiment.trainer[name] for name in ("accelerator", "precision") if name in experiment.trainer}
    try:
        fabric = Fabric(devices=1, **settings)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise InputError(f"trainer: {one_line(error)}") from error
    trained, optimizer = fabric.setup(network, recipe.optimizer.build(network, trust=experiment.trusted))
    forward = compile_steps(trained) if experiment.protocol.is_compiled else trained
    batch_size, warm_up, timed = experiment.protocol.batch_size, _WARM_UP, _TIMED
    if recipe.finetune.head:
        data.batch_size, warm_up, timed = min(batch_size, _PROBE_BATCH), _PROBE_WARM_UP, _PROBE_TIMED
    batches = TrainingBatches(data, device=fabric.device)

    def take_step(position: int) -> None:
        inputs, targets = batches.batch(position)
        if recipe.finetune.head:
            with torch.no_grad():
                trained(inputs)
        else:
            fabric.backward(F.cross_entropy(forward(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        synchronize(fabric.device)

    times: list[float] = []
    with limit_threads(experiment.protocol.thread_count):
        for position in range(warm_up + timed):
            start, cpu_start = time.perf_counter(), time.process_time()
            try:
                take_step(position)
            except (InputError, MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # raised by user code
                raise InputError(f"models.{model}: a step of training fails: {one_line(error)}") from error
            elapsed = time.perf_counter() - start
            # Other programs make a step longer only for now, and runs stop when the time is over.
            cpu_seconds = (time.process_time() - cpu_start) / experiment.protocol.thread_count
            times.append(min(elapsed, cpu_seconds) if fabric.device.type == "cpu" else elapsed)
            if len(times) > warm_up and sum(times) > _SECONDS:
                break
    passes = (3 if recipe.finetune.head else 1) * batch_size / data.batch_size
    return passes * statistics.median(times[warm_up:])


def prepare_timed_run(experiment: Experiment, model: str, pool: ExperimentData) -> PreparedRun:
    """A run of a model, with up to 1,000 images or two batches."""
    size = min(pool.largest, max(1000, 2 * experiment.protocol.batch_size))
    weights = weights_identities(experiment)
    run = Run(experiment, model, size, experiment.protocol.budget.largest, 0, "timed", weights=weights)
    return prepare_network(run, pool.at_resolution(run.resolution).draw(size, 0))
