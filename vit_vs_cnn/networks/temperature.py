"""Temperature of a trained network, fitted on its validation images."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from scipy import optimize
from torch import Tensor, nn

from vit_vs_cnn.errors import DamagedFile
from vit_vs_cnn.files import read_mapping
from vit_vs_cnn.networks.evaluation import hash_weights
from vit_vs_cnn.runs.result import RunResult, read_result

#: Validation images for a temperature: with few, all may be classified correctly.
MIN_VALIDATION_IMAGES = 30
#: Range of the inverse temperature, which has no optimum if all validation images are classified correctly.
MAX_INVERSE, MIN_INVERSE = 1e3, 1e-3


@dataclass(frozen=True)
class Calibration:
    """Number of validation images, and the value fitted on them.

    Arguments:
        temperature: divisor of the logits; None if there were too few images.
    """

    images: int = 0
    temperature: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The values in ``config.json``."""
        return {"temperature": self.temperature, "validation_images": self.images}


def read_run_result(path: Path, network: nn.Module) -> RunResult | None:
    """Result of the run of a checkpoint; None if it is missing, damaged or of other weights."""
    folder = path.parent.parent if path.parent.name == "checkpoints" else path.parent
    try:
        result = read_result(folder / "result.json")
    except DamagedFile:
        return None
    return result if result.weights == hash_weights(network) else None


def read_calibration(path: Path, network: nn.Module) -> Calibration:
    """Read the fitted value of the network of a file, in the folder of its run or next to an exported file.

    Values of other weights, such as for a checkpoint in the middle of a run, and unreadable ones are left out.
    """
    values: dict[str, Any] = {}
    if path.suffix == ".ckpt":
        if (result := read_run_result(path, network)) is not None:
            values = Calibration(result.data.validation_images, result.scores.temperature).to_dict()
    elif isinstance(metadata := read_mapping(path.with_name("config.json")).get("vit_vs_cnn"), dict):
        values = metadata
    temperature, images = values.get("temperature"), values.get("validation_images")
    if not isinstance(temperature, float | int) or not 0 < temperature < math.inf or not isinstance(images, int):
        return Calibration()
    return Calibration(images, float(temperature))


def fit_temperature(logits: Float[Tensor, "count classes"], labels: Int64[Tensor, "count"]) -> float:
    """Temperature T that minimizes the cross entropy of ``softmax(logits / T)``.

    The loss is convex in ``b = 1 / T``. T is the root of its slope ``mean_i (sum_c p_ic z_ic - z_iy)``.

    Reference: Guo et al., "On calibration of modern neural networks", 2017, section 4.2.
    Differs: a root of the slope instead of a gradient descent; b stays within 0.001 to 1000.
    """
    scores = logits.double()
    scores = scores - scores.amax(1, keepdim=True)
    target = scores.gather(1, labels[:, None])[:, 0]

    def slope(log_b: float) -> float:
        probabilities = (float(np.exp(log_b)) * scores).softmax(1)
        return float(((probabilities * scores).sum(1) - target).mean())

    low, high = np.log(MIN_INVERSE), np.log(MAX_INVERSE)
    if slope(low) >= 0:
        return 1 / MIN_INVERSE
    if slope(high) <= 0:
        return 1 / MAX_INVERSE
    return float(np.exp(-optimize.root_scalar(slope, bracket=(low, high), method="brentq", xtol=1e-12).root))
