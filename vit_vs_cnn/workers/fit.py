"""Training of a prepared run with Lightning, from the start or from its last checkpoint."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from rich.console import Console
from torch import nn

from vit_vs_cnn.config.schema import Finetuning
from vit_vs_cnn.config.trainer import as_list
from vit_vs_cnn.config.user_code import make_transform
from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.batches import TrainingData
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import DamagedFile, InputError, Interrupted
from vit_vs_cnn.models.cost import count_parameters
from vit_vs_cnn.models.input_wrappers import unwrap
from vit_vs_cnn.networks.evaluation import Predictions, predict
from vit_vs_cnn.networks.held_out import find_called_classifier
from vit_vs_cnn.networks.preparation import PreparedRun
from vit_vs_cnn.networks.training_hashes import CHECKPOINT_KEY_TRAINING_HASHES, TrainingImageHashes
from vit_vs_cnn.process import preserve_signal_handlers, quiet_lightning
from vit_vs_cnn.runs.result import TrainingCost
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.training.callbacks import (
    CHECKPOINT_KEY_ENDED_EARLY,
    CHECKPOINT_KEY_LAST_METRICS,
    FrozenLayers,
    ResumedValidation,
    RunCheckpoint,
    TrainingMeter,
)
from vit_vs_cnn.training.checkpoints import read_checkpoint
from vit_vs_cnn.training.classifier import Classifier
from vit_vs_cnn.training.metrics_csv import MetricsCsv
from vit_vs_cnn.training.progress import RunProgress
from vit_vs_cnn.workers.trainer import make_trainer, trainer_arguments, uses_channels_last

#: Folder of the TensorBoard log of a run whose config names no logger.
TENSORBOARD_FOLDER = "tensorboard"
#: Parts of a checkpoint without which a run cannot be resumed exactly.
REQUIRED_RESUME_KEYS = ("global_step", "optimizer_states", "lr_schedulers", "loops", "callbacks")


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A trained network, ready to be scored.

    Arguments:
        predict: function from images to predictions, with the input of the last linear layer if there is one.
        penalty: L2 penalty of a linear probe.
    """

    network: nn.Module
    predict: Callable[[LabelledImages], Predictions]
    cost: TrainingCost
    penalty: float | None = None


def read_resume_point(run: Run) -> tuple[int, bool, dict[str, float] | None]:
    """Step of the checkpoint of a run, whether the run ended early, and its last metrics; step 0 without a checkpoint.

    Raises:
        DamagedFile: it is not a checkpoint, is of another run, or lacks a part that an exact resume needs.
    """
    if not run.checkpoint.exists():
        return 0, False, None
    hint = "move it away to start this run again"
    try:
        contents = read_checkpoint(run.checkpoint)
    except InputError as error:
        raise DamagedFile(f"{error}; {hint}") from error
    metadata = contents["vit_vs_cnn"]
    if metadata.get("identity") != run.identity:
        raise DamagedFile(f"checkpoint {run.checkpoint} is of another run; {hint}")
    if missing := [name for name in REQUIRED_RESUME_KEYS if name not in contents]:
        raise DamagedFile(f"checkpoint {run.checkpoint} lacks {missing[0]}; {hint}")
    logged = metadata.get(CHECKPOINT_KEY_LAST_METRICS) or {}
    return contents["global_step"], bool(metadata.get(CHECKPOINT_KEY_ENDED_EARLY)), dict(logged)


def checkpoint_metadata(prepared: PreparedRun, mean: Sequence[float], std: Sequence[float]) -> dict[str, Any]:
    """Plain values from which the network of a checkpoint is rebuilt, and that name its run and training images."""
    run, training = prepared.run, prepared.images.training
    return {
        "identity": run.identity,
        "origin": run.to_dict(),
        "model": run.model,
        "architecture": prepared.architecture,
        "class_names": list(training.class_names),
        "image_shape": list(training.image_shape),
        "mean": list(mean),
        "std": list(std),
        CHECKPOINT_KEY_TRAINING_HASHES: (prepared.start_images | TrainingImageHashes(training.hashes())).to_dict(),
    }


def fit(prepared: PreparedRun, services: Sequence[Logger], console: Console) -> FittedNetwork:
    """Train a run to its last step. An interrupted run is resumed from its checkpoint, and ends bit for bit the same.

    Metrics are logged in the folder of the run: ``metrics.csv``, and TensorBoard if the config names no logger.

    Arguments:
        services: further loggers.

    Raises:
        InputError: Lightning or the optimizer refuses a setting.
        DamagedFile: the checkpoint cannot be used (``read_resume_point``).
        TrainingDiverged: the loss is not a number.
        Interrupted: the user asked to stop. The state is saved.
    """
    run, images, network = prepared.run, prepared.images, prepared.network
    experiment, recipe = run.experiment, run.recipe
    is_channels_last = uses_channels_last(experiment, network)
    data = TrainingData(
        images.training,
        images.validation,
        augmentation=experiment.augmentation(recipe),
        batch_size=experiment.protocol.batch_size,
        steps=prepared.steps,
        accumulate=experiment.trainer.get("accumulate_grad_batches", 1),
        seed=derive_seed(run.seed, "batches"),
        channels_last=is_channels_last,
        normalization=prepared.pretrained and prepared.pretrained.moments,
        transform=make_transform(experiment.augmentation(recipe), trust=experiment.trusted),
    )
    module = Classifier(
        network,
        num_classes=images.training.num_classes,
        optimizer=recipe.optimizer,
        schedule=recipe.schedule,
        steps=prepared.steps,
        label_smoothing=recipe.label_smoothing,
        ema_half_life=recipe.ema_half_life,
        seed=derive_seed(run.seed, "network"),
        loss=prepared.loss,
        class_weights=prepared.class_weights,
        metrics=prepared.metrics,
        trust=experiment.trusted,
    )
    if is_channels_last:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if experiment.execution.compile:
        network.compile()  # in place: the names of the weights stay as they are
    step, ended_early, logged = read_resume_point(run)
    # A run that ended early and was killed before its result is not trained further.
    steps = step if ended_early else prepared.steps
    execution, arguments = experiment.execution, trainer_arguments(experiment, logger=None)
    interval = min(steps, execution.validation_interval or max(1, steps // 5))
    metrics_csv = MetricsCsv(run.folder / "metrics.csv")
    loggers: list[Logger] = [metrics_csv, *services]
    if experiment.trainer.get("logger", True) is True:
        loggers.append(TensorBoardLogger(run.folder, name=TENSORBOARD_FOLDER, version=""))
    meter = TrainingMeter()
    progress = RunProgress(
        run.name,
        batch_size=experiment.protocol.batch_size,
        path=run.progress,
        console=console if arguments.get("enable_progress_bar", True) else None,
    )
    is_whole = recipe.finetune == Finetuning()
    frozen = [] if is_whole else [FrozenLayers(unwrap(network), last=recipe.finetune.last)]
    validation = ResumedValidation(interval)
    checkpoint = RunCheckpoint(
        run.checkpoint,
        interval=execution.checkpoint_interval or max(1, steps // 20),
        metadata=checkpoint_metadata(prepared, data.mean, data.std),
        run_name=run.name,
    )
    trainer = make_trainer(
        {
            "log_every_n_steps": max(1, min(50, steps // 20)),
            "enable_model_summary": False,
            **arguments,
            "callbacks": [
                meter,
                *frozen,
                progress,
                validation,
                *as_list(arguments.get("callbacks")),
                checkpoint,  # at the end, so that it saves the state of all callbacks after the step
            ],
            "logger": loggers,
            "max_epochs": 1,
            "max_steps": steps,
            "check_val_every_n_epoch": None,
            "val_check_interval": interval * arguments.get("accumulate_grad_batches", 1),
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
            "enable_checkpointing": True,
            "enable_progress_bar": False,
            "default_root_dir": run.folder,
        }
    )
    if logged is not None and trainer.precision == "64-true":
        module.double()  # Lightning does so only after it has loaded the weights, which would be rounded to float32
    metrics_csv.resume(step, logged, repeats_validation=validation.is_due(trainer, step))
    try:
        with warnings.catch_warnings(), preserve_signal_handlers():
            quiet_lightning()
            trainer.fit(
                module, datamodule=data, ckpt_path=None if logged is None else run.checkpoint, weights_only=True
            )
    except SystemExit as error:  # Lightning's answer to a second Ctrl-C, and to SIGTERM within a step
        raise Interrupted(f"stopped in {run.name}") from error
    checkpoint.raise_if_stopped(trainer)
    # In float32, independent of the training precision: bf16-true leaves weights that do not fit the images.
    trained = module.evaluated_network.float().to(trainer.strategy.root_device)
    cost = TrainingCost(
        parameters=count_parameters(network),
        macs=prepared.macs,
        steps=trainer.global_step,
        images_processed=meter.images,
        passes=3,
        train_seconds=meter.seconds,
        devices=trainer.world_size,
        precision=str(trainer.precision),
        planned_steps=prepared.steps,
    )
    normalize = data.augmenter.normalize
    classifier = find_called_classifier(trained, images.validation, normalize)
    return FittedNetwork(
        trained, partial(predict, trained, normalize=normalize, what=run.name, classifier=classifier), cost
    )
