"""Temperature and out-of-distribution score of a trained network, fitted on its validation images."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float16, Float64, UInt8
from torch import Tensor, nn

from vit_vs_cnn.data.images import UNKNOWN, LabelledImages
from vit_vs_cnn.errors import DamagedFile, InputError
from vit_vs_cnn.files import atomic_write, read_mapping
from vit_vs_cnn.images.experiment_data import RunImages
from vit_vs_cnn.models.features import find_classifier, logits_and_features
from vit_vs_cnn.models.recording import evaluation_mode
from vit_vs_cnn.networks.evaluation import MIN_VALIDATION_IMAGES, Normalize, Predictions, fit_temperature, hash_weights
from vit_vs_cnn.runs.record import UNREADABLE_FILE_ERRORS, open_arrays
from vit_vs_cnn.runs.result import read_result

#: k: the score uses the distance to the k-th nearest neighbour.
NEIGHBOURS = 5
#: Largest expected share of flags among images that are distributed like the validation images.
MAX_FALSE_ALARM_RATE = 0.05
#: The score is offered if it separates noise and blank images from validation images with this AUROC.
MIN_AUROC = 0.95
#: Number of noise images, and of blank images, for this check.
_TESTED_IMAGES = 50
#: Number of scales of the contrast, each half as large as the one before; contrast of a blank image.
_SCALES, _BLANK = 6, 1e-6
#: Images whose contrast is computed at a time.
_BATCH = 64

Images = UInt8[Tensor, "images channels rows cols"]


@dataclass(frozen=True, eq=False)
class OutOfDistributionScore:
    """Out-of-distribution score of images; an image is flagged above 1.

    The score is the larger one of two distances, each in units of its 95 % quantile over training images, divided by a
    threshold:

    - ``||z(x) - z_(k)||``: distance to the k-th nearest training image, where ``z = f / ||f||`` are the features before
      the last linear map. It depends on what the network has learned, and may be small for blank images.
    - ``((c - m)' S^-1 (c - m))^0.5``: Mahalanobis distance of the log contrast ``c`` (``log_contrast``), with mean and
      covariance of the training images. It is large for noise and for blank images.

    The threshold is the ``ceil((n + 1) 0.95)``-th smallest value of n validation images: of images that are distributed
    like these, at most 5 % are flagged on average.

    Reference: Sun et al., "Out-of-distribution detection with deep nearest neighbors", 2022, section 3; Mahalanobis
    distance as of Lee et al., "A simple unified framework for detecting out-of-distribution samples", 2018; threshold
    as of Vovk et al., "Algorithmic learning in a random world", 2005 (split conformal).
    Differs: the features are rounded to 16 bits, k is 5 of at most 1,000 images, and the Mahalanobis distance is of the
    contrast of the pixels instead of the network's layers.

    Arguments:
        features: of training images, of length 1 up to rounding.
        mean: of the log contrast of training images.
        precision: inverse of its covariance matrix.
        thresholds: of the two distances, above which an image is flagged.
    """

    features: Float16[Tensor, "images width"]
    mean: Float64[Tensor, "scales"]
    precision: Float64[Tensor, "scales scales"]
    thresholds: tuple[float, float]

    @classmethod
    def fit(
        cls,
        training: tuple[Images, Float[Tensor, "images width"]],
        validation: tuple[UInt8[Tensor, "held channels rows cols"], Float[Tensor, "held width"]],
    ) -> "OutOfDistributionScore | None":
        """Fit the distances on training images and the thresholds on validation images, each with its features.

        Raises:
            ValueError: fewer than 19 validation images, which allow no such threshold.
        """
        count = len(validation[0])
        rank = math.ceil((count + 1) * (1 - MAX_FALSE_ALARM_RATE))
        if rank > count:
            raise ValueError(
                f"validation: expected at least 19 images, got {count}; with fewer there is no score that only "
                f"{100 * MAX_FALSE_ALARM_RATE:.0f} % of images exceed"
            )
        if not (training[1].isfinite().all() and validation[1].isfinite().all()):
            return None
        contrast = log_contrast(training[0])
        covariance = contrast.T.cov(correction=0).reshape(contrast.shape[1], -1)
        precision = (covariance + _BLANK * torch.eye(len(covariance), dtype=torch.float64)).inverse()
        features = F.normalize(training[1].float()).half().cpu()
        unscaled = cls(features, contrast.mean(0), precision, (1.0, 1.0))
        scales = unscaled.distances(*training).quantile(1 - MAX_FALSE_ALARM_RATE, 0)
        if not (scales > 0).all():
            return None
        threshold = (unscaled.distances(*validation) / scales).amax(1).sort().values[rank - 1]
        first, second = (scales * threshold).tolist()
        return cls(features, contrast.mean(0), precision, (first, second)) if threshold > 0 else None

    def scores(self, images: Images, features: Float[Tensor, "images width"]) -> Float64[np.ndarray, "images"]:
        """The score of each image."""
        thresholds = torch.tensor(self.thresholds, dtype=torch.float64)
        return (self.distances(images, features) / thresholds).amax(1).numpy()

    def distances(self, images: Images, features: Float[Tensor, "images width"]) -> Float64[Tensor, "images 2"]:
        """The distances of features and of contrast, not scaled."""
        units = F.normalize(features.float())
        nearest = torch.cdist(units, self.features.to(units)).topk(
            min(NEIGHBOURS, len(self.features)), dim=1, largest=False
        )
        offset = log_contrast(images) - self.mean
        squared = ((offset @ self.precision) * offset).sum(1).clamp(min=0)
        return torch.stack([nearest.values[:, -1].double().cpu(), squared.sqrt()], 1)

    def save(self, path: Path, *, of: str) -> None:
        """Write plain arrays, all or nothing."""
        with atomic_write(path) as partial, partial.open("wb") as file:
            np.savez(
                file,
                thresholds=np.array(self.thresholds),
                of=np.array(of),
                features=self.features.numpy(),
                mean=self.mean.numpy(),
                precision=self.precision.numpy(),
            )

    @classmethod
    def load_matching(cls, path: Path, of: str) -> "OutOfDistributionScore | None":
        """Read what ``save`` wrote of the same weights; None if there is no such file or it is damaged."""
        try:
            with open_arrays(path) as arrays:
                if arrays["of"].item() != of:
                    return None
                features, mean, precision = (
                    torch.from_numpy(arrays[name]) for name in ("features", "mean", "precision")
                )
                first, second = arrays["thresholds"].tolist()
        except (*UNREADABLE_FILE_ERRORS, TypeError):
            return None
        values = (features, mean, precision)
        has_types = [value.dtype for value in values] == [torch.float16, torch.float64, torch.float64]
        has_shapes = features.ndim == 2 and len(features) > 0 and precision.shape == (*mean.shape, *mean.shape)
        is_finite = all(bool(value.isfinite().all()) for value in values)
        are_thresholds = all(isinstance(value, float) and 0 < value < math.inf for value in (first, second))
        return cls(*values, (first, second)) if has_types and has_shapes and is_finite and are_thresholds else None


def log_contrast(images: Images) -> Float64[Tensor, "images scales"]:
    """Log of the mean squared difference of neighbouring pixels, at up to six scales, for values from 0 to 1."""
    batches = []
    for batch in images.split(_BATCH):
        pixels, contrasts = batch.cpu().double() / 255, list[Tensor]()
        while len(contrasts) < _SCALES and min(pixels.shape[-2:]) > 1:
            rows, cols = (pixels.diff(dim=dim).square().mean((-3, -2, -1)) for dim in (-2, -1))
            contrasts.append((rows + cols + _BLANK).log())
            pixels = F.avg_pool2d(pixels, 2)
        batches.append(torch.stack(contrasts, 1))
    return torch.cat(batches)


def unlike_images(shape: tuple[int, int, int]) -> dict[str, Images]:
    """Images of uniform noise and blank images of random colours, by kind, the same at each call."""
    generator = torch.Generator().manual_seed(0)
    channels, rows, cols = shape

    def sampled(*size: int) -> Tensor:
        return torch.randint(0, 256, (_TESTED_IMAGES, channels, *size), generator=generator, dtype=torch.uint8)

    return {"noise": sampled(rows, cols), "blank": sampled(1, 1).expand(-1, -1, rows, cols).contiguous()}


def auroc(lower: Float64[np.ndarray, "some"], higher: Float64[np.ndarray, "others"]) -> float:
    """Probability that a value of the second sample is larger than one of the first; ties count half."""
    larger, equal = higher[:, None] > lower, higher[:, None] == lower
    return float(larger.mean() + equal.mean() / 2)


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


def fit_on_validation(
    predict_images: Callable[[LabelledImages], Predictions], images: RunImages
) -> tuple[Predictions | None, HeldOut]:
    """Predict the validation images of a network, and fit temperature and out-of-distribution score on them.

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

    def compute_features(data: LabelledImages) -> Tensor:
        computed = predict_images(data).features
        assert computed is not None
        return computed

    count = len(images.training)
    training = images.training.subset(torch.linspace(0, count - 1, min(MAX_STORED_FEATURES, count)).long())
    validation = images.validation
    score = OutOfDistributionScore.fit((training.images, compute_features(training)), (validation.images, features))
    if score is None:
        return None
    usual = score.scores(validation.images, features)
    for pixels in unlike_images(validation.image_shape).values():
        data = LabelledImages(pixels, torch.full((len(pixels),), UNKNOWN), validation.class_names)
        if auroc(usual, score.scores(pixels, compute_features(data))) < MIN_AUROC:
            return None
    return score


def find_called_classifier(network: nn.Module, images: LabelledImages, normalize: Normalize) -> nn.Linear | None:
    """The last linear layer of a network; None if the network does not call it, or if there are no images."""
    if not len(images) or (classifier := find_classifier(network, images.num_classes)) is None:
        return None
    device = next(network.parameters()).device
    try:
        with torch.no_grad(), evaluation_mode(network):
            logits_and_features(network, normalize(images.take(torch.tensor([0])).to(device)), classifier)
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
    score = OutOfDistributionScore.load_matching(folder / OUT_OF_DISTRIBUTION_FILE, weights)
    return HeldOut(images, float(temperature), score)
