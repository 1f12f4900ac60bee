"""Lightning's Trainer from a config: its arguments checked, its processes counted."""

import os
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn

from vit_vs_cnn.config import parsing as typed
from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.config.trainer import AUTO, listed
from vit_vs_cnn.errors import InputError, one_line

WHO_TRAINS = ("accelerator", "devices", "num_nodes", "strategy", "precision", "plugins", "accumulate_grad_batches")


def trainer_arguments(experiment: Experiment, **instead: Any) -> dict[str, Any]:
    """The arguments that the config's ``trainer`` block names, objects made where it names classes.

    Arguments:
        experiment: whose block.
        instead: values that stand in for those of the block.

    Raises:
        InputError: an argument that the Trainer lacks, a value that it refuses, or an experiment that is not trusted.
    """
    if not experiment.trusted:
        raise InputError("trainer: what a file names is not imported unless --trust says so")
    given = {**experiment.trainer, **instead}
    if given.get("precision") == AUTO:
        del given["precision"]  # not chosen yet, while all else is being checked
    watchers = experiment.execution.watchers
    if watchers and "callbacks" not in instead:
        given["callbacks"] = [*listed(given.get("callbacks")), *watchers]
    return typed.instantiate_arguments(lightning.Trainer, given, where="trainer")


def make_trainer(arguments: dict[str, Any]) -> lightning.Trainer:
    """The Trainer.

    Raises:
        InputError: Lightning refuses the arguments: no such device, say, or two that exclude each other.
    """
    try:
        return lightning.Trainer(**arguments)
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError) as error:
        raise InputError(f"trainer: {one_line(error)}") from error


def world_size(experiment: Experiment) -> int:
    """How many processes share a run of the experiment.

    Raises:
        InputError: Lightning refuses the devices, or the batch cannot be shared out evenly.
    """
    unmade = dict.fromkeys(("callbacks", "logger", "profiler"))
    given = {name: value for name, value in trainer_arguments(experiment, **unmade).items() if name in WHO_TRAINS}
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = make_trainer({**given, **silent, "enable_model_summary": False})
    launcher = type(trainer.strategy.launcher).__name__
    if "MultiProcessing" in launcher:
        raise InputError(
            f"trainer.strategy {experiment.trainer.get('strategy')!r} forks; take ddp, or another that does not"
        )
    parts = trainer.world_size * trainer.accumulate_grad_batches
    if trainer.accumulate_grad_batches < 1 or experiment.protocol.batch_size % parts:
        raise InputError(
            f"protocol.batch_size {experiment.protocol.batch_size} must be a multiple of "
            f"trainer.accumulate_grad_batches {trainer.accumulate_grad_batches} times {trainer.world_size} processes"
        )
    return trainer.world_size


def lies_channels_last(experiment: Experiment, network: nn.Module) -> bool:
    """Whether images and convolutions of a network have their channels innermost.

    Never on a processor where a 1x1 convolution with a stride has fewer than 8 input channels: there oneDNN writes
    beyond its memory, and the process dies (PyTorch 2.15).
    """
    if on_cpu(experiment) and any(_is_overrun(module) for module in network.modules()):
        return False
    asked = experiment.execution.channels_last
    if asked is not None:
        return asked
    is_half = "16" in str(experiment.trainer.get("precision", "32-true"))
    return is_half != on_cpu(experiment)


def _is_overrun(module: nn.Module) -> bool:
    if not isinstance(module, nn.Conv2d) or max(module.kernel_size) > 1:
        return False
    return max(module.stride) > 1 and module.in_channels // module.groups < 8


def on_cpu(experiment: Experiment) -> bool:
    """Whether its runs train on the processor."""
    return not torch.cuda.is_available() or experiment.trainer.get("accelerator", "auto") == "cpu"


def is_launched_from_outside() -> bool:
    """Whether torchrun or SLURM has started all processes of a run already."""
    return TorchElasticEnvironment.detect() or SLURMEnvironment.detect()


def is_helper_process() -> bool:
    """Whether this process trains beside the first one, which alone writes results."""
    given = (os.environ.get(name, "") for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK"))
    return any(rank.isdigit() and int(rank) > 0 for rank in given)
