"""What a training step takes here, and how many runs go side by side: what an estimate of time stands on."""

import os
import statistics
import time

import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.nn import functional as F

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.data.batches import TrainingData
from vit_vs_cnn.devices import wait_for
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.own import own_transform
from vit_vs_cnn.runs.plan import make_plan
from vit_vs_cnn.workers.processes import count_workers
from vit_vs_cnn.workers.supervise import threads_set
from vit_vs_cnn.workers.trainer import lies_channels_last

_WARM_UP, _TIMED, _SECONDS = 2, 8, 6.0


def side_by_side(experiment: Experiment, cells: int) -> float:
    """How many runs the experiment's executor gets through in the time that one of them takes alone.

    Processes that share a GPU, or have more threads than there are cores, gain nothing by it. What a Ray cluster offers
    is not known here: 1.

    Arguments:
        experiment: whose executor block says how many processes, and whose protocol how many threads.
        cells: how many there are to run.
    """
    if experiment.executor.name not in ("auto", "processes"):
        return 1.0
    workers = min(count_workers(experiment), cells)
    on_gpu = torch.cuda.device_count() if experiment.trainer.get("accelerator", "auto") != "cpu" else 0
    room = on_gpu or (os.cpu_count() or 1) / experiment.protocol.threads
    return max(1.0, min(float(workers), room))


def seconds_per_step(experiment: Experiment, contender: str, pool: Pool) -> float:
    """The median time of a training step, over a few that are thrown away, with the threads that a run will have.

    Raises:
        InputError: a network that cannot be built, or devices that are not there.
    """
    steps, times = Steps(experiment, contender, pool, _WARM_UP + _TIMED), []
    with threads_set(experiment.protocol.threads):
        for position in range(_WARM_UP + _TIMED):
            times.append(steps.seconds(position))
            if len(times) > _WARM_UP and sum(times) > _SECONDS:
                break
    return statistics.median(times[_WARM_UP:])


class Steps:
    """Training steps of one contender that are thrown away, as a run makes them.

    Arguments:
        experiment: in what precision, on which device.
        contender: whose; one whose head alone is fitted makes three forward passes instead.
        pool: its images.
        count: how many there are.

    Raises:
        InputError: a network that cannot be built, or devices that are not there.
    """

    def __init__(self, experiment: Experiment, contender: str, pool: Pool, count: int) -> None:
        size = min(pool.largest, max(1000, 2 * experiment.protocol.batch_size))
        images, recipe = pool.draw(size, 0), experiment.recipe(contender, size)
        cell = Cell(experiment, contender, size, experiment.protocol.budget.largest, 0, "timed")
        network = make_plan(cell, images).network
        is_channels_last = lies_channels_last(experiment, network)
        if is_channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._contender = contender
        self._fabric = _fabric(experiment)
        if recipe.tune.head:
            self._model, self._optimizer = self._fabric.setup(network), None
        else:
            optimizer = recipe.optimizer.build(network, trust=experiment.trusted)
            self._model, self._optimizer = self._fabric.setup(network, optimizer)
        augmentation = experiment.augmentation(recipe)
        data = TrainingData(
            images.training,
            None,
            augmentation=augmentation,
            transform=own_transform(augmentation, trust=experiment.trusted),
            batch_size=experiment.protocol.batch_size,
            steps=count,
            channels_last=is_channels_last,
        )
        self._batches = data.batches_on(self._fabric.device)

    def seconds(self, position: int) -> float:
        """Wall time of one step, its batch included. Raises InputError: a network of the user's own that fails."""
        began = time.perf_counter()
        try:
            self._take(position)
        except (InputError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # whatever the code of somebody's own raises
            raise InputError(f"contenders.{self._contender}: a step of training fails: {one_line(error)}") from error
        return (time.perf_counter() - began) * (3 if self._optimizer is None else 1)

    def _take(self, position: int) -> None:
        inputs, targets = self._batches.batch(position)
        if self._optimizer is None:
            with torch.no_grad():
                self._model(inputs)
        else:
            self._fabric.backward(F.cross_entropy(self._model(inputs), targets))
            self._optimizer.step()
            self._optimizer.zero_grad()
        wait_for(self._fabric.device)


def _fabric(experiment: Experiment) -> Fabric:
    trainer = experiment.trainer
    accelerator, precision = trainer.get("accelerator", "auto"), trainer.get("precision", "32-true")
    try:
        return Fabric(accelerator=accelerator, devices=1, precision=precision)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise InputError(f"trainer: {one_line(error)}") from error
