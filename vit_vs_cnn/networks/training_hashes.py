"""Hashes of the images that the weights of a checkpoint were trained on."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt64

#: Key of the hashes in the metadata of a checkpoint.
CHECKPOINT_KEY_TRAINING_HASHES = "training_images"


@dataclass(frozen=True, eq=False)
class TrainingImageHashes:
    """Hashes of the images that weights were trained on, including the weights that the training started from.

    Arguments:
        hashes: of the images (``LabelledImages.hashes``), 8 bytes each, ascending.
        is_whole: whether the hashes are complete. They are not if the start weights had no record.
    """

    hashes: UInt64[np.ndarray, "images"]
    is_whole: bool = True

    def __or__(self, other: "TrainingImageHashes") -> "TrainingImageHashes":
        return TrainingImageHashes(np.union1d(self.hashes, other.hashes), self.is_whole and other.is_whole)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ``read_training_hashes``, with 11 characters for each image."""
        return {"images": base64.b64encode(self.hashes.astype("<u8").tobytes()).decode(), "whole": self.is_whole}

    def count_in(
        self, images: UInt64[np.ndarray, "images"], except_for: UInt64[np.ndarray, "others"] | None = None
    ) -> int:
        """Number of ``images`` that the weights were trained on, without those in ``except_for``."""
        matches = np.isin(images, self.hashes)
        return int((matches if except_for is None else matches & ~np.isin(images, except_for)).sum())


#: For randomly initialized weights, and for weights without a record.
NO_TRAINING_IMAGES, UNKNOWN_TRAINING_IMAGES = (
    TrainingImageHashes(np.zeros(0, dtype=np.uint64), is_whole) for is_whole in (True, False)
)


def read_training_hashes(metadata: Mapping[str, Any]) -> TrainingImageHashes:
    """Read the hashes in the metadata of a checkpoint; unknown if there are none or they are damaged."""
    try:
        values = metadata[CHECKPOINT_KEY_TRAINING_HASHES]
        hashes = np.frombuffer(base64.b64decode(values["images"], validate=True), dtype="<u8")
        return TrainingImageHashes(np.unique(hashes.astype(np.uint64)), values["whole"] is True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        return UNKNOWN_TRAINING_IMAGES
