"""An experiment that takes seconds and uses all state that a resumed run must restore."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, experiment_from_dict
from vit_vs_cnn.config.schema import Protocol
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.preparation import grid
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.run import Run

PROTOCOL_SETTINGS = {field.name for field in fields(Protocol)}


def tiny_config(output: Path, *, only: str = "", **changes: Any) -> dict[str, Any]:
    """Both models on 120 synthetic images, with every source of randomness enabled.

    Arguments:
        only: name of a model that is kept alone; empty for both.
        changes: other blocks, or other settings of the protocol.
    """
    sizes = {"patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    vit = {"recipe": "none", "name": "vit_nano", "options": {**sizes, "dropout": 0.2, "drop_path": 0.3}}
    resnet = {"recipe": "none", "name": "resnet8", "options": {"width": 4}, "optimizer": {"name": "sgd", "lr": 0.05}}
    trainer = {"logger": False, "deterministic": True, "accelerator": "cpu", "devices": 1}
    values: dict[str, Any] = {
        "name": "tiny",
        "output": str(output),
        "data": {
            "source": "synthetic",
            "synthetic": {"train_images": 120, "test_images": 60},
            "validation_fraction": 0.25,
            "augmentation": {"policy": "randaugment", "mixup": 0.8, "cutmix": 1.0, "erasing": 0.5},
        },
        "protocol": {"train_sizes": [120], "seeds": [3], "budget": {"steps": 23}, "batch_size": 14},
        "models": {"vit": {**vit, "ema_half_life": 0.2, "label_smoothing": 0.1}, "resnet": resnet},
        "trainer": {**trainer, "gradient_clip_val": 1.0, "accumulate_grad_batches": 2},
        "execution": {"checkpoint_interval": 3, "validation_interval": 5},
    }
    values["protocol"] |= {name: changes.pop(name) for name in [*changes] if name in PROTOCOL_SETTINGS}
    values["models"] = {name: model for name, model in values["models"].items() if only in ("", name)}
    return values | changes


def tiny_experiment(output: Path, **changes: Any) -> Experiment:
    """The experiment of ``tiny_config``, whose settings are checked."""
    return experiment_from_dict(tiny_config(output, **changes))


def _read(given: Experiment | dict[str, Any]) -> Experiment:
    return given if isinstance(given, Experiment) else experiment_from_dict(given)


def run_quietly(experiment: Experiment | dict[str, Any], *, force: bool = False) -> list[RunResult]:
    """Execute all runs of an experiment or a config and print nothing."""
    return run_experiment(_read(experiment), console=Console(quiet=True), force=force)


def plan_runs(experiment: Experiment | dict[str, Any]) -> list[Run]:
    """The runs of an experiment or a config, in order."""
    experiment = _read(experiment)
    return grid(experiment, ExperimentData.from_experiment(experiment), world_size=1)


def find_run(experiment: Path, name: str) -> Path:
    """The folder of the one run of an experiment whose name begins like this."""
    (folder,) = experiment.glob(f"{name}-*")
    return folder
