"""Lightning's Trainer as the config describes it, and the processes that share a run."""

import os
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.config.reading import read_value
from vit_vs_cnn.config.trainer import AUTO_PRECISION, as_list, trainer_settings
from vit_vs_cnn.errors import InputError, one_line
from vit_vs_cnn.process import quiet_lightning
from vit_vs_cnn.runs.run import Run


def trainer_arguments(experiment: Experiment, **instead: Any) -> dict[str, Any]:
    """The arguments of the ``trainer`` block, or ``instead`` of them, with objects for the classes that it names."""
    if not experiment.trusted:
        raise InputError("trainer: classes that a file names are imported only with --trust")
    values = {**experiment.trainer, **instead}
    passive_callbacks = experiment.execution.passive_callbacks
    if passive_callbacks and "callbacks" not in instead:
        values["callbacks"] = [*as_list(values.get("callbacks")), *passive_callbacks]
    settings = trainer_settings()
    return {
        name: read_value(settings[name].hint, value, f"trainer.{name}", make_objects=True)
        for name, value in values.items()
    }


def run_arguments(run: Run, steps: int) -> dict[str, Any]:
    """Arguments for the Trainer of a run, which passes once over a stream of batches and ends after ``steps`` steps.

    By default, the model is validated five times during the run.
    """
    experiment = run.experiment
    arguments = trainer_arguments(experiment, logger=None)
    interval = min(steps, experiment.execution.validation_interval or max(1, steps // 5))
    return {
        "log_every_n_steps": max(1, min(50, steps // 20)),
        "enable_model_summary": False,
        **arguments,
        "max_epochs": 1,
        "max_steps": steps,
        "check_val_every_n_epoch": None,
        "accumulate_grad_batches": run.grad_accum_steps,
        "val_check_interval": interval * run.grad_accum_steps,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
        "enable_checkpointing": True,
    }


def make_trainer(arguments: dict[str, Any]) -> lightning.Trainer:
    """Make a Trainer. Raises InputError: Lightning refuses the arguments, for example a device that does not exist."""
    quiet_lightning()
    try:
        return lightning.Trainer(**arguments)
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError) as error:
        raise InputError(f"trainer: {one_line(error)}") from error


def world_size(experiment: Experiment) -> int:
    """Number of processes that share a run. Raises InputError: unusable devices, or a batch that cannot be divided."""
    if experiment.trainer.get("accelerator") == "gpu" and not torch.accelerator.is_available():
        raise InputError(
            "trainer.accelerator gpu: there is no GPU that PyTorch can use on this machine; use auto or cpu"
        )
    arguments = trainer_arguments(experiment, callbacks=None, logger=None)
    if arguments.get("precision") == AUTO_PRECISION:
        del arguments["precision"]
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = make_trainer(arguments | dict.fromkeys(switches, False))
    launcher = type(trainer.strategy.launcher).__name__
    if "MultiProcessing" in launcher:
        raise InputError(
            f"trainer.strategy {experiment.trainer.get('strategy')!r} forks; use ddp, or another one that does not"
        )
    parts = trainer.world_size * trainer.accumulate_grad_batches
    if trainer.accumulate_grad_batches < 1 or experiment.protocol.batch_size % parts:
        raise InputError(
            f"protocol.batch_size {experiment.protocol.batch_size} must be a multiple of "
            f"trainer.accumulate_grad_batches {trainer.accumulate_grad_batches} times {trainer.world_size} processes"
        )
    return trainer.world_size


def is_launched_from_outside() -> bool:
    """True if torchrun or SLURM has started the processes that share a run.

    A job of SLURM with a single task, such as one of an array, is like a process that the user started.
    """
    tasks = os.environ.get("SLURM_NTASKS", "")
    return TorchElasticEnvironment.detect() or (SLURMEnvironment.detect() and tasks != "1")


def is_helper_process() -> bool:
    """True if this process only helps to train a run, whose results another process writes."""
    ranks = (os.environ.get(name, "") for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK"))
    return any(rank.isdigit() and int(rank) > 0 for rank in ranks)
