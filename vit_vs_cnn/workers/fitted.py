"""What training a cell leaves behind, however it was trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lightning.pytorch.loggers import Logger
from torch import nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.evaluation import Normalise, Predictions
from vit_vs_cnn.runs.images import CellImages
from vit_vs_cnn.runs.plan import Plan
from vit_vs_cnn.runs.result import TrainingCost
from vit_vs_cnn.runs.seen import KEY, Seen


@dataclass(frozen=True, eq=False)
class Fitted:
    """A network that has been trained.

    Arguments:
        network: whose answers count: the averaged one where there is an average. In float32 and on its device.
        normalise: bytes to what it takes.
        answers: what it says of images.
        explained: the same with the features that it says it by, where it has some.
        before: what the weights that it began with had seen.
        loggers: which have to be told the result.
        penalty: of a linear probe.
    """

    network: nn.Module
    normalise: Normalise
    answers: Callable[[LabelledImages], Predictions]
    explained: Callable[[LabelledImages], Predictions]
    images: CellImages
    plan: Plan
    cost: TrainingCost
    before: Seen
    loggers: Sequence[Logger]
    penalty: float | None = None


def described(
    cell: Cell, images: CellImages, plan: Plan, normalisation: tuple[Sequence[float], Sequence[float]], before: Seen
) -> dict[str, Any]:
    """What the checkpoint of a cell says of its network, plain values only."""
    mean, std = normalisation
    return {
        "identity": cell.identity,
        "origin": cell.to_dict(),
        "contender": cell.contender,
        "model": plan.model,
        "class_names": list(images.training.class_names),
        "image_shape": list(images.training.image_shape),
        "mean": list(mean),
        "std": list(std),
        KEY: (before | Seen(images.training.hashes())).to_dict(),
    }
