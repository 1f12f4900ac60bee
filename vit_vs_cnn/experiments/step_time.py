"""What a training step takes here, and how many runs go side by side: what an estimate of time stands on."""

import os
import statistics
import time

import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.data.datamodule import TrainingData
from vit_vs_cnn.data.loading import TrainingBatches
from vit_vs_cnn.devices import wait_for
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import CellImages, Pool
from vit_vs_cnn.runs.own import own_transform
from vit_vs_cnn.runs.plan import make_plan
from vit_vs_cnn.workers.processes import count_workers
from vit_vs_cnn.workers.supervise import threads_set

_WARM_UP, _TIMED, _SECONDS = 2, 8, 6.0


def side_by_side(experiment: Experiment, cells: int) -> float:
    """How many runs the experiment's executor gets through in the time that one of them takes alone.

    Processes that share a GPU, or have more threads than there are cores, gain nothing by it. What a Ray cluster offers
    is not known here: 1.

    Arguments:
        experiment: whose executor block says how many processes, and whose protocol how many threads.
        cells: how many there are to run.
    """
    if experiment.executor.name != "processes":
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
    size = min(pool.largest, max(1000, 2 * experiment.protocol.batch_size))
    images = pool.draw(size, 0)
    network = make_plan(
        Cell(experiment, contender, size, experiment.protocol.budget.largest, 0, "timed"), images
    ).network
    if experiment.execution.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trainer = experiment.trainer
    try:
        fabric = Fabric(
            accelerator=trainer.get("accelerator", "auto"), devices=1, precision=trainer.get("precision", "32-true")
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise InputError(f"trainer: {' '.join(str(error).split())}") from error
    recipe = experiment.recipe(contender, size)
    optimizer = None if recipe.tune.head else recipe.optimizer.build(network, trust=experiment.trusted)
    with threads_set(experiment.protocol.threads):
        return _median_step(fabric, network, optimizer, _batches(experiment, contender, images, fabric.device))


def _median_step(fabric: Fabric, network: nn.Module, optimizer: Optimizer | None, batches: TrainingBatches) -> float:
    """Seconds of a step; without an optimizer those of three forward passes."""
    model, optimizer = fabric.setup(network, optimizer) if optimizer else (fabric.setup(network), None)
    times = []
    for position in range(len(batches)):
        began = time.perf_counter()
        inputs, targets = batches.batch(position)
        if optimizer is None:
            with torch.no_grad():
                model(inputs)
        else:
            fabric.backward(F.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        wait_for(fabric.device)
        times.append((time.perf_counter() - began) * (3 if optimizer is None else 1))
        if len(times) > _WARM_UP and sum(times) > _SECONDS:
            break
    return statistics.median(times[_WARM_UP:] or times)


def _batches(experiment: Experiment, contender: str, images: CellImages, device: torch.device) -> TrainingBatches:
    augmentation = experiment.augmentation(experiment.recipe(contender, len(images.training)))
    data = TrainingData(
        images.training,
        None,
        augmentation=augmentation,
        transform=own_transform(augmentation, trust=experiment.trusted),
        batch_size=experiment.protocol.batch_size,
        steps=_WARM_UP + _TIMED,
    )
    return TrainingBatches(
        images.training,
        data.augmenter,
        batch_size=data.batch_size,
        length=data.batches,
        seed=0,
        device=device,
        channels_last=experiment.execution.channels_last,
    )
