"""What follows from a config before anything runs: its cells and, of each, the network and the steps."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.data.batches import EVALUATION_BATCH
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.checkpointing import checkpoint_gradients
from vit_vs_cnn.models.cost import count_parameters
from vit_vs_cnn.models.resized import inner
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import CellImages, Pool
from vit_vs_cnn.runs.networks import build_network, check_logits, network_of
from vit_vs_cnn.runs.own import own_loss, own_metrics
from vit_vs_cnn.runs.pretrained import Pretrained, fit_weights, identities_of, pretrained_of
from vit_vs_cnn.runs.seen import NOTHING, Seen, seen_of
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.training.checkpoints import read_checkpoint
from vit_vs_cnn.training.classifier import balanced_weights


def grid(experiment: Experiment, pool: Pool, *, world_size: int) -> list[Cell]:
    """All cells, the contenders of one size, budget and seed side by side, each behind the one that it starts from.

    Raises:
        InputError: a training size that the images do not allow.
    """
    sizes = [pool.resolve(size) for size in experiment.protocol.train_sizes]
    _check_all_has_one_name(experiment, sizes)
    weights = identities_of(experiment)
    return [
        Cell(experiment, contender, size, budget, seed, pool.fingerprint, world_size, weights)
        for size in sorted(set(sizes))
        for budget in experiment.protocol.budget.each()
        for seed in experiment.protocol.seeds
        for contender in experiment.in_order()
    ]


def _check_all_has_one_name(experiment: Experiment, sizes: list[int]) -> None:
    """What is different at ``all`` has no place where a number names that size, too."""
    if len(set(sizes)) == len(sizes):
        return
    for name, contender in experiment.contenders.items():
        places = {"by_size": contender.by_size}
        places |= {f"by_budget.{key}.by_size": over.get("by_size", {}) for key, over in contender.by_budget.items()}
        if wrong := [place for place, by_size in places.items() if "all" in by_size]:
            raise InputError(
                f"contenders.{name}.{wrong[0]}: all is {max(sizes)} here, which protocol.train_sizes names already; "
                "write the number, and name the size once"
            )


@dataclass(frozen=True)
class Plan:
    """What follows from a cell before it runs: its network, its budget in numbers, what of it is the user's own.

    Arguments:
        model: the ``model`` block that the network is built from: that of the config, for the images at hand.
        loss: of the user's own; None for cross entropy.
        class_weights: in the cross entropy; None for all alike.
        metrics: of the user's own, by name.
        pretrained: the weights that it begins with; None for drawn ones, and those of ``starts_from``.
        drawn: names of the weights besides the head that were drawn, though there are pretrained ones.
    """

    network: nn.Module
    parameters: int
    macs: int
    steps: int
    model: dict[str, Any]
    loss: Callable[[Tensor, Tensor], Tensor] | None
    class_weights: list[float] | None
    metrics: dict[str, Metric]
    pretrained: Pretrained | None = None
    drawn: tuple[str, ...] = ()

    @property
    def normalisation(self) -> tuple[list[float], list[float]] | None:
        """Mean and deviation that the pretrained weights came with; None for those of the training images."""
        known = self.pretrained
        return None if known is None or known.mean is None or known.std is None else (known.mean, known.std)


def make_plan(cell: Cell, images: CellImages) -> Plan:
    """Build the network from the cell's seed, give it its pretrained weights, and turn the budget into steps.

    Raises:
        InputError: a model, an optimizer, a loss or a metric that cannot be made or does not fit the images, weights
            that do not fit.
    """
    contender, execution = cell.recipe, cell.experiment.execution
    shape, num_classes = images.training.image_shape, images.training.num_classes
    place = f"contenders.{cell.contender}.model"
    pretrained, model = pretrained_of(cell.experiment, cell.contender), dict(contender.model)
    if pretrained is not None:
        model = pretrained.model(model, (shape[1], shape[2]))
    torch.manual_seed(derive_seed(cell.seed, "initialisation"))  # behind reading weights, which is done but once
    trust = cell.experiment.trusted
    network = build_network(model, num_classes=num_classes, image_shape=shape, where=place, trust=trust)
    macs = check_logits(network, shape, num_classes=num_classes, where=place)
    drawn: tuple[str, ...] = ()
    if pretrained is not None and contender.weights is not None:
        where = f"contenders.{cell.contender}.weights"
        how = {"num_classes": num_classes, "partial": contender.weights.partial, "where": where}
        drawn = fit_weights(inner(network), pretrained, **how)
        _check_channels(pretrained, shape[0], where)
    try:
        contender.optimizer.build(network, trust=trust)  # before anything trains, not after the first contender has
    except InputError as error:
        raise InputError(f"contenders.{cell.contender}.{error}") from error
    if execution.gradient_checkpointing:
        try:
            checkpoint_gradients(inner(network))
        except ValueError as error:
            raise InputError(f"execution.gradient_checkpointing: {place}: {error}") from error
    batch_size = cell.experiment.protocol.batch_size
    steps = cell.budget.to_steps(batch_size=batch_size, train_images=len(images.training), macs=macs)
    augmentation = cell.experiment.augmentation(contender)
    loss = own_loss(
        contender.loss,
        num_classes=num_classes,
        mixed=augmentation.mixup > 0 or augmentation.cutmix > 0,
        where=f"contenders.{cell.contender}.loss",
        trust=trust,
    )
    metrics = own_metrics(execution.metrics, num_classes=num_classes, trust=trust)
    weights = _class_weights(cell, images)
    return Plan(network, count_parameters(network), macs, steps, model, loss, weights, metrics, pretrained, drawn)


def check_validation_batches(cell: Cell, images: CellImages) -> None:
    """Refuse a share of the validation batches that is less than one, as Lightning would in every run."""
    share = cell.experiment.trainer.get("limit_val_batches")
    if not isinstance(share, float) or not 0 < share < 1:
        return
    accumulated = cell.experiment.trainer.get("accumulate_grad_batches") or 1
    protocol, count = cell.experiment.protocol, len(images.validation)
    batches = math.ceil(count / cell.world_size / max(protocol.batch_size // accumulated, EVALUATION_BATCH))
    if count and int(batches * share) < 1:
        raise InputError(
            f"trainer.limit_val_batches: {share} of the validation batches (there {'is' if batches == 1 else 'are'} "
            f"{batches} with {count:,} images) is less than one; take {1 / batches:.2g} or more, or a whole number"
        )


def _check_channels(pretrained: Pretrained, channels: int, where: str) -> None:
    if pretrained.mean is not None and len(pretrained.mean) != channels:
        raise InputError(
            f"{where}: they take images of {len(pretrained.mean)} channels, and these have {channels}; mean and std "
            "say how to normalise them"
        )


def _class_weights(cell: Cell, images: CellImages) -> list[float] | None:
    given, classes = cell.recipe.class_weights, images.training.num_classes
    if given == "balanced":
        return balanced_weights(images.training.labels, classes)
    if given is not None and len(given) != classes:
        where = f"contenders.{cell.contender}.class_weights"
        raise InputError(f"{where}: has {len(given)} numbers, and there are {classes} classes")
    return given


def starting_network(cell: Cell) -> nn.Module | None:
    """The trained network that a cell begins with, by ``starts_from``; None where its weights are drawn.

    A class of the user's own is imported for another contender's cell alone, and only if the config names it there.

    Raises:
        InputError: its checkpoint is not there, damaged, or not what the config says.
    """
    path = cell.start_checkpoint
    if path is None:
        return None
    known = cell.start.recipe.model.get("class_path", False) if isinstance(cell.start, Cell) else False
    return network_of(read_checkpoint(path), path, trust=cell.experiment.trusted and known)[0]


def seen_before(cell: Cell, images: CellImages, pool: Pool) -> Seen:
    """What the weights that a cell begins with have seen.

    Arguments:
        images: of the cell.
        pool: all images, those that it is tested on included.

    Raises:
        InputError: weights that can't be read, or that have seen more images that the cell is validated with or tested
            on than ``weights.may_have_seen`` allows. Those that the cell's own data hold among the images to train on
            as well are no finding of its start.
    """
    if (pretrained := pretrained_of(cell.experiment, cell.contender)) is not None:
        asked, told, seen = "weights", pretrained.told, pretrained.seen
    elif (path := cell.start_checkpoint) is not None:
        asked, told, seen = "starts_from", path, seen_of(read_checkpoint(path)["vit_vs_cnn"])
    else:
        return NOTHING
    allowed = 0 if cell.recipe.weights is None else cell.recipe.weights.may_have_seen
    held = {"validated with": (images.validation.hashes(), images.training.hashes())}
    if cell.experiment.protocol.scored_on == "test":
        held["tested on"] = (pool.test_hashes(cell.seed), pool.trainable_hashes(cell.seed))
    for use, (scoring, own) in held.items():
        if (count := seen.among(scoring, but=own)) > allowed:
            may = (
                "" if asked == "starts_from" else f"; weights.may_have_seen: {count} allows it, and the report tells it"
            )
            raise InputError(
                f"contenders.{cell.contender}.{asked}: the weights of {told} were trained on {count:,} of the "
                f"{len(scoring):,} images that {cell.name} is {use}; it needs others{may}"
            )
    return seen
