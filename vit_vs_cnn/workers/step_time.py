"""Time of a training step on this machine, and number of runs at a time, for estimates of time."""

import os
import statistics
import time

import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.nn import functional as F

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.data.batches import TrainingData
from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.process import torch_threads
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.preparation import prepare_network
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.user_code import make_transform
from vit_vs_cnn.workers.trainer import uses_channels_last
from vit_vs_cnn.workers.worker_pools import count_workers

_WARM_UP, _TIMED, _SECONDS = 2, 8, 6.0


def runs_at_a_time(experiment: Experiment, cells: int) -> float:
    """Number of runs that the executor of an experiment finishes in the time that one of them takes alone.

    Processes that share a GPU, or have more threads than there are cores, save no time. The size of a Ray cluster is
    not known here: 1.

    Arguments:
        cells: number of runs.
    """
    if experiment.executor.name not in ("auto", "processes"):
        return 1.0
    workers = min(count_workers(experiment), cells)
    on_gpu = torch.cuda.device_count() if experiment.trainer.get("accelerator", "auto") != "cpu" else 0
    room = on_gpu or (os.cpu_count() or 1) / experiment.protocol.threads
    return max(1.0, min(float(workers), room))


def seconds_per_step(experiment: Experiment, contender: str, pool: ExperimentData) -> float:
    """Median time of a training step, with the number of threads of a run.

    Raises:
        InputError: a network that cannot be built, or a missing device.
    """
    steps, times = Steps(experiment, contender, pool, _WARM_UP + _TIMED), []
    with torch_threads(experiment.protocol.threads):
        for position in range(_WARM_UP + _TIMED):
            times.append(steps.seconds(position))
            if len(times) > _WARM_UP and sum(times) > _SECONDS:
                break
    return statistics.median(times[_WARM_UP:])


class Steps:
    """Training steps of one contender for timing. Their weights are not used.

    Arguments:
        contender: its name. A linear probe makes three forward passes instead of a step.
        count: number of steps.

    Raises:
        InputError: a network that cannot be built, or a missing device.
    """

    def __init__(self, experiment: Experiment, contender: str, pool: ExperimentData, count: int) -> None:
        size = min(pool.largest, max(1000, 2 * experiment.protocol.batch_size))
        images, recipe = pool.draw(size, 0), experiment.recipe(contender, size)
        cell = Run(experiment, contender, size, experiment.protocol.budget.largest, 0, "timed")
        network = prepare_network(cell, images).network
        is_channels_last = uses_channels_last(experiment, network)
        if is_channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._contender = contender
        self._fabric = _fabric(experiment)
        if recipe.finetune.head:
            self._model, self._optimizer = self._fabric.setup(network), None
        else:
            optimizer = recipe.optimizer.build(network, trust=experiment.trusted)
            self._model, self._optimizer = self._fabric.setup(network, optimizer)
        augmentation = experiment.augmentation(recipe)
        data = TrainingData(
            images.training,
            None,
            augmentation=augmentation,
            transform=make_transform(augmentation, trust=experiment.trusted),
            batch_size=experiment.protocol.batch_size,
            steps=count,
            channels_last=is_channels_last,
        )
        self._batches = data.batches_on(self._fabric.device)

    def seconds(self, position: int) -> float:
        """Wall time of one step with its batch. Raises InputError: a user-defined network fails."""
        start = time.perf_counter()
        try:
            self._take(position)
        except (InputError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # raised by user code
            raise InputError(f"contenders.{self._contender}: a step of training fails: {one_line(error)}") from error
        return (time.perf_counter() - start) * (3 if self._optimizer is None else 1)

    def _take(self, position: int) -> None:
        inputs, targets = self._batches.batch(position)
        if self._optimizer is None:
            with torch.no_grad():
                self._model(inputs)
        else:
            self._fabric.backward(F.cross_entropy(self._model(inputs), targets))
            self._optimizer.step()
            self._optimizer.zero_grad()
        synchronize(self._fabric.device)


def _fabric(experiment: Experiment) -> Fabric:
    trainer = experiment.trainer
    accelerator, precision = trainer.get("accelerator", "auto"), trainer.get("precision", "32-true")
    try:
        return Fabric(accelerator=accelerator, devices=1, precision=precision)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise InputError(f"trainer: {one_line(error)}") from error
