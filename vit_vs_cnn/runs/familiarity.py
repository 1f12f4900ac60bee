"""Whether an image looks unlike all that a network was trained on, by the network's own features."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float16
from torch import Tensor

from vit_vs_cnn.files import written_whole
from vit_vs_cnn.runs.predictions_file import BROKEN

#: The neighbour whose distance counts.
NEIGHBOURS = 5
#: Of images like those that it was trained on, the share that is called unfamiliar, at most.
FALSE_ALARMS = 0.05


@dataclass(frozen=True, eq=False)
class Familiarity:
    """Features of training images, and how far from these an image may lie.

    ``d(x) = ||z(x) - z_(k)||``, the distance to the k-th nearest of the bank, where ``z = f / ||f||`` are the features
    before the last linear map; ``x`` is unfamiliar where ``d(x)`` is above the threshold, the ``ceil((n + 1) 0.95)``-th
    smallest distance of n validation images: of images drawn as these were, 5 % at most are.

    Reference: Sun et al., "Out-of-distribution detection with deep nearest neighbors", 2022, section 3; the threshold
    as of Vovk et al., "Algorithmic learning in a random world", 2005 (split conformal).
    Differs: the bank is rounded to 16 bits, and k is 5, of a smaller bank.

    Arguments:
        bank: of length 1, up to rounding.
        threshold: from 0 (the same features) to 2 (the opposite).
    """

    bank: Float16[Tensor, "images features"]
    threshold: float

    @classmethod
    def of(
        cls, training: Float[Tensor, "images features"], validation: Float[Tensor, "held features"]
    ) -> "Familiarity | None":
        """What features of training images, and of others to find the threshold on, give; None if they are no numbers.

        Raises:
            ValueError: fewer than 19 validation images, which allow no such threshold.
        """
        rank = math.ceil((len(validation) + 1) * (1 - FALSE_ALARMS))
        if rank > len(validation):
            raise ValueError(f"a threshold that {FALSE_ALARMS:.0%} exceed needs 19 images, got {len(validation)}")
        if not (training.isfinite().all() and validation.isfinite().all()):
            return None
        bank = F.normalize(training.float(), dim=1).half().cpu()
        threshold = float(_distances(validation, bank).sort().values[rank - 1])
        return cls(bank, threshold) if threshold > 0 else None

    def distances(self, features: Float[Tensor, "batch features"]) -> Float[np.ndarray, "batch"]:
        """``d(x)`` in units of the threshold: an image is unfamiliar above 1."""
        return (_distances(features, self.bank) / self.threshold).cpu().double().numpy()

    def save(self, path: Path, *, of: str) -> None:
        """Write plain arrays, whole or not at all.

        Arguments:
            of: the weights whose features these are, as ``hash_weights`` names them.
        """
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, bank=self.bank.numpy(), threshold=np.array(self.threshold), of=np.array(of))

    @classmethod
    def load_of(cls, path: Path, of: str) -> "Familiarity | None":
        """Read what ``save`` wrote of the same weights; None where there is no such file, or none whole."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                if arrays["of"].item() != of:
                    return None
                bank, threshold = torch.from_numpy(arrays["bank"]), float(arrays["threshold"])
        except (*BROKEN, TypeError):
            return None
        is_bank = bank.ndim == 2 and len(bank) and bank.dtype == torch.float16 and bool(bank.isfinite().all())
        return cls(bank, threshold) if is_bank and 0 < threshold <= 2 else None


def _distances(features: Float[Tensor, "batch features"], bank: Float16[Tensor, "images width"]) -> Tensor:
    units = F.normalize(features.float(), dim=1)
    nearest = torch.cdist(units, bank.to(units)).topk(min(NEIGHBOURS, len(bank)), dim=1, largest=False)
    return nearest.values[:, -1]
