"""Training of a prepared run with Lightning, from the start or from its last checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from rich.console import Console
from torch import nn
from torch.optim.swa_utils import update_bn

from vit_vs_cnn.config.trainer import as_list
from vit_vs_cnn.config.user_code import make_transform
from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.batches import EVALUATION_BATCH, TrainingData
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import Augmentation
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.models.cost import count_parameters
from vit_vs_cnn.models.input_wrappers import resize_for, unwrap
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.networks.evaluation import Predictions, hash_weights, predict
from vit_vs_cnn.networks.kernels import uses_channels_last
from vit_vs_cnn.networks.preparation import PreparedRun
from vit_vs_cnn.networks.training_hashes import CHECKPOINT_KEY_TRAINING_HASHES, TrainingImageHashes
from vit_vs_cnn.runs.result import PretrainingResult, Provenance, TrainingCost, read_result
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.training.callbacks import (
    CHECKPOINT_KEY_ENDED_EARLY,
    CHECKPOINT_KEY_LAST_METRICS,
    ExactResume,
    FrozenLayers,
    RunCheckpoint,
    RunProgress,
    TrainingMeter,
)
from vit_vs_cnn.training.checkpoints import read_checkpoint, write_checkpoint
from vit_vs_cnn.training.classifier import Classifier, Teacher
from vit_vs_cnn.training.masked_patches import MaskedPretraining
from vit_vs_cnn.training.metrics_csv import MetricsCsv
from vit_vs_cnn.workers.trainer import make_trainer, run_arguments

#: Largest numbers of images whose masked pixels are predicted after a pretraining, and that moments are estimated on.
SCORED_IMAGES, MOMENT_IMAGES = 256, 10_000
#: Parts of a checkpoint without which a run cannot be resumed exactly.
REQUIRED_RESUME_KEYS = ("global_step", "optimizer_states", "lr_schedulers", "loops", "callbacks")


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A trained network, ready to be scored, with the penalty of a probe and the number of the chosen variant."""

    network: nn.Module
    predict: Callable[[LabelledImages], Predictions]
    cost: TrainingCost
    penalty: float | None = None
    variant: int | None = None


def read_resume_point(run: Run) -> tuple[int, dict[str, Any]]:
    """Step and metadata of the checkpoint where the training of a run continues; step 0 without a checkpoint.

    Raises DamagedFile: the checkpoint is of another run, or an exact resume from it is impossible.
    """
    if not run.checkpoint.exists():
        return 0, {}
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
    return contents["global_step"], metadata


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
        "gray_bits": prepared.images.gray_bits,
        CHECKPOINT_KEY_TRAINING_HASHES: (prepared.start_images | TrainingImageHashes(training.hashes())).to_dict(),
    }


def fit(prepared: PreparedRun, services: Sequence[Logger], console: Console) -> FittedNetwork:
    """Train a run to its last step. An interrupted run resumes from its checkpoint.

    Raises:
        InputError: Lightning or the optimizer refuses a setting.
        DamagedFile: the checkpoint cannot be used (``read_resume_point``).
        TrainingDiverged: the loss is not a number.
        Interrupted: the user asked to stop. The state is saved.
    """
    run = prepared.run
    data = make_data_module(prepared)
    module = make_module(prepared, data)
    first_step, metadata = read_resume_point(run)
    # A run that ended early and was killed before its result is not trained further.
    steps = first_step if metadata.get(CHECKPOINT_KEY_ENDED_EARLY) else prepared.steps
    arguments = run_arguments(run, steps)
    metrics_csv, meter = MetricsCsv(run.folder / "metrics.csv"), TrainingMeter()
    resume = ExactResume(first_step, metadata.get(CHECKPOINT_KEY_LAST_METRICS) or {}, metrics_csv)
    own_callbacks = [*make_callbacks(prepared, arguments, console), resume]
    checkpoint = make_checkpoint(prepared, data, steps)
    trainer = make_trainer(
        {
            **arguments,
            # The checkpoint is last, so that it saves the state of all callbacks after the step.
            "callbacks": [meter, *own_callbacks, *as_list(arguments.get("callbacks")), checkpoint],
            "logger": [metrics_csv, *services],
            "enable_progress_bar": False,  # the callback RunProgress is one
            "default_root_dir": run.folder,
        }
    )
    with checkpoint.interrupt_on_signal(trainer):
        trainer.fit(module, datamodule=data, ckpt_path=run.checkpoint if metadata else None, weights_only=True)
    # Evaluate in float32: after bf16-true the weights are bfloat16, and images are float32.
    network = module.evaluated_network.float().to(trainer.strategy.root_device)
    predict_images = partial(predict, network, normalize=data.augmenter.normalize, what=run.name)
    return FittedNetwork(network, predict_images, measure_cost(prepared, trainer, meter))


def pretrain(prepared: PreparedRun, services: Sequence[Logger], console: Console, began: str) -> PretrainingResult:
    """Pretrain a network without labels, and write its weights. The map to pixels is not among them.

    The moments of batch norms are then estimated anew on whole images, as those of training are of masked images.
    """
    run, images = prepared.run, prepared.images
    fitted, data = fit(prepared, services, console), make_data_module(prepared)
    predictor: Any = fitted.network
    network, device = predictor.network, next(predictor.parameters()).device
    torch.manual_seed(derive_seed(run.seed, "masks"))
    scored = images.validation if len(images.validation) else images.training
    scored = scored.take(torch.randperm(len(scored))[:SCORED_IMAGES])
    with torch.no_grad(), evaluation_mode(predictor):
        pixels = resize_for(network, data.augmenter.normalize(scored.to(device)))
        mask = predictor.sample_mask(len(pixels), device)
        losses = float(predictor.loss(pixels, mask)), predictor.interpolation_loss(pixels, mask)
    whole = images.training.subset(torch.randperm(len(images.training))[:MOMENT_IMAGES])
    batches = whole.batches(whole.limit_batch(EVALUATION_BATCH))
    update_bn((data.augmenter.normalize(batch.to(device)) for batch in batches), network)
    write_checkpoint(run.weights_file, checkpoint_metadata(prepared, data.mean, data.std), network)
    result = PretrainingResult(
        len(images.training), *losses, hash_weights(network), fitted.cost, provenance=Provenance.collect(began)
    )
    console.print(f"{run.name}: {result.images:,} images without labels, {result.text}")
    return result


def make_data_module(prepared: PreparedRun) -> TrainingData:
    """The training and validation batches of a run."""
    run, images, experiment = prepared.run, prepared.images, prepared.run.experiment
    augmentation = scaled_augmentation(run, images.training)
    return TrainingData(
        images.training,
        None if run.is_pretraining else images.validation,
        augmentation=augmentation,
        batch_size=experiment.protocol.batch_size,
        steps=prepared.steps,
        accumulate=run.grad_accum_steps,
        seed=derive_seed(run.seed, "batches"),
        channels_last=uses_channels_last(experiment, prepared.network),
        normalization=prepared.normalization,
        transform=make_transform(augmentation, trust=experiment.trusted),
        unlabelled=prepared.unlabelled,
    )


def scaled_augmentation(run: Run, training: LabelledImages) -> Augmentation:
    """The augmentation of a run, with its padding in pixels of the network's images instead of the stored ones."""
    augmentation = run.experiment.augmentation(run.recipe)
    if training.stored is None:
        return augmentation
    scale = training.image_shape[1] / training.stored.image_shape[1]
    return replace(augmentation, crop_padding=round(scale * augmentation.crop_padding))


def make_module(prepared: PreparedRun, data: TrainingData) -> Classifier:
    """The network of a run with its loss, optimizer and schedule."""
    run, network = prepared.run, prepared.network
    experiment, recipe = run.experiment, run.recipe
    module = (MaskedPretraining if run.is_pretraining else Classifier)(
        network,
        num_classes=prepared.images.training.num_classes,
        optimizer=recipe.optimizer,
        schedule=recipe.schedule,
        steps=prepared.steps,
        label_smoothing=recipe.label_smoothing,
        ema_half_life=recipe.ema_half_life,
        seed=derive_seed(run.seed, "network"),
        loss=prepared.loss,
        class_weights=prepared.class_weights,
        metrics=prepared.metrics,
        teacher=_make_teacher(prepared, data),
        compile=experiment.protocol.is_compiled,
        trust=experiment.trusted,
    )
    if data.channels_last:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


def _make_teacher(prepared: PreparedRun, data: TrainingData) -> Teacher | None:
    """The teacher of a run, for images with the normalization of the run."""
    distill, teacher = prepared.run.recipe.distill, prepared.teacher
    if distill is None or teacher is None:
        return None
    moments = (data.mean, data.std, teacher.about.mean, teacher.about.std)
    mean, std, own_mean, own_std = (torch.tensor(values)[:, None, None] for values in moments)
    shift = (mean - own_mean) / own_std
    return Teacher(teacher.network.requires_grad_(False), distill.weight, distill.temperature, std / own_std, shift)


def make_checkpoint(prepared: PreparedRun, data: TrainingData, steps: int) -> RunCheckpoint:
    """The callback that saves the state of a run, by default every twentieth of its steps."""
    run = prepared.run
    return RunCheckpoint(
        run.checkpoint,
        interval=run.experiment.execution.checkpoint_interval or max(1, steps // 20),
        metadata=checkpoint_metadata(prepared, data.mean, data.std),
        run_name=run.name,
    )


def make_callbacks(prepared: PreparedRun, arguments: Mapping[str, Any], console: Console) -> list[Callback]:
    """The callbacks that freeze layers, if a recipe trains only the last ones, and that show the progress."""
    run, finetune = prepared.run, prepared.run.recipe.finetune
    progress = RunProgress(
        run.name,
        batch_size=run.experiment.protocol.batch_size,
        path=run.progress,
        console=console if arguments.get("enable_progress_bar", True) else None,
    )
    frozen = [] if finetune.last is None else [FrozenLayers(unwrap(prepared.network), last=finetune.last)]
    return [*frozen, progress]


def measure_cost(prepared: PreparedRun, trainer: lightning.Trainer, meter: TrainingMeter) -> TrainingCost:
    """The cost of a training that has ended."""
    teacher = prepared.run.teacher
    return TrainingCost(
        parameters=count_parameters(prepared.network),
        macs=prepared.macs,
        steps=trainer.global_step,
        images_processed=meter.images,
        passes=3,  # forward, and backward with twice its cost
        train_seconds=meter.seconds,
        devices=trainer.world_size,
        precision=str(trainer.precision),
        planned_steps=prepared.steps,
        further_flops=prepared.further_flops + prepared.further_flops_per_image * meter.images,
        teacher_training_flops=None if teacher is None else read_result(teacher.folder / "result.json").cost.flops,
    )
