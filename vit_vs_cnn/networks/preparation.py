"""Runs of an experiment, and their preparation: images, network, start weights and number of steps."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from vit_vs_cnn.config.experiment import Budget, Experiment
from vit_vs_cnn.config.user_code import make_loss, make_metrics
from vit_vs_cnn.counter_random import derive_seed
from vit_vs_cnn.data.batches import EVALUATION_BATCH
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.experiment_data import ExperimentData, RunImages
from vit_vs_cnn.models.cost import count_macs
from vit_vs_cnn.models.input_wrappers import unwrap
from vit_vs_cnn.networks.build import build_network, check_logits, start_from
from vit_vs_cnn.networks.kernels import choose_attention
from vit_vs_cnn.networks.pretrained import PretrainedWeights, fit_weights, read_pretrained, weights_identities
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.networks.training_hashes import NO_TRAINING_IMAGES, TrainingImageHashes
from vit_vs_cnn.runs.result import ScoredOn
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.training.classifier import balanced_weights
from vit_vs_cnn.training.masked_patches import PixelPredictor


def grid(experiment: Experiment, pool: ExperimentData, *, world_size: int) -> list[Run]:
    """All runs, by size, budget and seed, a model after its start. Raises InputError: there are too few images."""
    sizes = [pool.resolve(size) for size in experiment.protocol.train_sizes]
    common = world_size, weights_identities(experiment), max(sizes), pool.unlabelled_hash
    return [
        Run(experiment, model, size, budget, seed, pool.fingerprint, *common)
        for size in sorted(set(sizes))
        for budget in experiment.protocol.budget.each()
        for seed in experiment.protocol.seeds
        for model in experiment.in_order()
    ]


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run before its first step: its images, its network with the weights that it begins with, its budget in steps.

    Arguments:
        architecture: settings that the network is built from, completed for the images.
        start_images: images that the weights, and the teacher, were trained on before this run.
        scored_images_in_start: number of the images that the run is scored on among them.
        normalization: mean and standard deviation of each channel for which the weights were trained; None to measure
            those of the training images.
        teacher: network whose class probabilities are targets; None without one.
        unlabelled: images without labels that it is taught on; None without any.
        further_flops: FLOPs of the pretraining that it starts from.
        further_flops_per_image: FLOPs of a forward pass of the teacher for one image.
    """

    run: Run
    images: RunImages
    network: nn.Module
    macs: int
    steps: int
    architecture: dict[str, Any]
    loss: Callable[[Tensor, Tensor], Tensor] | None
    class_weights: list[float] | None
    metrics: dict[str, Metric]
    pretrained: PretrainedWeights | None = None
    start_images: TrainingImageHashes = NO_TRAINING_IMAGES
    scored_images_in_start: int = 0
    normalization: tuple[list[float], list[float]] | None = None
    teacher: TrainedNetwork | None = None
    unlabelled: LabelledImages | None = None
    further_flops: int = 0
    further_flops_per_image: int = 0

    @property
    def flops_per_step(self) -> int:
        """Training FLOPs of an optimizer step."""
        return (3 * 2 * self.macs + self.further_flops_per_image) * self.run.experiment.protocol.batch_size


def prepare(run: Run, data: ExperimentData) -> PreparedRun:
    """Sample the images of a run, check its start weights, and build its network with these weights."""
    images = (data.draw_unlabelled if run.is_pretraining else data.draw)(run.train_size, run.seed)
    unlabelled = None
    prepared = prepare_network(run, images)
    start, teacher = load_start_weights(run, prepared.network), open_teacher(run, images)
    start_images, count = check_start_overlap(run, images, data, start)
    if teacher is not None:
        check_overlap(run, images, data, teacher, "distill.teacher")
        start_images |= teacher.training_hashes
        if data.data.unlabelled is not None:
            unlabelled = data.draw_unlabelled(run.pretrain_size or run.train_size, run.seed).training
            start_images |= TrainingImageHashes(np.unique(unlabelled.hashes()))
    normalization = prepared.normalization
    if start is not None and run.start is not None and run.start.is_pretraining:
        normalization = start.about.mean, start.about.std
    return replace(
        prepared,
        start_images=start_images,
        scored_images_in_start=count,
        normalization=normalization,
        teacher=teacher,
        unlabelled=unlabelled,
    )


#: Multiply-accumulates of the networks that were checked, by architecture, number of classes and shape of an image.
_MACS: dict[str, int] = {}


def prepare_network(run: Run, images: RunImages) -> PreparedRun:
    """Build the network from the seed of a run, load its pretrained weights, and turn the budget into steps.

    Weights of another run (``starts_from``) are not loaded: see ``load_start_weights``.

    Raises:
        InputError: a model, optimizer, loss or metric that cannot be made or does not fit the images, or weights that
            do not fit.
    """
    recipe, trust = run.recipe, run.experiment.trusted
    location = f"models.{run.model}"
    shape, num_classes = images.training.image_shape, images.training.num_classes
    pretrained, architecture = read_pretrained(run.experiment, run.model), recipe.architecture
    if pretrained is not None:
        architecture = pretrained.adapt_architecture(architecture, (shape[1], shape[2]))
    torch.manual_seed(derive_seed(run.seed, "initialisation"))  # after reading weights, which happens only once
    network = build_network(architecture, num_classes=num_classes, image_shape=shape, location=location, trust=trust)
    key = json.dumps([architecture, num_classes, shape], sort_keys=True, default=str)
    if key not in _MACS or recipe.class_path is not None:  # the code of a class may have changed
        _MACS[key] = check_logits(network, shape, num_classes=num_classes, location=location)
    macs = _MACS[key]
    if run.is_pretraining and (pretrain := recipe.pretrain) is not None:
        place = f"{location}.pretrain"
        network = PixelPredictor(network, shape, patch=pretrain.patch, mask=pretrain.mask, location=place)
        macs = count_macs(network, network.input_shape)
    if pretrained is not None:
        fit_weights(unwrap(network), pretrained, num_classes=num_classes, location=f"{location}.weights")
        if pretrained.mean is not None and len(pretrained.mean) != shape[0]:
            raise InputError(
                f"{location}.weights: they need images with {len(pretrained.mean)} channels, but these have {shape[0]}"
            )
    choose_attention(network, run.experiment)
    try:
        recipe.optimizer.build(network, trust=trust)  # an error is found before anything trains
    except InputError as error:
        raise InputError(f"{location}.{error}") from error
    class_weights = recipe.class_weights
    if class_weights == "balanced":
        class_weights = balanced_weights(images.training.labels, num_classes)
    elif class_weights is not None and len(class_weights) != num_classes:
        raise InputError(
            f"{location}.class_weights: has {len(class_weights)} numbers, and there are {num_classes} classes"
        )
    counts = {"batch_size": run.experiment.protocol.batch_size, "train_images": len(images.training)}
    pretraining = prepare_network(run.start, images) if run.start is not None and run.start.is_pretraining else None
    further_flops = 0 if pretraining is None else pretraining.steps * pretraining.flops_per_step
    forward_flops = _teacher_flops(run, images)
    budget = run.budget
    if budget.flops is not None and further_flops:
        (left,) = (amount - further_flops for amount in budget.amounts)
        if left <= 0:
            raise InputError(
                f"protocol.budget: {budget.text} are less than the {further_flops:.3g} FLOPs of {location}.pretrain, "
                "which are part of them; use a larger budget or fewer steps of pretrain"
            )
        budget = Budget(flops=left)
    has_own_epochs = recipe.finetune.epochs is not None
    # The forward pass of a teacher is a third of the training FLOPs of a network of its size.
    cost = macs + round(forward_flops / 6)
    steps = recipe.finetune.count_steps(**counts) if has_own_epochs else budget.to_steps(**counts, macs=cost)
    augmentation = run.experiment.augmentation(recipe)
    return PreparedRun(
        run=run,
        images=images,
        network=network,
        macs=macs,
        steps=steps,
        architecture=architecture,
        loss=make_loss(
            recipe.loss,
            num_classes=num_classes,
            mixed=augmentation.mixup > 0 or augmentation.cutmix > 0,
            location=f"{location}.loss",
            trust=trust,
        ),
        class_weights=class_weights,
        metrics=make_metrics(run.experiment.execution.metrics, num_classes=num_classes, trust=trust),
        pretrained=pretrained,
        normalization=None if pretrained is None else pretrained.moments,
        further_flops=further_flops,
        further_flops_per_image=forward_flops,
    )


def _teacher_flops(run: Run, images: RunImages) -> int:
    """FLOPs of a forward pass of the teacher for one image; 0 without a teacher."""
    if run.teacher is not None:
        return 2 * prepare_network(run.teacher, images).macs
    teacher = open_teacher(run, images)
    return 0 if teacher is None else 2 * count_macs(teacher.network, teacher.image_shape)


def open_teacher(run: Run, images: RunImages) -> TrainedNetwork | None:
    """Open the network that teaches a run; None without one. Its class must be in the config to be imported.

    Raises InputError: the file is missing or damaged, or the network has other classes or images of another shape.
    """
    if (distill := run.recipe.distill) is None:
        return None
    location = f"models.{run.model}.distill.teacher"
    place = Path(distill.teacher) if run.teacher is None else run.teacher.checkpoint
    known_class = False if run.teacher is None else run.teacher.recipe.class_path or False
    if not run.experiment.trusted:
        raise InputError(f"{location}: it is not opened, as the config comes from a file that is not trusted")
    teacher = TrainedNetwork.open(place, trust=known_class)
    for name in ("class_names", "image_shape"):
        if (own := getattr(images.training, name)) != getattr(teacher, name):
            raise InputError(f"{location}: {teacher.name} has {name} {getattr(teacher, name)}, and the data have {own}")
    return teacher


def check_validation_batches(run: Run, images: RunImages) -> None:
    """Refuse a share of the validation batches that is less than one batch, as Lightning does in every run."""
    share, count = run.experiment.trainer.get("limit_val_batches"), len(images.validation)
    if not isinstance(share, float) or not 0 < share < 1 or not count:
        return
    batch_size = images.validation.limit_batch(
        max(run.experiment.protocol.batch_size // run.grad_accum_steps, EVALUATION_BATCH)
    )
    batches = math.ceil(count / run.world_size / batch_size)
    if int(batches * share) < 1:
        raise InputError(
            f"trainer.limit_val_batches: {share} of the validation batches (there are {batches}) is less than one; "
            f"take {1 / batches:.2g} or more, or a whole number"
        )


def load_start_weights(run: Run, network: nn.Module) -> TrainedNetwork | None:
    """Load the trained weights of ``starts_from`` into the network of a run; None without it.

    A class must be in the config to be imported. Raises InputError: the checkpoint is missing, damaged or of another
    model, or its weights do not fit.
    """
    if run.start is None:
        return None
    known_class = run.start.recipe.class_path or False
    start = TrainedNetwork.open(run.start.weights_file, trust=run.experiment.trusted and known_class)
    setting = "pretrain" if run.start.is_pretraining else "starts_from"
    start_from(network, start.network, location=f"models.{run.model}.{setting}")
    return start


def check_start_overlap(
    run: Run, images: RunImages, data: ExperimentData, start: TrainedNetwork | None = None
) -> tuple[TrainingImageHashes, int]:
    """Check that the start weights of a run were not trained on its validation or test images.

    Images that the data set also has among its own training images do not count.

    Raises:
        InputError: weights that cannot be read, or that were trained on more of the validation or test images than
            ``weights.max_known_overlap`` allows.
    """
    weights = read_pretrained(run.experiment, run.model) or start
    if weights is None:
        return NO_TRAINING_IMAGES, 0
    if run.recipe.weights is not None:
        setting = "weights"
    else:
        setting = "starts_from" if run.recipe.pretrain is None else "pretrain"
    return weights.training_hashes, check_overlap(run, images, data, weights, setting)


def check_overlap(
    run: Run, images: RunImages, data: ExperimentData, weights: TrainedNetwork | PretrainedWeights, setting: str
) -> int:
    """Number of the scored images of a run that the weights of a ``setting`` of its model were trained on.

    Raises InputError: as ``check_start_overlap``.
    """
    allowed, remedy = 0, "use other weights"
    if setting == "weights" and run.recipe.weights is not None:
        allowed = run.recipe.weights.max_known_overlap
        remedy += ", or allow this number with weights.max_known_overlap; the report states it"
    uses = {"validated with": (images.validation.hashes(), images.training.hashes())}
    if run.scored_on is ScoredOn.TEST:
        uses["tested on"] = (data.test_hashes(run.seed), data.trainable_hashes(run.seed))
    count = 0
    for use, (scored, own) in uses.items():  # the scored images are the last
        if (count := weights.training_hashes.count_in(scored, except_for=own)) > allowed:
            raise InputError(
                f"models.{run.model}.{setting}: the weights of {weights.name} were trained on {count:,} of the "
                f"{len(scored):,} images that {run.name} is {use}; {remedy}"
            )
    return count
