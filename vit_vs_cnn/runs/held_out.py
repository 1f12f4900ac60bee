"""What is fitted on the validation images of a trained network: a temperature and an out-of-distribution score."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_vs_cnn.data.images import UNKNOWN, LabelledImages
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.files import read_mapping
from vit_vs_cnn.models.features import find_classifier, logits_and_features
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.runs.calibration import LEAST, fit_temperature
from vit_vs_cnn.runs.evaluation import Normalise, Predictions, hash_weights
from vit_vs_cnn.runs.experiment_data import RunImages
from vit_vs_cnn.runs.out_of_distribution import MIN_AUROC, OutOfDistributionScore, auroc, unlike_images
from vit_vs_cnn.runs.result import read_result

#: Largest number of training images whose features are kept.
MOST_KEPT = 1000
#: The file of a cell, and beside an exported network.
FILE = "out_of_distribution.npz"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What was fitted on validation images.

    Arguments:
        images: number of validation images.
        temperature: logits are divided by it; None if it was not fitted.
        out_of_distribution: the score; None if the network has no last linear map, if there were too few images, or if
            the score does not separate noise and blank images from validation images.
    """

    images: int = 0
    temperature: float | None = None
    out_of_distribution: OutOfDistributionScore | None = None

    def to_dict(self) -> dict[str, Any]:
        """The values in ``result.json`` and ``config.json``."""
        return {"temperature": self.temperature, "validation_images": self.images}


def examine(answers: Callable[[LabelledImages], Predictions], images: RunImages) -> tuple[Predictions | None, HeldOut]:
    """Predict the validation images of a network, and fit temperature and out-of-distribution score on them.

    Arguments:
        answers: predictions of the network for images, with features if it has a last linear map.

    Returns:
        the predictions, None without validation images, and what was fitted.

    Raises:
        TrainingDiverged: a prediction that is not finite.
    """
    held = images.validation
    found = answers(held) if len(held) else None
    if found is None or len(held) < LEAST:
        return found, HeldOut(len(held))
    score = None if found.features is None else _fit_score(answers, images, found.features)
    return found, HeldOut(len(held), fit_temperature(found.logits, found.labels), score)


def _fit_score(
    answers: Callable[[LabelledImages], Predictions], images: RunImages, features: Tensor
) -> OutOfDistributionScore | None:
    """The out-of-distribution score; None if it does not separate noise and blank images from validation images.

    Arguments:
        features: of the validation images.
    """

    def features_of(some: LabelledImages) -> Tensor:
        found = answers(some).features
        assert found is not None
        return found

    kept = torch.linspace(0, len(images.training) - 1, min(MOST_KEPT, len(images.training))).long()
    training, held = images.training.subset(kept), images.validation
    score = OutOfDistributionScore.fit((training.images, features_of(training)), (held.images, features))
    if score is None:
        return None
    usual = score.scores(held.images, features)
    for unlike in unlike_images(held.image_shape).values():
        data = LabelledImages(unlike, torch.full((len(unlike),), UNKNOWN), held.class_names)
        if auroc(usual, score.scores(unlike, features_of(data))) < MIN_AUROC:
            return None
    return score


def called_classifier(network: nn.Module, images: LabelledImages, normalise: Normalise) -> nn.Linear | None:
    """The last linear map of a network, if it calls it; None where there are no images to see that by."""
    if not len(images) or (classifier := find_classifier(network, images.num_classes)) is None:
        return None
    device = next(network.parameters()).device
    try:
        with torch.no_grad(), evaluation_mode(network):
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
        in_result = _held_out_in_result(folder / "result.json", weights)
    else:
        folder = path.parent
        in_result = read_mapping(folder / "config.json").get("vit_vs_cnn")
        in_result = in_result if isinstance(in_result, dict) else {}
    temperature, images = in_result.get("temperature"), in_result.get("validation_images")
    if not isinstance(temperature, float | int) or not 0 < temperature < math.inf or not isinstance(images, int):
        return HeldOut()
    return HeldOut(images, float(temperature), OutOfDistributionScore.load_of(folder / FILE, weights))
