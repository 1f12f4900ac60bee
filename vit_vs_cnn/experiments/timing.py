"""Times of training steps on this machine, and settings that are chosen for it, such as the precision."""

import itertools
import math
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException
from rich.console import Console
from torch.nn import functional as F

from vit_vs_cnn.config.experiment import Experiment, read_config
from vit_vs_cnn.config.trainer import AUTO_PRECISION
from vit_vs_cnn.config.user_code import make_transform
from vit_vs_cnn.console import join_names
from vit_vs_cnn.data.batches import TrainingBatches, TrainingData
from vit_vs_cnn.devices import bfloat16_units, free_memory, synchronize
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.mappings import flatten
from vit_vs_cnn.models.cost import activation_bytes, count_parameters
from vit_vs_cnn.networks.preparation import PreparedRun, prepare_network
from vit_vs_cnn.networks.pretrained import weights_identities
from vit_vs_cnn.process import limit_threads
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.training.classifier import compile_steps
from vit_vs_cnn.workers.fit import scaled_augmentation
from vit_vs_cnn.workers.supervisor import count_workers
from vit_vs_cnn.workers.trainer import trains_on_cpu, uses_channels_last, world_size

#: Steps before and of the timing of a step, and its longest time in seconds.
_WARM_UP, _TIMED, _SECONDS = 2, 8, 3.0
#: The same for the forward passes of a linear probe, and their batch size, which is smaller than that of training.
_PROBE_WARM_UP, _PROBE_TIMED, _PROBE_BATCH = 1, 2, 4
#: Time of compiling a network, and the largest share of an experiment that may be spent on trying it.
_COMPILE_SECONDS, _COMPILE_SHARE = 30.0, 0.05
#: Time in which a run finds its compiled network in torch's cache.
_COMPILED_START_SECONDS = 2.0
#: FLOPs and steps in a second, about the most of small networks on a core, for training that was not timed.
_FLOPS_PER_SECOND, _STEPS_PER_SECOND = 3e10, 50.0
#: Share of the free memory that training may take; and the memory of a process before its first step.
_MEMORY_SHARE, _PROCESS_BYTES = 0.6, 7e8
#: Bytes for each parameter: it, its gradient, two moments of the optimizer, and an average.
_BYTES_PER_PARAMETER = 20
#: Memory of a step relative to what it keeps for the backward pass (measured: 0.97 to 1.1 at 224 pixels).
_STEP_FACTOR = 1.25


def runs_at_a_time(experiment: Experiment, runs: int) -> float:
    """Number of runs that the executor finishes in the time that one of them takes alone; 1 for a Ray cluster.

    Processes that share a GPU, or have more threads than there are cores, save no time.
    """
    if experiment.executor.name not in ("auto", "processes"):
        return 1.0
    workers = min(count_workers(experiment), runs)
    on_gpu = torch.cuda.device_count() if experiment.trainer.get("accelerator", "auto") != "cpu" else 0
    room = on_gpu or (os.cpu_count() or 1) / experiment.protocol.threads
    return max(1.0, min(float(workers), room))


def seconds_per_step(experiment: Experiment, model: str, pool: ExperimentData) -> float:
    """Median time of a training step with its batch, with the number of threads of a run, on cores without other work.

    A linear probe is not trained in steps: a pass over a few images is timed, and three passes over a batch count as a
    step. Raises InputError: a network that cannot be built or that fails, or a missing device.
    """
    prepared = _prepare(experiment, model, pool)
    run, network, images, recipe = prepared.run, prepared.network, prepared.images, prepared.run.recipe
    is_channels_last = uses_channels_last(experiment, network)
    if is_channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    settings = {name: experiment.trainer[name] for name in ("accelerator", "precision") if name in experiment.trainer}
    try:
        fabric = Fabric(devices=1, **settings)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise InputError(f"trainer: {one_line(error)}") from error
    trained, optimizer = fabric.setup(network, recipe.optimizer.build(network, trust=experiment.trusted))
    forward = compile_steps(trained) if experiment.protocol.compile is True else trained
    batch_size = experiment.protocol.batch_size
    timed_size, warm_up, timed = batch_size // run.grad_accum_steps, _WARM_UP, _TIMED
    if recipe.finetune.head:
        timed_size, warm_up, timed = min(batch_size, _PROBE_BATCH), _PROBE_WARM_UP, _PROBE_TIMED
    augmentation = scaled_augmentation(run, images.training)
    data = TrainingData(
        images.training,
        None,
        augmentation=augmentation,
        transform=make_transform(augmentation, trust=experiment.trusted),
        batch_size=timed_size,
        steps=warm_up + timed,
        channels_last=is_channels_last,
    )
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
    with limit_threads(experiment.protocol.threads):
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
            cpu_seconds = (time.process_time() - cpu_start) / experiment.protocol.threads
            times.append(min(elapsed, cpu_seconds) if fabric.device.type == "cpu" else elapsed)
            if len(times) > warm_up and sum(times) > _SECONDS:
                break
    passes = (3 if recipe.finetune.head else 1) * batch_size / timed_size
    return passes * statistics.median(times[warm_up:])


def _prepare(experiment: Experiment, model: str, pool: ExperimentData) -> PreparedRun:
    """A run of a model with some of the images."""
    size = min(pool.largest, max(1000, 2 * experiment.protocol.batch_size))
    weights = weights_identities(experiment)
    run = Run(experiment, model, size, experiment.protocol.budget.largest, 0, "timed", weights=weights)
    return prepare_network(run, pool.at_resolution(run.resolution).draw(size, 0))


def choose_settings(
    experiment: Experiment, pool: ExperimentData, console: Console, *, is_planned: bool = True
) -> Experiment:
    """The experiment with precision, images at a time and compilation as its folder has them, or else for this machine.

    Runs that differ in them are different runs, so a started experiment keeps them on another machine.

    Arguments:
        is_planned: whether sizes, seeds and budget are final. Otherwise compilation is not chosen yet.
    """
    experiment = choose_micro_batches(choose_precision(experiment), pool, console)
    if experiment.protocol.compile != "auto":
        return experiment
    if started := _started_settings(experiment):
        return _with_compile(experiment, started.get("protocol.compile", False))
    if not is_planned:
        return experiment
    return _with_compile(experiment, world_size(experiment) == 1 and _compiling_saves_time(experiment, pool, console))


def _with_compile(experiment: Experiment, chosen: Literal["auto"] | bool) -> Experiment:
    return replace(experiment, protocol=replace(experiment.protocol, compile=chosen))


def _compiling_saves_time(experiment: Experiment, pool: ExperimentData, console: Console) -> bool:
    """Whether compiled training steps save more than twice the time of compiling.

    For a long experiment the networks are compiled and timed. Its runs find them in torch's cache.
    """
    protocol = experiment.protocol
    trained = [name for name, model in experiment.models.items() if not model.finetune.head]
    if not trained:
        return False
    prepared = {name: _prepare(experiment, name, pool) for name in trained}
    steps = {name: _count_steps(prepared[name], pool) for name in trained}
    runs = len(trained) * len(protocol.train_sizes) * len(protocol.budget.amounts) * len(protocol.seeds)
    at_a_time = runs_at_a_time(experiment, runs)

    def training_seconds(step_seconds: Mapping[str, float]) -> dict[str, float]:
        return {name: steps[name] * step_seconds[name] / at_a_time for name in trained}

    def is_long(step_seconds: Mapping[str, float]) -> bool:
        return _COMPILE_SHARE * sum(training_seconds(step_seconds).values()) > _COMPILE_SECONDS * len(trained)

    flops = {name: 6 * protocol.batch_size * prepared[name].macs for name in trained}
    if not is_long({name: max(1 / _STEPS_PER_SECOND, flops[name] / _FLOPS_PER_SECOND) for name in trained}):
        return False
    eager = {name: seconds_per_step(experiment, name, pool) for name in trained}
    if not is_long(eager):
        return False
    console.print(f"Compiling {join_names(trained)}, to see whether training becomes faster ...")
    start, compiled = time.perf_counter(), dict[str, float]()
    for name in trained:
        try:
            compiled[name] = seconds_per_step(_with_compile(experiment, True), name, pool)
        except InputError as error:
            console.print(f"Training without compilation, which fails: {error}")
            return False
    cost = time.perf_counter() - start + _COMPILED_START_SECONDS * runs / at_a_time
    saved = sum(time * (1 - compiled[name] / eager[name]) for name, time in training_seconds(eager).items())
    is_chosen = saved > 2 * cost
    texts = [f"{name}: {eager[name]:.3g} s for a step, {compiled[name]:.3g} s compiled" for name in trained]
    choice = "Training with" if is_chosen else "Training without"
    console.print(
        f"{join_names(texts)}. {choice} compilation, which takes {duration(cost)} and saves {duration(saved)}"
    )
    return is_chosen


def _count_steps(prepared: PreparedRun, pool: ExperimentData) -> int:
    """Training steps of all runs of a model, without a search for recipes."""
    experiment, steps = prepared.run.experiment, 0
    protocol, finetune = experiment.protocol, prepared.run.recipe.finetune
    for size, budget in itertools.product(protocol.train_sizes, protocol.budget.each()):
        train_images = round(pool.resolve(size) * (1 - experiment.data.validation_fraction))
        counts = {"batch_size": protocol.batch_size, "train_images": train_images}
        has_own_epochs = finetune.epochs is not None
        steps += finetune.count_steps(**counts) if has_own_epochs else budget.to_steps(**counts, macs=prepared.macs)
    return steps * len(protocol.seeds)


def choose_micro_batches(experiment: Experiment, pool: ExperimentData, console: Console) -> Experiment:
    """The experiment with ``micro_batch`` set for each model of which a whole batch exceeds the free memory.

    It changes batch norm and the random numbers of augmentation, so runs that differ in it are different runs. A model
    that is trained in the folder of the experiment keeps what was chosen there, also on another machine.
    """
    if experiment.trainer.get("accumulate_grad_batches", 1) != 1:
        return experiment
    started = _started_settings(experiment)
    device, sharing = ("cpu", 1) if trains_on_cpu(experiment) else ("cuda", torch.cuda.device_count())
    workers = count_workers(experiment) if experiment.executor.name in ("auto", "processes") else 1
    room = _MEMORY_SHARE * free_memory(device) / math.ceil(workers / sharing) - _PROCESS_BYTES
    batch_size, models = experiment.protocol.batch_size // world_size(experiment), dict(experiment.models)
    for name, model in experiment.models.items():
        if model.finetune.head or model.micro_batch is not None:
            continue
        if any(setting.startswith(f"models.{name}.") for setting in started):
            models[name] = replace(model, micro_batch=started.get(f"models.{name}.micro_batch"))
            continue
        micro_batch = _fitting_batch(_prepare(experiment, name, pool), batch_size, room)
        if micro_batch < batch_size:
            models[name] = replace(model, micro_batch=micro_batch)
            console.print(
                f"{name}: batches of {batch_size} images are split into parts of {micro_batch} images, as "
                f"{max(room, 0) / 1e9:.1f} GB of memory are free for each run"
            )
    return replace(experiment, models=models)


def _fitting_batch(prepared: PreparedRun, batch_size: int, room: float) -> int:
    """The largest divisor of the batch size whose training step needs at most ``room`` bytes; at least 1."""
    try:
        image = _STEP_FACTOR * activation_bytes(prepared.network, prepared.images.training.image_shape)
    except Exception:  # raised by user code
        return batch_size
    fitting = (room - _BYTES_PER_PARAMETER * count_parameters(prepared.network)) / max(image, 1)
    return max(size for size in range(1, batch_size + 1) if not batch_size % size and size <= max(1, fitting))


def _started_settings(experiment: Experiment) -> dict[str, Any]:
    """Settings by dotted name in the folder of an experiment or of its search for recipes; empty without a config."""
    places = (experiment.folder / "experiment.yaml", experiment.folder / "tuning" / "experiment.yaml")
    return next((flatten(read_config(path)) for path in places if path.exists()), {})


def choose_precision(experiment: Experiment) -> Experiment:
    """The experiment with ``precision: auto`` replaced by that of its folder, or else by the faster one.

    bf16-mixed is faster where the GPU or the processor has units for bfloat16, and ends with the same accuracies
    (results/speed). Precision is part of the identity of a run, so another machine continues in the same precision.
    """
    if experiment.trainer.get("precision") != AUTO_PRECISION:
        return experiment
    has_units = (
        bool(bfloat16_units()) if trains_on_cpu(experiment) else torch.cuda.is_bf16_supported(including_emulation=False)
    )
    chosen = "bf16-mixed" if has_units else None
    if started := _started_settings(experiment):
        chosen = started.get("trainer.precision")
    others = {name: value for name, value in experiment.trainer.items() if name != "precision"}
    return replace(experiment, trainer=others if chosen is None else others | {"precision": chosen})
