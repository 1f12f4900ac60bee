"""Times of training steps on this machine, and the choice of ``trainer.precision: auto``."""

import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.nn import functional as F

from vit_vs_cnn.config.experiment import Experiment, read_config
from vit_vs_cnn.config.trainer import AUTO_PRECISION
from vit_vs_cnn.config.user_code import make_transform
from vit_vs_cnn.data.batches import TrainingBatches, TrainingData
from vit_vs_cnn.devices import bfloat16_units, synchronize
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.preparation import prepare_network
from vit_vs_cnn.networks.pretrained import weights_identities
from vit_vs_cnn.process import torch_threads
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.workers.fit import scaled_augmentation
from vit_vs_cnn.workers.supervisor import count_workers
from vit_vs_cnn.workers.trainer import trains_on_cpu, uses_channels_last

#: Steps before and of the timing of a step, and its longest time in seconds.
_WARM_UP, _TIMED, _SECONDS = 2, 8, 6.0
#: Batch size of the timed forward pass of a linear probe; smaller than that of training, to save time.
_PROBE_BATCH = 8


def runs_at_a_time(experiment: Experiment, runs: int) -> float:
    """Number of runs that the executor of an experiment finishes in the time that one of them takes alone.

    Processes that share a GPU, or have more threads than there are cores, save no time. The size of a Ray cluster is
    not known here: 1.
    """
    if experiment.executor.name not in ("auto", "processes"):
        return 1.0
    workers = min(count_workers(experiment), runs)
    on_gpu = torch.cuda.device_count() if experiment.trainer.get("accelerator", "auto") != "cpu" else 0
    room = on_gpu or (os.cpu_count() or 1) / experiment.protocol.threads
    return max(1.0, min(float(workers), room))


def seconds_per_step(experiment: Experiment, model: str, pool: ExperimentData) -> float:
    """Median time of a training step with its batch, with the number of threads of a run.

    A linear probe is not trained in steps: a pass over a few images is timed, and three passes over a batch count as a
    step.

    Raises:
        InputError: a network that cannot be built or that fails, or a missing device.
    """
    size = min(pool.largest, max(1000, 2 * experiment.protocol.batch_size))
    weights, recipe = weights_identities(experiment), experiment.recipe(model, size)
    run = Run(experiment, model, size, experiment.protocol.budget.largest, 0, "timed", weights=weights)
    images = pool.at_resolution(run.resolution).draw(size, 0)
    network = prepare_network(run, images).network
    is_channels_last = uses_channels_last(experiment, network)
    if is_channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    settings = {name: experiment.trainer[name] for name in ("accelerator", "precision") if name in experiment.trainer}
    try:
        fabric = Fabric(devices=1, **settings)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise InputError(f"trainer: {one_line(error)}") from error
    trained, optimizer = fabric.setup(network, recipe.optimizer.build(network, trust=experiment.trusted))
    batch_size = experiment.protocol.batch_size
    timed_size = min(batch_size, _PROBE_BATCH) if recipe.finetune.head else batch_size
    augmentation = scaled_augmentation(run, images.training)
    data = TrainingData(
        images.training,
        None,
        augmentation=augmentation,
        transform=make_transform(augmentation, trust=experiment.trusted),
        batch_size=timed_size,
        steps=_WARM_UP + _TIMED,
        channels_last=is_channels_last,
    )
    batches = TrainingBatches(data, device=fabric.device)

    def take_step(position: int) -> None:
        inputs, targets = batches.batch(position)
        if recipe.finetune.head:
            with torch.no_grad():
                trained(inputs)
        else:
            fabric.backward(F.cross_entropy(trained(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        synchronize(fabric.device)

    times: list[float] = []
    with torch_threads(experiment.protocol.threads):
        for position in range(_WARM_UP + _TIMED):
            start = time.perf_counter()
            try:
                take_step(position)
            except (InputError, MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # raised by user code
                raise InputError(f"models.{model}: a step of training fails: {one_line(error)}") from error
            times.append(time.perf_counter() - start)
            if len(times) > _WARM_UP and sum(times) > _SECONDS:
                break
    passes = 3 * batch_size / timed_size if recipe.finetune.head else 1
    return passes * statistics.median(times[_WARM_UP:])


def choose_precision(experiment: Experiment) -> Experiment:
    """The experiment with ``precision: auto`` replaced by that of its folder, or else by the faster one.

    bf16-mixed is faster where the GPU or the processor has units for bfloat16, and ends with the same accuracies
    (results/speed). Precision is part of the identity of a run, so another machine continues in the same precision.

    Raises:
        InputError: the config in the folder cannot be read.
    """
    if experiment.trainer.get("precision") != AUTO_PRECISION:
        return experiment
    has_units = (
        bool(bfloat16_units()) if trains_on_cpu(experiment) else torch.cuda.is_bf16_supported(including_emulation=False)
    )
    chosen: Mapping[str, Any] = {"precision": "bf16-mixed"} if has_units else {}
    for path in (experiment.folder / "experiment.yaml", experiment.folder / "tuning" / "experiment.yaml"):
        if path.exists():
            before = read_config(path).get("trainer")
            chosen = before if isinstance(before, Mapping) else {}
            break
    precision = {name: value for name, value in chosen.items() if name == "precision"}
    return replace(experiment, trainer={k: v for k, v in experiment.trainer.items() if k != "precision"} | precision)
