"""Times of training steps on this machine, and the choice of ``trainer.precision: auto``."""

import os
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException
from rich.console import Console
from torch.nn import functional as F

from vit_vs_cnn.config.experiment import Experiment, read_config
from vit_vs_cnn.config.trainer import AUTO
from vit_vs_cnn.console import join_names
from vit_vs_cnn.data.batches import TrainingData
from vit_vs_cnn.devices import synchronize
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.process import torch_threads
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.runs.preparation import prepare_network
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.user_code import make_transform
from vit_vs_cnn.strict_yaml import Plain
from vit_vs_cnn.workers.trainer import (
    is_helper_process,
    is_launched_from_outside,
    on_cpu,
    uses_channels_last,
    world_size,
)
from vit_vs_cnn.workers.worker_pools import count_workers

#: Steps before and of the timing of a step, and its longest time in seconds.
_WARM_UP, _TIMED, _SECONDS = 2, 8, 6.0
SINGLE_PRECISION = "32-true"
#: Precisions whose runs end with the same accuracies as in single precision (results/speed).
EQUIVALENT_PRECISIONS = ("bf16-mixed",)
#: Another precision is chosen only if it is faster by this factor.
MIN_SPEEDUP = 1.1
#: Steps that are compared in each precision; the first one is not counted.
_COMPARED = 3


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


def reuse_saved_precision(experiment: Experiment) -> Experiment:
    """The experiment with the precision of its folder; unchanged if it names one, or has no folder yet.

    Precision is part of the identity of a run, so another machine continues in the same precision.

    Raises:
        InputError: the config in the folder cannot be read.
    """
    if experiment.trainer.get("precision") != AUTO:
        return experiment
    for path in (experiment.folder / "experiment.yaml", experiment.folder / "tuning" / "experiment.yaml"):
        if path.exists():
            before = read_config(path).get("trainer")
            return _in(
                experiment,
                before.get("precision", SINGLE_PRECISION) if isinstance(before, Mapping) else SINGLE_PRECISION,
            )
    return experiment


def choose_precision(experiment: Experiment, pool: ExperimentData, *, console: Console) -> Experiment:
    """The experiment with the precision of its folder, or else with the fastest.

    Each contender makes a few steps in every precision, in turns. All contenders get the precision that is fastest in
    total. On a CPU as many steps are timed at a time as there will be runs. If several processes share a run, or only
    heads are fitted, it is single precision.

    Arguments:
        pool: images of the experiment.
        console: prints the choice.

    Raises:
        InputError: images or networks that cannot be used.
        OSError: the folder of the experiment cannot be made.
    """
    experiment = reuse_saved_precision(experiment)
    if experiment.trainer.get("precision") != AUTO:
        return experiment
    trained = [name for name, contender in experiment.contenders.items() if not contender.finetune.head]
    if not trained or is_helper_process() or is_launched_from_outside() or world_size(experiment) > 1:
        return _in(experiment, SINGLE_PRECISION)
    experiment.folder.mkdir(parents=True, exist_ok=True)  # an unwritable folder is reported before the timing
    at_a_time = int(runs_at_a_time(experiment, len(trained))) if on_cpu(experiment) else 1
    with torch_threads(experiment.protocol.threads), ThreadPoolExecutor(at_a_time) as timers:
        times = dict(
            zip(trained, timers.map(lambda name: _precision_seconds(experiment, name, pool), trained), strict=True)
        )
    precisions = (SINGLE_PRECISION, *EQUIVALENT_PRECISIONS)
    totals = {precision: sum(seconds[precision] for seconds in times.values()) for precision in precisions}
    chosen = min(EQUIVALENT_PRECISIONS, key=totals.__getitem__)
    if totals[SINGLE_PRECISION] < MIN_SPEEDUP * totals[chosen]:
        console.print(f"Precision: {SINGLE_PRECISION}; {chosen} is {_ratios(times, chosen)} here", soft_wrap=True)
        return _in(experiment, SINGLE_PRECISION)
    console.print(f"Precision: {chosen}, {_ratios(times, chosen)} as {SINGLE_PRECISION} here", soft_wrap=True)
    return _in(experiment, chosen)


def _in(experiment: Experiment, precision: str) -> Experiment:
    """The experiment in a precision. Single precision is the default, and is not written."""
    rest = {name: value for name, value in experiment.trainer.items() if name != "precision"}
    return replace(
        experiment, trainer=Plain(rest if precision == SINGLE_PRECISION else {**rest, "precision": precision})
    )


def _precision_seconds(experiment: Experiment, contender: str, pool: ExperimentData) -> dict[str, float]:
    """Time of the fastest step in each precision, timed in turns, so that other programs slow all of them."""
    steps = {
        precision: Steps(_in(experiment, precision), contender, pool, _COMPARED)
        for precision in (SINGLE_PRECISION, *EQUIVALENT_PRECISIONS)
    }
    times = [{precision: step.seconds(turn) for precision, step in steps.items()} for turn in range(_COMPARED)]
    return {precision: min(turn[precision] for turn in times[1:]) for precision in steps}


def _ratios(times: Mapping[str, Mapping[str, float]], precision: str) -> str:
    """``1.6 (vit) and 2.3 (resnet) times as fast``."""
    ratios = [f"{seconds[SINGLE_PRECISION] / seconds[precision]:.2g} ({name})" for name, seconds in times.items()]
    return f"{join_names(ratios)} times as fast"
