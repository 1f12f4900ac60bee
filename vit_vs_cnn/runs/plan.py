"""What follows from a cell before it runs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.checkpointing import checkpoint_gradients
from vit_vs_cnn.models.cost import count_parameters
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import CellImages
from vit_vs_cnn.runs.networks import build_network, check_logits, network_of
from vit_vs_cnn.runs.own import own_loss, own_metrics
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.training.checkpoints import read_checkpoint
from vit_vs_cnn.training.classifier import balanced_weights


@dataclass(frozen=True)
class Plan:
    """What follows from a cell before it runs: its network, its budget in numbers, what of it is the user's own.

    Arguments:
        loss: of the user's own; None for cross entropy.
        class_weights: in the cross entropy; None for all alike.
        metrics: of the user's own, by name.
    """

    network: nn.Module
    parameters: int
    macs: int
    steps: int
    loss: Callable[[Tensor, Tensor], Tensor] | None
    class_weights: list[float] | None
    metrics: dict[str, Metric]


def make_plan(cell: Cell, images: CellImages) -> Plan:
    """Build the network from the cell's seed and turn the budget into steps.

    Raises:
        InputError: a model, an optimizer, a loss or a metric that cannot be made, or does not fit the images.
    """
    contender, execution = cell.recipe, cell.experiment.execution
    shape, num_classes = images.training.image_shape, images.training.num_classes
    place = f"contenders.{cell.contender}.model"
    torch.manual_seed(derive_seed(cell.seed, "initialisation"))
    trust = cell.experiment.trusted
    network = build_network(contender.model, num_classes=num_classes, image_shape=shape, where=place, trust=trust)
    try:
        contender.optimizer.build(network, trust=trust)  # before anything trains, not after the first contender has
    except InputError as error:
        raise InputError(f"contenders.{cell.contender}.{error}") from error
    if execution.gradient_checkpointing:
        try:
            checkpoint_gradients(network)
        except ValueError as error:
            raise InputError(f"execution.gradient_checkpointing: {place}: {error}") from error
    macs = check_logits(network, shape, num_classes=num_classes, where=place)
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
    return Plan(network, count_parameters(network), macs, steps, loss, weights, metrics)


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
    contents = read_checkpoint(path)
    is_known = isinstance(cell.start, Cell) and contents["vit_vs_cnn"].get("model") == dict(cell.start.recipe.model)
    return network_of(contents, path, trust=cell.experiment.trusted and is_known)[0]
