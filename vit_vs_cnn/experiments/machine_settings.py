"""Settings that are chosen for a machine: precision, micro-batches, threads and compilation."""

import itertools
import json
import math
import time
from dataclasses import replace
from typing import Any

import torch
from filelock import FileLock
from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, read_config
from vit_vs_cnn.config.trainer import AUTO_PRECISION
from vit_vs_cnn.console import join_names
from vit_vs_cnn.devices import bfloat16_units, free_memory
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.timing import prepare_timed_run, runs_at_a_time, seconds_per_step
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.mappings import flatten
from vit_vs_cnn.models.cost import activation_bytes, count_parameters
from vit_vs_cnn.networks.kernels import trains_on_cpu
from vit_vs_cnn.networks.preparation import PreparedRun
from vit_vs_cnn.runs.status import duration
from vit_vs_cnn.workers.supervisor import count_workers
from vit_vs_cnn.workers.trainer import world_size

#: Share of the free memory that training may take; and the memory of a process before its first step.
_MEMORY_SHARE, _PROCESS_BYTES = 0.6, 7e8
#: Bytes for each parameter: it, its gradient, two moments of the optimizer, and an average.
_BYTES_PER_PARAMETER = 20
#: Memory of a step relative to what it keeps for the backward pass (measured: 0.97 to 1.1 at 224 pixels).
_STEP_FACTOR = 1.25
#: Settings of the protocol that may be auto, with their values in short experiments.
_DEFAULTS = {"threads": 1, "compile": False}
#: Seconds on one core: of a run that may get several threads, and of all runs together, which may then be compiled.
_LONG_RUN_SECONDS, _LONG_TRAINING_SECONDS = 30.0, 2400.0
#: Approximate largest number of FLOPs and of steps in a second on one core, to estimate the time of training.
_FLOPS_PER_SECOND, _STEPS_PER_SECOND = 3e10, 50.0
#: More threads make the training of small networks no faster.
_MAX_THREADS = 8
#: Seconds in which a run loads its compiled network from torch's cache.
_COMPILED_START_SECONDS = 2.0


def choose_settings(
    experiment: Experiment, pool: ExperimentData, console: Console, *, is_planned: bool = True
) -> Experiment:
    """The experiment with the settings stored in its folder or, in a new folder, with those that suit this machine.

    They are precision, micro-batches, threads and compilation. Other values make another run, so a started experiment
    keeps them on any machine.

    Arguments:
        is_planned: whether sizes, seeds and budget are final. If not, threads and compilation stay open.
    """
    experiment = choose_micro_batches(choose_precision(experiment), pool, console)
    if started := _started_settings(experiment):
        kept = {name: started.get(f"protocol.{name}", default) for name, default in _DEFAULTS.items()}
        experiment = _with_protocol(experiment, **{name: kept[name] for name in _open_settings(experiment)})
    open_settings = _open_settings(experiment)
    if not is_planned or not open_settings:
        return experiment
    seconds = 0.0 if world_size(experiment) > 1 else _training_seconds(experiment, pool)
    is_long = {
        "threads": seconds / _count_runs(experiment) > _LONG_RUN_SECONDS,
        "compile": seconds > _LONG_TRAINING_SECONDS,
    }
    experiment = _with_protocol(experiment, **{name: _DEFAULTS[name] for name in open_settings if not is_long[name]})
    open_settings = _open_settings(experiment)
    if not open_settings:
        return experiment
    # Commands that start together, as those of an array, choose the same: the first one chooses, and the others wait.
    file = experiment.folder / "machine.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_name(".machine.lock")):
        if not file.exists():
            chosen = _choose(experiment, pool, console).protocol
            write_text(file, json.dumps({name: getattr(chosen, name) for name in open_settings}))
        values = _DEFAULTS | read_mapping(file)
    return _with_protocol(experiment, **{name: values[name] for name in open_settings})


def _open_settings(experiment: Experiment) -> list[str]:
    """Names of the settings of the protocol that are still to be chosen."""
    return [name for name in _DEFAULTS if getattr(experiment.protocol, name) == "auto"]


def _choose(experiment: Experiment, pool: ExperimentData, console: Console) -> Experiment:
    """The experiment with its number of threads and its choice of compilation."""
    if experiment.protocol.threads == "auto":
        experiment = _with_protocol(experiment, threads=_share_of_cores(experiment))
        if experiment.protocol.thread_count > 1:
            console.print(f"Each run uses {experiment.protocol.threads} threads")
    if experiment.protocol.compile == "auto":
        experiment = _with_protocol(experiment, compile=_is_faster_compiled(experiment, pool, console))
    return experiment


def _with_protocol(experiment: Experiment, **changes: Any) -> Experiment:
    return replace(experiment, protocol=replace(experiment.protocol, **changes))


def _count_runs(experiment: Experiment) -> int:
    """Number of runs that train, without a search for recipes."""
    protocol = experiment.protocol
    conditions = len(protocol.train_sizes) * len(protocol.budget.amounts) * len(protocol.seeds)
    return max(1, len(experiment.trained_models) * conditions)


def _training_seconds(experiment: Experiment, pool: ExperimentData) -> float:
    """Estimated time of all runs on one core, from their FLOPs. The estimate is the same on every machine."""
    seconds = 0.0
    for name in experiment.trained_models:
        prepared = prepare_timed_run(experiment, name, pool)
        flops = 6 * experiment.protocol.batch_size * prepared.macs
        seconds += _count_steps(prepared, pool) * max(1 / _STEPS_PER_SECOND, flops / _FLOPS_PER_SECOND)
    return seconds


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


def _share_of_cores(experiment: Experiment) -> int:
    """Threads for each run, if all runs share the cores of this machine; 1 on a GPU and on a Ray cluster."""
    if experiment.executor.name == "ray" or not trains_on_cpu(experiment):
        return 1
    return max(1, min(torch.get_num_threads() // _count_runs(experiment), _MAX_THREADS))


def _is_faster_compiled(experiment: Experiment, pool: ExperimentData, console: Console) -> bool:
    """Whether compiled training steps save more than twice the time of compiling.

    The networks are compiled and timed. The runs then load them from torch's cache.
    """
    models, runs = experiment.trained_models, _count_runs(experiment)
    runs_at_once = runs_at_a_time(experiment, runs)
    steps = {name: _count_steps(prepare_timed_run(experiment, name, pool), pool) for name in models}
    eager = {name: seconds_per_step(experiment, name, pool) for name in models}
    if sum(steps[name] * eager[name] for name in models) < _LONG_TRAINING_SECONDS:
        return False
    console.print(f"Compiling {join_names(models)}, to see whether training becomes faster ...")
    start, compiled = time.perf_counter(), dict[str, float]()
    for name in models:
        try:
            compiled[name] = seconds_per_step(_with_protocol(experiment, compile=True), name, pool)
        except InputError as error:
            console.print(f"Compilation is not used, as it fails: {error}")
            return False
    cost = time.perf_counter() - start + _COMPILED_START_SECONDS * runs / runs_at_once
    saved = sum(steps[name] * (eager[name] - compiled[name]) for name in models) / runs_at_once
    is_faster = saved > 2 * cost
    texts = [f"{name} {eager[name]:.3g}, compiled {compiled[name]:.3g}" for name in models]
    choice = f"Compilation is {'' if is_faster else 'not '}used"
    costs = f"it takes {duration(cost)} and saves {duration(max(0.0, saved))}"
    console.print(f"Seconds for a step: {'; '.join(texts)}. {choice}: {costs}")
    return is_faster


def choose_micro_batches(experiment: Experiment, pool: ExperimentData, console: Console) -> Experiment:
    """The experiment with ``micro_batch`` set for each model whose whole batch exceeds the free memory.

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
        micro_batch = _fitting_batch(prepare_timed_run(experiment, name, pool), batch_size, room)
        if micro_batch < batch_size:
            models[name] = replace(model, micro_batch=micro_batch)
            console.print(
                f"{name}: batches of {batch_size} images are split into parts of {micro_batch} images, as "
                f"each run may use {max(room, 0) / 1e9:.1f} GB of memory"
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
