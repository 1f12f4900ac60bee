"""What follows from a cell before it runs."""

from dataclasses import dataclass

import torch
from torch import nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.cost import count_parameters
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.images import CellImages
from vit_vs_cnn.runs.networks import build_network, check_logits, network_of
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.training.checkpoints import read_checkpoint


@dataclass(frozen=True)
class Plan:
    """What follows from a cell before it runs: its network and its budget in numbers."""

    network: nn.Module
    parameters: int
    macs: int
    steps: int


def make_plan(cell: Cell, images: CellImages) -> Plan:
    """Build the network from the cell's seed and turn the budget into steps.

    Raises:
        InputError: a model that cannot be built, a batch size that does not divide.
    """
    contender = cell.recipe
    shape, num_classes = images.training.image_shape, images.training.num_classes
    place = f"contenders.{cell.contender}.model"
    torch.manual_seed(derive_seed(cell.seed, "initialisation"))
    trust = cell.experiment.trusted
    network = build_network(contender.model, num_classes=num_classes, image_shape=shape, where=place, trust=trust)
    try:
        contender.optimizer.build(network)  # before anything trains, not after the first contender has
    except InputError as error:
        raise InputError(f"contenders.{cell.contender}.{error}") from error
    macs = check_logits(network, shape, num_classes=num_classes, where=place)
    batch_size = cell.experiment.protocol.batch_size
    steps = cell.budget.to_steps(batch_size=batch_size, train_images=len(images.training), macs=macs)
    return Plan(network, count_parameters(network), macs, steps)


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
