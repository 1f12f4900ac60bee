"""Features of images by frozen weights, computed once and kept for all cells that ask for them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float
from torch import Tensor, nn

from vit_vs_cnn.config.experiment import hash_of
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import written_whole
from vit_vs_cnn.models.features import logits_and_features
from vit_vs_cnn.models.recording import as_evaluated
from vit_vs_cnn.runs.evaluation import Normalise, check_finite

#: Images that are sent through a network at a time, and that are kept in a file.
BATCH, PART = 128, 1024


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a frozen network, kept in a folder, by the pixels of the images.

    A file of a part is written whole, so that what was computed before an interruption need not be computed again.

    Arguments:
        folder: of this network's, and of no other's.
        classifier: the linear map that reads them.
        what: for a reader.
    """

    folder: Path
    network: nn.Module
    normalise: Normalise
    classifier: nn.Linear
    what: str

    def of(
        self, images: LabelledImages, tell: Callable[[str], None] = lambda _: None
    ) -> Float[np.ndarray, "images features"]:
        """The features of images; those that are not there are computed, by one process at a time.

        Raises:
            InputError: the logits are not linear in the features, so that a head fitted to these is no head of it.
            TrainingDiverged: features that are no finite numbers.
        """
        wanted = images.hashes()
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):
            known, features = self._kept()
            missing = np.flatnonzero(~np.isin(wanted, known))
            # Of pictures that are there twice, one.
            missing = missing[np.unique(wanted[missing], return_index=True)[1]]
            for start in range(0, len(missing), PART):
                part = torch.from_numpy(missing[start : start + PART])
                tell(f"{self.what}: features of {start:,} of {len(missing):,} images")
                computed = self._computed(images.take(part))
                self._keep(wanted[part.numpy()], computed)
            if len(missing):
                known, features = self._kept()
        order = np.argsort(known)
        return features[order[np.searchsorted(known, wanted, sorter=order)]]

    @torch.no_grad()
    def _computed(self, images: Tensor) -> np.ndarray:
        device = self.classifier.weight.device
        found = []
        with as_evaluated(self.network):
            for batch in images.split(BATCH):
                logits, features = logits_and_features(self.network, self.normalise(batch.to(device)), self.classifier)
                if not torch.allclose(self.classifier(features), logits, rtol=1e-3, atol=1e-3):
                    raise InputError(f"{self.what}: its logits are no linear map of its features; tune: head needs one")
                found.append(features.float().cpu())
        features = torch.cat(found)
        check_finite(features, self.what)
        return features.numpy()

    def _kept(self) -> tuple[np.ndarray, np.ndarray]:
        """Hashes of images, and their features."""
        width = self.classifier.in_features
        hashes, features = [np.zeros(0, dtype=np.uint64)], [np.zeros((0, width), dtype=np.float32)]
        for path in sorted(self.folder.glob("*.npz")):
            try:
                with np.load(path, allow_pickle=False) as part:
                    hashes.append(part["images"])
                    features.append(part["features"])
            except (OSError, ValueError, KeyError) as error:
                raise InputError(f"features {path}: {error}; delete the file to have them computed again") from error
        return np.concatenate(hashes), np.concatenate(features)

    def _keep(self, hashes: np.ndarray, features: np.ndarray) -> None:
        path = self.folder / f"{hash_of({'images': hashes.tolist()})}.npz"
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, images=hashes, features=features)
