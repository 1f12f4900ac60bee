"""What images that were held out of training tell of a network once it is trained: a temperature, and what is near."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.files import read_mapping
from vit_vs_cnn.models.features import classifier_of, logits_and_features
from vit_vs_cnn.models.recording import as_evaluated
from vit_vs_cnn.runs.calibration import LEAST, fit_temperature
from vit_vs_cnn.runs.evaluation import Normalise, Predictions, hash_weights
from vit_vs_cnn.runs.familiarity import Familiarity
from vit_vs_cnn.runs.images import CellImages
from vit_vs_cnn.runs.result import read_result

#: Training images whose features are kept.
MOST_KEPT = 1000
#: The file of a cell, and beside an exported network.
FILE = "familiarity.npz"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What validation images tell.

    Arguments:
        images: how many they were.
        temperature: logits are divided by it; None where none was found.
        familiarity: None where the network has no last linear map, or they were too few.
    """

    images: int = 0
    temperature: float | None = None
    familiarity: Familiarity | None = None

    def to_dict(self) -> dict[str, Any]:
        """What stands in ``result.json`` and ``config.json``."""
        return {"temperature": self.temperature, "validation_images": self.images}


def examine(answers: Callable[[LabelledImages], Predictions], images: CellImages) -> tuple[Predictions | None, HeldOut]:
    """What a network answers to its validation images, None where there are none, and what these tell of it.

    Arguments:
        answers: what it says of images, with their features where it has some.

    Raises:
        TrainingDiverged: an answer that is no finite number.
    """
    held = images.validation
    found = answers(held) if len(held) else None
    if found is None or len(held) < LEAST:
        return found, HeldOut(len(held))
    familiarity = None
    if found.features is not None:
        kept = torch.linspace(0, len(images.training) - 1, min(MOST_KEPT, len(images.training))).long()
        training = answers(images.training.subset(kept)).features
        assert training is not None
        familiarity = Familiarity.of(training, found.features)
    return found, HeldOut(len(held), fit_temperature(found.logits, found.labels), familiarity)


def called_classifier(network: nn.Module, images: LabelledImages, normalise: Normalise) -> nn.Linear | None:
    """The last linear map of a network, if it calls it; None where there are no images to see that by."""
    if not len(images) or (classifier := classifier_of(network, images.num_classes)) is None:
        return None
    device = next(network.parameters()).device
    try:
        with torch.no_grad(), as_evaluated(network):
            logits_and_features(network, normalise(images.images[:1].to(device)), classifier)
    except InputError:
        return None
    return classifier


def _held_out_in_result(path: Path, weights: str) -> dict[str, Any]:
    """Temperature and number of validation images of a run; empty for other weights, or where there is no result."""
    try:
        result = read_result(path)
    except DamagedFile:
        return {}
    if result.weights != weights:
        return {}
    return {"temperature": result.scores.temperature, "validation_images": result.data.validation_images}


def read_held_out(path: Path, network: nn.Module) -> HeldOut:
    """What was found of the network of a file: in its cell's folder, or beside it, where it was exported to.

    What is of other weights, as of a checkpoint in the middle of a run, or cannot be read, is left out.
    """
    weights = hash_weights(network)
    if path.suffix == ".ckpt":
        folder = path.parent.parent if path.parent.name == "checkpoints" else path.parent
        said = _held_out_in_result(folder / "result.json", weights)
    else:
        folder = path.parent
        said = read_mapping(folder / "config.json").get("vit_vs_cnn")
        said = said if isinstance(said, dict) else {}
    temperature, images = said.get("temperature"), said.get("validation_images")
    if not isinstance(temperature, float | int) or not 0 < temperature < math.inf or not isinstance(images, int):
        return HeldOut()
    return HeldOut(images, float(temperature), Familiarity.load_of(folder / FILE, weights))
