"""Temperature and out-of-distribution score of a trained network, fitted on its validation images."""

import contextlib
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
from vit_vs_cnn.runs.calibration import MIN_VALIDATION_IMAGES, fit_temperature
from vit_vs_cnn.runs.evaluation import Normalise, Predictions, hash_weights
from vit_vs_cnn.runs.experiment_data import RunImages
from vit_vs_cnn.runs.out_of_distribution import MIN_AUROC, OutOfDistributionScore, auroc, unlike_images
from vit_vs_cnn.runs.result import read_result

#: Largest number of training images whose features are stored.
MAX_STORED_FEATURES = 1000
#: File in the folder of a run, and next to an exported network.
OUT_OF_DISTRIBUTION_FILE = "out_of_distribution.npz"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Values fitted on validation images.

    Arguments:
        temperature: divisor of the logits; None if there were too few images.
        out_of_distribution: None without a last linear layer, with too few images, or if the score does not separate
            noise and blank images from validation images.
    """

    images: int = 0
    temperature: float | None = None
    out_of_distribution: OutOfDistributionScore | None = None

    def to_dict(self) -> dict[str, Any]:
        """The values in ``result.json`` and ``config.json``."""
        return {"temperature": self.temperature, "validation_images": self.images}


def examine(
    predict_images: Callable[[LabelledImages], Predictions], images: RunImages
) -> tuple[Predictions | None, HeldOut]:
    """Predict the validation images of a network, and fit temperature and out-of-distribution score on them.

    Arguments:
        predict_images: predictions of the network, with features if it has a last linear layer.

    Returns:
        the predictions, None without validation images, and the fitted values.

    Raises:
        TrainingDiverged: a prediction that is not finite.
    """
    count = len(images.validation)
    predictions = predict_images(images.validation) if count else None
    if predictions is None or count < MIN_VALIDATION_IMAGES:
        return predictions, HeldOut(count)
    features = predictions.features
    score = None if features is None else _fit_score(predict_images, images, features)
    return predictions, HeldOut(count, fit_temperature(predictions.logits, predictions.labels), score)


def _fit_score(
    predict_images: Callable[[LabelledImages], Predictions], images: RunImages, features: Tensor
) -> OutOfDistributionScore | None:

    def features_of(data: LabelledImages) -> Tensor:
        computed = predict_images(data).features
        assert computed is not None
        return computed

    count = len(images.training)
    training = images.training.subset(torch.linspace(0, count - 1, min(MAX_STORED_FEATURES, count)).long())
    validation = images.validation
    score = OutOfDistributionScore.fit((training.images, features_of(training)), (validation.images, features))
    if score is None:
        return None
    usual = score.scores(validation.images, features)
    for pixels in unlike_images(validation.image_shape).values():
        data = LabelledImages(pixels, torch.full((len(pixels),), UNKNOWN), validation.class_names)
        if auroc(usual, score.scores(pixels, features_of(data))) < MIN_AUROC:
            return None
    return score


def called_classifier(network: nn.Module, images: LabelledImages, normalise: Normalise) -> nn.Linear | None:
    """The last linear layer of a network; None if the network does not call it, or if there are no images."""
    if not len(images) or (classifier := find_classifier(network, images.num_classes)) is None:
        return None
    device = next(network.parameters()).device
    try:
        with torch.no_grad(), evaluation_mode(network):
            logits_and_features(network, normalise(images.images[:1].to(device)), classifier)
    except InputError:
        return None
    return classifier


def read_held_out(path: Path, network: nn.Module) -> HeldOut:
    """Read the fitted values of the network of a file, in the folder of its run or next to an exported file.

    Values of other weights, such as for a checkpoint in the middle of a run, and unreadable ones are left out.
    """
    weights, values = hash_weights(network), {}
    folder = path.parent
    if path.suffix == ".ckpt":
        folder = folder.parent if folder.name == "checkpoints" else folder
        with contextlib.suppress(DamagedFile):
            result = read_result(folder / "result.json")
            if result.weights == weights:
                values = HeldOut(result.data.validation_images, result.scores.temperature).to_dict()
    elif isinstance(metadata := read_mapping(folder / "config.json").get("vit_vs_cnn"), dict):
        values = metadata
    temperature, images = values.get("temperature"), values.get("validation_images")
    if not isinstance(temperature, float | int) or not 0 < temperature < math.inf or not isinstance(images, int):
        return HeldOut()
    score = OutOfDistributionScore.load_of(folder / OUT_OF_DISTRIBUTION_FILE, weights)
    return HeldOut(images, float(temperature), score)
